"""Small inline SVG plots: latency bars, a line over time, lines of several methods, a bird's-eye view.

Colours come from the page (CSS classes and variables), so the plots follow its light or dark theme. Knows nothing
about plans or summaries; every function returns one `<svg>` element as text.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from specdrive_ros.evaluation.svg import fixed, svg, text

CAR_LENGTH_M, CAR_WIDTH_M, REAR_OVERHANG_M = 4.6, 1.9, 0.9
BIRDS_EYE_ASPECT, BEHIND_M = 0.5, 4.0


def latency_bars(rows: Sequence[tuple[str, dict[str, float]]], deadline_ms: float) -> str:
    """Horizontal bars: solid to the median, pale to p99, a tick at the maximum.

    rows: (stage, {"median", "p90", "p99", "max"} in ms). The axis ends at the largest p99 or the deadline; a maximum
    beyond that is an arrow at the edge.
    """
    left, right, row_height, width = 60, 190, 24, 640
    limit_ms = 1.05 * max([deadline_ms] + [row["p99"] for _, row in rows])
    scale = (width - left - right) / limit_ms
    parts = [
        _latency_row(stage, row, left, 4 + index * row_height, scale, width - right)
        for index, (stage, row) in enumerate(rows)
    ]
    height = 4 + row_height * len(rows)
    x = left + deadline_ms * scale
    parts.append(f'<line class="deadline" x1="{fixed(x)}" x2="{fixed(x)}" y1="0" y2="{height}"/>')
    parts.append(text(x, height + 14, f"deadline {deadline_ms:g} ms", "middle"))
    return svg(width, height + 22, parts, "Latency per stage, milliseconds")


def _latency_row(stage: str, row: dict, left: float, y: float, scale: float, edge: float) -> str:
    median, p99 = row["median"] * scale, row["p99"] * scale
    beyond = left + row["max"] * scale > edge
    tick_x = min(left + row["max"] * scale, edge)
    tick = (
        f'<path class="maximum" d="M{fixed(tick_x - 4)} {fixed(y + 4)}l5 5l-5 5"/>'
        if beyond
        else f'<path class="maximum" d="M{fixed(tick_x)} {fixed(y + 3)}v12"/>'
    )
    numbers = f"{_ms(row['median'])} · p99 {_ms(row['p99'])} · max {_ms(row['max'])}"
    return (
        text(left - 8, y + 13, stage, "end")
        + f'<rect class="pale" x="{left}" y="{fixed(y + 2)}" width="{fixed(p99)}" height="14"/>'
        + f'<rect class="solid" x="{left}" y="{fixed(y + 2)}" width="{fixed(max(median, 0.5))}" height="14"/>'
        + tick
        + text(edge + 8, y + 13, numbers, "start")
    )


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def line_over_time(
    times_s: np.ndarray, values: np.ndarray, unit: str, marks_s: Sequence[float] = ()
) -> str:
    """A line with axes; `marks_s` are instants to mark (where the reasoning changed).

    The vertical line of class `cursor` is moved by the page's script; `data-x` of the figure holds the mapping from
    seconds to its coordinates as "offset scale".
    """
    left, right, top, bottom, width, height = 36, 8, 8, 20, 1100, 150
    start, end = float(times_s[0]), max(float(times_s[-1]), float(times_s[0]) + 0.1)
    lowest, highest = min(0.0, float(values.min())), max(1.0, float(values.max()) * 1.1)
    x_scale = (width - left - right) / (end - start)
    y_scale = (height - top - bottom) / (highest - lowest)
    x = left + (times_s - start) * x_scale
    y = height - bottom - (values - lowest) * y_scale
    parts = []
    for value in _ticks(lowest, highest, 4):
        at = height - bottom - (value - lowest) * y_scale
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{fixed(at)}" y2="{fixed(at)}"/>')
        parts.append(text(left - 6, at + 4, f"{value:g}", "end"))
    for value in _ticks(start, end, 12):
        parts.append(text(left + (value - start) * x_scale, height - 5, f"{value:g} s", "middle"))
    for mark in marks_s:
        at = left + (mark - start) * x_scale
        parts.append(f'<path class="mark" d="M{fixed(at)} {height - bottom}v-7"/>')
    parts.append(f'<polyline class="driven" points="{_points(x, y)}"/>')
    parts.append(f'<line class="cursor" x1="-9" x2="-9" y1="{top}" y2="{height - bottom}"/>')
    parts.append(text(left + 4, top + 8, unit, "start"))
    figure = svg(width, height, parts, f"Over time, {unit}", "plot timeline")
    return figure.replace("<svg ", f'<svg data-x="{fixed(left - start * x_scale)} {fixed(x_scale, 4)}" ', 1)


def lines_over(
    at: np.ndarray, series: Mapping[str, Sequence[float]], label: str, unit: str
) -> str:
    """Lines of several methods over one axis from 0, each labelled at its end, so that they can be told apart without
    colour.

    at: [n] positions on the axis; series: name -> [n] values in `unit`; label: of the axis.
    """
    left, right, top, bottom, width, height = 40, 250, 24, 34, 1000, 300
    values = np.array(list(series.values()), float)
    x_scale = (width - left - right) / float(at[-1])
    highest = 1.1 * max(float(values.max()), 1e-6)
    y_scale = (height - top - bottom) / highest
    parts = [text(left, top - 10, unit, "start"), text(width - right, height - 4, label, "end")]
    for value in _ticks(0.0, highest, 5):
        y = height - bottom - value * y_scale
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{fixed(y)}" y2="{fixed(y)}"/>')
        parts.append(text(left - 6, y + 4, f"{value:g}", "end"))
    parts += [text(left + float(place) * x_scale, height - bottom + 14, f"{place:g}", "middle") for place in at]
    y = height - bottom - values * y_scale
    beside = _spread(y[:, -1], 13)
    for number, name in enumerate(series):
        stroke = f"stroke:hsl({360 * number // len(series)} 65% 50%);stroke-width:2"
        parts.append(f'<polyline style="{stroke}" points="{_points(left + np.asarray(at) * x_scale, y[number])}"/>')
        parts.append(text(width - right + 8, beside[number] + 4, f"{name} {values[number, -1]:.3g}", "start"))
    return svg(width, height, parts, f"{unit} over {label}")


def _spread(places: np.ndarray, apart: float) -> np.ndarray:
    """The positions in their order, moved down where two are closer than `apart`."""
    spread, last = np.array(places, float), -np.inf
    for index in np.argsort(places, kind="stable"):
        spread[index] = last = max(spread[index], last + apart)
    return spread


def birds_eye_range(paths: Sequence[np.ndarray]) -> float:
    """How far ahead (m) views must reach for all these paths ([n, 2+] metres in the ego frame) to fit."""
    points = np.vstack([np.zeros((1, 2)), *(path[:, :2] for path in paths)])
    points = np.abs(points[np.isfinite(points).all(1)])
    farthest, widest = points.max(0)
    needed = max(farthest + 3.0, (widest + 1.5) * 2 / BIRDS_EYE_ASPECT - BEHIND_M)
    return float(np.clip(needed, 25.0, 150.0))


def birds_eye(plan_xy: np.ndarray, driven_xy: np.ndarray | None, ahead_m: float, dots: np.ndarray) -> str:
    """Seen from above, driving direction up: the plan, what was then driven, the ego car, a 10 m grid.

    plan_xy, driven_xy: [n, 2] metres in the ego frame at t0 (x forward, y left).
    dots: rows of the plan to mark (each full second).
    """
    height = ahead_m + BEHIND_M
    width = BIRDS_EYE_ASPECT * height
    side_m = width / 2
    parts = []
    for metres in np.arange(0, ahead_m + 0.1, 10.0):
        y = ahead_m - metres
        parts.append(f'<line class="grid" x1="0" x2="{fixed(width)}" y1="{fixed(y)}" y2="{fixed(y)}"/>')
        if metres % (10 if ahead_m < 60 else 20) == 0 and metres:
            parts.append(
                f'<text x="0.4" y="{fixed(y - 0.5)}" style="font-size:{fixed(height / 34)}px">{metres:g} m</text>'
            )
    parts.append(
        f'<rect class="ego" x="{fixed(side_m - CAR_WIDTH_M / 2)}" width="{CAR_WIDTH_M}" '
        f'y="{fixed(ahead_m - CAR_LENGTH_M + REAR_OVERHANG_M)}" height="{CAR_LENGTH_M}" rx="0.6"/>'
    )
    from_ego = np.vstack([np.zeros((1, 2)), plan_xy])
    parts.append(f'<polyline class="plan" points="{_seen_from_above(from_ego, ahead_m, side_m)}"/>')
    for x, y in plan_xy[dots]:
        parts.append(
            f'<circle class="dot" cx="{fixed(side_m - y)}" cy="{fixed(ahead_m - x)}" r="{fixed(height / 90)}"/>'
        )
    if driven_xy is not None and len(driven_xy) > 1:
        parts.append(f'<polyline class="driven" points="{_seen_from_above(driven_xy, ahead_m, side_m)}"/>')
    return svg(width, height, parts, "Bird's-eye view of the plan and what was driven", "plot birdseye")


def _seen_from_above(xy: np.ndarray, ahead_m: float, side_m: float) -> str:
    return _points(side_m - xy[:, 1], ahead_m - xy[:, 0])


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{fixed(px)},{fixed(py)}" for px, py in zip(x, y, strict=True) if np.isfinite(px + py))


def _ticks(lowest: float, highest: float, about: int) -> np.ndarray:
    """Round numbers within the range, about that many."""
    raw = (highest - lowest) / about
    magnitude = 10.0 ** np.floor(np.log10(raw))
    step = magnitude * next(factor for factor in (1, 2, 5, 10) if factor * magnitude >= raw * 0.999)
    ticks = np.arange(np.ceil(lowest / step), np.floor(highest / step) + 0.5) * step
    return np.round(ticks, 6) + 0.0
