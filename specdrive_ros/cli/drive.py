"""`specdrive drive`: drives the embedded world in closed loop with a model and prints what it thinks.

Thin: arguments in, lines and files out. The driving is in `evaluation/drive.py` and in `ros/`.
"""

import signal
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from specdrive_ros.errors import InputError, WorkFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from specdrive_ros.cli.drive_screen import DriveScreen
    from specdrive_ros.cycle import Planner
    from specdrive_ros.evaluation.drive import DriveLog, DrivenCycle, InputCounts
    from specdrive_ros.evaluation.recording import DriveRecording
    from specdrive_ros.ros.drive_listener import DriveCycle, DriveListener

EXAMPLE = "example: specdrive drive --scenario lead_vehicle traffic_light --repeat 3 --seed 100"
RUNTIMES = ("onnxruntime", "torch", "tensorrt")
SUMMARY, REPORT, RECORDING = "summary.json", "report.html", "drive.mcap"
LONGEST_S, LONGEST_LATENCY_MS = 3600.0, 1000.0
LEAST_DEADLINE_MS, LONGEST_DEADLINE_MS = 1.0, 60_000.0
WORKED, INTERRUPTED = 0, 130


def add_arguments(parser: ArgumentParser) -> None:
    parser.description = (
        "Drives the embedded world closed loop: sim, planner and controller as ROS 2 nodes in real time, "
        "or one offline loop. Writes summary.json, report.html and drive.mcap. How a scenario ends is data: "
        "the exit code is 0 when the drive itself worked."
    )
    parser.epilog = EXAMPLE
    _add_world(parser)
    _add_planner(parser)
    _add_time(parser)
    parser.add_argument("--out", type=Path, default=Path("out/drive"), metavar="DIR",
                        help="folder for what is written (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print summary.json on stdout, everything else on stderr")


def _add_world(parser: ArgumentParser) -> None:
    """Arguments for the world that is driven in."""
    parser.add_argument("--scenario", nargs="+", default=["all"], metavar="NAME",
                        help="families of scenes, or all (default); an unknown name lists them")
    parser.add_argument("--repeat", type=int, default=1, metavar="N",
                        help="drive each scenario N times, with seeds SEED, SEED+1, … (default %(default)s)")
    parser.add_argument("--seconds", type=float, metavar="S",
                        help="end each scenario after S seconds (default: when the world ends it)")
    parser.add_argument("--seed", type=int, default=0, metavar="N",
                        help="seed of the first world, 0 to 999999, and of the planner (default %(default)s)")
    parser.add_argument("--appearance", default="train", metavar="LOOK",
                        help="how the worlds look: train (default), or held_out, with shades and styles never used in "
                             "training")


def _add_planner(parser: ArgumentParser) -> None:
    """Arguments for the planner that drives."""
    parser.add_argument("--draft", metavar="DRAFT",
                        help="what speeds up the reasoning without changing it: none, carryover, phrasebook, eagle3, "
                             "dflash, or several as a+b (default: the model's own)")
    parser.add_argument("--model", default="mini", metavar="M",
                        help="a model's name or folder (default %(default)s)")
    parser.add_argument("--runtime", default=RUNTIMES[0], metavar="R",
                        help=f"{' or '.join(RUNTIMES)} (default %(default)s)")


def _add_time(parser: ArgumentParser) -> None:
    """Arguments for real or simulated time, and how much of it a plan may take."""
    parser.add_argument("--offline", action="store_true",
                        help="deterministic, without ROS, as fast as the machine allows, a plan every 0.1 s")
    parser.add_argument("--latency-ms", type=float, default=0.0, metavar="MS",
                        help="with --offline: a plan takes effect this long after its picture (default %(default)s)")
    parser.add_argument("--deadline-ms", type=float, default=500.0, metavar="MS",
                        help="over ROS: from image to trajectory; a cycle that would be late is shortened, or else the "
                             "last plan is republished. Mini takes 50 to 170 on two CPU cores; a car wants 100 "
                             "(default %(default)s)")


def run(args: Namespace) -> int:
    """Raises InputError for wrong arguments before anything is started. Returns 130 if it was interrupted.

    If a process of the graph dies, what was collected is written, then WorkFailed says which one and why.
    """
    from specdrive_ros.cli.drive_screen import make_console, print_result
    from specdrive_ros.evaluation.drive import list_scenarios
    from specdrive_ros.evaluation.recording import DriveRecording
    from specdrive_ros.evaluation.summary import prepare_out_folder
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.sim.scenario import FAMILIES

    _check(args)
    model = find_model(args.model)
    scenarios = list_scenarios(args.scenario, args.repeat, args.seed, model.scenarios or FAMILIES)
    out = prepare_out_folder(args.out)
    console = make_console(stderr=args.json)
    drive = _way_of_driving(args, scenarios, out)
    log, failure = _drive(drive, DriveRecording(out / RECORDING, model.cameras[0]), console, len(scenarios))
    summary = _write(args, log, out)
    print_result(console, summary, [f"{name}: {out / name}" for name in (REPORT, SUMMARY, RECORDING)])
    if args.json:
        print((out / SUMMARY).read_text(encoding="utf-8"), end="")
    if isinstance(failure, WorkFailed):
        raise failure
    return WORKED if failure is None else INTERRUPTED


