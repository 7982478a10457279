"""The building blocks of all inline SVG figures. Knows no data and no layout."""

from collections.abc import Sequence
from html import escape


def svg(width: float, height: float, parts: Sequence[str], label: str, css_class: str = "plot") -> str:
    """One figure that scales with the page; `label` is read out by screen readers."""
    return (
        f'<svg class="{css_class}" viewBox="0 0 {fixed(width)} {fixed(height)}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, content: str, anchor: str) -> str:
    """anchor: which part of the text is at x: start, middle or end."""
    return f'<text x="{fixed(x)}" y="{fixed(y)}" text-anchor="{anchor}">{escape(content)}</text>'


def fixed(value: float, digits: int = 1) -> str:
    """A coordinate with at most `digits` decimals."""
    return f"{float(value):.{digits}f}".rstrip("0").rstrip(".")
