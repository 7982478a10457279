"""Data is found in a checkout, in a colcon install and in a pip install, in this order."""

import sys

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


def test_what_is_nowhere_is_named_as_in_the_checkout(checkout):
    assert data_file("config/none.yaml") == checkout / "config" / "none.yaml"
