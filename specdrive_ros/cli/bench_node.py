"""`specdrive bench node`: the planner as a process over DDS, with and without faults. Thin."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from specdrive_ros.errors import InputError

EXAMPLE = "example: specdrive bench node --minutes 10 --faults --json"
LONGEST_MINUTES = 24 * 60.0
OF_THE_BENCH = ("model", "runtime", "draft", "autostart", "cameras")  # arguments of their own, or always the same
RUNTIMES = ("onnxruntime", "torch", "tensorrt")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--model", default="mini", metavar="M", help="a model's name or folder (default %(default)s)")
    parser.add_argument("--runtime", default="onnxruntime", metavar="R", help="of the networks (default %(default)s)")
    parser.add_argument("--draft", default="none", metavar="D", help="none, or drafts as a+b (default %(default)s)")
    parser.add_argument("--parameters", nargs="+", default=[], metavar="NAME=VALUE",
                        help="of the planner node, such as action_steps_late=2 (default: none, its own defaults)")
    parser.add_argument("--minutes", type=float, default=1.0, metavar="N", help="how long (default %(default)s)")
    parser.add_argument("--noise", action="store_true",
                        help="noise as images instead of a drive: the worst case for drafts")
    parser.add_argument("--faults", action="store_true", help="spoil cameras, odometry and clock, one after the other")
    parser.add_argument("--log", type=Path, default=Path("out/bench_node"), metavar="DIR",
                        help="folder for what the planner says (default %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON document here")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def document(args: Namespace) -> dict:
    """Raises InputError for wrong arguments, WorkFailed if the planner dies."""
    from specdrive_ros.cli.progress import progress
    from specdrive_ros.draft.registry import check_names
    from specdrive_ros.evaluation.summary import prepare_out_folder
    from specdrive_ros.model_settings import find_model

    if not 0 < args.minutes <= LONGEST_MINUTES:
        raise InputError(f"--minutes {args.minutes:g}: must be above 0 and at most {LONGEST_MINUTES:g}")
    if args.runtime not in RUNTIMES:  # a planner that cannot be configured would be waited for
        raise InputError(f"--runtime {args.runtime}: not known; there are {', '.join(RUNTIMES)}")
    check_names(args.draft)
    cameras = find_model(args.model).cameras
    parameters = parameters_of(args.parameters)
    prepare_out_folder(args.log, "--log")
    from specdrive_ros.ros.node_benchmark import measure_node

    with progress("seconds", max(1, int(args.minutes * 60))) as bar:
        return measure_node(
            str(args.model),
            minutes=args.minutes,
            faults=args.faults,
            log_dir=args.log,
            runtime=args.runtime,
            draft=args.draft,
            noise=args.noise,
            cameras=cameras,
            parameters=parameters,
            on_second=lambda second: bar.advance(),
        )


def parameters_of(pairs: Sequence[str]) -> dict[str, object]:
    """Values of the planner's parameters, checked by its own table. Raises `InputError`."""
    from yaml import YAMLError

    from specdrive_ros.ros.planner_parameters import PARAMETERS
    from specdrive_ros.yaml_file import parse_yaml

    specs, found = {spec.name: spec for spec in PARAMETERS if spec.name not in OF_THE_BENCH}, {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in specs:
            raise InputError(f"--parameters {pair}: must be NAME=VALUE with one of {', '.join(sorted(specs))}")
        try:
            found[name] = specs[name].check(parse_yaml(value))
        except (ValueError, YAMLError) as error:
            raise InputError(f"--parameters {pair}: cannot be read; must be {specs[name].rule()}") from error
    return found


def lines_of(document: dict) -> list[str]:
    """The document as lines for people to read."""
    def shown(name: str) -> str:
        return "   ".join(f"{key} {value:8.2f}" for key, value in document[name].items()) or "nothing came"

    sources = ", ".join(f"{count} {source}" for source, count in document["sources"].items())
    memory, shared = document["memory_mib"], document["shared_memory_mib"]
    medians = "   ".join(f"{stage} {each['median']:.1f}" for stage, each in document["stages_ms"].items())
    return [
        f"{document['model']}: {document['messages']} trajectories ({sources}), {document['late']} late",
        f"picture to trajectory, ms   {shown('latency_ms')}",
        f"of that ROS, ms             {shown('ros_overhead_ms')}",
        f"stages' medians, ms         {medians}",
        f"between trajectories, ms    {shown('silence_ms')}",
        f"start to active {document['start_to_active_s']:.2f} s, SIGINT to end {document['sigint_to_exit_s']:.2f} s",
        f"memory {memory['first']:.1f} to {memory['last']:.1f} MiB, growth {memory['growth']:.1f}; of DDS's segments "
        f"{shared['first']:.1f} to {shared['last']:.1f} MiB",
        f"threads {document['threads']['last']}, files {document['files']['last']}, "
        f"{1000 * document['cpu_s_per_cycle']:.1f} ms of processor a cycle, "
        f"waited {document['waited_s']:.1f} s for one",
    ]