def _check(args: Namespace) -> None:
    from specdrive_ros.draft.registry import check_names, own_draft
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.sim.appearance import appearance_of
    from specdrive_ros.sim.pinhole import check_cameras

    if args.draft is None:
        args.draft = own_draft(find_model(args.model))
    check_names(args.draft)
    if args.runtime not in RUNTIMES:
        raise InputError(f"--runtime {args.runtime}: not known; there are {', '.join(RUNTIMES)}")
    if args.seconds is not None and not 0 < args.seconds <= LONGEST_S:
        raise InputError(f"--seconds {args.seconds:g}: must be above 0 and at most {LONGEST_S:g}")
    if not 0 <= args.latency_ms <= LONGEST_LATENCY_MS:
        raise InputError(f"--latency-ms {args.latency_ms:g}: must be from 0 to {LONGEST_LATENCY_MS:g}")
    if not LEAST_DEADLINE_MS <= args.deadline_ms <= LONGEST_DEADLINE_MS:
        raise InputError(
            f"--deadline-ms {args.deadline_ms:g}: must be from {LEAST_DEADLINE_MS:g} to {LONGEST_DEADLINE_MS:g}"
        )
    appearance_of(args.appearance, 0)
    check_cameras(find_model(args.model).cameras)
    if args.latency_ms and not args.offline:
        raise InputError("--latency-ms: goes with --offline; over ROS the latency is what it is")


def _way_of_driving(
    args: Namespace, scenarios: list[tuple[str, int]], out: Path
) -> "Callable[[_Listeners], None]":
    """A function that drives all scenarios and reports to the listeners. Raises InputError for an unloadable model."""
    from specdrive_ros.cycle import Planner

    planner = Planner.load(args.model, runtime=args.runtime, seed=args.seed, draft=args.draft)
    if args.offline:
        return partial(_drive_offline, args, scenarios, planner)
    return partial(_drive_over_ros, args, scenarios, out)


def _drive(drive: "Callable[[_Listeners], None]", recording: "DriveRecording", console: "Console", scenarios: int):
    """The log of the drive, and what ended it early: Ctrl-C, SIGTERM or the death of a process; else None."""
    from specdrive_ros.cli.drive_screen import DriveScreen
    from specdrive_ros.evaluation.drive import DriveLog

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with recording, DriveScreen(console, scenarios) as screen:
            log = DriveLog(recording)
            try:
                drive(_Listeners(log, screen))
            except (KeyboardInterrupt, WorkFailed) as failure:
                return log, failure
            return log, None
    finally:
        signal.signal(signal.SIGTERM, before)


class _Listeners:
    """Passes the same events to the log and the screen."""

    def __init__(self, log: "DriveLog", screen: "DriveScreen"):
        self.log, self.screen = log, screen

    @property
    def counts(self) -> "InputCounts":
        return self.log.counts

    def on_event(self, event: dict) -> None:
        self.log.on_event(event)
        self.screen.on_event(event)

    def on_cycle(self, cycle: "DrivenCycle") -> None:
        self.log.on_cycle(cycle)
        self.screen.on_cycle(cycle)


def _drive_offline(
    args: Namespace, scenarios: list[tuple[str, int]], planner: "Planner", listeners: _Listeners
) -> None:
    from specdrive_ros.evaluation.drive import drive_all_offline
    from specdrive_ros.sim.scenario import make_world

    latency_s = args.latency_ms / 1000
    make = partial(make_world, appearance=args.appearance)
    drive_all_offline(planner, scenarios, listeners, seconds=args.seconds, latency_s=latency_s, make=make)


def _drive_over_ros(
    args: Namespace, scenarios: list[tuple[str, int]], out: Path, listeners: _Listeners
) -> None:
    """Raises WorkFailed if a process of the graph dies."""
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.ros.drive_listener import DriveListener
    from specdrive_ros.ros.process_graph import ProcessGraph

    cameras = find_model(args.model).cameras
    graph = ProcessGraph(
        scenarios,
        model=args.model,
        runtime=args.runtime,
        draft=args.draft,
        seed=args.seed,
        seconds=args.seconds,
        deadline_ms=args.deadline_ms,
        appearance=args.appearance,
        cameras=cameras,
        out_dir=out,
    )
    with graph:
        listener = DriveListener(
            graph.context,
            on_cycle=lambda cycle: listeners.on_cycle(_driven(cycle)),
            on_scenario=listeners.on_event,
            camera=cameras[0],
        )
        try:
            graph.run(listener)
        finally:
            listeners.log.counts = _counts(listener)
            listener.close()


def _driven(cycle: "DriveCycle") -> "DrivenCycle":
    from specdrive_ros.evaluation.drive import DrivenCycle

    pose = cycle.pose
    return DrivenCycle(
        cycle.time_s,
        cycle.rgb,
        cycle.plan,
        (pose.x, pose.y, pose.yaw),
        pose.speed_mps,
        cycle.source,
        cycle.late,
        cycle.note,
    )


def _counts(listener: "DriveListener") -> "InputCounts":
    from specdrive_ros.evaluation.drive import InputCounts

    counts = listener.counts
    return InputCounts(counts.received["image"], counts.received["odometry"], counts.dropped, counts.rejected)


def _write(args: Namespace, log: "DriveLog", out: Path) -> dict:
    from specdrive_ros.evaluation.drive import drive_summary, report_cycles
    from specdrive_ros.evaluation.report import write_report
    from specdrive_ros.evaluation.summary import write_summary
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.sim.pinhole import CAMERAS

    results = log.results()
    summary = drive_summary(
        results, log.counts, model=args.model, runtime=args.runtime, draft=args.draft, seed=args.seed
    )
    write_summary(out / SUMMARY, summary)
    camera = CAMERAS[find_model(args.model).cameras[0]]
    cycles = [cycle for result in results for cycle in report_cycles(result, camera)]
    write_report(out / REPORT, "Drive through the embedded world", summary, cycles)
    return summary
