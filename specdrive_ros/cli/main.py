"""Entry point of `specdrive COMMAND …`: finds the command's module, parses, turns errors into exit codes.

Knows no command beyond its name: the module of a command has `add_arguments(parser)`, which also gives
the parser an example as its epilog, and `run(args) -> exit code`. It is imported only when its command is
called. A module that sets `ACCEPTS_UNKNOWN = True` finds the arguments it did not declare in `args.unknown`.
"""

import argparse
import importlib
import os
import sys
from types import ModuleType

from specdrive_ros import __version__
from specdrive_ros.cli.commands import COMMANDS
from specdrive_ros.errors import InputError, SpecdriveError

MESSAGES = "specdrive_ros.msg"
ROS_MODULES = ("rclpy", "rcl_interfaces", "builtin_interfaces", "ament_index_python")
EXIT_OK, EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line and accepts no abbreviated options."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str):
        raise InputError(f"{message}; see {self.prog} --help")


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0 done, 1 the work failed, 2 wrong input, 130 interrupted."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        return run_command(argv)
    except SpecdriveError as error:
        print(f"specdrive: error: {one_line(error)}", file=sys.stderr)
        return EXIT_INPUT if isinstance(error, InputError) else EXIT_FAILED
    except ModuleNotFoundError as error:
        if is_ours(error.name):
            raise
        print(f"specdrive: error: {argv[0]} needs {error.name}, which is not installed; {remedy(argv[0], error.name)}",
              file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("specdrive: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of stdout, for example `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:  # a full disk, or a folder that is gone
        if error.filename is None:
            raise
        print(f"specdrive: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED


def run_command(argv: list[str]) -> int:
    name = argv[0] if argv else None
    module = importlib.import_module(f"specdrive_ros.cli.{name}") if name in COMMANDS else None
    args, unknown = make_parser(name, module).parse_known_args(argv)
    accepts_unknown = getattr(module, "ACCEPTS_UNKNOWN", False)
    if unknown and not accepts_unknown:
        raise InputError(f"unrecognized arguments: {' '.join(unknown)}; see specdrive {name or ''} --help")
    if accepts_unknown:
        args.unknown = unknown
    return module.run(args)


def make_parser(name: str | None, module: ModuleType | None) -> Parser:
    """The parser of all commands, with the arguments of the one that is called."""
    parser = Parser(
        prog="specdrive",
        description="Driving models that reason before they act, inside the control cycle.",
        epilog="example: specdrive drive --scenario traffic_light --seed 7",
    )
    parser.add_argument("--version", action="version", version=f"specdrive {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for command, about in COMMANDS.items():
        command_parser = commands.add_parser(command, help=about.help, description=about.help)
        if command == name:
            module.add_arguments(command_parser)
    return parser


def is_ours(module: str | None) -> bool:
    """Whether a missing module is our own mistake. The messages do not count: they are generated where ROS is."""
    return module is None or module.split(".")[0] == "specdrive_ros" and module != MESSAGES


def remedy(command: str, module: str) -> str:
    """How to get a missing module: ROS, or the requirements that `./specdrive` installs by itself."""
    if module == MESSAGES or module.split(".")[0] in ROS_MODULES:
        return "source a ROS 2 workspace with this package, or run ./specdrive in a checkout"
    extra = COMMANDS[command].extra
    package = f"specdrive_ros[{extra}]" if extra else "specdrive_ros"
    return f"run ./specdrive in a checkout, or pip install '{package}' from one"


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
