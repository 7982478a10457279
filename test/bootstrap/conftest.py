"""The `specdrive` script, as it is and on an empty checkout. Nothing is installed in these tests."""

import sys

import pytest

from .script import load


@pytest.fixture(scope="module")
def real():
    """The script as it is, for this checkout."""
    return load()


@pytest.fixture
def bootstrap(tmp_path, monkeypatch):
    """The script at work on an empty checkout of its own."""
    module = load()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv/bin/python")
    monkeypatch.setattr(module, "STAMPS", tmp_path / ".venv/stamps.json")
    monkeypatch.setattr(module, "LOGS", tmp_path / ".venv/logs")
    monkeypatch.setattr(module, "MESSAGES", tmp_path / ".venv/ros")
    monkeypatch.setattr(module, "INSTALL", tmp_path / ".venv/ros/install")
    module.PYTHON.parent.mkdir(parents=True)
    module.PYTHON.symlink_to(sys.executable)
    return module
