"""A way through a tree of transforms is the car's pose."""

import numpy as np
import pytest

from specdrive_ros.geometry import quaternion_from_yaw
from specdrive_ros.observation.transform_odometry import Edge, TransformOdometry


def edge(parent: str, stamp_ns: int, x: float, y: float, yaw: float) -> Edge:
    return Edge(parent, stamp_ns, np.array([x, y, 0.0]), np.asarray(quaternion_from_yaw(np.float64(yaw))))


def test_one_edge():
    derived = TransformOdometry("map", "ego_vehicle")
    stamp, position, quaternion = derived.add("ego_vehicle", edge("map", 5, 3.0, 4.0, 0.5))
    assert stamp == 5 and position == pytest.approx([3.0, 4.0, 0.0])
    assert quaternion == pytest.approx(quaternion_from_yaw(np.float64(0.5)))


def test_a_way_is_multiplied_out_from_the_fixed_frame_down():
    """map -> odom is turned by a quarter, the car 2 m ahead and half a metre left in odom."""
    derived = TransformOdometry("map", "base_link")
    assert derived.add("base_link", edge("/odom", 7, 2.0, 0.5, 0.1)) is None, "the way is not complete yet"
    assert derived.add("camera", edge("base_link", 7, 1.0, 0.0, 0.0)) is None, "not an edge of the way"
    _, position, quaternion = derived.add("odom", edge("map", 6, 10.0, 20.0, np.pi / 2))
    assert position == pytest.approx([9.5, 22.0, 0.0])
    assert quaternion == pytest.approx(quaternion_from_yaw(np.float64(np.pi / 2 + 0.1)))


def test_it_moves_with_every_edge_of_the_way():
    derived = TransformOdometry("map", "car")
    derived.add("odom", edge("map", 0, 1.0, 0.0, 0.0))
    for step in range(1, 5):
        stamp, position, _ = derived.add("car", edge("odom", step, float(step), 0.0, 0.0))
        assert stamp == step and position[0] == 1.0 + step
    derived.forget()
    assert derived.add("car", edge("odom", 9, 0.0, 0.0, 0.0)) is None


def test_a_loop_and_an_unset_rotation_do_not_hang_or_raise():
    derived = TransformOdometry("map", "car")
    derived.add("odom", edge("car", 0, 1.0, 0.0, 0.0))
    assert derived.add("car", edge("odom", 1, 1.0, 0.0, 0.0)) is None
    unset = Edge("map", 1, np.zeros(3), np.zeros(4))
    _, _, quaternion = derived.add("car", unset)
    assert not quaternion.any(), "refused by the history as a zero quaternion"


def test_the_stamp_of_what_never_moves_says_nothing():
    """A static edge is stamped by whatever clock its publisher had, often another one than the simulation's."""
    derived = TransformOdometry("map", "car")
    assert derived.add("odom", edge("map", 10**18, 1.0, 0.0, 0.0), static=True) is None
    for step in range(1, 4):
        stamp, position, _ = derived.add("car", edge("odom", step, float(step), 0.0, 0.0))
        assert stamp == step and position[0] == 1.0 + step
    assert derived.add("odom", edge("map", 10**18, 5.0, 0.0, 0.0), static=True) is None, "it moves nothing"
    assert derived.add("car", edge("odom", 9, 0.0, 0.0, 0.0))[1][0] == 5.0


def test_a_clock_that_goes_back_voids_the_edges_that_move():
    derived = TransformOdometry("map", "car")
    derived.add("world", edge("map", 0, 1.0, 0.0, 0.0), static=True)
    second = 10**9
    derived.add("odom", edge("world", 100 * second, 1.0, 0.0, 0.0))
    assert derived.add("car", edge("odom", 100 * second, 1.0, 0.0, 0.0))[0] == 100 * second
    assert derived.add("car", edge("odom", 99 * second + 1, 1.0, 0.0, 0.0)) is not None, "only late"
    assert derived.add("car", edge("odom", 3 * second, 2.0, 0.0, 0.0)) is None, "odom is of the other time"
    stamp, position, _ = derived.add("odom", edge("world", 4 * second, 7.0, 0.0, 0.0))
    assert stamp == 4 * second and position[0] == 10.0
