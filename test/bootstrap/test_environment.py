"""The environment that the script gives a command, and which ROS 2 it takes."""

import sys

import pytest


def test_wheels_get_the_mark_and_the_library_path_together(bootstrap):
    libraries = bootstrap.VENV / "lib/python3.11/site-packages/ros_rclpy.libs"
    libraries.mkdir(parents=True)
    result = bootstrap.environment(None, {"LD_LIBRARY_PATH": "/user/lib"})
    assert result["_ROS_WHEELS_BOOTSTRAP_COMPLETE"] == "1"
    paths = result["LD_LIBRARY_PATH"].split(":")
    assert {str(libraries), str(bootstrap.VENV / "lib")} < set(paths) and paths[-1] == "/user/lib"


def test_system_ros_gets_neither_and_stays_on_the_paths(bootstrap):
    ros = bootstrap.SystemRos("jazzy", "/opt/ros/jazzy/lib/python3.12/site-packages")
    inherited = {
        "ROS_DISTRO": "jazzy",
        "AMENT_PREFIX_PATH": "/opt/ros/jazzy",
        "LD_LIBRARY_PATH": "/opt/ros/jazzy/lib",
        "PYTHONPATH": ros.folder,
    }
    result = bootstrap.environment(ros, inherited)
    assert "_ROS_WHEELS_BOOTSTRAP_COMPLETE" not in result
    assert result["AMENT_PREFIX_PATH"] == f"{bootstrap.INSTALL}:/opt/ros/jazzy"
    assert result["PYTHONPATH"] == f"{bootstrap.ROOT}:{ros.folder}"


def test_checkout_comes_before_generated_messages(bootstrap):
    generated = bootstrap.INSTALL / "lib/python3.11/site-packages"
    generated.mkdir(parents=True)
    result = bootstrap.environment(None, {"PYTHONPATH": "/user"})
    assert result["PYTHONPATH"] == f"{bootstrap.ROOT}:{generated}:/user"


def test_what_the_user_has_set_stays(bootstrap):
    chosen = {
        "FASTDDS_DEFAULT_PROFILES_FILE": "/my.xml",
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET",
        "OMP_WAIT_POLICY": "ACTIVE",
    }
    result = bootstrap.environment(None, chosen)
    assert {name: result[name] for name in chosen} == chosen
    assert "FASTDDS_DEFAULT_PROFILES_FILE" not in bootstrap.environment(
        None, {"FASTRTPS_DEFAULT_PROFILES_FILE": "/my.xml"}
    )


def test_discovery_stays_on_this_machine_by_default(bootstrap):
    assert bootstrap.environment(None, {})["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"


def test_environment_inside_an_environment_is_the_same(bootstrap):
    once = bootstrap.environment(None, {"PATH": "/usr/bin"})
    assert bootstrap.environment(None, once) == once


def test_a_ros_for_another_python_is_taken_out(bootstrap):
    inherited = {
        "ROS_DISTRO": "humble",
        "AMENT_PREFIX_PATH": "/ws/install:/opt/ros/humble",
        "PYTHONPATH": "/ws/install/lib/python3.9/site-packages:/opt/ros/humble/lib:/user",
        "LD_LIBRARY_PATH": "/opt/ros/humble/lib",
    }
    result = bootstrap.environment(None, inherited)
    assert result["PYTHONPATH"] == f"{bootstrap.ROOT}:/user"
    assert "/opt/ros" not in result["LD_LIBRARY_PATH"] + result["AMENT_PREFIX_PATH"]


def source_ros(monkeypatch, folder, version):
    extension = folder / f"rclpy/_rclpy_pybind11.cpython-{version}-x86_64-linux-gnu.so"
    extension.parent.mkdir(parents=True)
    extension.touch()
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(folder))
    monkeypatch.setattr(sys, "path", [str(folder)])


def test_sourced_ros_for_this_python_is_taken(bootstrap, monkeypatch, tmp_path):
    source_ros(monkeypatch, tmp_path / "ros", "%d%d" % sys.version_info[:2])
    assert bootstrap.find_system_ros() == ("jazzy", str(tmp_path / "ros"))


def test_sourced_ros_for_another_python_is_not_taken(bootstrap, monkeypatch, tmp_path):
    source_ros(monkeypatch, tmp_path / "ros", "38")
    assert bootstrap.find_system_ros() is None


def test_ros_that_is_not_sourced_is_not_taken(bootstrap, monkeypatch, tmp_path):
    source_ros(monkeypatch, tmp_path / "ros", "%d%d" % sys.version_info[:2])
    monkeypatch.delenv("AMENT_PREFIX_PATH")
    assert bootstrap.find_system_ros() is None


def test_interfaces_of_the_sourced_ros_are_not_built(bootstrap, monkeypatch, tmp_path):
    manifest = tmp_path / "ros/share/ackermann_msgs/package.xml"
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "ros"))
    packages = bootstrap.message_packages(bootstrap.SystemRos("jazzy", ""))
    assert [path.name for path in packages[1:]] == ["carla_msgs", "tf2_msgs"]
