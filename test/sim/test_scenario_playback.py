"""Lead-in, hand-over, braking without commands, events and stamps, without ROS."""

import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.shapes import NANOSECONDS
from specdrive_ros.sim.scenario_playback import TICK_S, PlaybackConfig, ScenarioPlayback, parse_scenarios
from specdrive_ros.sim.world import Command

CONFIG = PlaybackConfig(lead_in_s=0.5, command_timeout_s=0.5, max_s=2.0)


def play(scenarios, config=CONFIG, command=None, ticks=10_000):
    """(playback, events); `command(playback)` is given to it before each tick."""
    events = []
    playback = ScenarioPlayback(scenarios, events.append, config)
    while not playback.finished and ticks:
        if command is not None:
            playback.take_command(command(playback))
        playback.tick()
        ticks -= 1
    return playback, events


def kinds(events) -> list[str]:
    return [event["event"] for event in events if event["event"] != "label"]


def test_events_of_two_scenarios_in_order():
    playback, events = play([("cruise", 1), ("cruise", 2)], command=lambda p: p.world.expert_command())
    assert playback.finished
    assert kinds(events) == ["start", "hand_over", "outcome"] * 2 + ["finished"]
    outcomes = [event for event in events if event["event"] == "outcome"]
    assert [(event["name"], event["seed"]) for event in outcomes] == [("cruise", 1), ("cruise", 2)]
    assert all(event["outcome"] == "timeout" and "as asked" in event["why"] for event in outcomes)
    assert all(event["distance_m"] > 1.0 for event in outcomes)
    assert any(event["event"] == "label" and event["text"] for event in events)


def test_stamps_rise_and_leap_between_scenes():
    stamps, events = [], []
    playback = ScenarioPlayback([("cruise", 1), ("cruise", 2)], events.append, CONFIG)
    while not playback.finished:
        stamps.append(playback.stamp_ns)
        playback.tick()
    steps = np.unique(np.diff(stamps))
    assert steps.tolist() == [round(TICK_S * NANOSECONDS), 2 * NANOSECONDS]


def test_the_expert_drives_the_lead_in_whatever_is_commanded():
    brake = lambda playback: Command(-8.0, 0.0)  # noqa: E731
    braked, _ = play([("cruise", 1)], command=brake, ticks=10)
    left_alone, _ = play([("cruise", 1)], ticks=10)
    assert braked.world.ego == left_alone.world.ego
    braked_after, _ = play([("cruise", 1)], command=brake, ticks=39)
    assert braked_after.world.ego.speed < 0.5 * left_alone.world.ego.speed


def test_brakes_without_commands():
    gas = lambda playback: Command(1.0, 0.0)  # noqa: E731
    playback, events = play([("cruise", 1)], PlaybackConfig(0.5, 0.5, 10.0), gas, ticks=20)
    driven = playback.world.ego.speed
    for _ in range(80):
        playback.tick()
    assert playback.world.ego.speed < 0.6 * driven
    assert playback.world.ego.acceleration <= 0


def test_scenarios_of_parameters():
    assert parse_scenarios(["cruise:7", "obstacle"], seed=3, count=2) == [
        ("cruise", 7),
        ("cruise", 8),
        ("obstacle", 3),
        ("obstacle", 4),
    ]
    for wrong in ("moon", "cruise:x", ""):
        with pytest.raises(InputError, match="must be one of cruise"):
            parse_scenarios([wrong], 0, 1)
