"""What the newest image of the front camera shows, as small integers, for training vision on its own.

A thing out of range or outside the image counts as not there. -1: not applicable.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from specdrive_ros.sim.expert import Intent
from specdrive_ros.sim.perception import neighbour
from specdrive_ros.sim.pinhole import PinholeCamera, project
from specdrive_ros.sim.traffic import COLOURS, SIGNAL_COLOURS
from specdrive_ros.sim.walkers import HAZARD_KINDS

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

# name -> number of classes. Classes, in order:
SCENE_LABELS: dict[str, int] = {
    "signal": 4,  # none, red, yellow, green
    "signal_distance": 4,  # to the stop line: < 8, < 20, < 38, beyond (m)
    "curvature_ahead": 5,  # sharp right, right, straight, left, sharp left
    "lead": 2,  # none, present in our lane
    "lead_distance": 6,  # gap: < 6, < 11, < 18, < 28, < 40, beyond (m)
    "lead_brake": 2,  # brake lights off, on
    "lead_colour": 5,  # white, black, red, blue, yellow
    "lead_kind": 3,  # car, van, truck
    "obstacle": 4,  # none, parked vehicle, cones, box
    "obstacle_distance": 5,  # gap: < 6, < 14, < 24, < 38, beyond (m)
    "obstacle_colour": 5,  # as lead_colour; -1 for cones
    "pass_side": 2,  # left, right
    "lateral_offset": 7,  # in the lane: < -0.9, < -0.5, < -0.18, centre, > 0.18, > 0.5, > 0.9 (m, left +)
    "heading_error": 5,  # to the lane: < -4, < -1.2, straight, > 1.2, > 4 (degrees, left +)
    "oncoming": 3,  # none, present within 70 m, near within 30 m
    "road_clear": 2,  # something or nothing concerns us within 50 m in our lane
    "road_kind": 2,  # town, country
    "signal_arrow": 2,  # round lamps, arrows; -1 without a signal
    "stop_sign": 2,  # none, present
    "stop_sign_distance": 5,  # to the stop line: < 4, < 10, < 20, < 32, beyond (m)
    "cross_traffic": 3,  # none, crossing before us from the left, from the right
    "zebra": 2,  # none, a pedestrian crossing within 42 m
    "pedestrian": 4,  # none that concerns us, waiting, crossing, walking away
    "pedestrian_place": 3,  # left of our lane, in it, right of it
    "pedestrian_heading": 3,  # standing, to the left, to the right
    "pedestrian_distance": 5,  # gap: < 6, < 12, < 20, < 30, beyond (m)
    "pedestrian_colour": 5,  # as lead_colour
    "hazard": 6,  # none, pedestrian, child, cyclist, dog, ball
    "hazard_place": 3,  # as pedestrian_place
    "hazard_heading": 3,  # as pedestrian_heading
    "hazard_distance": 5,  # as pedestrian_distance
    "cut_in": 3,  # none, from the left, from the right
    "cut_in_distance": 5,  # as pedestrian_distance
    "merge": 3,  # none, our lane ends, the next lane ends for somebody who merges
    "lane_end_distance": 5,  # to where our lane narrows, as pedestrian_distance
    "left_lane": 3,  # of our direction: none, free, taken within 25 m
    "right_lane": 3,  # as left_lane
    "lead_hazard_lights": 2,  # off, on; -1 without a lead
    "lane_position": 13,  # lateral_offset in steps of 0.2 m, centre ± 0.1 m, the outermost beyond ± 1.1 m
    "heading": 13,  # heading_error in steps of 1 degree, straight ± 0.5, the outermost beyond ± 5.5
    "curvature": 9,  # curvature_ahead in finer steps: ± 0.003, 0.009, 0.017, 0.03 (1/m), right first
}

SIGNAL_EDGES_M = (8.0, 20.0, 38.0)
LEAD_EDGES_M = (6.0, 11.0, 18.0, 28.0, 40.0)
OBSTACLE_EDGES_M = (6.0, 14.0, 24.0, 38.0)
CURVATURE_EDGES = (-0.017, -0.005, 0.005, 0.017)
OFFSET_EDGES_M = (-0.9, -0.5, -0.18, 0.18, 0.5, 0.9)
HEADING_EDGES_DEG = (-4.0, -1.2, 1.2, 4.0)
STOP_SIGN_EDGES_M = (4.0, 10.0, 20.0, 32.0)
THING_EDGES_M = (6.0, 12.0, 20.0, 30.0)
LANE_TAKEN_M = 25.0
FINE_OFFSET_EDGES_M = tuple(0.2 * k - 1.1 for k in range(12))
FINE_HEADING_EDGES_DEG = tuple(k - 5.5 for k in range(12))
FINE_CURVATURE_EDGES = (-0.03, -0.017, -0.009, -0.003, 0.003, 0.009, 0.017, 0.03)
KINDS = ("car", "van", "truck")
STATES = ("none", "waiting", "crossing", "away")
NONE_IS_ZERO = ("signal", "lead", "obstacle", "oncoming", "stop_sign", "cross_traffic", "zebra", "pedestrian")
NONE_IS_ZERO += ("hazard", "cut_in", "merge")


def scene_of(world: "World", intent: Intent) -> dict[str, int]:
    """The table's labels for the image of this instant."""
    camera = world.cameras["rgb_front"]
    scene = dict.fromkeys(SCENE_LABELS, -1)
    scene.update(dict.fromkeys(NONE_IS_ZERO, 0))
    if intent.signal != "none":
        scene["signal"] = 1 + SIGNAL_COLOURS.index(intent.signal)
        scene["signal_distance"] = band(intent.signal_gap_m, SIGNAL_EDGES_M)
        scene["signal_arrow"] = int(world.signal.arrow)
    if intent.lead is not None:
        scene.update(_lead_labels(intent))
    if intent.passing is not None and in_picture(world, camera, intent.passing.obstacle):
        scene.update(_obstacle_labels(intent))
    scene["curvature_ahead"] = band(bend_ahead(world), CURVATURE_EDGES)
    scene["lateral_offset"] = band(intent.d - world.lane_d, OFFSET_EDGES_M)
    scene["heading_error"] = band(math.degrees(intent.heading_error), HEADING_EDGES_DEG)
    if intent.oncoming_gap_m < 70.0:
        scene["oncoming"] = 2 if intent.oncoming_gap_m < 30.0 else 1
    scene["road_clear"] = int(scene["lead"] == 0 and scene["obstacle"] == 0 and scene["signal"] not in (1, 2))
    scene["road_kind"] = int(world.road.kind.name == "country")
    scene["lane_position"] = band(intent.d - world.lane_d, FINE_OFFSET_EDGES_M)
    scene["heading"] = band(math.degrees(intent.heading_error), FINE_HEADING_EDGES_DEG)
    scene["curvature"] = band(bend_ahead(world), FINE_CURVATURE_EDGES)
    scene.update(_crossing_labels(intent))
    if intent.person is not None:
        scene.update(_person_labels(world, intent))
    scene.update(_lane_labels(world, intent))
    if scene["pedestrian"] in (1, 2) or scene["hazard"] or scene["cut_in"]:
        scene["road_clear"] = 0
    return scene


