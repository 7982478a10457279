"""Long work shows a bar on a terminal and plain lines elsewhere, on stderr both; stdout is for data."""

import os
import pty
import subprocess
import sys

CODE = """
from specdrive_ros.cli.progress import progress
with progress("scenes", 3) as bar:
    for number in range(3):
        bar.advance(1, f"{number + 1} done")
"""


def test_plain_lines_elsewhere():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "" and "\x1b" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("scenes: 3/3 3 done (")


def test_a_bar_on_a_terminal():
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=theirs, env=variables, check=True)
    os.close(theirs)
    shown = os.read(ours, 2**16).decode()
    os.close(ours)
    assert done.stdout == b"" and "\x1b[" in shown and "3/3" in shown and "scenes: " not in shown
