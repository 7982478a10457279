"""What is drawn more often: rare events, and instants that ask for steering or braking; and how much tokens weigh."""

import numpy as np
import pytest

from specdrive_ros.training.samples import WordWeights, manoeuvre_weights, rare_event_weights


def bend(radius_m, speed_mps=8.0):
    """[64, 3] x, y, yaw of a circle to the left."""
    angle = speed_mps * 0.1 * np.arange(1, 65) / radius_m
    return np.stack([radius_m * np.sin(angle), radius_m * (1 - np.cos(angle)), angle], axis=1)


def test_a_rare_event_is_drawn_more_often_than_its_share():
    weights = rare_event_weights([("keep_lane", "clear")] * 100 + [("stop", "red_light")])
    assert weights[-1] == pytest.approx(10 * weights[0])


def test_a_rare_colour_of_the_lamp_is_drawn_as_often_as_it_is_seen():
    seen = [("stop", "red_light")] * 80 + [("stop", "yellow_arrow")] * 20 + [("proceed", "green_light")] * 25
    weights = rare_event_weights(seen)
    assert weights[0] == weights[80] == pytest.approx(0.1) and weights[-1] == pytest.approx(0.2)


def test_steering_weighs_up_to_four_whichever_way_it_goes():
    left = bend(50.0)
    straight, sharp = bend(1e9), bend(12.0)
    weights = manoeuvre_weights(np.stack([straight, left, left * [1, -1, -1], sharp]))
    assert weights[0] == pytest.approx(1.0, abs=1e-6)
    assert weights[1] == pytest.approx(weights[2]) == pytest.approx(1 + (1 / 50) / 0.01, rel=0.15)
    assert weights[3] == pytest.approx(4.0)


def brake(from_mps, by_mps2):
    """[64, 3] x, y, yaw of a straight way on which it brakes to a stand."""
    speed = np.maximum(from_mps - by_mps2 * 0.1 * np.arange(64), 0.0)
    return np.stack([np.cumsum(speed) * 0.1, np.zeros(64), np.zeros(64)], axis=1)


def test_braking_weighs_up_to_three_and_speeding_up_nothing():
    weights = manoeuvre_weights(np.stack([brake(10.0, 0.0), brake(10.0, 1.0), brake(15.0, 8.0), brake(5.0, -2.0)]))
    assert weights == pytest.approx([1.0, 1.0 + 1.9 / 2.0, 3.0, 1.0])


def test_the_first_word_weighs_most_and_as_often_as_it_occurs(tiny_scenes, tiny_target):
    pytest.importorskip("torch", reason="needs the train extra")
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.target.tokens import TargetTokenizer
    from specdrive_ros.training.samples import SampleSet
    from specdrive_ros.training.scenes import open_shards

    config, shards = TargetConfig.load(tiny_target), open_shards(tiny_scenes / "train")
    prepared = []
    samples = SampleSet(shards, config, TargetTokenizer.load(config), np.array([[1, 2, 2]]), advance=prepared.append)
    assert sum(prepared) == len(samples)  # a bar reaches its end
    batch = samples.batch(np.arange(len(samples)))
    events = [(words["decision"], words["cause"]) for shard in shards for words in shard.words]
    drawn = rare_event_weights(events) * manoeuvre_weights(samples.futures)
    share = drawn / drawn.sum()
    assert len(set(share.round(6))) > 1  # else this shows nothing
    # drawn by its share and weighed by its inverse, each sample counts as much as any other
    assert batch.weights[:, 0] * share == pytest.approx(WordWeights.first / len(samples))
    others = np.where(batch.is_visual, WordWeights.visual, WordWeights.template)[:, 1]
    assert batch.weights[:, 1] == pytest.approx(others)
