"""Positions of the things in the newest image of the front camera, as numbers, for training vision on its own.

`scene_labels` names what is there; steering around it, or along the lane, needs finer values than any class. Lateral
positions are in the ego frame (rear axle, metres, left positive). Gaps are from the front bumper and logarithmic,
because an error of 1 m matters at 3 m but not at 40 m. NaN: not there.
"""

import math
from typing import TYPE_CHECKING

from specdrive_ros.sim.expert import Intent
from specdrive_ros.sim.scene_labels import in_picture

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

LANE_AHEAD_M = (6.0, 12.0, 20.0, 32.0)  # along the road, from the rear axle

# name -> spread: an error of one spread weighs the same in all of them
SCENE_GEOMETRY: dict[str, float] = {
    "lane_6m": 0.4,  # where the middle of our lane is, m to the left
    "lane_12m": 0.7,
    "lane_20m": 1.4,
    "lane_32m": 3.0,
    "lead_gap": 0.5,  # ln(1 + m)
    "signal_gap": 0.5,  # to the stop line, ln(1 + m)
    "obstacle_gap": 0.5,  # ln(1 + m)
    "obstacle_left": 0.8,  # the middle of the obstacle, m to the left
    "pass_left": 0.8,  # where we pass it, m to the left
    "person_gap": 0.5,  # someone at a crossing or in the road, ln(1 + m)
    "person_left": 1.5,  # m to the left
    "cut_in_gap": 0.5,  # who moves, or is about to move, into our lane, ln(1 + m)
    "cut_in_left": 1.5,  # m to the left
    "stop_sign_gap": 0.5,  # to the line of a stop sign, ln(1 + m)
    "lane_end_gap": 0.5,  # to where our lane begins to narrow, ln(1 + m)
}


def geometry_of(world: "World", intent: Intent) -> dict[str, float]:
    """The table's numbers, in its units (not divided by the spread), for the image of this instant."""
    geometry = dict.fromkeys(SCENE_GEOMETRY, math.nan)
    for ahead_m in LANE_AHEAD_M:
        geometry[f"lane_{ahead_m:.0f}m"] = _left(world, world.ego_s + ahead_m, world.lane_d)
    for name, thing, gap_m in (
        ("lead", intent.lead, intent.lead_gap_m),
        ("person", intent.person, intent.person_gap_m),
        ("cut_in", intent.cut_in, intent.cut_in_gap_m),
    ):
        if thing is not None:
            geometry[f"{name}_gap"] = _logarithmic(gap_m)
            if f"{name}_left" in geometry:
                geometry[f"{name}_left"] = _left(world, thing.s, thing.d)
    for name in ("signal", "stop_sign", "lane_end"):
        gap_m = getattr(intent, f"{name}_gap_m")
        if gap_m < math.inf:
            geometry[f"{name}_gap"] = _logarithmic(gap_m)
    if intent.passing is not None and in_picture(world, world.cameras["rgb_front"], intent.passing.obstacle):
        obstacle = intent.passing.obstacle
        geometry["obstacle_gap"] = _logarithmic(intent.obstacle_gap_m)
        geometry["obstacle_left"] = _left(world, obstacle.s, obstacle.d)
        geometry["pass_left"] = _left(world, obstacle.s, intent.passing.pass_d)
    return geometry


def _logarithmic(gap_m: float) -> float:
    """ln(1 + m); 0 if the front is past it."""
    return math.log1p(max(gap_m, 0.0))


def _left(world: "World", s: float, d: float) -> float:
    """Metres to the left of the ego's axis, for a point at arc length s and offset d of the road."""
    x, y, _ = world.road.line.pose(s, d)
    ego = world.ego
    return math.cos(ego.yaw) * (y - ego.y) - math.sin(ego.yaw) * (x - ego.x)
