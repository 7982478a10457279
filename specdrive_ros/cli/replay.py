"""`specdrive replay`: plans over recorded bags, offline and deterministic.

Thin: arguments in, lines and files out. The work is in `evaluation/replay.py`.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from specdrive_ros.errors import InputError

EXAMPLE = "example: specdrive replay my_bag --camera /camera/front/image=rgb_front --odometry /odom --every 0.1"
SUMMARY, REPORT, RECORDING = "summary.json", "report.html", "plans.mcap"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.description = (
        "Plans over rosbag2 recordings (folders, .mcap, .db3) and compares the plans with what was then driven. "
        "Writes summary.json, report.html and plans.mcap. Topics are found by type where that is unambiguous. "
        "The same bags, model and seed give the same summary except for the latencies."
    )
    parser.add_argument("bags", nargs="+", type=Path, metavar="BAG", help="a rosbag2 folder, .mcap or .db3")
    parser.add_argument("--camera", action="append", default=[], metavar="TOPIC=NAME",
                        help="an image topic and the model's camera it stands for; once for each camera")
    parser.add_argument("--odometry", metavar="TOPIC", help="the nav_msgs/Odometry topic")
    parser.add_argument("--every", type=float, default=0.5, metavar="S",
                        help="make a plan every S seconds of the recording (default %(default)s)")
    parser.add_argument("--seconds", type=float, metavar="S",
                        help="plan only over the first S seconds of each bag")
    parser.add_argument("--max-frame-age", type=float, metavar="S",
                        help="when no new image arrives, plan with one at most S seconds old (default 0.2; "
                             "a bag with a single image holds it throughout, and says so)")
    parser.add_argument("--model", default="mini", metavar="M",
                        help="a model's name or folder (default %(default)s)")
    parser.add_argument("--runtime", default="onnxruntime", metavar="R",
                        help="onnxruntime, torch or tensorrt (default %(default)s)")
    parser.add_argument("--draft", metavar="DRAFT",
                        help="what speeds up the reasoning without changing it: none, carryover, phrasebook, "
                             "eagle3, dflash, or several as a+b (default: the model's own)")
    parser.add_argument("--seed", type=int, default=0, metavar="N",
                        help="seed of the planner (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/replay"), metavar="DIR",
                        help="folder for what is written (default %(default)s)")
    parser.add_argument("--json", action="store_true",
                        help="print summary.json on stdout, everything else on stderr")


def run(args: Namespace) -> int:
    """Raises InputError before any planning if a bag or a topic is wrong, and after it if no plan was possible."""
    from specdrive_ros.cycle import Planner

    def load_planner():
        return Planner.load(args.model, runtime=args.runtime, seed=args.seed, draft=args.draft)

    return replay_all(args, load_planner)


def replay_all(args: Namespace, load_planner) -> int:
    """load_planner: makes the planner; called once the bags are known to be readable."""
    from specdrive_ros.draft.registry import own_draft
    from specdrive_ros.evaluation.bags import open_bag
    from specdrive_ros.evaluation.replay import ReplayOptions
    from specdrive_ros.evaluation.replay_sources import find_sources
    from specdrive_ros.evaluation.replay_summary import replay_summary
    from specdrive_ros.evaluation.report import write_report
    from specdrive_ros.evaluation.summary import prepare_out_folder, write_summary
    from specdrive_ros.model_settings import find_model

    if args.draft is None:
        args.draft = own_draft(find_model(args.model))
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: must be 0 or more")
    options = ReplayOptions(args.every, args.seconds, args.max_frame_age)
    bags = [open_bag(path) for path in args.bags]
    planner = load_planner()
    given = parse_cameras(args.camera, planner.cameras)
    sources = [find_sources(bag, planner.cameras, given, args.odometry) for bag in bags]
    out = prepare_out_folder(args.out)
    replays = replay_with_progress(bags, sources, planner, options, out / RECORDING)
    summary = replay_summary(replays, model=args.model, runtime=args.runtime, draft=args.draft, seed=args.seed)
    write_summary(out / SUMMARY, summary)
    cycles = [cycle for replay in replays for cycle in replay.report_cycles()]
    write_report(out / REPORT, "Replay of " + ", ".join(bag.name for bag in bags), summary, cycles)
    print_result(summary, out, sys.stderr if args.json else sys.stdout)
    if args.json:
        print((out / SUMMARY).read_text(encoding="utf-8"), end="")
    if not summary["cycles"]["planned"]:
        raise InputError(summary["notes"][-1])
    return 0


def parse_cameras(pairs: list[str], cameras: tuple[str, ...]) -> dict[str, str]:
    """`TOPIC=NAME` each -> {topic: name}; the name may be left out if the model has one camera."""
    given = {}
    for pair in pairs:
        topic, sign, name = pair.rpartition("=")
        if not sign and len(cameras) == 1:
            topic, name = pair, cameras[0]
        if not topic or not name:
            raise InputError(f"--camera {pair}: must be TOPIC=NAME, with NAME one of {', '.join(cameras)}")
        given[topic] = name
    if len(set(given.values())) < len(pairs):
        raise InputError(f"--camera {' '.join(pairs)}: must name each topic and each camera once")
    return given


def replay_with_progress(bags, sources, planner, options, recording_path: Path) -> list:
    from specdrive_ros.cli.progress import progress
    from specdrive_ros.evaluation.recording import DriveRecording
    from specdrive_ros.evaluation.replay import RECORDED_AS, due_plans, replay_bag

    total = sum(due_plans(bag, source, options) for bag, source in zip(bags, sources))
    replays = []
    with (DriveRecording(recording_path, planner.cameras[0], **RECORDED_AS) as recording,
          progress("plans", total) as bar):
        for bag, source in zip(bags, sources):
            recording.write_scenario(bag.span(source.topics)[0], f"bag {bag.name}")
            replays.append(replay_bag(bag, source, planner, options, recording=recording,
                                      on_plan=lambda cycle: bar.advance(1, cycle.plan.reasoning[:60])))
    return replays


def print_result(summary: dict, out: Path, stream) -> None:
    """Prints notes, then the errors per horizon beside those of constant velocity, then where the files are."""
    for note in summary["notes"]:
        print(f"note: {note}", file=stream)
    cycles, trajectory = summary["cycles"], summary["trajectory"]
    refused = ", ".join(f"{reason} {count}" for reason, count in cycles["refused"].items())
    print(f"{cycles['planned']} plans" + (f"; without a plan: {refused}" if refused else ""), file=stream)
    for horizon, count in trajectory["evaluated_at"].items() if cycles["planned"] else ():
        ours, baseline = (trajectory[name][horizon] for name in ("ade_m", "constant_velocity_ade_m"))
        errors = "the recording ends earlier" if ours is None else (
            f"ADE {ours:.2f} m, constant velocity {baseline:.2f} m, over {count} plans")
        print(f"{horizon:>5}: {errors}", file=stream)
    print("wrote " + ", ".join(str(out / name) for name in (SUMMARY, REPORT, RECORDING)), file=stream)
