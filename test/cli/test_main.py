"""Exit codes, one-line errors, lazy imports and help of the command line."""

import importlib
import subprocess
import sys
from types import SimpleNamespace

import pytest

from specdrive_ros.cli.commands import COMMANDS
from specdrive_ros.cli.main import main, make_parser
from specdrive_ros.errors import InputError, WorkFailed


@pytest.fixture
def command(monkeypatch):
    """Puts a command in the place of `replay`; `ran` has the arguments it was called with."""

    def install(outcome=0, accepts_unknown=False):
        def run(args):
            module.ran = args
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        module = SimpleNamespace(
            add_arguments=lambda parser: parser.add_argument("--seed", type=int),
            run=run,
            ran=None,
            ACCEPTS_UNKNOWN=accepts_unknown,
        )
        monkeypatch.setitem(sys.modules, "specdrive_ros.cli.replay", module)
        return module

    return install


@pytest.mark.parametrize(
    "outcome, code, says",
    [
        (0, 0, ""),
        (1, 1, ""),
        (
            InputError("bag x: no such folder;\n give another"),
            2,
            "specdrive: error: bag x: no such folder; give another\n",
        ),
        (WorkFailed("planner ended with code 3"), 1, "specdrive: error: planner ended with code 3\n"),
        (KeyboardInterrupt(), 130, "specdrive: interrupted\n"),
    ],
)
def test_exit_codes(command, capsys, outcome, code, says):
    command(outcome)
    assert main(["replay"]) == code
    assert capsys.readouterr() == ("", says)


def test_a_fault_of_ours_is_not_hidden(command):
    command(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["replay"])


@pytest.mark.parametrize(
    "argv, says",
    [
        ([], "COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["replay", "--seed", "x"], "argument --seed: invalid int value: 'x'; see specdrive replay --help"),
        (["replay", "--see", "1"], "unrecognized arguments: --see 1; see specdrive replay --help"),
        (["replay", "bag"], "unrecognized arguments: bag"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(command, capsys, argv, says):
    module = command()
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert says in err and err.startswith("specdrive: error: ") and err.count("\n") == 1 and not out
    assert module.ran is None


def test_arguments_reach_the_command(command):
    module = command()
    main(["replay", "--seed", "3"])
    assert module.ran.seed == 3


def test_unknown_arguments_reach_a_command_that_wants_them_in_order(command):
    module = command(accepts_unknown=True)
    assert main(["replay", "-k", "history or images", "-x", "test/cli", "--version"]) == 0
    assert module.ran.unknown == ["-k", "history or images", "-x", "test/cli", "--version"]


def test_help_imports_no_command_and_nothing_heavy():
    code = (
        "import sys; from specdrive_ros.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'torch', 'rclpy', 'cv2', 'specdrive_ros.cli.drive'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_its_help_has_an_example(name):
    module = importlib.import_module(f"specdrive_ros.cli.{name}")
    parser = make_parser(name, module)
    called = parser._subparsers._group_actions[0].choices[name]
    assert f"specdrive {name}" in called.epilog and callable(module.run)


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -c 'from specdrive_ros.cli.main import main; main([\"--help\"])' | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""
