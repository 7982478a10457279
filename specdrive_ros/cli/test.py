"""`specdrive test`: runs the tests of a checkout. Arguments go to pytest unchanged."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from specdrive_ros.errors import InputError

ACCEPTS_UNKNOWN = True
CHECKOUT = Path(__file__).resolve().parents[2]
REAL_TIME = "test/ros"  # nodes that keep deadlines: one test after another
# A file's tests share what one of them has prepared, so a file stays with one process; each takes up to 2 GB.
SIDE_BY_SIDE = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", "--ignore", REAL_TIME)
# Maps pytest's exit codes (pytest.ExitCode) to the contract's: 0 passed, 1 failed, 2 wrong arguments.
INTERRUPTED = 130
EXIT_CODES = {0: 0, 1: 1, 2: INTERRUPTED, 3: 1, 4: 2, 5: 2}


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "specdrive test [-h] [PYTEST ARGUMENTS]"
    parser.description = (
        "Passes the tests: those of nodes in real time one after another, then the others side by side. With arguments"
        " it is one run of pytest, which gets them all; paths start at the repository root."
    )
    parser.epilog = "example: specdrive test -k history"


def run(args: Namespace) -> int:
    """Raises InputError if there are no tests, as in an installed package."""
    if not (CHECKOUT / "test").is_dir():
        raise InputError(f"no tests: {CHECKOUT} has no folder test; run ./specdrive test in a checkout")
    runs = [args.unknown] if args.unknown else [(REAL_TIME,), SIDE_BY_SIDE]
    first_wrong = 0
    for arguments in runs:
        code = _pytest(arguments)
        if code == INTERRUPTED:
            return code
        first_wrong = first_wrong or code
    return first_wrong


def _pytest(arguments: Sequence[str]) -> int:
    done = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=CHECKOUT)
    return EXIT_CODES.get(done.returncode, 1)
