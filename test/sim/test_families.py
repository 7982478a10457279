"""Each newer family shows what it is about, the expert acts on it, and its words and labels name it."""

import copy
from functools import lru_cache

import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.sim.camera import render
from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M, Command
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.sim.scene_labels import STATES
from specdrive_ros.sim.traffic import STANDING_MPS

DT = 0.05
SEEDS = range(40)


def until(world, holds):
    """Drives as the expert until a condition holds; None when it never does."""
    while world.outcome() is None:
        if holds(world):
            return world
        world.step(DT, world.expert_command())
    return None


def first(family, holds, seeds=SEEDS):
    drives = (until(make_world(family, seed), holds) for seed in seeds)
    return next(world for world in drives if world is not None)


@lru_cache(maxsize=None)
def _first_saying(family, decision, cause):
    return first(family, says(decision, cause))


def first_saying(family, decision, cause):
    return copy.deepcopy(_first_saying(family, decision, cause))


def says(decision, cause):
    return lambda world: (world.label().decision, world.label().cause) == (decision, cause)


def changed_pixels(world, role):
    plain = render(world).astype(int)
    return (np.abs(plain - render(world, without={role})).max(2) > 24).sum()


def blindly(world):
    """Follows the lane and never brakes."""
    return Command(0.0, world.expert_command().curvature_per_m)


# family, what is said when the expert begins to act, who plays the part, pixels that it must fill by then
ACTS = [
    ("stop_sign", ("stop", "stop_sign"), "stop_sign", 15),
    ("pedestrian", ("stop", "pedestrian_waiting"), "pedestrian", 5),
    ("pedestrian", ("stop", "pedestrian_crossing"), "pedestrian", 5),
    ("cut_in", ("make_room", "cut_in"), "cut_in", 60),
    ("merge", ("make_room", "merge"), "cut_in", 60),
    ("lane_change", ("change_lane", "slow_lead"), "lead", 12),
    ("emergency_stop", ("emergency_stop", "hazard"), "hazard", 4),
]


@pytest.mark.parametrize(("family", "thought", "role", "pixels"), ACTS)
def test_what_the_expert_acts_on_is_in_the_picture_and_can_be_taken_out(family, thought, role, pixels):
    world = first_saying(family, *thought)
    assert changed_pixels(world, role) >= pixels
    assert not np.array_equal(render(world), render(world, without={role}))


@pytest.mark.parametrize(("family", "thought", "role", "pixels"), ACTS)
def test_visual_spans_hold_the_words_of_the_picture(family, thought, role, pixels):
    world = first_saying(family, *thought)
    intent, label = world.intent, world.label()
    marked = {label.text[a:b] for a, b in label.visual_spans}
    if role == "stop_sign":
        assert "stop sign" in marked
    elif role in ("pedestrian", "hazard"):
        assert any(intent.person.kind in words for words in marked)
        assert intent.person.kind == "dog" or any(intent.person.colour in words for words in marked)
    else:
        vehicle = intent.lead if role == "lead" else intent.cut_in
        assert {vehicle.colour, vehicle.kind} <= marked


@pytest.mark.parametrize("family", ["pedestrian", "emergency_stop"])
def test_without_the_person_the_expert_drives_on(family):
    world = first(family, lambda w: w.intent.person_state in ("crossing", "sudden") and w.ego.speed > 5)
    assert world.intent.active == "person" and world.intent.command.acceleration_mps2 < 0.0
    world.walkers.clear()
    world.step(DT, world.expert_command())
    scene = world.label().scene
    assert world.intent.active != "person" and scene["pedestrian"] == scene["hazard"] == 0
    assert world.label().cause not in ("hazard", "pedestrian_crossing")


def test_scene_labels_agree_with_the_geometry_of_a_pedestrian():
    seen = set()
    for seed in (1, 2):
        world = make_world("pedestrian", seed)
        while world.outcome() is None:
            scene, intent = world.label().scene, world.intent
            if intent.person is not None:
                aside = intent.person.d - world.lane_d
                assert STATES[scene["pedestrian"]] == intent.person_state
                assert (scene["pedestrian_place"] == 0) == (aside >= 0.5 * world.road.kind.lane_width_m)
                assert (scene["pedestrian_heading"] == 0) == (not intent.person.moving)
                seen.add(scene["pedestrian"])
            world.step(DT, world.expert_command())
    assert {1, 2} <= seen


def test_the_hazard_is_hidden_until_it_comes_out_of_cover():
    world = until(make_world("emergency_stop", 1), lambda w: w.intent.person_state == "sudden")
    assert world.walkers[0].moving and changed_pixels(world, "hazard") > 0
    hidden = make_world("emergency_stop", 1)
    for _ in range(world.steps - 20):
        hidden.step(DT, hidden.expert_command())
    assert hidden.intent.person is None and changed_pixels(hidden, "hazard") == 0


