"""The family with an obstacle in the lane, which has to be passed."""

from dataclasses import replace

import numpy as np

from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M
from specdrive_ros.sim.families.draft import (
    ROAD_AHEAD_M,
    START_S,
    Draft,
    gentle_segments,
    make_road,
    road_kind,
    wanted_speed,
)
from specdrive_ros.sim.families.surroundings import stand
from specdrive_ros.sim.paths import plan_pass
from specdrive_ros.sim.road import Road, Segment
from specdrive_ros.sim.traffic import COLOURS, Obstacle, Vehicle


def obstacle(rng: np.random.Generator, recovery: bool) -> Draft:
    kind = road_kind(rng)
    wanted = wanted_speed(rng, kind, recovery)
    lanes = 1 if rng.random() < 0.6 else 2
    lane = int(rng.integers(lanes))
    s_obstacle = START_S + FRONT_FROM_AXLE_M + rng.uniform(48, 62) + 2.0 * wanted
    total = s_obstacle + ROAD_AHEAD_M + 60
    segments = [Segment(total)] if rng.random() < 0.5 else gentle_segments(rng, total)
    road = make_road(rng, kind, segments, lanes)
    obstacle = _obstacle_in_lane(rng, road, lane, s_obstacle)
    path = plan_pass(obstacle, road.lane_offset(lane), road.edge_m, wanted)
    draft = Draft(road, lane, wanted, wanted * rng.uniform(0.97, 1.03), path.s_out_end + 15.0, 50.0)
    draft.obstacles.append(obstacle)
    draft.oncoming_most = 2
    if lanes == 1 and path.side == "left":
        draft.oncoming_most = int(rng.random() < 0.3)
        if draft.oncoming_most == 0 and rng.random() < 0.45:
            draft.vehicles.append(_contender(rng, road, s_obstacle, (path.s_in_start - START_S) / wanted))
    return draft


def _contender(rng: np.random.Generator, road: Road, s_obstacle: float, arrival_s: float) -> Vehicle:
    """An oncoming vehicle that reaches the obstacle at the same time as we do, and has the right of way."""
    speed = road.kind.usual_speed_mps * rng.uniform(0.75, 0.95)
    s = s_obstacle + rng.uniform(10, 45) + speed * arrival_s
    kind = str(rng.choice(("car", "van", "truck")))
    return Vehicle(
        30, kind, str(rng.choice(COLOURS)), road.line, s, -road.lane_offset(0), speed, -1, ((0.0, speed),)
    )


def _obstacle_in_lane(rng: np.random.Generator, road: Road, lane: int, s: float) -> Obstacle:
    """A thing that requires a way around it and can be passed; redrawn until both hold."""
    lane_d = road.lane_offset(lane)
    while True:
        kind = str(rng.choice(("car", "car", "van", "cones", "box")))
        spread = 0.9 if kind in ("car", "van") else 1.1
        d = lane_d + rng.uniform(-spread, spread if road.lanes == 2 or kind in ("cones", "box") else 0.0)
        obstacle = stand(road, 10, kind, str(rng.choice(COLOURS)), s, d, rng.uniform(-0.06, 0.06))
        obstacle = replace(obstacle, hazard_lights=kind in ("car", "van"))
        path = plan_pass(obstacle, lane_d, road.edge_m, road.kind.usual_speed_mps)
        if path is not None and 0.7 < abs(path.pass_d - lane_d) < 3.6:
            return obstacle
