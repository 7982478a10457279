"""Odometry from tf and for a car whose frame is its middle; without a graph."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from nav_msgs.msg import Odometry  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.ros.conversions import header, yaw_of, yaw_quaternion  # noqa: E402
from specdrive_ros.ros.odometry_source import (  # noqa: E402
    TransformListener,
    _shifting,
    check_odometry_source,
    odometry_parameters,
)

TENTH_NS = 100_000_000


def transform(parent: str, child: str, stamp_ns: int, x: float, y: float, yaw: float):
    """As a geometry_msgs/TransformStamped is read."""
    translation = SimpleNamespace(x=x, y=y, z=0.0)
    inner = SimpleNamespace(translation=translation, rotation=yaw_quaternion(yaw))
    return SimpleNamespace(header=header(stamp_ns, parent), child_frame_id=child, transform=inner)


def test_a_car_known_from_tf_alone_has_pose_and_speed():
    heard = []
    listener = TransformListener("map", "hero", heard.append)
    for tenth in range(4):
        x, y = 5.0 * np.cos(0.3) * tenth / 10, 5.0 * np.sin(0.3) * tenth / 10
        camera = transform("hero", "hero/rgb_front", tenth * TENTH_NS, 2.0, 0.0, 0.0)
        listener(SimpleNamespace(transforms=[camera, transform("map", "hero", tenth * TENTH_NS, x, y, 0.3)]))
    assert len(heard) == 4 and (heard[-1].header.frame_id, heard[-1].child_frame_id) == ("map", "hero")
    assert [message.twist.twist.linear.x for message in heard] == pytest.approx([0.0, 5.0, 5.0, 5.0])
    assert yaw_of(heard[-1].pose.pose.orientation) == pytest.approx(0.3)


def test_backwards_is_negative_and_a_gap_keeps_the_speed():
    heard = []
    listener = TransformListener("map", "hero", heard.append)
    for stamp_ns, x in ((0, 0.0), (TENTH_NS, -0.2), (20 * TENTH_NS, 50.0)):
        listener(SimpleNamespace(transforms=[transform("map", "hero", stamp_ns, x, 0.0, 0.0)]))
    assert [message.twist.twist.linear.x for message in heard] == pytest.approx([0.0, -2.0, -2.0])


def test_static_transforms_complete_the_way_and_move_nothing():
    heard = []
    listener = TransformListener("map", "hero", heard.append)
    listener.take_static(SimpleNamespace(transforms=[transform("map", "odom", 10**18, 100.0, 0.0, 0.0)]))
    for tenth in range(3):
        listener(SimpleNamespace(transforms=[transform("odom", "hero", tenth * TENTH_NS, tenth / 2, 0.0, 0.0)]))
    assert [message.pose.pose.position.x for message in heard] == [100.0, 100.5, 101.0]
    assert heard[-1].header.stamp.nanosec == 2 * TENTH_NS and heard[-1].twist.twist.linear.x == pytest.approx(5.0)


def test_the_rear_axle_of_a_car_that_is_known_by_its_middle():
    heard = []
    take = _shifting(lambda frame: -1.4, heard.append)
    message = Odometry()
    message.pose.pose.position.x, message.pose.pose.position.y = 10.0, 20.0
    message.pose.pose.orientation = yaw_quaternion(np.pi / 2)
    take(message)
    position = heard[0].pose.pose.position
    assert (position.x, position.y) == pytest.approx((10.0, 18.6))
    take(Odometry())
    bad = Odometry()
    bad.pose.pose.orientation.w = 0.0
    take(bad)
    assert heard[2].pose.pose.position.x == 0.0, "left to the history to refuse"


def test_tf_without_its_messages_is_one_clear_error(monkeypatch):
    settings = {spec.name: spec.default for spec in odometry_parameters(read_only=True)}
    check_odometry_source(settings)
    for name in ("tf2_msgs", "tf2_msgs.msg"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(InputError, match="tf2_msgs, which is not installed"):
        check_odometry_source(settings | {"odometry_source": "tf"})
