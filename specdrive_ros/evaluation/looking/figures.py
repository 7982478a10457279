"""Every figure of `looking`, computed from its raw rows alone: `figures(rows)`.

A measure gives each sample a part and a whole (see bootstrap.py). What each one counts:

exact            the sentence equals the label's, character by character
token_f1         F1 of the label's words and punctuation marks
slots            visual words of the label that the answer has in their place (`sentences.slots_right`)
known_phrase     the sentence is a phrase of sim/phrases.py with its slots filled
decision         its phrase has the label's decision (a sentence of no known phrase has none)
agrees           of the sentences that can be judged: the plan does what the sentence says (agreement.py)
finished         the model ended its reasoning itself
ade, fde         metres to the expert's future, mean up to and at 3 s and 6.4 s

Shares of the tokens that the model wrote under `as_it_is`, closing tokens included. A token needs something if,
without it, the greedy choice at its position is another one, given the answer before it: vision_black     needs the
cameras, compared with black ones vision_other     needs the cameras, compared with another scene's vision
either of them history          needs the history, compared with one of standing still both             vision and
history routine          neither unsteady         changes with nothing changed: should be 0, else the shares are noise
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from specdrive_ros.evaluation.bootstrap import difference_with_interval, mean_with_interval
from specdrive_ros.evaluation.displacement import (
    HORIZONS,
    constant_turn_rate_and_velocity,
    constant_velocity,
    displacements,
)
from specdrive_ros.evaluation.looking.agreement import Motion, agrees
from specdrive_ros.evaluation.looking.conditions import AS_IT_IS, BLACK, BLIND, CONDITIONS, FROZEN, OTHER_SCENE
from specdrive_ros.evaluation.looking.rows import Row, by_sample
from specdrive_ros.evaluation.looking.sentences import Reading, read_sentence, slots_right, token_f1
from specdrive_ros.observation.observation import EgoHistory
from specdrive_ros.training.scenes import planar_poses

ALL = "all"
JUDGED_AT = ("3s", "6.4s")
PartOfWhole = tuple[float, float]
Scores = dict[str, PartOfWhole]
NOTHING: PartOfWhole = (0.0, 0.0)


def figures(rows: Iterable[Row]) -> dict:
    """{"families": {family: figures, …, "all": figures}}, the contents of looking.json. Raises InputError for bad
    rows."""
    samples = by_sample(rows)
    scored = {key: score_sample(conditions, samples) for key, conditions in samples.items()}
    families = dict.fromkeys(family for family, _ in samples)
    chosen = {family: [key for key in samples if key[0] == family] for family in families} | {ALL: list(samples)}
    return {"families": {
        family: _of_some([scored[key] for key in keys]) | {"not_judged": _not_judged(samples[key] for key in keys)}
        for family, keys in chosen.items()}}


def score_sample(conditions: Mapping[str, Row], samples: Mapping) -> dict[str, Scores]:
    """Group -> measure -> (part, whole) of one sample. Groups: each condition, `baselines` and `tokens`."""
    own = conditions[AS_IT_IS]
    other = samples.get((own.other_family, own.other_seed), {}).get(AS_IT_IS)
    return {name: score_plan(conditions[name]) for name in CONDITIONS} | {
        "baselines": score_baselines(own, other), "tokens": token_shares(conditions)}


def score_plan(row: Row) -> Scores:
    reading = read_sentence(row.reasoning)
    return {
        "exact": (row.reasoning == row.label, 1),
        "token_f1": (token_f1(row.reasoning, row.label), 1),
        "slots": (slots_right(row.reasoning, row.label, row.spans), len(row.spans)),
        "known_phrase": (reading is not None, 1),
        "decision": (reading is not None and reading.decision == row.decision, 1),
        "agrees": judged(reading, row, row.plan),
        "finished": (not row.truncated, 1),
    } | _errors("", np.array(row.plan), row)


def judged(reading: Reading | None, row: Row, path: list) -> PartOfWhole:
    """Whether the path does what was read, as a part of a whole; history and lane are those of the row."""
    if reading is None:
        return NOTHING
    verdict = agrees(reading, Motion.along(np.array(path), row.speed_mps, np.array(row.lane)))
    return NOTHING if verdict is None else (verdict, 1)


def score_baselines(row: Row, other: Row | None) -> Scores:
    """What plans and sentences are compared with: motions that know only the past, and two kinds of agreement.

    expert_agrees:    the label and the expert's own future: shows how good the rules of agreement are.
    agrees_by_chance: the sentence under `as_it_is` and the plan of another sample (that of `other_scene`).
    """
    history = EgoHistory(*planar_poses(np.array(row.history)), row.speed_mps)
    straight, arc = constant_velocity(history), constant_turn_rate_and_velocity(history)
    return _errors("constant_velocity_", straight, row) | _errors("constant_turn_", arc, row) | {
        "expert_agrees": judged(read_sentence(row.label), row, row.future),
        "agrees_by_chance": NOTHING if other is None else judged(read_sentence(row.reasoning), other, other.plan)}


def _errors(prefix: str, path: np.ndarray, row: Row) -> Scores:
    apart_m = displacements(path, np.array(row.future))
    scores = {}
    for horizon in JUDGED_AT:
        scores[f"{prefix}ade_{horizon}_m"] = (apart_m[:HORIZONS[horizon]].mean(), 1)
        scores[f"{prefix}fde_{horizon}_m"] = (apart_m[HORIZONS[horizon] - 1], 1)
    return scores


def token_shares(conditions: Mapping[str, Row]) -> Scores:
    needed = token_needs({name: row.choices for name, row in conditions.items()})
    written = np.array(conditions[AS_IT_IS].token_ids)
    whole = not conditions[AS_IT_IS].truncated
    needed["unsteady"] = np.array(conditions[AS_IT_IS].choices) != written if whole else np.zeros(1, bool)
    return {name: (float(where.sum()), float(len(written))) for name, where in needed.items()}


def token_needs(choices: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Measure -> [n] bool, which tokens of an answer need what; choices: condition -> greedy choice at each token."""
    own = np.array(choices[AS_IT_IS])
    changed = {name: np.array(choices[name]) != own for name in CONDITIONS}
    vision = np.any([changed[name] for name in BLIND], axis=0)
    return {
        "vision_black": changed[BLACK],
        "vision_other": changed[OTHER_SCENE],
        "vision": vision,
        "history": changed[FROZEN],
        "both": vision & changed[FROZEN],
        "routine": ~(vision | changed[FROZEN]),
    }


