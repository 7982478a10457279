"""Inline SVG charts for comparisons: means with intervals, curves of several runs, stacked shares, heat maps.

Colours come from the page or have a name beside them, so nothing is shown by colour alone. Every function returns one
`<svg>` element as text.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from specdrive_ros.evaluation.svg import fixed, svg, text

LEFT, WIDTH, ROW = 310, 1000, 22
SHADES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#999999", "#56b4e9", "#d55e00")  # Okabe-Ito


def intervals(rows: Sequence[tuple[str, float, float | None, float | None]], label: str, zero: bool = False) -> str:
    """Dots with whiskers. rows: (name, mean, low, high); zero: draw a line at 0, for differences."""
    values = [value for _, *three in rows for value in three if value is not None] + [0.0] * zero
    low, high = min(values), max(values)
    margin = max(0.08 * (high - low), 1e-3)
    low, scale = low - margin, (WIDTH - LEFT - 90) / (high - low + 2 * margin)
    height, parts = 8 + ROW * len(rows), []
    if zero:
        at = fixed(LEFT - low * scale)
        parts.append(f'<line class="deadline" x1="{at}" x2="{at}" y1="0" y2="{height}"/>')
    for number, (name, mean, lower, upper) in enumerate(rows):
        y = 14 + ROW * number
        x = LEFT + (mean - low) * scale
        parts.append(text(LEFT - 10, y + 4, name, "end"))
        parts.append(f'<circle class="dot" cx="{fixed(x)}" cy="{y}" r="4"/>')
        if lower is not None and upper is not None:
            ends = [LEFT + (edge - low) * scale for edge in (lower, upper)]
            parts.append(f'<path class="maximum" d="M{fixed(ends[0])} {y - 4}v8m0 -4H{fixed(ends[1])}m0 -4v8"/>')
        parts.append(text(WIDTH - 80, y + 4, f"{mean:.3f}", "start"))
    return svg(WIDTH, height + 16, [*parts, text(LEFT, height + 12, label, "start")], label)


def curves(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str, unit: str) -> str:
    """Lines, each labelled at its end. series: name -> (positions on the axis, values)."""
    left, right, top, bottom, height = 60, 260, 22, 34, 260
    places, values = (np.concatenate([np.asarray(line[part], float) for line in series.values()]) for part in (0, 1))
    low, high = float(values.min()), float(values.max())
    margin = max(0.06 * (high - low), 1e-6)
    low, high, last = low - margin, high + margin, max(float(places.max()), 1e-9)
    parts = [text(left, 12, unit, "start"), text(WIDTH - right, height - 6, label, "end")]
    for value in np.linspace(low + margin, high - margin, 5):
        y = height - bottom - (value - low) / (high - low) * (height - top - bottom)
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - right}" y1="{fixed(y)}" y2="{fixed(y)}"/>')
        parts.append(text(left - 6, y + 4, f"{value:.3g}", "end"))
    parts += [
        text(left + (WIDTH - left - right) * share, height - bottom + 14, f"{share * last:.0f}", "middle")
        for share in (0, 0.5, 1)
    ]
    ends = []
    for number, (name, (at, line)) in enumerate(series.items()):
        x = left + np.asarray(at, float) / last * (WIDTH - left - right)
        y = height - bottom - (np.asarray(line, float) - low) / (high - low) * (height - top - bottom)
        stroke = f"stroke:{SHADES[number % len(SHADES)]};stroke-width:2" + (
            ";stroke-dasharray:6 3" if number % 2 else ""
        )
        points = " ".join(f"{fixed(a)},{fixed(b)}" for a, b in zip(x, y))
        parts.append(f'<polyline style="{stroke}" points="{points}"/>')
        ends.append((float(y[-1]), f"{name} {line[-1]:.3g}"))
    below = -np.inf
    for y, name in sorted(ends):
        below = max(y, below + 13)
        parts.append(text(WIDTH - right + 8, below + 4, name, "start"))
    return svg(WIDTH, max(height, below + 12), parts, f"{unit} over {label}")


def stacked(rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], label: str) -> str:
    """Shares that add up to one, side by side; those of one twelfth or more show their number."""
    parts, span = [], WIDTH - LEFT - 10
    for number, name in enumerate(names):
        x = LEFT + number * 135
        parts.append(f'<rect x="{x}" y="2" width="12" height="12" style="fill:{SHADES[number]}"/>')
        parts.append(text(x + 18, 12, name, "start"))
    for row, (name, shares) in enumerate(rows):
        y, x = 24 + ROW * row, float(LEFT)
        parts.append(text(LEFT - 10, y + 13, name, "end"))
        for number, share in enumerate(shares):
            wide = share * span
            width, style = fixed(max(wide, 0)), f"fill:{SHADES[number]}"
            parts.append(f'<rect x="{fixed(x)}" y="{y}" width="{width}" height="17" style="{style}"/>')
            if share >= 1 / 12:
                parts.append(
                    f'<text x="{fixed(x + wide / 2)}" y="{y + 13}" text-anchor="middle" style="fill:#fff">'
                    f"{share:.0%}</text>"
                )
            x += wide
    return svg(WIDTH, 28 + ROW * len(rows), parts, label)


def heat(values: np.ndarray, rows: Sequence[str], columns: Sequence[str], label: str) -> str:
    """[rows, columns] as cells shaded by value (from 0 to the largest), each with its number."""
    values = np.asarray(values, float)
    largest, wide = max(float(values.max()), 1e-9), (WIDTH - LEFT) / max(len(columns), 1)
    parts = [text(LEFT + (place + 0.5) * wide, 12, name, "middle") for place, name in enumerate(columns)]
    for row, name in enumerate(rows):
        y = 18 + ROW * row
        parts.append(text(LEFT - 10, y + 14, name, "end"))
        for place, value in enumerate(values[row]):
            strength = value / largest
            parts.append(
                f'<rect x="{fixed(LEFT + place * wide)}" y="{y}" width="{fixed(wide - 1)}" height="{ROW - 1}" '
                f'style="fill:{SHADES[0]};opacity:{strength:.2f}"/>'
            )
            ink = "#fff" if strength > 0.6 else "var(--ink)"  # readable on strong and on weak cells
            number = f"{value:.2f}".lstrip("0")
            middle = fixed(LEFT + (place + 0.5) * wide)
            parts.append(f'<text x="{middle}" y="{y + 14}" text-anchor="middle" style="fill:{ink}">{number}</text>')
    return svg(WIDTH, 24 + ROW * len(rows), parts, label)
