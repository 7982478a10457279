"""Does the model look? One thing is changed in the pixels alone, everything else stays as it was.

    python -m specdrive_ros.evaluation.counterfactual --kind signal --model mini --cases 40

On held-out approaches (seeds that `drive --seed` also accepts; never seen in training) the same instant is shown
twice: as it is, and with the lamp in the other colour (`signal`) or without the lead vehicle or the obstacle. A model
that looks says what it is shown and plans accordingly. A signal counts if the light decides what to do; a removed
thing counts if the expert would cover another distance without it.
"""

import argparse
import json
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from specdrive_ros.errors import InputError, SpecdriveError, WorkFailed
from specdrive_ros.evaluation.drive import LAST_SEED
from specdrive_ros.evaluation.looking.sentences import read_sentence
from specdrive_ros.geometry import quaternion_from_yaw
from specdrive_ros.observation.history import OdometryHistory
from specdrive_ros.observation.observation import Observation
from specdrive_ros.observation.refusal import Refusal
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import FRAME_STEP_S, FRAMES_PER_CAMERA, NANOSECONDS
from specdrive_ros.sim.camera import render
from specdrive_ros.sim.interventions import without
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.sim.world import World
from specdrive_ros.training.scenes import CAMERA, PHYSICS_STEP_S, expert_future

OTHER_COLOUR = {"red": "green", "green": "red"}
SEEN_BEFORE_M = 12.0  # frames are rendered from this far before the range, so that four are there at its start
LEAST_SPEED_MPS = 4.0
COMFORTABLE_BRAKING_MPS2 = 3.0  # with less room than this allows, nobody could stop: a red light would change nothing
LEAST_CHANGE_M = 3.0  # of the distance planned in 6.4 s
WORLDS_PER_CASE = 60  # after so many worlds per case without finding enough, give up
THERE = "there"


@dataclass(frozen=True)
class Flip:
    """One instant shown twice. Distances are what the plan covers in 6.4 s, metres.

    shown:     what the pixels show before the change: the lamp's colour, or THERE.
    further:   1 if the plan should go further after the change, -1 if less far.
    """

    kind: str
    seed: int
    time_s: float
    shown: str
    further: int
    gap_m: float
    reasoning: str
    distance_m: float
    reasoning_flipped: str
    distance_flipped_m: float

    @property
    def text_follows(self) -> bool:
        """Whether each sentence says what was shown, and only that."""
        return KINDS[self.kind].text_follows(self)

    @property
    def plan_follows(self) -> bool:
        """Whether the plan goes clearly further or less far, as the change demands."""
        return self.further * (self.distance_flipped_m - self.distance_m) > LEAST_CHANGE_M


@dataclass(frozen=True)
class Kind:
    """What can be changed in the pixels.

    family:       the scenario family it occurs in.
    gap_range_m:  range of gaps, from the ego's front bumper to the thing, at which instants are used.
    every_frames: every how many frames of an approach an instant is used.
    thing:        world -> (id, gap m) of the thing that matters now; None if there is none.
    flip:         (world, id) -> the image with the change.
    state:        world -> what is shown.
    states:       the states wanted, in turn.
    decides:      (world, id, gap m) -> 1 or -1, which way the change moves the plan; 0 if it decides nothing.
    text_follows: of a flip.
    """

    family: str
    gap_range_m: tuple[float, float]
    every_frames: int
    thing: Callable[[World], tuple[int, float] | None]
    flip: Callable[[World, int], np.ndarray]
    state: Callable[[World], str]
    states: tuple[str, ...]
    decides: Callable[[World, int, float], int]
    text_follows: Callable[[Flip], bool]


# The signal


def signal_ahead(world: World) -> tuple[int, float] | None:
    return None if world.signal is None else (world.signal.id, world.intent.signal_gap_m)


def in_the_other_colour(world: World, thing: int) -> np.ndarray:
    colour = world.signal.colour(world.time_s)
    return render(world, CAMERA, signal_override=OTHER_COLOUR.get(colour, colour))


def the_light_decides(world: World, thing: int, gap_m: float) -> int:
    """1 or -1 if the light alone decides what to do and there is still room to stop, else 0."""
    intent, speed = world.intent, world.ego.speed
    decides = (intent.signal in OTHER_COLOUR and speed >= LEAST_SPEED_MPS and intent.lead is None
               and speed ** 2 / (2 * gap_m) < COMFORTABLE_BRAKING_MPS2)
    return (1 if intent.signal == "red" else -1) if decides else 0


def names_the_colour_shown(flip: Flip) -> bool:
    """Whether each sentence names the colour that was shown and not the other."""
    colour, other = flip.shown, OTHER_COLOUR[flip.shown]
    return (colour in flip.reasoning and other not in flip.reasoning
            and other in flip.reasoning_flipped and colour not in flip.reasoning_flipped)


