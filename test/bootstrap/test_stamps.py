"""Which step of the environment is made again, and when: by stamps, one run at a time."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .script import SCRIPT


class Steps:
    """Recorded steps: `made` lists what was done; a name in `broken` fails."""

    def __init__(self, module, **keys):
        self.module, self.keys, self.made, self.broken = module, keys, [], set()

    def prepare(self):
        self.module.prepare(
            [
                self.module.Step(name, lambda n=name: self.keys[n], lambda n=name: self.make(n))
                for name in self.keys
            ]
        )

    def make(self, name):
        self.made.append(name)
        if name in self.broken:
            raise self.module.SetupError(f"{name} broke")


def test_each_step_is_made_once(bootstrap):
    steps = Steps(bootstrap, venv="1", driving="1", messages="1")
    steps.prepare()
    steps.prepare()
    assert steps.made == ["venv", "driving", "messages"]


def test_only_the_step_that_changed_is_made_again(bootstrap):
    steps = Steps(bootstrap, venv="1", driving="1", messages="1")
    steps.prepare()
    steps.keys["driving"] = "2"
    steps.prepare()
    assert steps.made == ["venv", "driving", "messages", "driving"]


def test_a_run_after_a_failure_goes_on_where_it_broke(bootstrap):
    steps = Steps(bootstrap, venv="1", driving="1", messages="1")
    steps.broken = {"driving"}
    with pytest.raises(bootstrap.SetupError):
        steps.prepare()
    steps.broken = set()
    steps.prepare()
    assert steps.made == ["venv", "driving", "driving", "messages"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"venv": '])
def test_unreadable_stamps_mean_all_again(bootstrap, content):
    steps = Steps(bootstrap, venv="1", driving="1")
    steps.prepare()
    bootstrap.STAMPS.write_text(content)
    steps.prepare()
    assert steps.made == ["venv", "driving"] * 2


def test_stamps_of_a_removed_python_do_not_count(bootstrap):
    steps = Steps(bootstrap, driving="1")
    steps.prepare()
    bootstrap.PYTHON.unlink()
    assert not bootstrap.is_whole([bootstrap.Step("driving", lambda: "1", None)])


def test_a_second_run_waits_and_finds_the_work_done(bootstrap):
    code = f"""
import sys
sys.path[:0] = [{str(SCRIPT.parent)!r}, {str(Path(__file__).parent)!r}]
from pathlib import Path
from script import load
script = load()
script.ROOT, script.PYTHON = Path({str(bootstrap.ROOT)!r}), Path({str(bootstrap.PYTHON)!r})
script.STAMPS = Path({str(bootstrap.STAMPS)!r})
script.prepare([script.Step("driving", lambda: "1", lambda: print("made"))])
print("ran")
"""
    with bootstrap.one_run_at_a_time():
        second = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert "another run" in second.stderr.readline()
        bootstrap.write_stamp("driving", "1")
    assert second.communicate(timeout=60)[0] == "ran\n"


def test_comparing_stamps_takes_no_time(real):
    steps = real.make_steps("test", None)
    started = time.process_time()  # of this process: others may have the processor for as long as they like
    real.is_whole(steps)
    assert time.process_time() - started < 1.0


def test_stamps_are_json_a_person_can_read(bootstrap):
    bootstrap.write_stamp("driving", "1")
    bootstrap.write_stamp("messages", "2")
    assert json.loads(bootstrap.STAMPS.read_text()) == {"driving": "1", "messages": "2"}
