"""Long chains of causation: everybody is named, visual words stay marked, the decision comes last and unchanged."""

import pytest

from specdrive_ros.sim.long_thoughts import PARTS, reach, think_aloud
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.scene_labels import LEAD_EDGES_M, SCENE_LABELS

NOTHING = dict.fromkeys(SCENE_LABELS, -1) | dict.fromkeys(
    ("signal", "lead", "obstacle", "oncoming", "stop_sign", "cross_traffic", "zebra", "pedestrian", "hazard", "cut_in",
     "merge", "left_lane", "right_lane", "road_kind"), 0)  # fmt: skip
NOTHING |= {"curvature_ahead": 2, "lateral_offset": 3, "heading_error": 2}
LEAD = {"lead": 1, "lead_distance": 3, "lead_brake": 1, "lead_colour": 2, "lead_kind": 1, "lead_hazard_lights": 0}


@pytest.mark.parametrize(
    "changed, says",
    [
        (LEAD, "A red van 18 to 28 m away in our lane brakes"),
        (LEAD | {"lead_hazard_lights": 1}, "in our lane shows hazard lights"),
        ({"signal": 1, "signal_distance": 0}, "The traffic light within 8 m is red, so nobody may cross"),
        ({"obstacle": 2, "obstacle_distance": 4, "pass_side": 0},
         "A row of cones beyond 38 m stands in our way, so we need the room on its left"),
        ({"oncoming": 2}, "Somebody who comes towards us is already near"),
        ({"cross_traffic": 2}, "Somebody crosses before us from the right"),
        ({"pedestrian": 1, "pedestrian_colour": 4, "pedestrian_heading": 0, "pedestrian_distance": 1},
         "A pedestrian in yellow 6 to 12 m away stands still and waits"),
        ({"zebra": 1}, "Nobody is at a crossing although there is one ahead."),
        ({"hazard": 5, "hazard_heading": 1, "hazard_distance": 0},
         "A ball within 6 m is on the road and moves to the left"),
        ({"cut_in": 1, "cut_in_distance": 2, "merge": 2, "lane_end_distance": 3},
         "The lane beside us ends 20 to 30 m away"),
        ({"stop_sign": 1, "stop_sign_distance": 1}, "A stop sign stands 4 to 10 m away"),
        ({"right_lane": 2}, "On the right there is a lane that is taken."),
        ({"curvature_ahead": 4, "road_kind": 1}, "The country road ahead makes a sharp left bend"),
        ({"lateral_offset": 0, "heading_error": 4},
         "We ourselves are far right of the middle of our lane and point to the left."),
    ],
)  # fmt: skip
def test_what_is_there_is_named(changed, says):
    text, spans = think_aloud(NOTHING | changed, "Go on.", ())
    usual, _ = think_aloud(NOTHING, "Go on.", ())
    assert says in text and says not in usual and text.endswith(" Go on.")
    changed_at = next(place for place, (one, other) in enumerate(zip(text, usual)) if one != other)
    assert any(begin <= changed_at + 60 and changed_at - 60 <= end for begin, end in spans)


def test_distances_in_words():
    said = [reach(band, LEAD_EDGES_M) for band in (-1, 0, 1, 5)]
    assert said == ["somewhere", "within 6 m", "6 to 11 m away", "beyond 40 m"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_thought_aloud(family):
    world = make_world(family, 3)
    for _ in range(6):
        label = world.label()
        text, spans = think_aloud(label.scene, label.text, label.visual_spans)
        assert text.count(". ") == len(PARTS) and text.endswith(label.text) and len(text.split()) > 100
        assert [text[begin:end] for begin, end in spans[-len(label.visual_spans) :]] == [
            label.text[begin:end] for begin, end in label.visual_spans
        ]
        assert all(text[begin:end].strip() == text[begin:end] != "" for begin, end in spans)
        assert not set("{}[]") & set(text)
        for _ in range(20):
            if world.outcome() is None:
                world.step(0.05, world.expert_command())
