"""Exit codes, one-line errors, lazy imports and help of the command line."""

import importlib
import subprocess
import sys
from types import SimpleNamespace

import pytest

from specdrive_ros.cli.commands import COMMANDS
from specdrive_ros.cli.main import main, make_parser, remedy
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


@pytest.mark.parametrize(
    "fault", [ZeroDivisionError(), ModuleNotFoundError("no", name="specdrive_ros.simm"), OSError("no file's")]
)
def test_a_fault_of_ours_is_not_hidden(command, fault):
    command(fault)
    with pytest.raises(type(fault)):
        main(["replay"])


def test_a_full_disk_is_one_line_that_names_the_file(command, capsys):
    command(OSError(28, "No space left on device", "out/my file.json"))
    assert main(["replay"]) == 1
    assert capsys.readouterr().err == "specdrive: error: out/my file.json: No space left on device\n"


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("rclpy.context", "replay needs rclpy.context, which is not installed; source a ROS 2 workspace"),
        ("specdrive_ros.msg", "source a ROS 2 workspace with this package, or run ./specdrive in a checkout"),
        ("torch", "replay needs torch, which is not installed; run ./specdrive in a checkout, or pip install 'spec"),
    ],
)
def test_what_is_not_installed_is_named_with_what_installs_it(command, capsys, missing, says):
    command(ModuleNotFoundError(f"No module named {missing!r}", name=missing))
    assert main(["replay"]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_the_requirements_of_a_command_are_named():
    assert "pip install 'specdrive_ros[train]'" in remedy("train", "torch")
    assert "pip install 'specdrive_ros'" in remedy("budget", "rich.box")


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
