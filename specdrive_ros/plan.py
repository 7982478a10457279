"""What one planning cycle decides: a chain of causation and a trajectory. Knows nothing of ROS."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Plan:
    """Reasoning and trajectory for one observation, in the ego frame (base_link) at t0.

    t0_ns:           stamp of the observation, nanoseconds.
    reasoning:       the chain of causation, plain text.
    token_ids:       the generated ids, `<|cot_end|>` and `<|traj_future_start|>` included.
    xyz:             [64, 3] metres; row k is at t0 + 0.1 (k + 1) s.
    yaw:             [64] radians.
    speed_mps:       [64] m/s, signed along the heading.
    acceleration:    [64] m/s².
    curvature:       [64] 1/m, left positive.
    v0_mps:          speed at t0 that the rollout starts from, m/s.
    truncated:       whether the chain of causation was closed before the model ended it.
    target_passes:   passes of the target spent on reasoning, not counting the prefill.
    action_steps:    steps of the action head if they were fewer than the model's own, else 0.
    drafted:         number of tokens that drafts supplied, by the draft's name.
    violations:      checks of safety/plan_checks.py that the plan fails; empty if it may be driven.
    warnings:        failed checks that do not forbid driving it.
    stage_ms:        wall time per stage (names of `latency_ms` in the contract), milliseconds.
    """

    t0_ns: int
    reasoning: str
    token_ids: tuple[int, ...]
    xyz: np.ndarray
    yaw: np.ndarray
    speed_mps: np.ndarray
    acceleration: np.ndarray
    curvature: np.ndarray
    v0_mps: float
    truncated: bool = False
    target_passes: int = 0
    action_steps: int = 0
    drafted: dict[str, int] = field(default_factory=dict)
    violations: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    stage_ms: dict[str, float] = field(default_factory=dict)
