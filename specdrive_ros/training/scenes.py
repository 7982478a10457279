"""Driving scenes on disk: written by `data generate`, read by every training stage.

A shard is one safetensors file with a few episodes. A sample is an instant t0 with its four frames at 10 Hz, at least
1.5 s of history and the expert's own future. The expert is disturbed from time to time (a driver who never errs
teaches no recovery); a sample's future is always that of the undisturbed expert from t0 on, found by rolling a copy of
the world forward.

Some episodes have a *twin*: the same drive, command by command, through the world with one thing changed (the colour
of the lamp, a lead removed: sim/interventions.py), labelled with what the expert would say and do there. Only samples
that differ in that are kept. The history is the same, so only the images can tell the two apart.

Knows the simulated world; knows no model and no torch.
"""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from specdrive_ros.atomic_file import atomic_write
from specdrive_ros.errors import InputError
from specdrive_ros.geometry import rotation_about_z
from specdrive_ros.shapes import FRAME_STEP_S, FRAMES_PER_CAMERA, FUTURE_WAYPOINTS, HISTORY_POSES, WAYPOINT_STEP_S
from specdrive_ros.sim.camera import render
from specdrive_ros.sim.interventions import intervene
from specdrive_ros.sim.labels import SCENE_LABELS
from specdrive_ros.sim.scene_geometry import SCENE_GEOMETRY, geometry_of
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.world import Command, EgoState, Outcome, World

CAMERA = "rgb_front"
PHYSICS_STEP_S = 0.05
STEPS_PER_FRAME = round(FRAME_STEP_S / PHYSICS_STEP_S)
TRAIN_SEED_BASE = 1_000_000_000  # `drive --seed` takes 0 … 999,999: training never sees those worlds
VALIDATION_SEED_BASE = 2_000_000_000
MAX_SPANS = 8
HARMLESS_OUTCOMES = ("success", "timeout")
LANE_AHEAD_M = np.arange(-5.0, 75.1, 2.5)  # along the road, from the rear axle


@dataclass(frozen=True)
class EpisodePlan:
    """How an episode is recorded: many worlds, a few samples of each, far enough apart to look different. (With 65
    consecutive frames from each of 1,000 worlds, vision learnt worlds by heart: the lead's colour was 86 % right in
    training, 57 % in held-out worlds.)

    lead_in_s:       the world runs this long (drawn between the two) before the first frame, poses only
    samples:         at most; fewer if the drive ends before
    sample_every_s:  between two samples
    disturbed:       share of episodes in which the expert's command is disturbed now and then
    twins:           share of episodes that may have a twin; 0 if worlds are to be seen as they are
    """

    lead_in_s: tuple[float, float] = (1.5, 11.0)
    samples: int = 4
    sample_every_s: float = 1.5
    disturbed: float = 0.7
    twins: float = 0.0

    def frame_numbers(self, first: int) -> set[int]:
        """Numbers (in steps of 0.1 s) of the frames to render; `first` is the newest frame of the first sample."""
        step = round(self.sample_every_s / FRAME_STEP_S)
        return {first + k * step - back for k in range(self.samples) for back in range(FRAMES_PER_CAMERA)}

    def is_sample(self, number: int, first: int) -> bool:
        return number >= first and (number - first) % round(self.sample_every_s / FRAME_STEP_S) == 0


class Disturbance:
    """Pushes of 0.3–0.8 s on the expert's command, a few seconds apart, seeded."""

    def __init__(self, rng: np.random.Generator, active: bool):
        self.rng, self.active = rng, active
        self.until_s, self.next_s = -1.0, rng.uniform(0.0, 1.5)
        self.push = Command(0.0, 0.0)

    def apply(self, time_s: float, speed_mps: float, command: Command) -> Command:
        if not self.active:
            return command
        if time_s >= self.next_s:
            self.until_s = time_s + self.rng.uniform(0.3, 0.8)
            self.next_s = self.until_s + self.rng.uniform(1.5, 5.0)
            lateral_mps2 = self.rng.normal(0.0, 1.2)
            self.push = Command(self.rng.normal(0.0, 1.0), lateral_mps2 / max(speed_mps, 4.0) ** 2)
        if time_s >= self.until_s:
            return command
        return Command(command.acceleration_mps2 + self.push.acceleration_mps2,
                       command.curvature_per_m + self.push.curvature_per_m)


def poses_in_ego(poses: np.ndarray, ego: EgoState) -> np.ndarray:
    """World poses [N, 3] (x, y, yaw; m, m, rad) -> the same in the frame of `ego`, yaw wrapped to ±pi."""
    cos, sin = np.cos(ego.yaw), np.sin(ego.yaw)
    dx, dy = poses[:, 0] - ego.x, poses[:, 1] - ego.y
    turn = (poses[:, 2] - ego.yaw + np.pi) % (2 * np.pi) - np.pi
    return np.stack([cos * dx + sin * dy, -sin * dx + cos * dy, turn], axis=1)


