"""The summary of all replayed bags, in the contract's terms."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from specdrive_ros.evaluation.displacement import displacement_summary
from specdrive_ros.evaluation.replay import BagReplay
from specdrive_ros.evaluation.summary import (
    build_summary,
    cycles_summary,
    inputs_summary,
    latency_summary,
    reasoning_summary,
)


def replay_summary(
    replays: Sequence[BagReplay], *, model: str, runtime: str, draft: str = "none", seed: int = 0
) -> dict:
    """The contract's summary, with a row per bag, the counts of instants without a plan, and notes for people."""
    plans = [cycle.plan for replay in replays for cycle in replay.cycles]
    errors = [replay.errors() for replay in replays]
    ours, baseline = [row for e, _ in errors for row in e], [row for _, b in errors for row in b]
    refused = sum((replay.refused for replay in replays), Counter())
    violated = Counter(name for replay in replays for cycle in replay.cycles for name in cycle.violated)
    summary = build_summary(
        model=model, runtime=runtime, draft=draft, seed=seed,
        cycles={
            **cycles_summary(observed=len(plans), planned=len(plans)),
            "refused": dict(sorted(refused.items())),
            "violated": dict(sorted(violated.items())),
        },
        latency_ms=latency_summary([plan.stage_ms for plan in plans]),
        reasoning=reasoning_summary(plans),
        inputs=inputs_summary(
            frames=sum(replay.frames for replay in replays),
            odometry=sum(replay.odometry for replay in replays),
            rejected=sum((replay.rejected for replay in replays), Counter())),
        trajectory=displacement_summary(ours, baseline),
    )
    summary["bags"] = [_bag_row(replay, *error) for replay, error in zip(replays, errors)]
    summary["notes"] = [note for replay in replays for note in replay.notes]
    return summary


def _bag_row(replay: BagReplay, errors: list[np.ndarray], baseline: list[np.ndarray]) -> dict:
    return {
        "name": replay.name,
        "seconds": round(replay.seconds, 3),
        "planned": len(replay.cycles),
        "refused": dict(sorted(replay.refused.items())),
        "repeated_frames": sum(cycle.repeated_frames for cycle in replay.cycles),
        "oldest_frame_s": round(max((cycle.frame_age_s for cycle in replay.cycles), default=0.0), 3),
        "trajectory": displacement_summary(errors, baseline),
    }
