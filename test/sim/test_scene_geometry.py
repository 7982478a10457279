"""The numbers vision learns from, against the world they describe."""

import math
from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.sim.camera import render
from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M
from specdrive_ros.sim.pinhole import project
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.scene_geometry import LANE_AHEAD_M, SCENE_GEOMETRY, geometry_of


def seen(world):
    world.label()
    return geometry_of(world, world.intent)


def drive(world, seconds):
    for _ in range(round(seconds / 0.05)):
        world.label()
        world.step(0.05, world.expert_command())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_lane_is_always_known_and_in_the_order_of_the_table(family):
    geometry = seen(make_world(family, 5))
    assert list(geometry) == list(SCENE_GEOMETRY)
    assert all(math.isfinite(geometry[f"lane_{ahead:.0f}m"]) for ahead in LANE_AHEAD_M)


def test_a_step_to_the_left_moves_the_lane_to_the_right_and_a_turn_moves_it_the_more_the_further():
    world = make_world("cruise", 5)
    before = seen(world)
    ego = world.ego
    world.ego = replace(ego, x=ego.x - 0.4 * math.sin(ego.yaw), y=ego.y + 0.4 * math.cos(ego.yaw))
    moved = geometry_of(world, world.intent)
    assert [moved[name] - before[name] for name in list(before)[:4]] == pytest.approx([-0.4] * 4, abs=0.02)
    world.ego = replace(world.ego, yaw=ego.yaw + 0.05)
    turned = geometry_of(world, world.intent)
    for name, ahead in zip(list(before)[:4], LANE_AHEAD_M):
        assert turned[name] - moved[name] == pytest.approx(-0.05 * ahead, rel=0.25, abs=0.05)


def test_the_numbers_point_at_what_the_picture_shows():
    world = make_world("obstacle", 2)
    while math.isnan(seen(world)["obstacle_left"]) or seen(world)["obstacle_gap"] > math.log1p(14.0):
        drive(world, 0.25)
    geometry = seen(world)
    obstacle = world.intent.passing.obstacle
    ahead = math.expm1(geometry["obstacle_gap"]) + FRONT_FROM_AXLE_M + 0.5 * obstacle.size.length_m
    camera = world.cameras["rgb_front"]
    u, v = project(camera, np.array([[ahead, geometry["obstacle_left"], 0.5]]))[0, :2]
    with_it, without_it = render(world, "rgb_front"), render(world, "rgb_front", without=[obstacle.id])
    assert np.any(with_it[int(v), int(u)] != without_it[int(v), int(u)])
    beside = 0.5 * obstacle.size.width_m
    assert abs(geometry["pass_left"] - geometry["obstacle_left"]) > beside
    assert (geometry["pass_left"] > geometry["obstacle_left"]) == (world.intent.passing.side == "left")


def test_what_is_not_there_has_no_place():
    geometry = seen(make_world("cruise", 5))
    assert all(math.isnan(geometry[name]) for name in ("signal_gap", "obstacle_gap", "obstacle_left", "pass_left"))


@pytest.mark.parametrize("family, role", [("pedestrian", "person"), ("emergency_stop", "person"), ("cut_in", "cut_in")])
def test_the_numbers_of_who_crosses_our_way_point_at_them_in_the_picture(family, role):
    world = make_world(family, 3)
    while math.isnan(seen(world)[f"{role}_left"]):
        drive(world, 0.25)
    geometry, thing = geometry_of(world, world.intent), getattr(world.intent, role)
    ahead = math.expm1(geometry[f"{role}_gap"]) + FRONT_FROM_AXLE_M + 0.5 * thing.size.length_m
    camera = world.cameras["rgb_front"]
    u, v = project(camera, np.array([[ahead, geometry[f"{role}_left"], 0.8]]))[0, :2]
    with_it, without_it = render(world), render(world, without=[thing.id])
    rows, columns = slice(int(v) - 6, int(v) + 7), slice(int(u) - 6, int(u) + 7)
    assert np.any(with_it[rows, columns] != without_it[rows, columns])


@pytest.mark.parametrize("family, name", [("stop_sign", "stop_sign_gap"), ("merge", "lane_end_gap")])
def test_the_gap_to_a_line_falls_by_what_was_driven(family, name):
    world = make_world(family, 3)
    while math.isnan(seen(world)[name]):
        drive(world, 0.25)
    before, place = math.expm1(geometry_of(world, world.intent)[name]), world.ego_s
    drive(world, 1.0)
    assert before - math.expm1(seen(world)[name]) == pytest.approx(world.ego_s - place, abs=1e-6) and before > 1.0