# Things that are removed


def taken_away(family: str, thing: Callable[[World], tuple[int, float] | None], *causes: str,
               gap_range_m: tuple[float, float] = (6.0, 35.0)) -> Kind:
    """A thing that is not rendered in the second image. causes: of the phrases that mention it (sim/phrases.py)."""

    def text_follows(flip: Flip) -> bool:
        before, after = read_sentence(flip.reasoning), read_sentence(flip.reasoning_flipped)
        return before is not None and before.cause in causes and after is not None and after.cause not in causes

    return Kind(family, gap_range_m, 5, thing, lambda world, thing: render(world, CAMERA, without={thing}),
                lambda world: THERE, (THERE,), expert_differs, text_follows)


def lead_ahead(world: World) -> tuple[int, float] | None:
    intent = world.intent
    return None if intent.lead is None else (intent.lead.id, intent.lead_gap_m)


def obstacle_ahead(world: World) -> tuple[int, float] | None:
    intent = world.intent
    return None if intent.passing is None else (intent.passing.obstacle.id, intent.obstacle_gap_m)


def person_ahead(world: World) -> tuple[int, float] | None:
    """The person at a crossing or in the road: (id, gap m)."""
    intent = world.intent
    return None if intent.person is None else (intent.person.id, intent.person_gap_m)


def expert_differs(world: World, thing: int, gap_m: float) -> int:
    """Which way the expert's next 6.4 s change without the thing; 0 if by less than LEAST_CHANGE_M."""
    if world.ego.speed < LEAST_SPEED_MPS:
        return 0
    with_it, without_it = (np.linalg.norm(expert_future(each)[-1, :2]) for each in (world, without(world, thing)))
    change_m = without_it - with_it
    return int(math.copysign(1, change_m)) if abs(change_m) > LEAST_CHANGE_M else 0


KINDS: dict[str, Kind] = {
    "signal": Kind("traffic_light", (10.0, 30.0), 1, signal_ahead, in_the_other_colour,
                   lambda world: world.intent.signal, ("red", "green"), the_light_decides, names_the_colour_shown),
    "lead": taken_away("lead_vehicle", lead_ahead, "lead", "lead_braking", "lead_standing", "lead_pulls_away",
                       "lead_moves"),
    "obstacle": taken_away("obstacle", obstacle_ahead, "obstacle", "oncoming", "passed"),
    "pedestrian": taken_away("pedestrian", person_ahead, "pedestrian", "pedestrian_waiting", "pedestrian_crossing",
                             "pedestrian_away"),
    "hazard": taken_away("emergency_stop", person_ahead, "hazard"),
}


# Recording and planning


@dataclass(frozen=True, eq=False)
class Approach:
    """An instant at which the change would change the drive, shown as it is and flipped."""

    seed: int
    time_s: float
    shown: str
    further: int
    gap_m: float
    as_it_is: Observation
    flipped: Observation


class Recorder:
    """The last frames and the odometry of a world; each frame rendered as it is and with the change."""

    def __init__(self, world: World, flip: Callable[[World, int], np.ndarray]):
        self.world, self.flip, self.history = world, flip, OdometryHistory()
        self.stamps, self.shown, self.flipped, self.things = (deque(maxlen=FRAMES_PER_CAMERA) for _ in range(4))

    def sense(self, thing: int | None) -> None:
        """Adds odometry and, unless `thing` is None, a frame with and without the change to that thing."""
        ego, stamp_ns = self.world.ego, round(self.world.time_s * NANOSECONDS)
        self.history.add(stamp_ns, np.array([ego.x, ego.y, 0.0]), quaternion_from_yaw(ego.yaw), ego.speed)
        if thing is not None:
            self.stamps.append(stamp_ns)
            self.things.append(thing)
            self.shown.append(render(self.world, CAMERA))
            self.flipped.append(self.flip(self.world, thing))

    def observations(self) -> tuple[Observation, Observation] | None:
        """(as it is, flipped); None if history or frames are missing, or the frames were changed in different
        things."""
        history = self.history.at(self.stamps[-1])
        if len(self.stamps) < FRAMES_PER_CAMERA or len(set(self.things)) > 1 or isinstance(history, Refusal):
            return None
        stamps = {CAMERA: np.array(self.stamps, np.int64)}
        shown = Observation(self.stamps[-1], {CAMERA: np.stack(self.shown)}, stamps, history)
        return shown, replace(shown, frames={CAMERA: np.stack(self.flipped)})


