"""report.html: one self-contained page about a drive or a replay, for people who would rather look than read.

Takes the summary (the contract's numbers) and the cycles; opens in any browser and needs no network. Failures come
first. All text from models, bags and arguments is escaped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from specdrive_ros.evaluation import plots
from specdrive_ros.evaluation.pictures import data_uri, picture_of_plan
from specdrive_ros.evaluation.report_page import page, table, write_page
from specdrive_ros.evaluation.summary import LATENCY_STAGES
from specdrive_ros.plan import Plan
from specdrive_ros.sim.pinhole import PinholeCamera

PICTURES_PER_SCENARIO = 12
PICTURES_PER_REPORT = 150  # keeps the page under about 6 MB
FAILURES_WITH_PICTURE = 40
REASONING_ROWS, REASONING_ROWS_OPEN = 200, 8
DEADLINE_MS = 100.0
OUTCOME_SIGNS = {
    "success": "✓ success",
    "collision": "✕ collision",
    "red_light": "✕ red light",
    "stop_sign": "✕ stop sign",
    "off_road": "✕ off the road",
    "timeout": "✕ timeout",
}


@dataclass(frozen=True, eq=False)
class ReportCycle:
    """One planning cycle to show.

    scenario:         `scenario_key` of a drive's scenario, or the name of a bag; cycles of one scenario are in order.
    time_s:           seconds since the scenario began, at t0.
    rgb:              uint8 [H, W, 3], what the camera saw at t0; None: the cycle appears only in the plots.
    camera:           its model, to draw the plan into the image; None leaves the image as it is.
    note:             anything else worth saying about this cycle, plain text; may be empty.
    ground_truth_xyz: [n, 3] metres in the ego frame at t0: where the ego then went; None if unknown.
    """

    scenario: str
    time_s: float
    rgb: np.ndarray | None
    camera: PinholeCamera | None
    plan: Plan
    note: str = ""
    ground_truth_xyz: np.ndarray | None = None


def scenario_key(name: str, seed: int) -> str:
    """The name in `ReportCycle.scenario` of a scenario of `summary["scenarios"]`."""
    return f"{name}, seed {seed}"


def write_report(path: Path, title: str, summary: Mapping, cycles: Sequence[ReportCycle]) -> None:
    """Writes the page; replaces `path` in one step."""
    write_page(path, report_html(title, summary, cycles))


def report_html(title: str, summary: Mapping, cycles: Sequence[ReportCycle]) -> str:
    """The page as text."""
    sections = _scenario_sections(summary, cycles)
    parts = [_header(title, summary), _tiles(summary), _notes(summary), _measurements(summary), *sections]
    return page(title, "".join(parts))


# Overview


def _header(title: str, summary: Mapping) -> str:
    facts = (
        f"model {summary['model']}",
        f"runtime {summary['runtime']}",
        f"draft {summary['draft']}",
        f"seed {summary['seed']}",
    )
    return f'<h1>{escape(title)}</h1><p class="soft">{escape(" · ".join(facts))}</p>'


def _tiles(summary: Mapping) -> str:
    tiles = [*_outcome_tile(summary), *_error_tile(summary), *_cycle_tiles(summary)]
    inner = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _notes(summary: Mapping) -> str:
    """What the summary says in words besides the contract's numbers, if anything."""
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in summary.get("notes", ()))
    return f'<div class="card"><ul>{notes}</ul></div>' if notes else ""


def _outcome_tile(summary: Mapping) -> list[tuple[str, str]]:
    if "scenarios" not in summary:
        return []
    outcomes = [scenario["outcome"] for scenario in summary["scenarios"]]
    return [(f"{outcomes.count('success')} of {len(outcomes)}", "scenarios driven with success")]


def _error_tile(summary: Mapping) -> list[tuple[str, str]]:
    if "trajectory" not in summary:
        return []
    trajectory = summary["trajectory"]
    ours, constant = (_metres(trajectory[name]["6.4s"]) for name in ("ade_m", "constant_velocity_ade_m"))
    return [(ours, f"ADE over 6.4 s; constant velocity: {constant}")]


def _cycle_tiles(summary: Mapping) -> list[tuple[str, str]]:
    cycles, reasoning = summary["cycles"], summary["reasoning"]
    total = summary["latency_ms"]["total"]
    fallback = sum(cycles["fallback"].values())
    return [
        (f"{cycles['planned']} of {cycles['observed']}", "observations became a plan"),
        (f"{total['median']:.0f} ms", f"median of a cycle; p99 {total['p99']:.0f} ms"),
        (str(cycles["late"]), f"cycles late; {fallback} fallbacks, {cycles['dropped']} dropped"),
        (
            f"{reasoning['accepted_length']:.2f}",
            f"accepted length; routine share {reasoning['routine_share']:.0%}",
        ),
    ]


def _metres(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} m"


