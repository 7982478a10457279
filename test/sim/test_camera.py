"""Pictures: bytes from the seed, what they show, and that a counterfactual changes one thing only."""

import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.shapes import PICTURE_SIZE
from specdrive_ros.sim.camera import FRONT_CAMERA, project, render
from specdrive_ros.sim.ego import Command
from specdrive_ros.sim.pinhole import NEAR_M
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.view import cut_at_near_plane


def expert_drive(world, until, seconds=20.0):
    """Drives as the expert until a condition holds; None when it never does."""
    while world.time_s < seconds:
        if until(world):
            return world
        world.step(0.05, world.expert_command())
    return None


def scene_with(family, until, seeds):
    found = (expert_drive(make_world(family, seed), until) for seed in seeds)
    return next(world for world in found if world is not None)


def at_signal(colour, gap_m, tolerance_m=2.0):
    def holds(world):
        intent = world.intent
        return (
            intent.signal == colour and intent.lead is None and abs(intent.signal_gap_m - gap_m) < tolerance_m
        )

    return holds


@pytest.mark.parametrize("family", FAMILIES)
def test_frames_are_the_same_bytes_for_the_same_seed(family):
    worlds = [make_world(family, 11), make_world(family, 11), make_world(family, 12)]
    for _ in range(20):
        for world in worlds:
            world.step(0.05, world.expert_command())
    same, again, other = (render(world) for world in worlds)
    assert same.shape == (*PICTURE_SIZE, 3) and same.dtype == np.uint8
    assert same.tobytes() == again.tobytes() == render(worlds[0]).tobytes()
    assert same.tobytes() != other.tobytes()


def test_noise_changes_from_frame_to_frame_while_standing():
    world = make_world("cruise", 0)
    frames = []
    for _ in range(80):
        world.step(0.05, Command(-6.0, 0.0))
    for _ in range(2):
        frames.append(render(world).astype(int))
        world.step(0.05, Command(0.0, 0.0))
    difference = np.abs(frames[0] - frames[1])
    assert 0.5 < difference.mean() < 12


@pytest.mark.parametrize(("colour", "other", "seeds"), [("red", "green", (8, 15)), ("green", "red", (2, 16))])
def test_flipping_the_signal_changes_pixels_near_the_lamps_only(colour, other, seeds):
    world = scene_with("traffic_light", at_signal(colour, 20.0), seeds)
    plain, flipped = render(world), render(world, signal_override=other)
    changed = np.abs(plain.astype(int) - flipped).max(2) > 0
    crossing, ego = world.signal_intersection, world.ego
    heads = [
        (crossing.s_stop_m + 0.8, -(world.road.edge_m + 1.0), 3.6),
        (crossing.s_end_m + 1.5, world.lane_d - 0.6, 5.4),
    ]
    near = np.zeros_like(changed)
    for s, d, z in heads:
        x, y, _ = world.road.line.pose(s, d)
        c, n = np.cos(ego.yaw), np.sin(ego.yaw)
        point = [c * (x - ego.x) + n * (y - ego.y), -n * (x - ego.x) + c * (y - ego.y), z]
        u, v = np.nan_to_num(project(FRONT_CAMERA, np.array([point]))[0], nan=-100.0).astype(int)
        near[max(v - 14, 0) : max(v + 15, 0), max(u - 9, 0) : max(u + 10, 0)] = True
    assert 4 < changed.sum() < 250
    assert not (changed & ~near).any()


@pytest.mark.parametrize("gap_m", [4.0, 20.0, 45.0])
def test_the_lamp_can_be_read(gap_m):
    world = scene_with("traffic_light", at_signal("red", gap_m), (8, 15))
    red, green = (render(world, signal_override=c).astype(int) for c in ("red", "green"))
    brightest = (red - green)[:, :, 0].max(), (green - red)[:, :, 1].max()
    assert min(brightest) > 60


def test_removing_a_road_user_changes_only_where_it_was():
    world = scene_with(
        "lead_vehicle", lambda w: w.intent.lead is not None and w.intent.lead_gap_m < 15, (0, 2)
    )
    changed = np.abs(render(world).astype(int) - render(world, without={world.intent.lead.id})).max(2) > 0
    columns = np.flatnonzero(changed.any(0))
    assert 30 < changed.sum() < 96 * 160 // 3
    assert columns.max() - columns.min() < 110


def test_brake_lights_are_seen_at_25_m():
    world = scene_with(
        "lead_vehicle", lambda w: w.intent.lead is not None and 22 < w.intent.lead_gap_m < 28, (2, 1)
    )
    lead = world.intent.lead
    lead.braking = False
    off = render(world).astype(int)
    lead.braking = True
    on = render(world).astype(int)
    assert ((on - off)[:, :, 0] > 60).sum() >= 4


def test_a_car_turned_across_the_road_still_sees_a_picture():
    world = make_world("traffic_light", 0)
    for turn in (0.2, -0.2):
        for _ in range(60):
            world.step(0.05, Command(0.5, turn))
            if world.steps % 5 == 0:
                assert render(world).std() > 3


def test_polygons_are_cut_at_the_near_plane():
    square = np.array([[-1.0, 1.0, -5.0], [1.0, 1.0, -5.0], [1.0, 1.0, 5.0], [-1.0, 1.0, 5.0]])
    cut = cut_at_near_plane(square)
    assert len(cut) == 4 and cut[:, 2].min() == pytest.approx(NEAR_M)
    assert len(cut_at_near_plane(square - [0, 0, 10])) == 0


def test_wrong_arguments_are_refused():
    world = make_world("cruise", 0)
    with pytest.raises(InputError, match="rgb_front"):
        render(world, "rgb_rear")
    with pytest.raises(InputError, match="red, yellow, green"):
        render(world, signal_override="blue")
