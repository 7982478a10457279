"""Arguments of `specdrive serve`: what is wrong is said before any model is loaded."""

import sys

import pytest

from specdrive_ros.cli.main import EXIT_INPUT, main

ALPASIM = ("serve", "--alpasim")


@pytest.mark.parametrize(
    "arguments, said",
    (
        (("serve",), "--alpasim is the one there is"),
        ((*ALPASIM, "--port", "70000"), "0 to 65535"),
        ((*ALPASIM, "--sessions", "0"), "1 to 256"),
        ((*ALPASIM, "--idle-s", "-1"), "0 to 604800"),
        ((*ALPASIM, "--threads", "0"), "1 or more"),
        ((*ALPASIM, "--client", "else"), "invalid choice"),
        ((*ALPASIM, "--model", "nonsense"), "neither a folder nor a name"),
        ((*ALPASIM, "--camera", "front=rear_view"), "the model's cameras are rgb_front"),
        ((*ALPASIM, "--camera", "a=rgb_front", "--camera", "b=rgb_front"), "each camera once"),
    ),
)
def test_wrong_arguments_are_one_line(arguments, said, capsys):
    pytest.importorskip("carla_driver_interface", reason="needs the alpasim extra")
    assert main(list(arguments)) == EXIT_INPUT
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_without_the_package_it_says_what_to_install(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("specdrive_ros.alpasim")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "carla_driver_interface", None)
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert main(list(ALPASIM)) == EXIT_INPUT
    assert "pip install 'specdrive_ros[alpasim]'" in capsys.readouterr().err


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert not ended.value.code and "example: specdrive serve --alpasim" in capsys.readouterr().out