def _measurements(summary: Mapping) -> str:
    measured = summary["latency_ms"]
    rows = [(stage, measured[stage]) for stage in LATENCY_STAGES if measured.get(stage, {}).get("max")]
    bars = plots.latency_bars(rows, DEADLINE_MS) if rows else "<p>No cycle was timed.</p>"
    return (
        f'<div class="columns"><div class="card"><h3>Latency per stage, ms</h3>{bars}'
        '<p class="key">solid to the median, pale to p99, tick at the maximum</p></div>'
        f'<div class="card">{_trajectory_table(summary)}{_input_table(summary)}</div></div>'
    )


def _trajectory_table(summary: Mapping) -> str:
    if "trajectory" not in summary:
        return ""
    trajectory = summary["trajectory"]
    names = (("ade_m", "ADE"), ("fde_m", "FDE"), ("constant_velocity_ade_m", "ADE, constant velocity"))
    horizons = list(trajectory["ade_m"])
    rows = [
        [label, *(_metres(trajectory[name].get(horizon)) for horizon in horizons)] for name, label in names
    ]
    return f"<h3>Against the drive's own future</h3>{table(['', *horizons], rows)}" + (
        f'<p class="soft">{trajectory["evaluated"]} plans could be judged.</p>'
    )


def _input_table(summary: Mapping) -> str:
    inputs, cycles = summary["inputs"], summary["cycles"]
    rows = [
        ["frames", inputs["frames"]],
        ["odometry", inputs["odometry"]],
        *([f"refused: {reason}", count] for reason, count in inputs["rejected"].items()),
        ["republished plans", cycles["fallback"]["republished"]],
        ["stops", cycles["fallback"]["stop"]],
        ["observations dropped", cycles["dropped"]],
        ["reasoning tokens", summary["reasoning"]["tokens"]],
        ["reasoning cut short", summary["reasoning"]["truncated"]],
    ]
    return f"<h3>Inputs and cycles</h3>{table(['', 'count'], rows)}"


# Scenarios


