"""Ways of decoding compared with plain decoding on one machine in one run: same prompts, same networks, same text.

Prompts are cycles at 10 Hz of drives by the embedded world's expert, in order, so that each cycle has a predecessor.
Each prompt is decoded by every method in turn, so other load on the machine affects all alike. The time of a reasoning
is what it adds to the prompt: prefill plus decoding, minus the median plain prefill, so that tokens carried along in
the prefill pay for what they add there.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from specdrive_ros.cycle import Planner, make_decoder
from specdrive_ros.decoding.state import DecodingState
from specdrive_ros.decoding.statistics import accepted_length, routine_share
from specdrive_ros.draft.asking import AskingCost, from_two
from specdrive_ros.draft.company import PassCosts
from specdrive_ros.draft.draft import Draft, DraftContext
from specdrive_ros.draft.registry import NETWORKS, NO_DRAFT, draft_path, load_company, rope_of
from specdrive_ros.geometry import quaternion_from_yaw
from specdrive_ros.observation.history import OdometryHistory
from specdrive_ros.observation.observation import Observation
from specdrive_ros.observation.refusal import Refusal
from specdrive_ros.plan import Plan
from specdrive_ros.quantiles import quantiles
from specdrive_ros.runtime.timing import measure_passes
from specdrive_ros.shapes import FRAME_STEP_S, FRAMES_PER_CAMERA, NANOSECONDS
from specdrive_ros.sim.camera import render
from specdrive_ros.sim.pinhole import check_cameras
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.target.rope import text_positions

CYCLES_PER_WORLD = 25
TICK_S = 0.05
WARM_UP = 3
WIDTHS = (1, 4, 8, 16, 32, 64)
FEW_ROWS = 4  # accepted between two proposals; used for the cost of asking a draft


@dataclass
class MethodResult:
    """One way of decoding over all prompts; ms: milliseconds per prompt of prefill and decoding together."""

    draft: str
    ms: list[float] = field(default_factory=list)
    prefill_ms: list[float] = field(default_factory=list)
    tokens: int = 0
    target_passes: int = 0
    mismatches: int = 0
    longest: int = 0
    drafted: dict[str, int] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)

    def row(self, plain: "MethodResult") -> dict:
        """The contract's row; `plain` is plain decoding in the same run."""
        ms, plain_ms = self.reasoning_ms(plain), plain.reasoning_ms(plain)
        return {
            "draft": self.draft,
            "rope": rope_of(self.draft),
            "tokens": self.tokens,
            "target_passes": self.target_passes,
            "accepted_length": round(accepted_length(self.tokens, self.target_passes, len(self.ms)), 4),
            "routine_share": round(routine_share(self.tokens, self.target_passes), 4),
            "ms_per_reasoning": {
                **quantiles(ms, ("median", "p99"), digits=3),
                "mean": round(float(np.mean(ms)), 3),
            },
            "speedup": _ratio(np.mean(plain_ms), np.mean(ms)),
            "speedup_median": _ratio(np.median(plain_ms), np.median(ms)),
            "identical": self.mismatches == 0,
            "mismatches": self.mismatches,
            "drafted": dict(sorted(self.drafted.items())),
        }

    def reasoning_ms(self, plain: "MethodResult") -> np.ndarray:
        return np.array(self.ms) - np.median(plain.prefill_ms)


def _ratio(plain_ms: float, ms: float) -> float | None:
    """None if the reasoning's time is lost in the noise of the prefill's."""
    return round(float(plain_ms / ms), 3) if ms > 0 else None


def measure_methods(
    planner: Planner,
    drafts: Sequence[str],
    prompts: int,
    *,
    costs: PassCosts,
    seed: int = 0,
    on_prompt: Callable[[], None] = lambda: None,
    also: Callable[[Observation], None] = lambda observation: None,
) -> list[MethodResult]:
    """Runs every method on every prompt; plain decoding is always included and comes first. also: called with each
    prompt after its decoding."""
    names = [NO_DRAFT, *(draft for draft in dict.fromkeys(drafts) if draft != NO_DRAFT)]
    folder = planner.settings.checkpoint
    decoders = [
        make_decoder(planner.networks, planner.rules, name, folder, planner.tokenizer, costs) for name in names
    ]
    results = [MethodResult(name) for name in names]
    for number, observation in enumerate(_first(observations(planner, seed), prompts + WARM_UP)):
        expected: tuple[int, ...] = ()
        for decoder, result in zip(decoders, results, strict=True):
            planner.decoder = decoder
            plan = planner.plan(observation)
            expected = expected or plan.token_ids
            if number >= WARM_UP:
                _note(result, plan, expected)
        if number >= WARM_UP:
            also(observation)
            on_prompt()
    return results


