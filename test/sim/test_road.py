"""Geometry of the reference line and of the pinhole camera."""

import math

import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.sim.pinhole import FRONT_CAMERA, project
from specdrive_ros.sim.road import ReferenceLine, Segment, make_intersection


def test_an_arc_is_a_circle():
    radius = 40.0
    line = ReferenceLine([Segment(60.0, 1 / radius, 1 / radius)])
    distance = np.hypot(line.xy[:, 0], line.xy[:, 1] - radius)
    assert np.allclose(distance, radius, atol=2e-3)
    assert line.heading[-1] == pytest.approx(line.length_m / radius, rel=1e-6)


def test_a_clothoid_turns_by_half_the_arc():
    line = ReferenceLine([Segment(50.0, 0.0, 0.02)])
    assert line.heading_at(50.0) == pytest.approx(0.5 * 50.0 * 0.02, abs=1e-3)
    assert line.curvature_at(25.0) == pytest.approx(0.01, abs=1e-4)


@pytest.mark.parametrize(("s", "d"), [(10.0, 0.0), (33.3, 2.5), (70.0, -4.0)])
def test_locate_undoes_pose(s, d):
    line = ReferenceLine([Segment(20.0), Segment(20.0, 0.0, 0.03), Segment(60.0, 0.03, 0.03)], 5.0, -3.0, 1.0)
    x, y, _ = line.pose(s, d)
    found_s, found_d = line.locate(x, y, s - 3.0)
    assert (found_s, found_d) == pytest.approx((s, d), abs=0.02)


def test_a_line_without_segments_is_refused():
    with pytest.raises(InputError, match="no segments"):
        ReferenceLine([])


def test_the_cross_road_meets_the_road_at_its_middle():
    line = ReferenceLine([Segment(200.0)], heading=0.7)
    crossing = make_intersection(line, 80.0, 4.0)
    middle = crossing.cross.pose(0.5 * crossing.cross.length_m)
    assert middle[:2] == pytest.approx(line.pose(crossing.s_centre_m)[:2], abs=1e-6)
    assert middle[2] - 0.7 == pytest.approx(math.pi / 2)


def test_the_horizon_lies_at_forty_percent():
    far = project(FRONT_CAMERA, np.array([[1e6, 0.0, FRONT_CAMERA.z_m]]))[0]
    assert far[1] == pytest.approx(0.4 * FRONT_CAMERA.height, abs=0.6)
    assert far[0] == pytest.approx((FRONT_CAMERA.width - 1) / 2)


def test_left_is_left_and_behind_is_nowhere():
    pixels = project(FRONT_CAMERA, np.array([[20.0, 3.0, 0.0], [20.0, -3.0, 0.0], [-5.0, 0.0, 0.0]]))
    assert pixels[0, 0] < FRONT_CAMERA.cx < pixels[1, 0]
    assert np.isnan(pixels[2]).all()


def test_the_field_of_view_is_75_degrees():
    half = math.atan(0.5 * FRONT_CAMERA.width / FRONT_CAMERA.fx)
    assert math.degrees(2 * half) == pytest.approx(75.0)
    assert FRONT_CAMERA.intrinsics[0, 0] == FRONT_CAMERA.intrinsics[1, 1] == FRONT_CAMERA.fx
