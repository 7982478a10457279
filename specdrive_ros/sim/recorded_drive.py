"""A stretch of the expert's driving that can be played over and over: its pictures, and a motion without a jump.

For whoever needs a car with cameras in real time and cannot afford to simulate and draw it meanwhile. The picture jumps
where a lap begins anew; the motion goes on from where the lap before ended.
"""

from dataclasses import dataclass, field

import numpy as np

from specdrive_ros.geometry import in_frame, out_of_frame, rotation_about_z
from specdrive_ros.shapes import FRAME_STEP_S
from specdrive_ros.sim.camera import render
from specdrive_ros.sim.scenario import make_world

STEP_S = 0.05


@dataclass(frozen=True)
class Motion:
    """x, y in metres, yaw in radians and speed in metres a second of the rear axle, where the first lap began as it
    did in its world."""

    x: float
    y: float
    yaw: float
    speed_mps: float


@dataclass
class RecordedDrive:
    """pictures: [N, H, W, 3] uint8, every `FRAME_STEP_S`; states: [M + 1, 4] x, y, yaw, speed, every `STEP_S`, from the
    beginning of a lap to that of the next."""

    pictures: np.ndarray
    states: np.ndarray
    _begins: list[np.ndarray] = field(init=False)  # x, y, yaw at the beginning of each lap so far

    def __post_init__(self):
        self._begins = [self.states[0, :3]]

    @property
    def lap_s(self) -> float:
        return (len(self.states) - 1) * STEP_S

    def picture(self, time_s: float) -> np.ndarray:
        """The newest picture at this time since the first lap began."""
        return self.pictures[int(time_s % self.lap_s / FRAME_STEP_S) % len(self.pictures)]

    def motion(self, time_s: float) -> Motion:
        lap, within_s = divmod(time_s, self.lap_s)
        while len(self._begins) <= lap:
            self._begins.append(self._moved(self.states[-1, :3], len(self._begins) - 1))
        times = np.arange(len(self.states)) * STEP_S
        x, y, yaw, speed = (np.interp(within_s, times, column) for column in self.states.T)
        return Motion(*self._moved(np.array([x, y, yaw]), int(lap)).tolist(), float(speed))

    def _moved(self, pose: np.ndarray, lap: int) -> np.ndarray:
        """A pose of the first lap, where it is in this one."""
        first, begin = self.states[0, :3], self._begins[lap]
        ahead = in_frame(pose[:2], first[:2], rotation_about_z(first[2])[:2, :2])
        place = out_of_frame(ahead, begin[:2], rotation_about_z(begin[2])[:2, :2])
        return np.array([*place, pose[2] - first[2] + begin[2]])


def record_drive(family: str, seed: int, camera: str, seconds: float) -> RecordedDrive:
    """Drives a world with the expert; the lap is shorter where the world ends before."""
    world, pictures, states = make_world(family, seed), [], []
    for step in range(round(seconds / STEP_S) + 1):
        states.append((world.ego.x, world.ego.y, world.ego.yaw, world.ego.speed))
        if step == round(seconds / STEP_S) or world.outcome() is not None:
            break
        if step % round(FRAME_STEP_S / STEP_S) == 0:
            pictures.append(render(world, camera))
        world.step(STEP_S, world.expert_command())
    columns = np.array(states)
    columns[:, 2] = np.unwrap(columns[:, 2])
    return RecordedDrive(np.stack(pictures), columns)
