"""One planning cycle, observation in, plan out.

    cameras, odometry -> vision -> prefill -> decoding -> action head -> checks -> plan

Knows nothing of ROS or deadlines, nor of what happens to a plan that fails its checks.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder, Decoder
from specdrive_ros.decoding.pace import UNHURRIED, Pace
from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.speculative import SpeculativeDecoder
from specdrive_ros.decoding.state import DecodingState, Reasoning
from specdrive_ros.draft.company import PassCosts
from specdrive_ros.draft.registry import CARRYOVER, NO_DRAFT, check_names, load_company, own_draft
from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import ModelSettings, find_model
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.plan import Plan
from specdrive_ros.prefill import Prefill
from specdrive_ros.runtime.frame_encoder import EncodedFrame, FrameEncoder
from specdrive_ros.runtime.networks import TargetNetworks
from specdrive_ros.runtime.registry import load_networks
from specdrive_ros.safety.plan_checks import PlanLimits, check
from specdrive_ros.shapes import FRAMES_PER_CAMERA, HISTORY_POSES, PICTURE_SIZE
from specdrive_ros.target.rope import text_positions
from specdrive_ros.target.tokens import TargetTokenizer
from specdrive_ros.target.unicycle import action_to_trajectory, speed_at_t0, without_rolling_back

DEFAULT_THREADS = 2


class Planner:
    """Makes plans with one model. One thread at a time.

    The action head starts every cycle from the same noise, drawn once from `seed`: cycles with the same observation
    make the same plan, and plans do not jitter.

    pace:   may shorten the reasoning; by default it takes as long as it takes.
    limits: of the plan checks.
    action_steps_late: steps of the action head when the pace says that all of them would be late; 0: never fewer.
    """

    pace: Pace = UNHURRIED
    action_steps_late: int = 0
    limits: PlanLimits = PlanLimits()

    def __init__(
        self,
        settings: ModelSettings,
        networks: TargetNetworks,
        tokenizer: TargetTokenizer,
        *,
        seed: int = 0,
        keep_frames: bool = True,
        draft: str = NO_DRAFT,
        costs: PassCosts | None = None,
    ):
        self.settings, self.networks, self.tokenizer = settings, networks, tokenizer
        self.draft = draft
        self.config = networks.config
        self.encoder = FrameEncoder(networks, settings.cameras, keep=keep_frames)
        self.rules = ReasoningRules.of(tokenizer, self.config.text.vocab_size, settings.max_new_tokens)
        self.decoder = make_decoder(networks, self.rules, draft, settings.checkpoint, tokenizer, costs)
        self.prefill = Prefill(networks, tokenizer)
        self.reseed(seed)
        self._shared: tuple[list[EncodedFrame], int] = [], 0  # frames of the next prompt's beginning; images in all

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        runtime: str = "onnxruntime",
        seed: int = 0,
        threads: int = DEFAULT_THREADS,
        max_new_tokens: int | None = None,
        draft: str | None = NO_DRAFT,
        action_steps_late: int = 0,
    ) -> "Planner":
        """The planner for a model given by name or folder. Raises `InputError` if it cannot be loaded.

        draft: what speeds up the reasoning, a name of `draft/registry.py` or several as `a+b`; None: the model's own.
        """
        settings = find_model(model)
        draft = own_draft(settings) if draft is None else draft
        check_names(draft)
        if max_new_tokens is not None:
            settings = replace(settings, max_new_tokens=max_new_tokens)
        networks = load_networks(settings.checkpoint, runtime, threads=threads)
        if settings.action_steps not in (None, networks.flow_steps):
            raise InputError(
                f"{settings.checkpoint}: the action head has {networks.flow_steps} steps, the model's "
                f"settings say {settings.action_steps}; export it again"
            )
        planner = cls(settings, networks, TargetTokenizer.load(networks.config), seed=seed, draft=draft)
        planner.allow_fewer_action_steps(action_steps_late)
        return planner

    def allow_fewer_action_steps(self, steps: int) -> None:
        """Sets `action_steps_late`. Raises `InputError` unless it is fewer than the model's own steps."""
        if not 0 <= steps < self.networks.flow_steps:
            raise InputError(f"action_steps_late: {steps}; must be from 0 to {self.networks.flow_steps - 1}")
        self.action_steps_late = steps

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras an observation must have, in the order of the prompt."""
        return self.settings.cameras

    def plan(self, observation: Observation) -> Plan:
        """The plan for one observation. Raises `InputError` when a camera is missing."""
        stage_ms: dict[str, float] = {}
        state = self.perceive(observation, stage_ms, self.decoder.carried(), **self._asked)
        reasoning = self.decoder.decode(state, self.pace)
        stage_ms |= reasoning.stage_ms
        steps = self._fewer_action_steps()
        with _timed(stage_ms, "action"):
            plan = self._drive(observation, reasoning, self._act(state, steps or None), steps)
        with _timed(stage_ms, "check"):
            found = check(plan, observation, self.limits)
        return replace(plan, violations=found.violations, warnings=found.warnings, stage_ms=stage_ms)

    def warm_up(self, cycles: int) -> list[dict[str, float]]:
        """Makes plans from grey images of a standing car, so that the first real cycle is not the slowest.

        Returns each cycle's stage times, milliseconds. Nothing carries over into later cycles.
        """
        height, width = PICTURE_SIZE
        frames = {camera: np.full((FRAMES_PER_CAMERA, height, width, 3), 127, np.uint8) for camera in self.cameras}
        stamps = np.arange(FRAMES_PER_CAMERA, dtype=np.int64)
        rotation = np.tile(np.eye(3), (HISTORY_POSES, 1, 1))
        history = EgoHistory(np.zeros((HISTORY_POSES, 3)), rotation, 0.0)
        stages = []
        for cycle in range(cycles):
            moved = stamps + cycle * FRAMES_PER_CAMERA  # other stamps, so that every frame is encoded
            observation = Observation(int(moved[-1]), frames, dict.fromkeys(self.cameras, moved), history)
            stages.append(self.plan(observation).stage_ms)
        self.forget()
        return stages

    def reseed(self, seed: int) -> None:
        """Draws the noise that the action head starts from in the following cycles from this seed."""
        shape = (self.config.action_space.n_waypoints, 2)
        spread = np.float32(self.settings.action_noise)
        self.noise = spread * np.random.default_rng(seed).standard_normal(shape, np.float32)

    def forget(self) -> None:
        """The clock or the scene has changed: drops everything remembered from earlier cycles."""
        self.decoder.forget()
        self.encoder.forget()
        self.prefill.forget()

    def perceive(
        self,
        observation: Observation,
        stage_ms: dict[str, float],
        carried: tuple[int, ...] = (),
        **asked,
    ) -> DecodingState:
        """The target's state after the whole prompt, before its first word. Valid until the next observation.

        stage_ms:  receives the wall time of `vision` and `prefill`, milliseconds.
        carried:   tokens that ride along after the prompt; the decoder that asked for them verifies them.
        asked:     `forbidden` and `taps` of `TargetNetworks.extend`, as the decoder needs them; without them the state
                   has logits and taps.
        """
        with _timed(stage_ms, "vision"):
            frames = self.look(observation)
        with _timed(stage_ms, "prefill"):
            return self.prefill.run(frames, observation.history.xyz, self._room, carried, **asked)

    def look(self, observation: Observation) -> list[EncodedFrame]:
        """Encodes the new frames of an observation, so that the next one finds those that it shares. Returns all of its
        frames. Raises `InputError` when a camera is missing."""
        frames = self.encoder.encode(observation.frames, observation.frame_stamps_ns)
        self._shared = frames[1 : len(observation.frames[self.cameras[0]])], len(frames)
        return frames

    def prefill_ahead(self) -> bool:
        """Takes what the next observation will share with the latest one through the target, which saves that one the
        time. Returns whether it did: not unless the latest observation was one frame after the one before, and the
        networks have room for a prompt in two passes.

        For the wait between two cycles: the state of the latest observation is no longer valid after it.
        """
        shared, images = self._shared
        return bool(self.encoder.in_step and shared) and self.prefill.begin(shared, images, self._room, **self._asked)

    @property
    def _asked(self) -> dict:
        """How the decoder needs the target's passes over a prompt."""
        return {"forbidden": self.decoder.forbidden, "taps": self.decoder.reads_taps}

    @property
    def _room(self) -> int:
        """Cache rows needed after a prompt."""
        return self.settings.max_new_tokens + self.decoder.spare_rows

    def _fewer_action_steps(self) -> int:
        """Steps of the action head if they are fewer than the model's own, else 0."""
        return self.action_steps_late if self.action_steps_late and self.pace.must_shorten_action() else 0

    def _act(self, state: DecodingState, steps: int | None = None) -> np.ndarray:
        """[64, 2] normalised accelerations and curvatures."""
        positions = text_positions(state.cache.length, len(self.noise), state.rope_delta)
        how = {} if steps is None else {"steps": steps}
        return self.networks.act(self.noise, positions, state.cache, visible=state.cache.length, **how)

    def _drive(self, observation: Observation, reasoning: Reasoning, action: np.ndarray, fewer_steps: int) -> Plan:
        history, space = observation.history, self.config.action_space
        v0_mps = float(speed_at_t0(space, history.xyz, history.rotation))
        if self.settings.forward_only:
            action = without_rolling_back(space, action, v0_mps)
        trajectory = action_to_trajectory(space, action, v0_mps)
        return Plan(
            t0_ns=observation.t0_ns,
            reasoning=self.tokenizer.reasoning(reasoning.token_ids),
            token_ids=reasoning.token_ids,
            xyz=trajectory.xyz,
            yaw=trajectory.yaw,
            speed_mps=trajectory.speed_mps,
            acceleration=trajectory.acceleration_mps2,
            curvature=trajectory.curvature_per_m,
            v0_mps=v0_mps,
            truncated=reasoning.truncated,
            target_passes=reasoning.target_passes,
            action_steps=fewer_steps,
            drafted=reasoning.drafted,
        )


def make_decoder(
    networks: TargetNetworks,
    rules: ReasoningRules,
    draft: str,
    checkpoint: Path,
    tokenizer: TargetTokenizer,
    costs: PassCosts | None = None,
) -> Decoder:
    """Plain decoding, or speculative decoding with the named draft; a carry-over also rides along in the prefill."""
    if draft == NO_DRAFT:
        return AutoregressiveDecoder(networks, rules)
    costs = costs or PassCosts.load(checkpoint)
    company = load_company(draft, networks, tokenizer, rules, costs, checkpoint)
    return SpeculativeDecoder(
        networks, rules, company, nodes=costs.most_nodes, carry=CARRYOVER in check_names(draft)
    )


@contextmanager
def _timed(stage_ms: dict[str, float], stage: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    stage_ms[stage] = 1000 * (time.perf_counter() - begun)
