"""`specdrive test`: runs the tests of a checkout. Arguments go to pytest unchanged."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from specdrive_ros.errors import InputError

ACCEPTS_UNKNOWN = True
CHECKOUT = Path(__file__).resolve().parents[2]
# Maps pytest's exit codes (pytest.ExitCode) to the contract's: 0 passed, 1 failed, 2 wrong arguments.
EXIT_CODES = {0: 0, 1: 1, 2: 130, 3: 1, 4: 2, 5: 2}


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "specdrive test [-h] [PYTEST ARGUMENTS]"
    parser.description = "Passes the tests. All arguments go to pytest; paths start at the repository root."
    parser.epilog = "example: specdrive test -k history"


def run(args: Namespace) -> int:
    """Raises InputError if there are no tests, as in an installed package."""
    if not (CHECKOUT / "test").is_dir():
        raise InputError(f"no tests: {CHECKOUT} has no folder test; run ./specdrive test in a checkout")
    done = subprocess.run([sys.executable, "-m", "pytest", *args.unknown], cwd=CHECKOUT)
    return EXIT_CODES.get(done.returncode, 1)
