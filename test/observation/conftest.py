"""Recorded odometry for the tests of this folder, read without this package's own bag reader."""

from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def recorded_odometry():
    def read(name):
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore

        if not (DATA / name).exists():
            pytest.skip(f"recording {name} is not beside this checkout ({DATA})")
        rows = []
        with AnyReader([DATA / name], default_typestore=get_typestore(Stores.ROS2_HUMBLE)) as reader:
            connections = [c for c in reader.connections if c.msgtype == "nav_msgs/msg/Odometry"]
            for connection, _, raw in reader.messages(connections):
                message = reader.deserialize(raw, connection.msgtype)
                p, q, t = message.pose.pose.position, message.pose.pose.orientation, message.header.stamp
                rows.append((t.sec * 10**9 + t.nanosec, (p.x, p.y, p.z), (q.x, q.y, q.z, q.w)))
        stamps, xyz, quaternions = zip(*rows)
        return list(stamps), np.array(xyz), np.array(quaternions)

    return read
