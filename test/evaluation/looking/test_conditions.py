import numpy as np
import pytest

from specdrive_ros.evaluation.looking.conditions import CONDITIONS, condition, other_scenes


@pytest.fixture
def made(make_sample):
    own, other = make_sample(0).observation, make_sample(4, "cruise").observation
    return {name: condition(name, own, other) for name in CONDITIONS} | {"own": own, "other": other}


def test_cameras_change_and_nothing_else(made):
    for name, value in (("as_it_is", 1), ("black", 0), ("other_scene", 5), ("frozen", 1)):
        assert (made[name].frames["rgb_front"] == value).all(), name
        assert made[name].t0_ns == made["own"].t0_ns
    assert made["black"].history is made["other_scene"].history is made["own"].history


def test_a_frozen_history_has_stood_at_the_same_place(made):
    history = made["frozen"].history
    assert history.xyz.shape == (16, 3) and not history.xyz.any() and history.speed_mps == 0.0
    np.testing.assert_array_equal(history.rotation, np.broadcast_to(np.eye(3), (16, 3, 3)))
    assert made["own"].history.xyz.any(), "the sample's own history stays"


def test_the_other_scene_is_of_another_family_and_of_each_in_turn(make_sample):
    samples = [make_sample(k, family) for family in ("a", "b", "c") for k in range(4)]
    pairs = list(zip(samples, other_scenes(samples)))
    assert all(own.family != other.family for own, other in pairs)
    assert {other.family for own, other in pairs if own.family == "a"} == {"b", "c"}


def test_of_one_family_another_world_and_a_single_sample_has_only_itself(make_sample):
    samples = [make_sample(k) for k in range(3)]
    assert [other.seed for other in other_scenes(samples)] == [1, 2, 0]
    assert other_scenes(samples[:1]) == samples[:1]
