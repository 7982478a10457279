"""`specdrive serve`: serves the planner to simulators over gRPC. Thin: the work is in `alpasim/`."""

import logging
import sys
from argparse import ArgumentParser, Namespace

from specdrive_ros.cli.answer import print_json
from specdrive_ros.cli.replay import parse_cameras
from specdrive_ros.errors import InputError

EXAMPLE = "example: specdrive serve --alpasim --port 50051 --camera camera_front_wide_120fov=rgb_front"
MOST_SESSIONS = 256
LONGEST_IDLE_S = 7 * 24 * 3600.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.description = (
        "Serves the planner as a driver over AlpaSim's egodriver contract (gRPC), for AlpaSim and, with --client "
        "carla, for Autoware's CARLA scenario runner. Ctrl-C ends it."
    )
    parser.add_argument("--alpasim", action="store_true", help="use AlpaSim's contract, the only one so far")
    parser.add_argument("--client", default="alpasim", choices=("alpasim", "carla"),
                        help="who calls: both use one contract but interpret its debug bytes differently "
                             "(default %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", metavar="H",
                        help="address to listen on; 0.0.0.0 in a container (default %(default)s)")
    parser.add_argument("--port", type=int, default=50051, metavar="N",
                        help="0 picks any free port (default %(default)s)")
    parser.add_argument("--camera", action="append", default=[], metavar="DECLARED=NAME",
                        help="a simulator's camera and the model's camera it stands for; once for each that differs")
    parser.add_argument("--until-ready", default="stop", choices=("stop", "refuse"),
                        help="what to answer before a session has 1.5 s of history: a comfortable stop, or "
                             "the status FAILED_PRECONDITION (default %(default)s)")
    parser.add_argument("--sessions", type=int, default=8, metavar="N",
                        help="maximum number of open sessions (default %(default)s)")
    parser.add_argument("--idle-s", type=float, default=600.0, metavar="S",
                        help="close a session after this long without a call, its simulator being gone; 0: never "
                             "(default %(default)s)")
    parser.add_argument("--model", default="mini", metavar="M", help="a model's name or folder (default %(default)s)")
    parser.add_argument("--runtime", default="onnxruntime", metavar="R",
                        help="onnxruntime, torch or tensorrt (default %(default)s)")
    parser.add_argument("--draft", metavar="DRAFT", help="none, or drafts as a+b (default: the model's own)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="of the networks (default %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="also log a line for each plan")
    parser.add_argument("--json", action="store_true", help="print what was answered as one JSON document at the end")


def run(args: Namespace) -> int:
    """Raises InputError for wrong arguments, before any model is loaded."""
    check(args)
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.DEBUG if args.verbose else logging.INFO)
    logging.getLogger("grpc").setLevel(logging.WARNING)
    options = service_options(args)
    from specdrive_ros.alpasim.planners import Planners
    from specdrive_ros.alpasim.server import serve_until_signal
    from specdrive_ros.alpasim.service import DriverService
    from specdrive_ros.cycle import Planner

    planner = Planner.load(args.model, runtime=args.runtime, draft=args.draft, threads=args.threads)
    planner.warm_up(1)
    service = DriverService(Planners(planner), options)

    def say_ready(port: int) -> None:
        print(f"{options.name} drives at {args.host}:{port}; Ctrl-C ends", file=sys.stderr, flush=True)

    serve_until_signal(service, args.host, args.port, args.sessions, say_ready)
    report(service, args.json)
    return 0


def check(args: Namespace) -> None:
    if not args.alpasim:
        raise InputError("serve: which contract? --alpasim is the one there is")
    if not 0 <= args.port <= 65535:
        raise InputError(f"--port {args.port}: must be 0 to 65535")
    if not 1 <= args.sessions <= MOST_SESSIONS:
        raise InputError(f"--sessions {args.sessions}: must be 1 to {MOST_SESSIONS}")
    if not 0 <= args.idle_s <= LONGEST_IDLE_S:
        raise InputError(f"--idle-s {args.idle_s:g}: must be 0 to {LONGEST_IDLE_S:g}")
    if args.threads < 1:
        raise InputError(f"--threads {args.threads}: must be 1 or more")


def service_options(args: Namespace):
    """The service's options. Raises InputError for a camera that the model does not have, or without the package."""
    from specdrive_ros.model_settings import find_model

    try:
        from specdrive_ros.alpasim.service import ServiceOptions
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("carla_driver_interface", "grpc", "google"):
            raise
        raise InputError(f"serve: {error.name} is not installed; pip install 'specdrive_ros[alpasim]'") from None
    wanted = find_model(args.model).cameras
    cameras = parse_cameras(args.camera, wanted)
    if wrong := sorted(set(cameras.values()) - set(wanted)):
        raise InputError(f"--camera …={', '.join(wrong)}: the model's cameras are {', '.join(wanted)}")
    return ServiceOptions(str(args.model), args.client, cameras, args.until_ready, args.sessions, args.idle_s)


def report(service, as_json: bool) -> None:
    """Prints what was answered, as JSON on stdout or as a line on stderr."""
    totals = {"version": 1, "answers": dict(service.totals), "refused": dict(service.refused)}
    if as_json:
        print_json(totals)
        return
    parts = [f"{count} {name}" for name, count in (service.totals + service.refused).items()]
    print("answered " + (", ".join(parts) or "nothing"), file=sys.stderr)
