"""Where the planner's own driving leads, and what the expert would do there (DAgger: Ross, Gordon, Bagnell 2011).

The expert's drives never show the consequences of the planner's small errors. Here the planner drives, with the
latency of a real cycle, and every sample is labelled as usual: with the expert's sentence and its future from there.
"""

import math

import numpy as np

from specdrive_ros.evaluation.drive import DriveLog, Planner, drive_all_offline
from specdrive_ros.geometry import yaw_from_matrix
from specdrive_ros.observation.observation import Observation
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import FRAMES_PER_CAMERA
from specdrive_ros.sim.labels import SCENE_LABELS
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.sim.scenario_playback import PlaybackConfig
from specdrive_ros.sim.scene_geometry import SCENE_GEOMETRY, geometry_of
from specdrive_ros.sim.world import World
from specdrive_ros.training.scenes import CAMERA, EpisodePlan, expert_future, sample_of

LATENCY_S = 0.3  # also the time between two plans


def record_drift(planner: Planner, family: str, seed: int, plan: EpisodePlan) -> dict:
    """The planner's drive through one world, in the form in which `scenes.record_episode` returns the expert's."""
    recorder = DriftRecorder(planner, family, seed, plan)
    drive_all_offline(recorder, [(family, seed)], DriveLog(), seconds=recorder.seconds, latency_s=LATENCY_S,
                      make=recorder.make)
    return {"frames": recorder.frames, "scene": recorder.scene, "geometry": recorder.geometry,
            "samples": recorder.samples}


class DriftRecorder:
    """Sits between the offline loop and the planner and keeps the planner's inputs."""

    def __init__(self, planner: Planner, family: str, seed: int, plan: EpisodePlan):
        self.cameras = planner.cameras
        self.planner, self.family, self.seed, self.recorded = planner, family, seed, plan
        self.world: World | None = None
        first_s = float(np.random.default_rng([seed, 13]).uniform(0.0, plan.lead_in_s[1]))
        self.next_s = PlaybackConfig().lead_in_s + first_s  # until the lead-in ends, the expert drives
        self.seconds = first_s + plan.samples * plan.sample_every_s  # of planning; by then all samples are there
        self.frames: list[np.ndarray] = []
        self.scene: list[list[int]] = []
        self.geometry: list[list[float]] = []
        self.samples: list[dict] = []

    def make(self, family: str, seed: int) -> World:
        self.world = make_world(family, seed)
        return self.world

    def plan(self, observation: Observation) -> Plan:
        if self.world.time_s >= self.next_s and len(self.samples) < self.recorded.samples:
            self.next_s += self.recorded.sample_every_s
            self._record(observation)
        return self.planner.plan(observation)

    def _record(self, observation: Observation) -> None:
        self.frames += list(observation.frames[CAMERA])
        newest = self.world.label().scene
        unknown = dict.fromkeys(SCENE_LABELS, -1)  # of the earlier frames: their instants have passed
        self.scene += [[row[name] for name in SCENE_LABELS] for row in [unknown] * (FRAMES_PER_CAMERA - 1) + [newest]]
        self.geometry += [[math.nan] * len(SCENE_GEOMETRY)] * (FRAMES_PER_CAMERA - 1)
        self.geometry.append(list(geometry_of(self.world, self.world.intent).values()))
        history = observation.history
        yaw = yaw_from_matrix(history.rotation)
        poses = np.concatenate([history.xyz[:, :2], yaw[:, None]], axis=1)
        self.samples.append(sample_of(self.world, self.family, self.seed, poses, expert_future(self.world),
                                      len(self.frames) - 1))