def _scenario_sections(summary: Mapping, cycles: Sequence[ReportCycle]) -> list[str]:
    driven: dict[str, list[ReportCycle]] = {}
    for cycle in cycles:
        driven.setdefault(cycle.scenario, []).append(cycle)
    results = {scenario_key(row["name"], row["seed"]): row for row in summary.get("scenarios", ())}
    names = [*results, *(name for name in driven if name not in results)]
    names.sort(key=lambda name: results.get(name, {}).get("outcome", "success") == "success")
    limit = max(2, min(PICTURES_PER_SCENARIO, PICTURES_PER_REPORT // max(1, len(names))))
    failed = [(name, results[name]) for name in names if name in results and results[name]["outcome"] != "success"]
    overview = [_scenario_table(summary["scenarios"]), _failures(failed, driven)] if results else []
    return overview + [_scenario(name, results.get(name), driven.get(name, []), limit) for name in names]


def _scenario_table(scenarios: Sequence[Mapping]) -> str:
    rows = "".join(
        f'<tr><td class="text">{escape(row["name"])}</td><td>{row["seed"]}</td>'
        f'<td class="text">{_badge(row["outcome"])}</td><td>{row["distance_m"]:.0f} m</td>'
        f'<td class="text">{escape(row["why"])}</td></tr>'
        for row in scenarios
    )
    head = (
        '<tr><th>scenario</th><th>seed</th><td class="text soft">outcome</td><th>driven by the planner</th>'
    )
    head += '<td class="text soft">why</td></tr>'
    return f'<h2>Scenarios</h2><div class="card"><table>{head}{rows}</table></div>'


def _failures(failed: Sequence[tuple[str, Mapping]], driven: Mapping[str, Sequence[ReportCycle]]) -> str:
    """Every failure with its cause, its last reasoning and its last image, grouped by outcome."""
    if not failed:
        return ""
    alike = sorted(failed, key=lambda one: one[1]["outcome"])
    entries = "".join(
        _failure(name, result, driven.get(name, ()), with_picture=number < FAILURES_WITH_PICTURE)
        for number, (name, result) in enumerate(alike)
    )
    counts = Counter(OUTCOME_SIGNS.get(result["outcome"], result["outcome"]) for _, result in alike)
    causes = ", ".join(f"{cause} {count}" for cause, count in counts.items())
    heading = f'<h2>Failures</h2><p class="soft">{escape(causes)}; the last picture of each</p>'
    return f'{heading}<div class="card"><div class="frames">{entries}</div></div>'


def _failure(name: str, result: Mapping, cycles: Sequence[ReportCycle], *, with_picture: bool) -> str:
    text = f"{_badge(result['outcome'])} <b>{escape(name)}</b><br>{escape(result['why'])}"
    if cycles:
        last = cycles[-1]
        text += f'<br><span class="soft">{last.time_s:.1f} s:</span> '
        text += f'<span class="reasoning">{escape(last.plan.reasoning)}</span>'
    seen = [cycle for cycle in cycles if cycle.rgb is not None]
    picture = ""
    if seen and with_picture:
        shown = seen[-1]
        source = data_uri(picture_of_plan(shown.rgb, shown.camera, shown.plan))
        picture = f'<div class="scene"><img src="{source}" alt="The last picture, at {shown.time_s:.1f} s"></div>'
    return f'<figure class="failure frame">{picture}<figcaption>{text}</figcaption></figure>'


def _badge(outcome: str) -> str:
    kind = "good" if outcome == "success" else "bad"
    return f'<span class="badge {kind}">{escape(OUTCOME_SIGNS.get(outcome, outcome))}</span>'


def _scenario(name: str, result: Mapping | None, cycles: Sequence[ReportCycle], limit: int) -> str:
    failed = result is not None and result["outcome"] != "success"
    heading = f"<h3>{escape(name)}</h3>"
    if result is not None:
        heading += f"{_badge(result['outcome'])}<span>{escape(result['why'])}</span>"
        heading += f'<span class="soft">{result["distance_m"]:.0f} m driven by the planner</span>'
    body = _cycles(cycles, limit) if cycles else '<p class="soft">No plan was made here.</p>'
    kind = "card scenario failed" if failed else "card scenario"
    return f'<section class="{kind}"><div class="heading">{heading}</div>{body}</section>'


def _cycles(cycles: Sequence[ReportCycle], limit: int) -> str:
    seen = [cycle for cycle in cycles if cycle.rgb is not None]
    shown = [seen[index] for index in choose_cycles([cycle.plan.reasoning for cycle in seen], limit)]
    driven = [cycle.ground_truth_xyz for cycle in shown if cycle.ground_truth_xyz is not None]
    ahead_m = plots.birds_eye_range([cycle.plan.xyz for cycle in shown] + driven)
    frames = "".join(_frame(cycle, ahead_m) for cycle in shown)
    events = _reasoning_events(cycles)
    speed = plots.line_over_time(
        np.array([cycle.time_s for cycle in cycles]),
        np.array([cycle.plan.v0_mps for cycle in cycles]),
        "speed, m/s",
        [start for start, _, _ in events[1:]],
    )
    return (
        f'<div class="frames">{frames}</div>'
        '<p class="key"><i class="p"></i>plan (dots each second; in the picture near is blue, far is yellow)'
        '<i class="d"></i>what was then driven</p>'
        f"{speed}{_reasoning_table(events)}"
    )


def choose_cycles(reasonings: Sequence[str], limit: int) -> list[int]:
    """Indices of cycles to show: evenly spread, first and last included, moved to where the reasoning changed."""
    count = len(reasonings)
    if count <= limit:
        return list(range(count))
    chosen = [round(position) for position in np.linspace(0, count - 1, limit)]
    moved = {0, limit - 1}
    for index in range(1, count - 1):
        if reasonings[index] == reasonings[index - 1]:
            continue
        nearest = min(range(limit), key=lambda slot: abs(chosen[slot] - index))
        if nearest not in moved:
            chosen[nearest] = index
            moved.add(nearest)
    return sorted(set(chosen))


def _frame(cycle: ReportCycle, ahead_m: float) -> str:
    plan, driven = cycle.plan, cycle.ground_truth_xyz
    each_second = np.arange(9, len(plan.xyz), 10)
    driven_xy = None if driven is None else driven[:, :2]
    above = plots.birds_eye(plan.xyz[:, :2], driven_xy, ahead_m, each_second)
    picture = data_uri(picture_of_plan(cycle.rgb, cycle.camera, plan))
    notes = [f"{cycle.time_s:.1f} s", f"{plan.v0_mps:.1f} m/s"]
    notes += ["cut short"] * plan.truncated + [cycle.note] * bool(cycle.note)
    text = escape(plan.reasoning)
    return (
        f'<figure class="frame" data-time="{cycle.time_s:.1f}"><div class="scene">'
        f'<img src="{picture}" alt="What the camera saw at {cycle.time_s:.1f} s, with the plan">{above}</div>'
        f'<figcaption><span class="reasoning">{text}</span><br>'
        f'<span class="soft">{escape(" · ".join(notes))}</span></figcaption></figure>'
    )


def _reasoning_events(cycles: Sequence[ReportCycle]) -> list[tuple[float, float, str]]:
    """(from s, to s, text): intervals in which the reasoning stayed the same."""
    events: list[tuple[float, float, str]] = []
    for cycle in cycles:
        if events and events[-1][2] == cycle.plan.reasoning:
            events[-1] = (events[-1][0], cycle.time_s, cycle.plan.reasoning)
        else:
            events.append((cycle.time_s, cycle.time_s, cycle.plan.reasoning))
    return events


def _reasoning_table(events: Sequence[tuple[float, float, str]]) -> str:
    rows = "".join(
        f'<tr><td>{start:.1f}–{end:.1f} s</td><td class="text">{escape(text)}</td></tr>'
        for start, end, text in events[:REASONING_ROWS]
    )
    more = len(events) - REASONING_ROWS
    note = f'<p class="soft">and {more} more</p>' if more > 0 else ""
    head = f"<summary>All of the reasoning, {len(events)} in a row</summary>"
    opened = " open" if len(events) <= REASONING_ROWS_OPEN else ""
    return f"<details{opened}>{head}<table>{rows}</table>{note}</details>"
