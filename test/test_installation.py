"""Data is found in a checkout, in a colcon install and in a pip install, in this order."""

import sys

import pytest

from specdrive_ros.draft.registry import NETWORKS
from specdrive_ros.installation import data_file, data_roots


def test_the_checkout_comes_first(checkout):
    assert data_roots()[0] == checkout
    assert data_file("config/fastdds.xml") == checkout / "config" / "fastdds.xml"


def test_installed_data_is_found_where_colcon_and_pip_put_it(tmp_path, monkeypatch):
    for name, prefix in (("colcon.yaml", tmp_path / "ament"), ("pip.yaml", tmp_path / "venv")):
        (prefix / "share" / "specdrive_ros" / "config").mkdir(parents=True)
        (prefix / "share" / "specdrive_ros" / "config" / name).write_text("")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "ament"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert data_file("config/colcon.yaml").is_relative_to(tmp_path / "ament")
    assert data_file("config/pip.yaml").is_relative_to(tmp_path / "venv")


def test_every_folder_of_mini_is_in_pip_s_list(checkout):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11")
    content = tomllib.loads((checkout / "pyproject.toml").read_text())
    listed = content["tool"]["setuptools"]["data-files"]
    mini = checkout / "models" / "mini"
    for path in (path for path in mini.rglob("*") if path.is_file()):
        place = path.parent.relative_to(checkout).as_posix()
        patterns = listed[f"share/specdrive_ros/{place}"]
        assert any(path.match(pattern) for pattern in patterns), path
    assert all(f"share/specdrive_ros/models/mini/drafts/{name}" in listed for name in NETWORKS)


def test_what_is_nowhere_is_named_as_in_the_checkout(checkout):
    assert data_file("config/none.yaml") == checkout / "config" / "none.yaml"
