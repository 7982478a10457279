"""The same instant with one source of information removed or exchanged. Knows no model."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from specdrive_ros.evaluation.looking.samples import HeldOutSample
from specdrive_ros.observation.observation import EgoHistory, Observation

AS_IT_IS, BLACK, OTHER_SCENE, FROZEN = "as_it_is", "black", "other_scene", "frozen"
CONDITIONS = (AS_IT_IS, BLACK, OTHER_SCENE, FROZEN)
BLIND = (BLACK, OTHER_SCENE)  # those that take away the own cameras


def condition(name: str, own: Observation, other: Observation) -> Observation:
    """The observation `own` under one of `CONDITIONS`; `other` provides the cameras of the other scene."""
    return _MAKE[name](own, other)


def _as_it_is(own: Observation, other: Observation) -> Observation:
    return own


def _black(own: Observation, other: Observation) -> Observation:
    return replace(own, frames={camera: np.zeros_like(frames) for camera, frames in own.frames.items()})


def _other_scene(own: Observation, other: Observation) -> Observation:
    return replace(own, frames=other.frames)


def _frozen(own: Observation, other: Observation) -> Observation:
    """Looks as if the ego had stood still for all of the history."""
    xyz, rotation = np.zeros_like(own.history.xyz), np.broadcast_to(np.eye(3), own.history.rotation.shape)
    return replace(own, history=EgoHistory(xyz, rotation.copy(), 0.0))


_MAKE: dict[str, Callable[[Observation, Observation], Observation]] = {
    AS_IT_IS: _as_it_is, BLACK: _black, OTHER_SCENE: _other_scene, FROZEN: _frozen}


def other_scenes(samples: Sequence[HeldOutSample]) -> list[HeldOutSample]:
    """For each sample, the one whose cameras it is shown: from another family, the other families in turn.

    If there is only one family, another world; a single sample only has itself.
    """
    by_family: dict[str, list[HeldOutSample]] = {}
    for sample in samples:
        by_family.setdefault(sample.family, []).append(sample)
    families, seen, others = list(by_family), dict.fromkeys(by_family, 0), []
    for sample in samples:
        turn = seen[sample.family]
        seen[sample.family] += 1
        others.append(_other(by_family, families, sample.family, turn))
    return others


def _other(by_family: dict, families: list[str], family: str, turn: int) -> HeldOutSample:
    if len(families) == 1:
        return by_family[family][(turn + 1) % len(by_family[family])]
    step = 1 + turn % (len(families) - 1)
    candidates = by_family[families[(families.index(family) + step) % len(families)]]
    return candidates[turn % len(candidates)]
