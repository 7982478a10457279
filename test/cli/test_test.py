"""`specdrive test` hands its arguments to pytest and pytest's outcome back."""

from types import SimpleNamespace

import pytest

from specdrive_ros.cli import test as command
from specdrive_ros.cli.main import main


@pytest.fixture
def pytest_run(monkeypatch):
    """Stands for the pytest process: `called` is its command line, `calls` the arguments of all, `code` what it
    exits with."""
    run = SimpleNamespace(called=None, code=0, calls=[])

    def start(arguments, cwd):
        run.called, run.cwd = arguments, cwd
        run.calls.append(arguments[3:])
        return SimpleNamespace(returncode=run.code)

    monkeypatch.setattr(command.subprocess, "run", start)
    return run


def test_arguments_go_to_pytest_as_they_are(pytest_run, checkout):
    assert main(["test", "-k", "history", "-q"]) == 0
    assert pytest_run.called[1:] == ["-m", "pytest", "-k", "history", "-q"]
    assert pytest_run.cwd == checkout


def test_without_arguments_only_tests_of_real_time_run_one_by_one(pytest_run, checkout):
    assert main(["test"]) == 0
    alone, side_by_side = pytest_run.calls
    assert alone == [command.REAL_TIME] and (checkout / command.REAL_TIME).is_dir()
    assert "-n" in side_by_side and side_by_side[-2:] == ["--ignore", command.REAL_TIME]


def test_a_failure_among_those_of_real_time_hides_no_other(pytest_run, monkeypatch):
    pytest_run.code = 1
    assert main(["test"]) == 1 and len(pytest_run.calls) == 2


def test_after_an_interruption_nothing_else_begins(pytest_run):
    pytest_run.code = 2
    assert main(["test"]) == 130 and pytest_run.calls == [[command.REAL_TIME]]


@pytest.mark.parametrize(
    "of_pytest, of_the_contract", [(0, 0), (1, 1), (2, 130), (3, 1), (4, 2), (5, 2), (-11, 1)]
)
def test_exit_codes(pytest_run, of_pytest, of_the_contract):
    pytest_run.code = of_pytest
    assert main(["test"]) == of_the_contract


def test_installed_package_has_no_tests_and_says_so(pytest_run, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "CHECKOUT", tmp_path)
    assert main(["test"]) == 2
    assert "run ./specdrive test in a checkout" in capsys.readouterr().err and pytest_run.called is None
