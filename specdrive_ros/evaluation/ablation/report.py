"""ablation.html: the tables, what differs, the anchors' curves, where drafts attend and which tokens they get right.

Made from the contents of ablation.json alone; knows no draft and no model.
"""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from specdrive_ros.evaluation.ablation.cells import KINDS
from specdrive_ros.evaluation.ablation.prompts import SPLITS
from specdrive_ros.evaluation.ablation.tokens import NEEDS
from specdrive_ros.evaluation.charts import curves, heat, intervals, stacked
from specdrive_ros.evaluation.report_page import page, table

TITLES = {"validation": "Validation worlds", "held_out": "Held-out worlds"}
CURVES = (
    ("accepted_length", "tokens a pass on validation"),
    ("anchor_set", "positions held by the anchor, share"),
    ("agreement", "first choice is the target's token, share"),
    ("kl_all", "nats from the reference, all positions"),
)


def ablation_html(result: Mapping) -> str:
    facts = " · ".join(f"{name} {result[name]}" for name in ("model", "runtime", "threads", "prompts", "seed"))
    body = [f'<h1>Drafts compared</h1><p class="soft">{escape(facts)}; brackets: 95 % over prompts and seeds</p>']
    body += [_split(result, split) for split in SPLITS]
    body.append(_card("What differs", _comparisons(result["comparisons"])))
    body += [
        _card(f"Action-aware RL, {kind}", _curves(result["curves"], kind)) for kind in KINDS if _rows_of(result, kind)
    ]
    body.append(_card("Where drafts look", _attention(result["attention"])))
    body.append(_card("Tokens that drafts get right by themselves", _tokens(result["tokens"])))
    if "command" in result:
        body.append(_verbatim("Command", result["command"]))
    body.append(_verbatim("What is counted", f"{result['conventions']}\ntheoretical: {result['theoretical_formula']}"))
    return page("Drafts compared", "".join(body))


def figures_of(result: Mapping) -> dict[str, str]:
    """The page's main figures by name, each one `<svg>` element."""
    found = {f"accepted-length-{split.replace('_', '-')}": _lengths(result, split) for split in SPLITS}
    if result["comparisons"]:
        found["differences"] = _differences(result["comparisons"])
    for kind in KINDS:
        if _rows_of(result, kind):
            found |= {
                f"{kind}-{measure.replace('_', '-')}": _curve(result["curves"], kind, measure, unit)
                for measure, unit in CURVES
            }
    return found | {"attention": _attention_of_rows(result["attention"])}


def terminal_table(result: Mapping) -> str:
    """One line per row, split and block."""
    lines = []
    for record in result["table"]:
        lines.append(
            f"{record['row']:22} {record['split']:10} block {record['block']:>2}"
            f"   L {_plain(record['accepted_length'])}"
            f"   routine {record['routine_share']['mean']:.0%}   theoretical {record['theoretical']['mean']:.2f}"
            f"   measured {_plain(record['measured'])}   {_lossless(record)}"
        )
    lines += [
        f"{each['comparison']:40} {each['split']:10} block {each['block']:>2}"
        f"   {_plain(each['accepted_length'], '+.3f')}"
        f"   {'differ' if each['differs'] else 'do not differ'}"
        for each in result["comparisons"]
    ]
    return "\n".join(lines)


def _split(result: Mapping, split: str) -> str:
    records = [record for record in result["table"] if record["split"] == split]
    head = [
        "draft",
        "block",
        "seeds",
        "prompts",
        "L",
        "by seed",
        "routine share",
        "theoretical",
        "measured",
        "plans apart, m",
        "",
    ]
    rows = [
        [
            record["row"],
            record["block"],
            len(record["seeds"]),
            record["prompts"],
            _plain(record["accepted_length"]),
            " ".join(f"{each:.2f}" for each in record["accepted_length_by_seed"]),
            _plain(record["routine_share"]),
            _plain(record["theoretical"]),
            _plain(record["measured"]),
            f"{record['plan_m']:.1e}",
            _lossless(record),
        ]
        for record in records
    ]
    return _card(TITLES[split], table(head, rows) + _lengths(result, split))


def _lengths(result: Mapping, split: str) -> str:
    return intervals(
        [
            (f"{record['row']}, block {record['block']}", *_three(record["accepted_length"]))
            for record in result["table"]
            if record["split"] == split
        ],
        "tokens a pass of the target",
    )


def _lossless(record: Mapping) -> str:
    return "identical" if record["identical"] else f"{record['mismatches']} MISMATCHES"