def expert_future(world: World) -> np.ndarray:
    """[64, 3] x, y, yaw (m, m, rad) in the ego frame at t0: the undisturbed expert's next 6.4 s.

    The world passed in is not changed.
    """
    return expert_drive(world)[0]


def expert_drive(world: World) -> tuple[np.ndarray, Outcome | None]:
    """(`expert_future`, the scenario's outcome by then or None)."""
    ghost = copy.deepcopy(world)
    poses = np.zeros((FUTURE_WAYPOINTS, 3))
    for k in range(FUTURE_WAYPOINTS):
        for _ in range(round(WAYPOINT_STEP_S / PHYSICS_STEP_S)):
            ghost.step(PHYSICS_STEP_S, ghost.expert_command())
        poses[k] = ghost.ego.x, ghost.ego.y, ghost.ego.yaw
    return poses_in_ego(poses, world.ego), ghost.outcome()


def lane_ahead(world: World) -> np.ndarray:
    """[33, 3] x, y, yaw (m, m, rad) in the ego frame at t0: the centre of the ego's lane, 5 m behind to 75 m ahead."""
    poses = np.array([world.road.line.pose(world.ego_s + ahead_m, world.lane_d) for ahead_m in LANE_AHEAD_M])
    return poses_in_ego(poses, world.ego)