def _crossing_labels(intent: Intent) -> dict[str, int]:
    scene = {"zebra": int(0.0 < intent.zebra_gap_m < 42.0)}
    if intent.stop_sign_gap_m < math.inf:
        scene["stop_sign"] = 1
        scene["stop_sign_distance"] = band(intent.stop_sign_gap_m, STOP_SIGN_EDGES_M)
    if intent.cross_vehicle is not None:
        scene["cross_traffic"] = 2 if intent.cross_vehicle.direction > 0 else 1
    return scene


def _person_labels(world: "World", intent: Intent) -> dict[str, int]:
    walker, sudden = intent.person, intent.person.sudden
    name = "hazard" if sudden else "pedestrian"
    aside = walker.d - world.lane_d
    half_lane = 0.5 * world.road.kind.lane_width_m
    heading = 0 if not walker.moving else 1 if walker.heading_left > 0 else 2
    scene = {
        name: 1 + HAZARD_KINDS.index(walker.kind) if sudden else STATES.index(intent.person_state),
        f"{name}_place": 1 if abs(aside) < half_lane else 0 if aside > 0 else 2,
        f"{name}_heading": heading,
        f"{name}_distance": band(intent.person_gap_m, THING_EDGES_M),
    }
    return scene if sudden else scene | {"pedestrian_colour": COLOURS.index(walker.colour)}


def _lane_labels(world: "World", intent: Intent) -> dict[str, int]:
    scene = {}
    if intent.cut_in is not None:
        scene["cut_in"] = 1 if intent.cut_in.shift.from_d > intent.cut_in.shift.to_d else 2
        scene["cut_in_distance"] = band(intent.cut_in_gap_m, THING_EDGES_M)
        scene["merge"] = 2 if intent.cut_in_merges else 0
    if intent.lane_end_gap_m < math.inf:
        scene["merge"] = 1
        scene["lane_end_distance"] = band(intent.lane_end_gap_m, THING_EDGES_M)
    if intent.lead is not None:
        scene["lead_hazard_lights"] = int(intent.lead.hazard_lights)
    for side in ("left", "right"):
        there = world.road.beside(world.lane_d, side) is not None
        scene[f"{side}_lane"] = (2 if neighbour(world, side)[1] < LANE_TAKEN_M else 1) if there else 0
    return scene


def _lead_labels(intent: Intent) -> dict[str, int]:
    lead = intent.lead
    return {
        "lead": 1,
        "lead_distance": band(intent.lead_gap_m, LEAD_EDGES_M),
        "lead_brake": int(lead.braking),
        "lead_colour": COLOURS.index(lead.colour),
        "lead_kind": KINDS.index(lead.kind),
    }


def _obstacle_labels(intent: Intent) -> dict[str, int]:
    obstacle = intent.passing.obstacle
    return {
        "obstacle": {"cones": 2, "box": 3}.get(obstacle.kind, 1),
        "obstacle_distance": band(intent.obstacle_gap_m, OBSTACLE_EDGES_M),
        "obstacle_colour": -1 if obstacle.kind == "cones" else COLOURS.index(obstacle.colour),
        "pass_side": int(intent.passing.side == "right"),
    }


def band(value: float, edges: tuple[float, ...]) -> int:
    return sum(value > edge for edge in edges)


def bend_ahead(world: "World") -> float:
    """Mean curvature (1/m) of the road from 5 to 32 m ahead of the rear axle."""
    line, s = world.road.line, world.ego_s
    return (line.heading_at(s + 32.0) - line.heading_at(s + 5.0)) / 27.0


def in_picture(world: "World", camera: PinholeCamera, obstacle) -> bool:
    """Whether a good part of a thing (its centre or its far end) is inside the image."""
    ego = world.ego
    dx, dy = obstacle.x - ego.x, obstacle.y - ego.y
    c, s = math.cos(ego.yaw), math.sin(ego.yaw)
    forward, left = c * dx + s * dy, -s * dx + c * dy
    reach = 0.25 * obstacle.size.length_m
    points = np.array([[forward, left, 0.5], [forward + reach, left, 0.5]])
    u = project(camera, points)[:, 0]
    return bool(np.any((u > 0) & (u < camera.width - 1)))