def _comparisons(found: Sequence[Mapping]) -> str:
    head = ["comparison", "split", "block", "seeds", "tokens a pass", ""]
    rows = [
        [
            each["comparison"],
            each["split"],
            each["block"],
            len(each["seeds"]),
            _plain(each["accepted_length"], "+.3f"),
            "differ" if each["differs"] else "do not differ",
        ]
        for each in found
    ]
    if not found:
        return '<p class="soft">nothing to compare yet</p>'
    return table(head, rows) + _differences(found)


def _differences(found: Sequence[Mapping]) -> str:
    return intervals(
        [
            (f"{each['comparison']}, {each['split']}, {each['block']}", *_three(each["accepted_length"]))
            for each in found
        ],
        "difference in tokens a pass",
        zero=True,
    )


def _rows_of(result: Mapping, kind: str) -> bool:
    return any(name.startswith(kind) for name in result["curves"])


def _curves(found: Mapping[str, list[dict]], kind: str) -> str:
    return "".join(_curve(found, kind, measure, unit) for measure, unit in CURVES)


def _curve(found: Mapping[str, list[dict]], kind: str, measure: str, unit: str) -> str:
    """Means over the seeds of each post-trained row."""
    rows: dict[str, list[list[dict]]] = {}
    for name, curve in found.items():
        if name.startswith(kind):
            rows.setdefault(name.partition("/")[0], []).append(curve)
    series = {
        row: (
            [each["step"] for each in of_seeds[0]],
            np.mean([[each[measure] for each in curve] for curve in of_seeds], 0),
        )
        for row, of_seeds in rows.items()
    }
    return curves(series, "step", unit)


def _attention(found: Mapping[str, Mapping]) -> str:
    """Shares of every row, then mirror and flat step by step."""
    sources = next(iter(found.values()))["sources"]
    parts = [_attention_of_rows(found)]
    parts += [_by_step(name, each, sources) for name, each in found.items() if "+" not in name]
    return "".join(parts)


def _attention_of_rows(found: Mapping[str, Mapping]) -> str:
    first = next(iter(found.values()))
    rows = [("rows there are, even look", first["rows"])]
    rows += [
        (f"{name}, entropy {each['mean_entropy']:.2f} nats", list(each["mean_share"].values()))
        for name, each in found.items()
    ]
    return stacked(rows, first["sources"], "share of attention by source")


def _by_step(name: str, each: Mapping, sources: Sequence[str]) -> str:
    """One distilled draft by step ahead: sources over all heads, then each head's vision, history and entropy."""
    shares, entropy = np.array(each["share"]), np.array(each["entropy"])  # [layers, heads, steps, sources], [… steps]
    layers, count, ahead = entropy.shape
    steps = [f"{step}" for step in range(1, ahead + 1)]
    heads = [f"layer {layer + 1} head {head + 1}" for layer in range(layers) for head in range(count)]
    of_steps = [(f"step {step}", shares[:, :, number].mean((0, 1))) for number, step in enumerate(steps)]
    parts = [f"<h3>{escape(name)}, by step ahead</h3>", stacked(of_steps, sources, f"{name}: attention by step")]
    for title, values in (("vision", shares[..., 0]), ("history", shares[..., 1]), ("entropy, nats", entropy)):
        parts.append(f'<p class="soft">{escape(title)}</p>')
        parts.append(heat(values.reshape(-1, ahead), heads, steps, f"{name}: {title}"))
    return "".join(parts)


def _tokens(found: Mapping[str, Mapping]) -> str:
    head = ["draft", *(f"{how}, {need}" for how in ("first", "supplied") for need in NEEDS), "routine less vision"]
    rows = [
        [
            name,
            *(_plain(each[how][need]) for how in ("first", "supplied") for need in NEEDS),
            _plain(each["routine_less_vision"], "+.3f"),
        ]
        for name, each in found.items()
    ]
    counts = next(iter(found.values()))["tokens"]
    note = ", ".join(f"{need} {count}" for need, count in counts.items())
    return f'<p class="soft">tokens that need …: {escape(note)}; a token may need vision and history</p>' + table(
        head, rows
    )


def _verbatim(title: str, text: str) -> str:
    return f'<h2>{escape(title)}</h2><pre class="card" style="white-space:pre-wrap">{escape(text)}</pre>'


def _card(title: str, content: str) -> str:
    return f'<div class="card"><h3>{escape(title)}</h3>{content}</div>'


def _three(figure: Mapping) -> tuple:
    return figure["mean"], figure["low"], figure["high"]


def _plain(figure: Mapping | None, form: str = ".3f") -> str:
    if figure is None or figure["mean"] is None:
        return "–"
    if figure["low"] is None:
        return f"{figure['mean']:{form}}"
    return f"{figure['mean']:{form}} [{figure['low']:{form}}, {figure['high']:{form}}]"