def record_episode(family: str, seed: int, plan: EpisodePlan) -> dict:
    """Drives one world with the (disturbed) expert, and its twin if it has one. Returns frames [F,H,W,3], scene [F,K],
    geometry [F,G] and the samples."""
    rng = np.random.default_rng([seed, 7])
    world = make_world(family, seed, recovery=bool(rng.random() < 0.5))
    disturbance = Disturbance(rng, active=rng.random() < plan.disturbed)
    first = round(rng.uniform(*plan.lead_in_s) / FRAME_STEP_S) + FRAMES_PER_CAMERA - 1
    of_twins = np.random.default_rng([seed, 17])
    twin = intervene(world, of_twins) if of_twins.random() < plan.twins else None
    if twin is not None and of_twins.random() < 0.5:
        world, twin = twin, world  # so that things also appear, and not only vanish
    commands: list[Command] = []

    def drive(world: World) -> Command:
        commands.append(disturbance.apply(world.time_s, world.ego.speed, world.expert_command()))
        return commands[-1]

    episode = record_drive(world, drive, family, seed, plan, first)
    if twin is not None:
        again = iter(commands)
        _add_twin(episode, record_drive(twin, lambda world: next(again), family, seed, plan, first,
                                        len(commands) // STEPS_PER_FRAME))
    return {key: episode[key] for key in ("frames", "scene", "geometry", "samples")}


def record_drive(world: World, driver: Callable[[World], Command], family: str, seed: int, plan: EpisodePlan,
                 first: int, instants: int | None = None) -> dict:
    """Records one drive of at most `instants` steps of 0.1 s, or until the world has an outcome. `ends_well`: per
    sample, whether the expert's future from there breaks no rule."""
    drawn = plan.frame_numbers(first)
    frames, scene, geometry, poses, samples, ends_well = [], [], [], [], [], []
    for number in range(instants or max(drawn) + 1):
        if world.outcome() is not None:
            break
        poses.append((world.ego.x, world.ego.y, world.ego.yaw))
        if number in drawn:
            label = world.label()
            frames.append(render(world, CAMERA))
            scene.append([label.scene[name] for name in SCENE_LABELS])
            geometry.append(list(geometry_of(world, world.intent).values()))
        if number in drawn and plan.is_sample(number, first):
            history = poses_in_ego(np.array(poses[-HISTORY_POSES:]), world.ego)
            future, outcome = expert_drive(world)
            samples.append(sample_of(world, family, seed, history, future, newest_frame=len(frames) - 1))
            ends_well.append(outcome is None or outcome.name in HARMLESS_OUTCOMES)
        for _ in range(STEPS_PER_FRAME):
            world.step(PHYSICS_STEP_S, driver(world))
    return {"frames": frames, "scene": scene, "geometry": geometry, "samples": samples, "ends_well": ends_well}


def _add_twin(episode: dict, twin: dict) -> None:
    """Adds those samples of the twin, with their four frames, in which the expert decides differently than in the
    episode at the same time, and can still do so without harm."""
    decided = {sample["words"]["time_s"]: _decision(sample) for sample in episode["samples"]}
    for sample, ends_well in zip(twin["samples"], twin["ends_well"]):
        if ends_well and decided.get(sample["words"]["time_s"], _decision(sample)) != _decision(sample):
            newest = sample["frame"]
            for name in ("frames", "scene", "geometry"):
                episode[name] += twin[name][newest + 1 - FRAMES_PER_CAMERA:newest + 1]
            episode["samples"].append(sample | {"frame": len(episode["frames"]) - 1})


def _decision(sample: dict) -> tuple[str, str]:
    return sample["words"]["decision"], sample["words"]["cause"]


def record_episodes(recorded_worlds: list[tuple[str, int]], plan: EpisodePlan) -> list[dict]:
    return [record_episode(family, seed, plan) for family, seed in recorded_worlds]


def sample_of(world: World, family: str, seed: int, history: np.ndarray, future: np.ndarray, newest_frame: int) -> dict:
    """What the expert would do from this instant on, and why.

    history: [16, 3] x, y, yaw (m, m, rad) in the ego frame at t0; future: the expert's, see `expert_future`.
    """
    label = world.label()
    words = {"text": label.text, "decision": label.decision, "cause": label.cause, "family": family, "seed": seed,
             "time_s": round(world.time_s, 3)}
    return {"frame": newest_frame, "future": future, "lane": lane_ahead(world), "history": history,
            "speed": world.ego.speed, "spans": label.visual_spans, "words": words}


def sample_frames(episode: dict, sample: dict) -> list[np.ndarray]:
    """The four frames of a sample, oldest first."""
    return episode["frames"][sample["frame"] + 1 - FRAMES_PER_CAMERA:sample["frame"] + 1]


def write_shard(path: Path, episodes: list[dict]) -> int:
    """Writes what `record_episode` returned into one shard, atomically. Returns the number of samples."""
    starts = np.cumsum([0] + [len(episode["frames"]) for episode in episodes])
    samples = [sample | {"frame": start + sample["frame"]}
               for start, episode in zip(starts, episodes) for sample in episode["samples"]]
    spans = np.full((len(samples), MAX_SPANS, 2), -1, np.int16)
    for row, sample in enumerate(samples):
        for column, span in enumerate(sample["spans"][:MAX_SPANS]):
            spans[row, column] = span
    tensors = {
        "frames": np.array([frame for e in episodes for frame in e["frames"]], np.uint8),
        "scene": np.array([row for e in episodes for row in e["scene"]], np.int8).reshape(-1, len(SCENE_LABELS)),
        "geometry": np.array([row for e in episodes for row in e["geometry"]],
                             np.float32).reshape(-1, len(SCENE_GEOMETRY)),
        "sample_frame": np.array([sample["frame"] for sample in samples], np.int32),
        "sample_history": np.array([sample["history"] for sample in samples], np.float32),
        "sample_future": np.array([sample["future"] for sample in samples], np.float32),
        "sample_speed": np.array([sample["speed"] for sample in samples], np.float32),
        "sample_spans": spans,
        "sample_words": np.frombuffer(json.dumps([sample["words"] for sample in samples]).encode(), np.uint8),
    }
    with atomic_write(path) as unfinished:
        save_file(tensors, unfinished, metadata={"scene_labels": json.dumps(SCENE_LABELS)})
    return len(samples)


def worlds(first_seed: int, count: int, families: Sequence[str] = FAMILIES) -> list[tuple[str, int]]:
    """(family, seed) of consecutive seeds. The seed alone determines the family, so any shard can be made on its
    own."""
    return [(families[seed % len(families)], seed) for seed in range(first_seed, first_seed + count)]


class Shard:
    """Read access to one shard; frames stay on disk until asked for."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._file = safe_open(str(path), "numpy")
            self.scene_labels: dict[str, int] = json.loads(self._file.metadata()["scene_labels"])
            self.scene = self._file.get_tensor("scene")
            self.geometry = self._file.get_tensor("geometry")
            self.sample_frame = self._file.get_tensor("sample_frame")
            self.sample_history = self._file.get_tensor("sample_history")
            self.sample_future = self._file.get_tensor("sample_future")
            self.sample_speed = self._file.get_tensor("sample_speed")
            self.sample_spans = self._file.get_tensor("sample_spans")
            self.words: list[dict] = json.loads(self._file.get_tensor("sample_words").tobytes())
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a whole shard of driving scenes: {path} ({error}); "
                             "delete it and run `data generate` again") from error

    def with_samples(self, places: np.ndarray) -> "Shard":
        """A view with the same frames and only the samples at these places."""
        found = copy.copy(self)
        for name in ("sample_frame", "sample_history", "sample_future", "sample_speed", "sample_spans"):
            setattr(found, name, getattr(self, name)[places])
        found.words = [self.words[place] for place in places]
        return found

    def frames(self, start: int, stop: int) -> np.ndarray:
        return self._file.get_slice("frames")[start:stop]

    def all_frames(self) -> np.ndarray:
        return self._file.get_tensor("frames")


def open_shards(folder: Path) -> list[Shard]:
    return [Shard(path) for path in shard_paths(folder)]


def shard_paths(folder: Path) -> list[Path]:
    """The files of a split. Raises InputError if there are none."""
    paths = sorted(Path(folder).glob("shard-*.safetensors"))
    if not paths:
        raise InputError(f"no driving scenes: {folder} has no shard-*.safetensors; "
                         f"make some with `specdrive data generate --out {Path(folder).parent}`")
    return paths


def planar_poses(poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[..., 3] x, y, yaw (m, m, rad) -> xyz [..., 3] (z = 0) and rotation matrices [..., 3, 3]."""
    xyz = np.concatenate([poses[..., :2], np.zeros((*poses.shape[:-1], 1))], axis=-1)
    return xyz, rotation_about_z(poses[..., 2])
