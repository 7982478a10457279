"""looking.html and the table on the terminal: the figures, and sentences to compare side by side.

Wrong answers come first. All text from models and arguments is escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from specdrive_ros.evaluation.looking import figures as measures
from specdrive_ros.evaluation.looking.conditions import AS_IT_IS, CONDITIONS
from specdrive_ros.evaluation.looking.rows import Row
from specdrive_ros.evaluation.looking.sentences import token_f1
from specdrive_ros.evaluation.pictures import data_uri, picture_of_plan
from specdrive_ros.evaluation.report_page import card, page, table
from specdrive_ros.plan import Plan
from specdrive_ros.sim.pinhole import FRONT_CAMERA

CASES_PER_FAMILY = 3
TITLES = {"as_it_is": "as it is", "black": "black cameras", "other_scene": "another scene's cameras",
          "frozen": "frozen history", "constant_velocity": "constant velocity", "constant_turn": "constant turn rate",
          "chance": "agreement by chance"}
SHARES = ("exact", "token_f1", "slots", "decision", "agrees", "known_phrase", "finished")
TOKENS = ("vision_black", "vision_other", "vision", "history", "both", "routine", "unsteady")
ERRORS = tuple(f"{kind}_{horizon}_m" for horizon in measures.JUDGED_AT for kind in ("ade", "fde"))
TERMINAL = (("exact", AS_IT_IS, "exact"), ("F1", AS_IT_IS, "token_f1"), ("slots", AS_IT_IS, "slots"),
            ("black", "black", "slots"), ("other", "other_scene", "slots"), ("frozen", "frozen", "slots"),
            ("agrees", AS_IT_IS, "agrees"), ("ADE 3s", AS_IT_IS, "ade_3s_m"),
            ("CV", "baselines", "constant_velocity_ade_3s_m"), ("CTRV", "baselines", "constant_turn_ade_3s_m"),
            ("vision", "tokens", "vision"), ("history", "tokens", "history"), ("routine", "tokens", "routine"))


@dataclass(frozen=True, eq=False)
class Shown:
    """One condition of one sample for the page. rgb: uint8 [H, W, 3], the newest frame that was shown."""

    row: Row
    rgb: np.ndarray
    plan: Plan


class WorstCases:
    """Keeps the images of each family's worst answers only, so that memory does not grow with the samples."""

    def __init__(self, per_family: int = CASES_PER_FAMILY):
        self.per_family = per_family
        self._cases: dict[str, list[list[Shown]]] = {}

    def add(self, case: list[Shown]) -> None:
        """case: one sample under all conditions, `as_it_is` first."""
        kept = self._cases.setdefault(case[0].row.family, [])
        kept.append(case)
        kept.sort(key=_rightness)
        del kept[self.per_family:]

    def all(self) -> list[list[Shown]]:
        return sorted((case for kept in self._cases.values() for case in kept), key=_rightness)


def _rightness(case: list[Shown]) -> float:
    return token_f1(case[0].row.reasoning, case[0].row.label)


def terminal_table(result: Mapping) -> str:
    """One line per family, means only. slots: as it is, then with black cameras, other cameras and frozen history."""
    lines = [f"{'':16}" + "".join(f"{title:>8}" for title, _, _ in TERMINAL)]
    for family, block in result["families"].items():
        cells = (_plain(_group(block, group)[measure], measure) for _, group, measure in TERMINAL)
        lines.append(f"{family:16}" + "".join(f"{cell:>8}" for cell in cells))
    lines.append("slots, black, other, frozen: visual words right, as it is and with the cameras or the history "
                 "changed;\nvision, history, routine: share of the tokens that need it; ADE in m")
    return "\n".join(lines)


def looking_html(result: Mapping, cases: Sequence[Sequence[Shown]]) -> str:
    """result: the contents of looking.json; cases: each sample shown, under all conditions, `as_it_is` first."""
    families = result["families"]
    facts = " · ".join(f"{name} {result[name]}" for name in ("model", "runtime", "seed") if name in result)
    body = [f'<h1>Does it look?</h1><p class="soft">{escape(facts)} · {families[measures.ALL]["samples"]} samples, '
            "one a world, never seen in training; brackets are 95 % intervals (bootstrap over samples)</p>"]
    body.append(card("By family, as it is", _family_table(families, SHARES, AS_IT_IS)))
    body.append(card("Displacement to the expert's future, m", _error_table(families)))
    body.append(card("Share of the tokens that need …", _family_table(families, TOKENS, "tokens")))
    body += [_family_card(family, block) for family, block in families.items()]
    body.append("<h2>Sentences side by side</h2>")
    body += [_case(case) for case in cases]
    body.append(f"<h2>What is counted</h2><pre class=\"card\">{escape(measures.__doc__)}</pre>")
    return page("Does it look?", "".join(body))