def _note(result: MethodResult, plan: Plan, expected: tuple[int, ...]) -> None:
    stages = plan.stage_ms
    result.plans.append(plan)
    result.prefill_ms.append(stages["prefill"])
    result.ms.append(stages["prefill"] + stages["draft"] + stages["verify"])
    result.tokens += len(plan.token_ids)
    result.target_passes += plan.target_passes
    result.mismatches += plan.token_ids != expected
    result.longest = max(result.longest, len(plan.token_ids))
    for name, count in plan.drafted.items():
        result.drafted[name] = result.drafted.get(name, 0) + count


def measured_costs(planner: Planner, repeat: int = 15) -> PassCosts:
    """Measures what passes of several widths cost after a prompt, here and now. Wider passes never count as
    cheaper."""
    observation = next(observations(planner, 0))
    state = planner.perceive(observation, {})
    ms = measure_passes(planner.networks, state.cache.length, state.rope_delta, WIDTHS, repeat)
    costs = PassCosts(WIDTHS, tuple(float(each) for each in np.maximum.accumulate(ms)))
    return replace(costs, drafts=measured_asking(planner, state, costs, repeat))


def measured_asking(planner: Planner, state: DecodingState, costs: PassCosts, repeat: int) -> dict[str, AskingCost]:
    """Measures what it costs to ask each network draft in the model's folder after a prompt: first with the whole
    prompt unread, then with a few new rows. Takes the minimum over repetitions, because other load only ever adds
    time."""
    found, folder = {}, planner.settings.checkpoint
    for name in (name for name in NETWORKS if draft_path(folder, name).is_dir()):
        (draft,) = load_company(name, planner.networks, planner.tokenizer, planner.rules, costs, folder).drafts
        ms = np.array([_ask_twice(draft, state, costs.most_nodes) for _ in range(repeat)]).min(axis=0)
        found[name] = from_two((FEW_ROWS, len(state.prompt_ids)), (ms[1], ms[0]))
    return found


def _ask_twice(draft: Draft, state: DecodingState, nodes: int) -> tuple[float, float]:
    """Milliseconds of the proposal after the first token of an answer, and of the next one a few tokens later."""
    first, words = len(state.prompt_ids), (0,) * (1 + FEW_ROWS)
    behind = text_positions(first, FEW_ROWS, state.rope_delta)
    taps = (state.taps, state.taps[:FEW_ROWS])
    contexts = [
        DraftContext(state.prompt_ids, words[:1], 0, taps[0], state.positions, state.rope_delta),
        DraftContext(state.prompt_ids, words, 0, taps[1], behind, state.rope_delta),
    ]
    draft.begin()
    ms = []
    for context in contexts:
        begun = time.perf_counter()
        draft.propose(context, nodes)
        ms.append(1000 * (time.perf_counter() - begun))
    return ms[0], ms[1]


def _first(cycles: Iterator[Observation], count: int) -> Iterator[Observation]:
    for _ in range(count):
        yield next(cycles)


def observations(planner: Planner, seed: int) -> Iterator[Observation]:
    """Cycles of one world after another, endlessly; families in turn, from seeds that training never uses."""
    families = planner.settings.scenarios or FAMILIES
    number = 0
    while True:
        family = families[number % len(families)]
        yield from _drive(family, seed + number // len(families), planner.cameras)
        number += 1


def _drive(family: str, seed: int, cameras: Sequence[str]) -> Iterator[Observation]:
    """A world driven by its expert: a cycle every 0.1 s once there is a history."""
    world = make_world(family, seed)
    check_cameras(cameras)
    history, frames, stamps, cycles, tick = OdometryHistory(), {name: [] for name in cameras}, [], 0, 0
    while cycles < CYCLES_PER_WORLD and world.outcome() is None:
        now_ns = round(tick * TICK_S * NANOSECONDS)
        history.add(now_ns, np.array([world.ego.x, world.ego.y, 0.0]), quaternion_from_yaw(world.ego.yaw), world.ego.speed)
        if tick % round(FRAME_STEP_S / TICK_S) == 0:
            stamps = [*stamps, now_ns][-FRAMES_PER_CAMERA:]
            for name, kept in frames.items():
                kept[:] = [*kept, render(world, name)][-FRAMES_PER_CAMERA:]
            past = history.at(now_ns)
            if not isinstance(past, Refusal):
                cycles += 1
                stacks = {name: np.stack(kept) for name, kept in frames.items()}
                yield Observation(now_ns, stacks, dict.fromkeys(cameras, np.array(stamps)), past)
        world.step(TICK_S, world.expert_command())
        tick += 1
