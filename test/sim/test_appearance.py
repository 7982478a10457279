"""Shades that testing keeps for itself."""

import inspect

from specdrive_ros.sim.appearance import HELD_OUT, TRAIN, appearance_of
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.training import scenes


def test_held_out_has_the_same_names_in_other_shades():
    for look in HELD_OUT:
        assert list(look.paint) == list(TRAIN.paint) and list(look.clothing) == list(TRAIN.clothing)
        assert all(look.paint[name] != TRAIN.paint[name] for name in TRAIN.paint)
        assert look.proportions != TRAIN.proportions


def test_training_draws_the_train_appearance_only():
    assert all(make_world("cruise", seed).scene.scenery.appearance is TRAIN for seed in range(6))
    assert "appearance" not in inspect.getsource(scenes.record_episode)


def test_every_held_out_appearance_is_drawn():
    assert {appearance_of("held_out", seed).name for seed in range(9)} == {look.name for look in HELD_OUT}
