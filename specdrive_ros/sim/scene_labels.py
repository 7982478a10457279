"""What the newest picture of the front camera shows, as small integers, for training vision on its own.

A thing out of range or outside the picture counts as not there. -1: not applicable.
"""

import math

import numpy as np

from specdrive_ros.sim.expert import Intent
from specdrive_ros.sim.pinhole import PinholeCamera, project
from specdrive_ros.sim.traffic import COLOURS, SIGNAL_COLOURS

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
}

SIGNAL_EDGES_M = (8.0, 20.0, 38.0)
LEAD_EDGES_M = (6.0, 11.0, 18.0, 28.0, 40.0)
OBSTACLE_EDGES_M = (6.0, 14.0, 24.0, 38.0)
CURVATURE_EDGES = (-0.017, -0.005, 0.005, 0.017)
OFFSET_EDGES_M = (-0.9, -0.5, -0.18, 0.18, 0.5, 0.9)
HEADING_EDGES_DEG = (-4.0, -1.2, 1.2, 4.0)
KINDS = ("car", "van", "truck")


def scene_of(world, intent: Intent) -> dict[str, int]:
    """The table's labels for the picture of this instant."""
    camera = world.cameras["rgb_front"]
    scene = dict.fromkeys(SCENE_LABELS, -1)
    scene["signal"] = scene["lead"] = scene["obstacle"] = scene["oncoming"] = 0
    if intent.signal != "none":
        scene["signal"] = 1 + SIGNAL_COLOURS.index(intent.signal)
        scene["signal_distance"] = band(intent.signal_gap_m, SIGNAL_EDGES_M)
    if intent.lead is not None:
        scene.update(_lead_labels(intent))
    if intent.passing is not None and _in_picture(world, camera, intent.passing.obstacle):
        scene.update(_obstacle_labels(intent))
    scene["curvature_ahead"] = band(bend_ahead(world), CURVATURE_EDGES)
    scene["lateral_offset"] = band(intent.d - world.lane_d, OFFSET_EDGES_M)
    scene["heading_error"] = band(math.degrees(intent.heading_error), HEADING_EDGES_DEG)
    if intent.oncoming_gap_m < 70.0:
        scene["oncoming"] = 2 if intent.oncoming_gap_m < 30.0 else 1
    scene["road_clear"] = int(scene["lead"] == 0 and scene["obstacle"] == 0 and scene["signal"] not in (1, 2))
    scene["road_kind"] = int(world.road.kind.name == "country")
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


def bend_ahead(world) -> float:
    """Mean curvature (1/m) of the road from 5 to 32 m ahead of the rear axle."""
    line, s = world.road.line, world.ego_s
    return (line.heading_at(s + 32.0) - line.heading_at(s + 5.0)) / 27.0


def _in_picture(world, camera: PinholeCamera, obstacle) -> bool:
    """Whether a good part of a thing (its centre or its far end) is inside the picture."""
    ego = world.ego
    dx, dy = obstacle.x - ego.x, obstacle.y - ego.y
    c, s = math.cos(ego.yaw), math.sin(ego.yaw)
    forward, left = c * dx + s * dy, -s * dx + c * dy
    reach = 0.25 * obstacle.size.length_m
    points = np.array([[forward, left, 0.5], [forward + reach, left, 0.5]])
    u = project(camera, points)[:, 0]
    return bool(np.any((u > 0) & (u < camera.width - 1)))
