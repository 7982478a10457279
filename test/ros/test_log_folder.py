"""A node starts where no log file can be written, and says so in one line."""

import os
import signal
from types import SimpleNamespace

import pytest

pytest.importorskip("specdrive_ros.msg")
from specdrive_ros.ros import log_folder  # noqa: E402

from .conftest import PATIENCE_S  # noqa: E402


def test_where_ros_logs(monkeypatch, tmp_path):
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path / "a"))
    assert log_folder.log_folder() == tmp_path / "a"
    monkeypatch.delenv("ROS_LOG_DIR")
    monkeypatch.setenv("ROS_HOME", str(tmp_path))
    assert log_folder.log_folder() == tmp_path / "log"


def test_a_good_folder_changes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path / "new"))
    assert log_folder.with_logging_that_works(["node"]) == (["node"], "") and (tmp_path / "new").is_dir()


def test_a_full_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_bavail=2, f_frsize=4096))
    arguments, complaint = log_folder.with_logging_that_works(["node", "--ros-args", "-p", "a:=1"])
    assert arguments[-1] == "--disable-external-lib-logs" and "disk full; logging to the console only" in complaint


def test_a_node_without_a_log_folder_starts_and_ends(graph, monkeypatch):
    monkeypatch.setenv("ROS_LOG_DIR", "/proc/nowhere")
    process = graph.start("-m", "specdrive_ros.ros.controller_node")
    ear = graph.listener()
    assert graph.spin_until(lambda: "controller" in ear.get_node_names())
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0 and "no log files: /proc/nowhere" in said and "Traceback" not in said
