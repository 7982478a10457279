"""Does the model look? The signal's colour is changed in the pixels alone, everything else stays as it was.

    python -m specdrive_ros.evaluation.light_flip --model mini --cases 40

On held-out approaches to a signal (seeds that `drive --seed` also takes; training never saw them) the same
instant is shown twice, once as it is and once with every lamp in the other colour. A model that reads the
light says the other colour and plans to be further on (green) or to have stopped short (red).
"""

import argparse
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from specdrive_ros.geometry import quaternion_from_yaw
from specdrive_ros.observation.history import OdometryHistory
from specdrive_ros.observation.observation import Observation
from specdrive_ros.observation.refusal import Refusal
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import FRAME_STEP_S, FRAMES_PER_CAMERA, NANOSECONDS
from specdrive_ros.sim.camera import render
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.sim.world import World

PHYSICS_STEP_S = 0.05
CAMERA = "rgb_front"
OTHER_COLOUR = {"red": "green", "green": "red"}
GAP_RANGE_M = (10.0, 30.0)
SEEN_FROM_M = GAP_RANGE_M[1] + 12.0  # frames are drawn from here on, so that four are there at the first instant
LEAST_SPEED_MPS = 4.0
COMFORTABLE_BRAKING_MPS2 = 3.0  # nearer than this allows nobody could stop: no red is expected to do anything
LEAST_CHANGE_M = 3.0  # of the distance planned in 6.4 s


@dataclass(frozen=True)
class Flip:
    """One instant shown twice. Distances are what the plan covers in 6.4 s, metres."""

    seed: int
    time_s: float
    colour: str
    gap_m: float
    reasoning: str
    distance_m: float
    reasoning_flipped: str
    distance_flipped_m: float

    @property
    def text_follows(self) -> bool:
        """Each text names the colour that was shown and not the other."""
        other = OTHER_COLOUR[self.colour]
        return (self.colour in self.reasoning and other not in self.reasoning
                and other in self.reasoning_flipped and self.colour not in self.reasoning_flipped)

    @property
    def plan_follows(self) -> bool:
        """The plan with the green light goes clearly further than the one with the red."""
        further = self.distance_flipped_m - self.distance_m
        return (further if self.colour == "red" else -further) > LEAST_CHANGE_M


class Recorder:
    """The last frames and the odometry of a world, the signal drawn as it is and in the other colour."""

    def __init__(self, world: World):
        self.world, self.history = world, OdometryHistory()
        self.stamps, self.shown, self.flipped = (deque(maxlen=FRAMES_PER_CAMERA) for _ in range(3))

    def sense(self, with_frame: bool) -> None:
        ego, stamp_ns = self.world.ego, round(self.world.time_s * NANOSECONDS)
        self.history.add(stamp_ns, np.array([ego.x, ego.y, 0.0]), quaternion_from_yaw(ego.yaw), ego.speed)
        if with_frame:
            colour = self.world.signal.colour(self.world.time_s)
            self.stamps.append(stamp_ns)
            self.shown.append(render(self.world, CAMERA))
            self.flipped.append(render(self.world, CAMERA, signal_override=OTHER_COLOUR.get(colour, colour)))

    def observations(self) -> tuple[Observation, Observation] | None:
        """(as it is, flipped); None while there is no history yet."""
        history = self.history.at(self.stamps[-1])
        if len(self.stamps) < FRAMES_PER_CAMERA or isinstance(history, Refusal):
            return None
        stamps = {CAMERA: np.array(self.stamps, np.int64)}
        return tuple(Observation(self.stamps[-1], {CAMERA: np.stack(frames)}, stamps, history)
                     for frames in (self.shown, self.flipped))


def approaches(seed: int) -> Iterator[tuple[str, float, float, Observation, Observation]]:
    """(colour, gap m, time s, shown, flipped) of the instants at which the other colour would change the drive."""
    world = make_world("traffic_light", seed)
    recorder = Recorder(world)
    while world.outcome() is None:
        intent = world.intent
        on_the_beat = world.steps % round(FRAME_STEP_S / PHYSICS_STEP_S) == 0
        with_frame = on_the_beat and intent.signal_gap_m < SEEN_FROM_M
        recorder.sense(with_frame)
        if with_frame and decides(world):
            pair = recorder.observations()
            if pair is not None:
                yield intent.signal, intent.signal_gap_m, world.time_s, *pair
        world.step(PHYSICS_STEP_S, world.expert_command())


def decides(world: World) -> bool:
    """The light, and nothing else, decides what to do, and there is still room to stop."""
    intent, speed = world.intent, world.ego.speed
    return (intent.signal in OTHER_COLOUR and GAP_RANGE_M[0] <= intent.signal_gap_m <= GAP_RANGE_M[1]
            and speed >= LEAST_SPEED_MPS and intent.lead is None
            and speed ** 2 / (2 * intent.signal_gap_m) < COMFORTABLE_BRAKING_MPS2)


def light_flips(planner, cases: int, first_seed: int = 0) -> list[Flip]:
    """One flip a world, the colours in turn as far as the worlds have them, until there are `cases`."""
    flips: list[Flip] = []
    seed = first_seed
    while len(flips) < cases:
        wanted = ("red", "green")[len(flips) % 2]
        for colour, gap_m, time_s, shown, flipped in approaches(seed):
            if colour == wanted:
                one, other = planner.plan(shown), planner.plan(flipped)
                flips.append(Flip(seed, round(time_s, 2), colour, round(gap_m, 1), one.reasoning, distance_m(one),
                                  other.reasoning, distance_m(other)))
                break
        seed += 1
    return flips


def distance_m(plan: Plan) -> float:
    return round(float(np.linalg.norm(plan.xyz[-1, :2])), 2)


def main() -> None:
    from specdrive_ros.cycle import Planner

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="first world")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    flips = light_flips(Planner.load(args.model), args.cases, args.seed)
    if args.json:
        print(json.dumps([asdict(flip) for flip in flips], indent=1))
        return
    for flip in flips:
        print(f"{flip.seed:4d} {flip.colour:6s} {flip.distance_m:6.1f} m  {flip.reasoning}\n"
              f"     flipped{flip.distance_flipped_m:6.1f} m  {flip.reasoning_flipped}")
    text, plan = (np.mean([getattr(flip, name) for flip in flips]) for name in ("text_follows", "plan_follows"))
    print(f"{len(flips)} cases: the reasoning follows the pixels in {text:.0%}, the plan in {plan:.0%}")


if __name__ == "__main__":
    main()
