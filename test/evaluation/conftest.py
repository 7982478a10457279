"""Small bags written by other people's writers, where the recordings lie, and plans made by formula."""

from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from specdrive_ros.plan import Plan
from specdrive_ros.shapes import FUTURE_WAYPOINTS, NANOSECONDS, WAYPOINT_TIMES_S

DATA = Path(__file__).parents[3] / "shared" / "data"
TYPES = get_typestore(Stores.ROS2_HUMBLE)


@pytest.fixture
def recording():
    def find(name):
        if not (DATA / name).exists():
            pytest.skip(f"recording {name} is not beside this checkout ({DATA})")
        return DATA / name

    return find


def message(kind, **fields):
    return TYPES.types[kind](**fields)


def header(stamp_ns, frame="base_link"):
    stamp = message("builtin_interfaces/msg/Time", sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
    return message("std_msgs/msg/Header", stamp=stamp, frame_id=frame)


def odometry(stamp_ns, x=0.0, speed=0.0, y=0.0, quaternion=(0.0, 0.0, 0.0, 1.0)):
    vector = TYPES.types["geometry_msgs/msg/Vector3"]
    pose = message("geometry_msgs/msg/Pose", position=message("geometry_msgs/msg/Point", x=x, y=y, z=0.0),
                   orientation=message("geometry_msgs/msg/Quaternion", **dict(zip("xyzw", quaternion))))
    twist = message("geometry_msgs/msg/Twist", linear=vector(speed, 0.0, 0.0), angular=vector(0.0, 0.0, 0.0))
    return message(
        "nav_msgs/msg/Odometry", header=header(stamp_ns, "odom"), child_frame_id="base_link",
        pose=message("geometry_msgs/msg/PoseWithCovariance", pose=pose, covariance=np.zeros(36)),
        twist=message("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=np.zeros(36)))


def image(stamp_ns, value=0, encoding="rgb8", width=8, height=6):
    data = np.full(width * height * 3, value, np.uint8)
    return message("sensor_msgs/msg/Image", header=header(stamp_ns, "front"), height=height, width=width,
                   encoding=encoding, is_bigendian=0, step=3 * width, data=data)


def compressed(stamp_ns, value=0):
    data = cv2.imencode(".png", np.full((6, 8, 3), value, np.uint8))[1].reshape(-1)
    kind = "sensor_msgs/msg/CompressedImage"
    return message(kind, header=header(stamp_ns, "front"), format="png", data=data)


def text(value):
    return message("std_msgs/msg/String", data=value)


@pytest.fixture
def write_bag(tmp_path):
    """write_bag([(topic, recorded at, message), …]) -> folder of a new rosbag2 bag."""

    def write(rows, name="bag", storage="mcap", compression=None):
        folder = tmp_path / name
        plugin = StoragePlugin.MCAP if storage == "mcap" else StoragePlugin.SQLITE3
        writer = Writer(folder, version=9, storage_plugin=plugin)
        if compression:
            writer.set_compression(*compression)
        with writer:
            connections = {}
            for topic, time_ns, content in rows:
                kind = content.__msgtype__
                if topic not in connections:
                    connections[topic] = writer.add_connection(topic, kind, typestore=TYPES)
                writer.write(connections[topic], time_ns, TYPES.serialize_cdr(content, kind))
        return folder

    return write


@pytest.fixture
def ros():
    """Builders of messages: ros.odometry(stamp_ns, x, speed), ros.image(stamp_ns, value) …"""
    return SimpleNamespace(odometry=odometry, image=image, compressed=compressed, text=text, types=TYPES)


def arc_plan(
    time_s: float = 1.0,
    *,
    speed: float = 8.0,
    curvature: float = 0.01,
    reasoning: str = "Keep the lane because the road ahead is free",
    tokens: int = 10,
    passes: int = 10,
    **more,
) -> Plan:
    """Constant speed along an arc."""
    along = speed * WAYPOINT_TIMES_S
    yaw = curvature * along
    xyz = np.zeros((FUTURE_WAYPOINTS, 3))
    xyz[:, 0] = along * np.sinc(yaw / np.pi)
    xyz[:, 1] = along * np.sin(yaw / 2) * np.sinc(yaw / 2 / np.pi)
    return Plan(
        t0_ns=round(time_s * NANOSECONDS),
        reasoning=reasoning,
        token_ids=(1,) * tokens,
        xyz=xyz,
        yaw=yaw,
        speed_mps=np.full(FUTURE_WAYPOINTS, speed),
        acceleration=np.zeros(FUTURE_WAYPOINTS),
        curvature=np.full(FUTURE_WAYPOINTS, curvature),
        v0_mps=speed,
        target_passes=passes,
        stage_ms={"total": 40.0, "vision": 12.0, "prefill": 9.0, "verify": 11.0, "action": 6.0},
        **more,
    )


@pytest.fixture
def make_plan():
    return arc_plan


@pytest.fixture
def picture() -> np.ndarray:
    """Grey road under a blue sky, [96, 160, 3]."""
    rgb = np.full((96, 160, 3), 90, np.uint8)
    rgb[:40] = (150, 190, 230)
    return rgb
