"""Whatever cannot be read as YAML is one line that names the file."""

import time

import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.yaml_file import read_yaml


def test_what_stands_in_a_file(tmp_path):
    path = tmp_path / "wörld map.yaml"
    path.write_text("a: [1, ü]", encoding="utf-8")
    assert read_yaml(path) == {"a": [1, "ü"]}
    path.write_text("")
    assert read_yaml(path) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1", "expected ',' or ']'"),
        (b"\xff\xfe\x00", "can't decode byte 0xff"),
        (b"day: 2026-13-45", "month must be in 1..12"),
        (b"[" * 1500, "nested too deeply"),
        (b"a: " + b"{" * 100_000, "nested too deeply: over 64 levels in"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply: over 64 levels in"),
        (b"- " * 100_000, "nested too deeply: over 64 levels in"),
        (b"".join(b" " * depth + b"a:\n" for depth in range(500)), "nested too deeply: over 64 levels in"),
    ],
    ids=["open", "binary", "no date", "deep", "braces", "brackets", "list", "mapping"],
)
def test_no_yaml(tmp_path, content, said):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match="mine.yaml: not readable as YAML") as caught:
        read_yaml(path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_hostile_file_is_refused_at_once(tmp_path):
    """In processor time, well below the seconds that the whole file would take on any machine."""
    path = tmp_path / "mine.yaml"
    path.write_text("[" * 100_000)
    begun = time.process_time()
    with pytest.raises(InputError, match="mine.yaml: not readable as YAML .nested too deeply"):
        read_yaml(path)
    assert time.process_time() - begun < 1.0


def test_what_people_nest_is_read(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("a: " + "[" * 60 + "]" * 60)
    content, depth = read_yaml(path)["a"], 1
    while content:
        content, depth = content[0], depth + 1
    assert depth == 60


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="nix.yaml: no such file"):
        read_yaml(tmp_path / "nix.yaml")
    with pytest.raises(InputError, match="Is a directory"):
        read_yaml(tmp_path)