COMPARED = ("exact", "token_f1", "slots", "decision", "agrees", "ade_3s_m", "ade_6.4s_m")


def _of_some(scored: list[dict[str, Scores]]) -> dict:
    """Means and paired differences over some samples."""
    column = _columns(scored)
    means = {group: {measure: mean_with_interval(*column(group, measure)) for measure in scored[0][group]}
             for group in scored[0]}
    return {
        "samples": len(scored),
        "conditions": {name: means[name] for name in CONDITIONS},
        "baselines": means["baselines"],
        "tokens": means["tokens"],
        "as_it_is_less": {
            name: {measure: difference_with_interval(*column(AS_IT_IS, measure), *column(name, measure))
                   for measure in COMPARED}
            for name in CONDITIONS if name != AS_IT_IS} | _less_baselines(column),
    }


def _less_baselines(column: Callable) -> dict:
    errors = [f"{kind}_{horizon}_m" for horizon in JUDGED_AT for kind in ("ade", "fde")]
    less = {baseline: {measure: difference_with_interval(*column(AS_IT_IS, measure),
                                                         *column("baselines", f"{baseline}_{measure}"))
                       for measure in errors}
            for baseline in ("constant_velocity", "constant_turn")}
    agreement = {"agrees": difference_with_interval(*column(AS_IT_IS, "agrees"),
                                                    *column("baselines", "agrees_by_chance"))}
    return less | {"chance": agreement}


def _columns(scored: list[dict[str, Scores]]) -> Callable[[str, str], tuple[np.ndarray, np.ndarray]]:
    """(group, measure) -> parts [n], wholes [n]."""

    def column(group: str, measure: str) -> tuple[np.ndarray, np.ndarray]:
        pairs = np.array([scores[group][measure] for scores in scored], float)
        return pairs[:, 0], pairs[:, 1]

    return column


def _not_judged(samples: Iterable[Mapping[str, Row]]) -> dict[str, int]:
    """Decisions, under `as_it_is`, of the sentences whose agreement was not judged, and how often each occurs."""
    counts: Counter[str] = Counter()
    for conditions in samples:
        row = conditions[AS_IT_IS]
        reading = read_sentence(row.reasoning)
        if judged(reading, row, row.plan) == NOTHING:
            counts["no known phrase" if reading is None else reading.decision] += 1
    return dict(sorted(counts.items()))