def approaches(kind: Kind, seed: int) -> Iterator[Approach]:
    """The instants of one world at which the change would change the drive."""
    world = make_world(kind.family, seed)
    recorder, steps_per_frame = Recorder(world, kind.flip), round(FRAME_STEP_S / PHYSICS_STEP_S)
    nearest, farthest = kind.gap_range_m
    while world.outcome() is None:
        frame, between = divmod(world.steps, steps_per_frame)
        thing, gap_m = kind.thing(world) or (None, math.inf)
        near = between == 0 and gap_m < farthest + SEEN_BEFORE_M
        recorder.sense(thing if near else None)
        looked_at = near and nearest <= gap_m <= farthest and frame % kind.every_frames == 0
        pair = recorder.observations() if looked_at else None
        further = kind.decides(world, thing, gap_m) if pair else 0
        if further:
            yield Approach(seed, world.time_s, kind.state(world), further, gap_m, *pair)
        world.step(PHYSICS_STEP_S, world.expert_command())


def flips(planner, kind_name: str, cases: int, first_seed: int = 0,
          on_flip: Callable[[Flip], None] = lambda flip: None) -> list[Flip]:
    """One flip per world, the kind's states in turn as far as the worlds have them, until there are `cases`.

    Raises InputError for an unknown kind, WorkFailed if the worlds have too few cases.
    """
    if kind_name not in KINDS:
        raise InputError(f"--kind {kind_name}: not known; there are {', '.join(KINDS)}")
    kind, found = KINDS[kind_name], []
    for seed in range(first_seed, min(first_seed + cases * WORLDS_PER_CASE, LAST_SEED + 1)):
        wanted = kind.states[len(found) % len(kind.states)]
        approach = next((each for each in approaches(kind, seed) if each.shown == wanted), None)
        if approach is not None:
            found.append(_flip(planner, kind_name, approach))
            on_flip(found[-1])
        if len(found) == cases:
            return found
    raise WorkFailed(f"{kind_name}: {len(found)} of {cases} cases in the worlds from seed {first_seed} on")


def _flip(planner, kind: str, at: Approach) -> Flip:
    one, other = planner.plan(at.as_it_is), planner.plan(at.flipped)
    return Flip(kind, at.seed, round(at.time_s, 2), at.shown, at.further, round(at.gap_m, 1), one.reasoning,
                distance_m(one), other.reasoning, distance_m(other))


def distance_m(plan: Plan) -> float:
    return round(float(np.linalg.norm(plan.xyz[-1, :2])), 2)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="counterfactual", description=__doc__.split("\n")[0], allow_abbrev=False,
        epilog="example: python -m specdrive_ros.evaluation.counterfactual --kind lead --cases 20 --seed 800")
    parser.add_argument("--kind", choices=KINDS, default="signal", help="what is changed (default %(default)s)")
    parser.add_argument("--model", default="mini", metavar="M", help="a model's name or folder (default %(default)s)")
    parser.add_argument("--cases", type=int, default=40, metavar="N", help="(default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N",
                        help=f"first world, 0 to {LAST_SEED} (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the cases as JSON on stdout")
    args = parser.parse_args(argv)
    try:
        found = run(args)
    except SpecdriveError as error:
        print(f"counterfactual: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    print(json.dumps([asdict(flip) for flip in found], indent=1) if args.json else listing(found))
    return 0


def run(args: argparse.Namespace) -> list[Flip]:
    from specdrive_ros.cli.progress import progress
    from specdrive_ros.cycle import Planner

    if args.cases < 1 or not 0 <= args.seed <= LAST_SEED:
        raise InputError(f"--cases {args.cases} --seed {args.seed}: 1 or more cases and a seed from 0 to {LAST_SEED}")
    planner = Planner.load(args.model)
    with progress("cases", args.cases) as bar:
        return flips(planner, args.kind, args.cases, args.seed, lambda flip: bar.advance(1, f"seed {flip.seed}"))


def listing(found: list[Flip]) -> str:
    """Every case as it is and changed, with wrong ones marked, and the two shares."""
    lines = []
    for flip in found:
        wrong = " ".join(["text stays"] * (not flip.text_follows) + ["plan stays"] * (not flip.plan_follows))
        lines += [f"{flip.seed:6d} {flip.shown:8}{flip.distance_m:6.1f} m  {flip.reasoning}",
                  f"       changed {flip.distance_flipped_m:6.1f} m  {flip.reasoning_flipped}"
                  + f"  [{wrong}]" * bool(wrong)]
    text, plan = (np.mean([getattr(flip, name) for flip in found]) for name in ("text_follows", "plan_follows"))
    lines.append(f"{len(found)} cases: the reasoning follows the pixels in {text:.0%}, the plan in {plan:.0%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