def test_a_hazard_is_braked_for_hard():
    world = first("emergency_stop", lambda w: w.ego.acceleration < -4.0)
    assert world.intent.active == "person" and world.label().decision == "emergency_stop"


def test_not_braking_for_a_person_is_a_collision():
    endings = []
    for seed in range(4):
        world = make_world("emergency_stop", seed)
        while world.outcome() is None:
            world.step(DT, blindly(world))
        endings.append((world.outcome().name, world.walkers[0].kind in world.outcome().why))
    assert endings == [("collision", True)] * 4


def test_rolling_over_the_line_of_a_stop_sign_fails():
    world = make_world("stop_sign", 0)
    while world.outcome() is None:
        world.step(DT, blindly(world))
    assert world.outcome().name == "stop_sign" and "having stood before it for 0.0 s" in world.outcome().why


def test_the_expert_stands_at_the_stop_sign_for_a_second():
    world = until(make_world("stop_sign", 0), lambda w: w.intent.may_go)
    gap = world.stop_sign.crossing.s_stop_m - world.ego_s - FRONT_FROM_AXLE_M
    assert world.stood_at_sign_s >= 0.95 and 0 < gap < 3.5


def test_the_expert_waits_while_somebody_crosses():
    world = first_saying("stop_sign", "stay_stopped", "cross_traffic")
    assert world.label().scene["cross_traffic"] > 0 and world.ego.speed < STANDING_MPS
    assert changed_pixels(world, "cross_vehicle") > 30
    assert world.intent.cross_vehicle.colour in world.label().text


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_crawling_vehicle_is_overtaken_on_the_named_side(side):
    world = first("lane_change", lambda w: w.intent.change is not None and w.intent.change.side == side)
    slow, before, text = world.intent.lead, world.ego_d, world.label().text
    assert side in text and world.label().scene[f"{side}_lane"] == 1
    assert until(world, lambda w: w.ego_s > slow.s) is not None
    assert (world.ego_d - before > 2.5) if side == "left" else (before - world.ego_d > 2.5)


def test_a_taken_lane_is_waited_for():
    world = first("lane_change", says("follow", "lane_occupied"), seeds=(17,))
    assert world.intent.change is None and world.intent.blocked_side in world.label().text
    assert until(world, lambda w: w.intent.change is not None) is not None


def test_staying_behind_the_crawling_vehicle_does_not_reach_the_goal():
    world = make_world("lane_change", 0)
    world.scene.free_lanes = False
    while world.outcome() is None:
        world.step(DT, world.expert_command())
    assert world.outcome().name == "timeout"


def test_a_lane_that_ends_must_be_left():
    seed = next(s for s in SEEDS if make_world("merge", s).lane_d < -4.5)
    world = make_world("merge", seed)
    merged = until(world, says("merge", "lane_end"))
    assert merged.label().scene["merge"] == 1 and "left" in merged.label().text
    stubborn = make_world("merge", seed)
    stubborn.scene.free_lanes = False
    stubborn.vehicles.clear()
    while stubborn.outcome() is None:
        stubborn.step(DT, blindly(stubborn))
    assert stubborn.outcome().name == "off_road"


def test_the_cut_in_is_announced_by_the_indicator_before_it_comes():
    world = first("cut_in", lambda w: w.intent.cut_in is not None)
    vehicle = world.intent.cut_in
    assert any(vehicle.indicates) and abs(vehicle.d - vehicle.shift.from_d) < 0.05
    assert world.label().scene["cut_in"] == (1 if vehicle.d > world.lane_d else 2)
    assert until(world, lambda w: w.intent.lead is vehicle and not vehicle.moving_over) is not None
    assert world.label().scene["cut_in"] == 0


def test_arrows_are_named_and_look_different_from_lamps():
    world = first("traffic_light", lambda w: w.signal.arrow and 8 < w.intent.signal_gap_m < 20)
    assert world.label().scene["signal_arrow"] == 1
    world = first_saying("traffic_light", "proceed", "green_arrow")
    assert "green" in world.label().text and "arrow" in world.label().text
    arrow = render(world)
    world.signal = type(world.signal)(**{**vars(world.signal), "arrow": False})
    assert (np.abs(arrow.astype(int) - render(world)).max(2) > 40).sum() > 5


@pytest.mark.parametrize("family", ["pedestrian", "lead_vehicle"])
def test_held_out_looks_different_and_goes_the_same(family):
    train, held_out = make_world(family, 5), make_world(family, 5, appearance="held_out")
    for _ in range(40):
        for world in (train, held_out):
            world.step(DT, world.expert_command())
    assert train.ego == held_out.ego and train.label() == held_out.label()
    assert np.abs(render(train).astype(int) - render(held_out)).mean() > 4


def test_an_appearance_or_a_role_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="train, held_out"):
        make_world("cruise", 0, appearance="night")
    with pytest.raises(InputError, match="pedestrian, hazard"):
        render(make_world("cruise", 0), without={"everything"})