def _family_table(families: Mapping, names: Sequence[str], group: str) -> str:
    rows = [[family, block["samples"], *(_cell(_group(block, group)[name], name) for name in names)]
            for family, block in families.items()]
    return table(["", "samples", *(name.replace("_", " ") for name in names)], rows)


def _error_table(families: Mapping) -> str:
    rows = []
    for family, block in families.items():
        for who, group, prefix in (("plan", AS_IT_IS, ""), ("constant velocity", "baselines", "constant_velocity_"),
                                   ("constant turn rate", "baselines", "constant_turn_")):
            rows.append([family, who, *(_cell(_group(block, group)[prefix + name], name) for name in ERRORS)])
    return table(["", "", *(name.removesuffix("_m").replace("_", " ") for name in ERRORS)], rows)


def _family_card(family: str, block: Mapping) -> str:
    """Conditions and their paired differences; a difference whose interval excludes zero is starred."""
    names = (*SHARES[:5], "ade_3s_m", "ade_6.4s_m")
    means = [[TITLES[name], *(_cell(block["conditions"][name][measure], measure) for measure in names)]
             for name in CONDITIONS]
    less = [[f"as it is less {TITLES[name]}", *(_difference(differences.get(measure), measure) for measure in names)]
            for name, differences in block["as_it_is_less"].items()]
    agreement = block["baselines"]
    notes = (f"agreement of sentence and plan: expert's own {_cell(agreement['expert_agrees'], '')}, by chance "
             f"{_cell(agreement['agrees_by_chance'], '')}; not judged: "
             + (", ".join(f"{name} {count}" for name, count in block["not_judged"].items()) or "none"))
    head = ["", *(name.removesuffix("_m").replace("_", " ") for name in names)]
    return card(f"{family}, {block['samples']} samples",
                 table(head, means + less) + f'<p class="soft">{escape(notes)}</p>')


def _case(case: Sequence[Shown]) -> str:
    own = case[0].row
    right = own.reasoning == own.label
    kind, words = ("good", "✓ as the label") if right else ("bad", "✕ not the label")
    badge = f'<span class="badge {kind}">{words}</span>'
    frames = "".join(_frame(shown) for shown in case)
    return (f'<section class="card"><div class="heading"><h3>{escape(own.family)}, seed {own.seed}, {own.time_s:.1f} s'
            f'</h3>{badge}<span>label: <span class="reasoning">{escape(own.label)}</span></span></div>'
            f'<div class="frames">{frames}</div></section>')


def _frame(shown: Shown) -> str:
    title = TITLES[shown.row.condition]
    source = data_uri(picture_of_plan(shown.rgb, FRONT_CAMERA, shown.plan))
    far_m = float(np.hypot(*shown.plan.xyz[-1, :2]))
    return (f'<figure class="frame"><div class="scene"><img src="{source}" alt="{escape(title)}, with the plan"></div>'
            f'<figcaption><b>{escape(title)}</b><br><span class="reasoning">{escape(shown.row.reasoning)}</span><br>'
            f'<span class="soft">{shown.row.speed_mps:.1f} m/s at t0, {far_m:.1f} m planned in 6.4 s</span>'
            "</figcaption></figure>")


def _group(block: Mapping, group: str) -> Mapping:
    return block[group] if group in block else block["conditions"][group]


def _plain(figure: Mapping, measure: str) -> str:
    if figure["mean"] is None:
        return "–"
    return f"{figure['mean']:.2f}" if measure.endswith("_m") else f"{figure['mean']:.0%}"


def _cell(figure: Mapping, measure: str) -> str:
    if figure["low"] is None:
        return _plain(figure, measure)
    low, high = (_plain({"mean": figure[edge]}, measure) for edge in ("low", "high"))
    return f"{_plain(figure, measure)} [{low}, {high}]"


def _difference(figure: Mapping | None, measure: str) -> str:
    if figure is None:
        return ""
    clear = figure["low"] is not None and (figure["low"] > 0 or figure["high"] < 0)
    return _cell(figure, measure) + " *" * clear
