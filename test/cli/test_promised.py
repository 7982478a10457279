"""Commands and options that programs of others call by name. More may come; none of these goes or is renamed."""

import importlib
from argparse import _SubParsersAction

import pytest

from specdrive_ros.cli.commands import COMMANDS
from specdrive_ros.cli.main import make_parser

PROMISED = {
    "drive": "--scenario --repeat --seconds --seed --draft --out --json",
    "replay": "bags --camera --odometry --every --model --out --json",
    "test": "",
    "bench decode": "--model --runtime --draft --prompts --phrases --tokenizer --out --json",
    "bench cycle": "--model --runtime --draft --prompts --out --json",
    "bench long": "--model --runtime --draft --prompts --out --json",
    "bench node": "--model --runtime --draft --out --json",
    "ablate": "--seeds --json",
    "data generate": "",
    "train target": "--json",
    "train draft": "--json",
    "train aarl": "--json",
    "export": "model folder --json",
    "engine build": "--profile --model --out --json",
    "engine list": "folder --json",
    "engine inspect": "folder --json",
    "engine verify": "folder --json",
    "engine prune": "folder --json",
    "budget": "--target --device --precision --draft --json",
    "golden": "folder --json",
    "serve": "--alpasim",
    "checkpoint inspect": "path --json",
    "checkpoint convert": "path --json",
}


def taken_by(words: list[str]) -> set[str]:
    """Options and positional arguments of a command."""
    parser = make_parser(words[0], importlib.import_module(f"specdrive_ros.cli.{words[0]}"))
    for word in words:
        parser = next(each for each in parser._actions if isinstance(each, _SubParsersAction)).choices[word]
    return {name for action in parser._actions for name in action.option_strings or [action.dest]}


@pytest.mark.parametrize("command", PROMISED)
def test_what_is_promised_is_taken(command):
    assert set(PROMISED[command].split()) <= taken_by(command.split())


def test_every_command_is_promised():
    assert {command.split()[0] for command in PROMISED} == set(COMMANDS)
