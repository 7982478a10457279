"""What the documents tell a reader to type parses, and what they point at is there.

Commands in blocks of code must parse as they stand; of a command or an option within a sentence the options must exist.
Nothing is run. A document that is right and fails here names something that only its reader has: see `OF_OTHERS`.
"""

import importlib
import re
import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from specdrive_ros.cli.commands import COMMANDS
from specdrive_ros.cli.main import make_parser

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "models/mini/README.md", *ROOT.glob("docs/**/*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
A_FILE = re.compile(r"[\w./-]+\.(?:py|ya?ml|md|sh|xml|rviz|msg|cpp)")
LAUNCH = re.compile(r"ros2 launch specdrive_ros (\S+)(.*)")
OUR_MODULE = re.compile(r"(?:^|\s)-m specdrive_ros\.([\w.]+)")
OURS = re.compile(r"(?:\./)?specdrive ([a-z]+)\b([^\"'`\n]*)")
OF_OTHERS = {"--show-args"}  # of ros2 launch
OF_THE_READER = {"mine.yaml", "model.yaml"}
SEARCHED = ("", "specdrive_ros", "docs", "docs/tutorials", "launch")


def blocks_of(text: str) -> Iterator[str]:
    """Lines of blocks of code, a continued one as one."""
    for block in BLOCK.findall(text):
        yield from block.replace("\\\n", " ").splitlines()


def spans_of(text: str) -> list[str]:
    """Code within sentences and tables."""
    return [" ".join(span.replace("\\|", "|").split()) for span in SPAN.findall(BLOCK.sub("", text))]


@cache
def parser_of(command: str) -> ArgumentParser:
    return make_parser(command, importlib.import_module(f"specdrive_ros.cli.{command}"))


def parsers_below(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for inner in action.choices.values():
                yield from parsers_below(inner)


def called_by(words: Sequence[str]) -> ArgumentParser:
    """The parser of `train draft …`; that of `train` where the second word may be one of several."""
    parser = parser_of(words[0])
    for word in words:
        below = next((each.choices for each in parser._actions if isinstance(each, _SubParsersAction)), {})
        if word not in below:
            break
        parser = below[word]
    return parser


def options_of(words: Sequence[str]) -> set[str]:
    """Of the command that is called and all below it."""
    return {name for parser in parsers_below(called_by(words)) for name in parser._option_string_actions}


def arguments_of(line: str) -> list[str] | None:
    """What a line hands to our command, None where it calls another."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None
    for index, word in enumerate(words):
        ours = word == "./specdrive" or word == "specdrive" and set(words[index + 1 : index + 2]) & COMMANDS.keys()
        if ours or words[max(0, index - 1) : index + 1] == ["-m", "specdrive_ros"]:
            return words[index + 1 :]
    return None


@pytest.mark.parametrize("name", NAMES)
def test_commands_parse(name):
    for line in blocks_of((ROOT / name).read_text(encoding="utf-8")):
        arguments = arguments_of(line)
        if not arguments:
            continue
        assert arguments[0] in COMMANDS, line
        _, unknown = parser_of(arguments[0]).parse_known_args(arguments)
        assert arguments[0] == "test" or not unknown, f"{line}: {unknown}"


@pytest.mark.parametrize("name", NAMES)
def test_options_exist(name):
    every = OF_OTHERS.union(*(options_of([command]) for command in COMMANDS))
    for span in spans_of((ROOT / name).read_text(encoding="utf-8")):
        words = span.removeprefix("./specdrive ").removeprefix("specdrive ").split()
        assert not span.startswith("./specdrive ") or words[0] in COMMANDS, span
        if words[0] in COMMANDS and len(words) > 1:
            assert not set(OPTION.findall(span)) - options_of(words), span
        elif span.startswith("--"):
            assert not set(OPTION.findall(span)) - every, span


def test_commands_that_messages_name_exist():
    for path in (ROOT / "specdrive_ros").rglob("*.py"):
        for command, rest in OURS.findall(path.read_text(encoding="utf-8")):
            if command in COMMANDS:
                words = [command, *rest.split()]
                assert not set(OPTION.findall(rest)) - options_of(words) - {"--help"}, f"{path}: {words}"


@pytest.mark.parametrize("name", NAMES)
def test_links_and_files_are_there(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in LINK.findall(BLOCK.sub("", text)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target.read_text(encoding="utf-8")), link
    for span in spans_of(text):
        if A_FILE.fullmatch(span) and span not in OF_THE_READER:
            assert is_there(span, (ROOT / name).parent), span


def is_there(path: str, beside: Path) -> bool:
    return any((folder / path).exists() for folder in (beside, *(ROOT / one for one in SEARCHED))) or (
        "/" not in path and any((ROOT / "specdrive_ros").rglob(path))
    )


def anchors_of(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", NAMES)
def test_launch_files_and_modules_are_there(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    shared = (ROOT / "specdrive_ros/ros/launching.py").read_text(encoding="utf-8")
    for line in [*blocks_of(text), *spans_of(text)]:
        if launch := LAUNCH.match(line):
            source = (ROOT / "launch" / launch[1]).read_text(encoding="utf-8") + shared
            unknown = [word for word in re.findall(r"(\w+):=", launch[2]) if f'"{word}"' not in source]
            assert not unknown, f"{line}: {unknown}"
        if module := OUR_MODULE.search(line):
            path = ROOT / "specdrive_ros" / module[1].replace(".", "/")
            assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), line


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example_that_parses(command):
    called = called_by([command])
    for parser in parsers_below(called):
        example = (parser.epilog or "").removeprefix("example: ")
        assert example.startswith(parser.prog if parser is not called else f"specdrive {command}"), parser.prog
        _, unknown = parser_of(command).parse_known_args(arguments_of(example))
        assert command == "test" or not unknown, example
        assert parser.format_help()  # a stray % would raise
