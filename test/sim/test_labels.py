"""Sentences: their form, their steadiness, and that they agree with the scene and with what follows."""

import numpy as np
import pytest

from specdrive_ros.sim.labels import Band, Switch
from specdrive_ros.sim.phrases import PHRASES, choose_phrase, fill
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.scene_labels import SCENE_LABELS
from specdrive_ros.sim.traffic import COLOURS

DT = 0.05


def labelled_drive(family, seed, recovery=False):
    """(label, speed, signal colour) at every step of the expert's drive."""
    world = make_world(family, seed, recovery=recovery)
    rows = []
    while world.outcome() is None:
        rows.append((world.label(), world.ego.speed, world.intent.signal))
        world.step(DT, world.expert_command())
    return rows


@pytest.fixture(scope="module")
def drives():
    return {family: [labelled_drive(family, seed, seed == 2) for seed in (2, 3)] for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_form_of_the_sentences(drives, family):
    for label in (row[0] for rows in drives[family] for row in rows):
        assert 8 <= len(label.text.split()) <= 22, label.text
        assert label.text[0].isupper() and label.text.endswith(".") and not set("{}[]") & set(label.text)
        ends = [0]
        for start, end in label.visual_spans:
            assert ends[-1] <= start < end <= len(label.text)
            assert label.text[start:end] == label.text[start:end].strip()
            ends.append(end)


@pytest.mark.parametrize("family", FAMILIES)
def test_sentences_do_not_flicker(drives, family):
    lasting = []
    for rows in drives[family]:
        texts = [row[0].text for row in rows]
        changes = sum(a != b for a, b in zip(texts, texts[1:]))
        lasting.append(len(texts) * DT / (changes + 1))
    assert np.mean(lasting) >= 1.0


@pytest.mark.parametrize("family", FAMILIES)
def test_scene_labels_are_in_their_table(drives, family):
    for scene in (row[0].scene for rows in drives[family] for row in rows):
        assert list(scene) == list(SCENE_LABELS)
        assert all(-1 <= value < SCENE_LABELS[name] for name, value in scene.items())


def test_every_family_has_its_own_causes(drives):
    causes = {family: {row[0].cause for rows in drives[family] for row in rows} for family in FAMILIES}
    assert {"clear", "curve"} <= causes["cruise"]
    assert "lead" in causes["lead_vehicle"]
    assert {"red_light", "green_light"} <= causes["traffic_light"]
    assert {"obstacle", "passed"} <= causes["obstacle"]


def test_the_named_light_is_the_light_that_shines(drives):
    named = 0
    for label, _, signal in (row for rows in drives["traffic_light"] for row in rows):
        if label.cause.endswith("_light") and signal != "none" and label.decision != "start":
            assert signal in label.text
            named += 1
    assert named > 60


def test_stopping_for_red_means_slowing_down_soon():
    world = make_world("traffic_light", 8)
    while (world.label().decision, world.label().cause) != ("stop", "red_light") or world.ego.speed < 4:
        world.step(DT, world.expert_command())
    before = world.ego.speed
    for _ in range(int(2.5 / DT)):
        world.step(DT, world.expert_command())
    assert world.signal.colour(world.time_s) == "red" and world.ego.speed < before - 0.5


def test_nudging_goes_to_the_named_side():
    world = make_world("obstacle", 0)
    while world.label().decision != "nudge":
        world.step(DT, world.expert_command())
    side, before = world.intent.passing.side, world.ego_d
    assert f" {side}" in world.label().text
    for _ in range(int(4.5 / DT)):
        world.step(DT, world.expert_command())
    assert (world.ego_d - before > 0.5) == (side == "left") and abs(world.ego_d - before) > 0.5


def test_visual_spans_hold_the_words_only_the_picture_gives():
    text, spans = fill(
        "Slow down since the {colour} {kind} is [braking].", {"colour": "white", "kind": "van"}
    )
    assert text == "Slow down since the white van is braking."
    assert [text[a:b] for a, b in spans] == ["white", "van", "braking"]


def test_phrasing_is_mostly_set_by_the_context():
    phrases = [choose_phrase("keep_lane", "clear", "town", seed, 3) for seed in range(2000)]
    most = max(phrases.count(phrase) for phrase in set(phrases)) / len(phrases)
    assert set(phrases) == set(PHRASES["keep_lane", "clear"])
    assert 0.85 < most < 0.95


def test_bands_and_switches_do_not_flicker_at_their_edges():
    band, switch = Band((10.0, 20.0), 1.0), Switch(1.0, 0.5)
    assert [band.update(v) for v in (9.0, 10.5, 11.5, 9.5, 8.5, 25.0)] == [0, 0, 1, 1, 0, 2]
    assert [switch.update(v) for v in (0.8, 1.1, 0.8, 0.4, 0.8)] == [False, True, True, False, False]


def test_colours_in_words_are_paints():
    assert set(COLOURS) == {"white", "black", "red", "blue", "yellow"}
