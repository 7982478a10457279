"""Charts are well-formed, show every name and number, and stay within their box."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from specdrive_ros.evaluation.charts import curves, heat, intervals, stacked


def drawn(figure: str) -> ElementTree.Element:
    root = ElementTree.fromstring(figure)
    width, height = map(float, root.get("viewBox").split()[2:])
    for part in root.iter():
        for name, limit in (("x", width), ("y", height), ("cx", width), ("cy", height)):
            assert part.get(name) is None or -1 <= float(part.get(name)) <= limit
    return root


def texts(root) -> str:
    return " ".join(part.text or "" for part in root.iter() if part.tag.endswith("text"))


def test_intervals_stand_where_their_numbers_are():
    root = drawn(intervals([("a<b", 2.0, 1.0, 3.0), ("alone", 1.5, None, None)], "tokens", zero=True))
    (first, second) = [part for part in root.iter() if part.tag.endswith("circle")]
    (line,) = [part for part in root.iter() if part.tag.endswith("line")]
    at = [float(part) for part in (line.get("x1"), first.get("cx"), second.get("cx"))]
    assert (at[2] - at[0]) / (at[1] - at[0]) == pytest.approx(1.5 / 2.0, abs=0.01)
    assert "a<b" in texts(root) and "2.000" in texts(root) and "tokens" in texts(root)


def test_curves_name_each_line_at_its_end():
    root = drawn(
        curves({"static": ([0, 5, 10], [1, 1, 1]), "self": ([0, 5, 10], [1.0, 0.8, 0.4])}, "step", "share held")
    )
    lines = [part.get("points").split() for part in root.iter() if part.tag.endswith("polyline")]
    falling = [float(point.split(",")[1]) for point in lines[1]]
    assert falling[0] < falling[1] < falling[2] and len({point.split(",")[1] for point in lines[0]}) == 1
    assert "static 1" in texts(root) and "self 0.4" in texts(root)


def test_curves_of_one_value_are_drawn():
    drawn(curves({"flat": ([0, 1], [2.0, 2.0])}, "step", "unit"))


def test_stacked_shares_fill_the_row_in_proportion():
    root = drawn(stacked([("draft", [0.5, 0.25, 0.25])], ["vision", "history", "text"], "shares"))
    widths = [
        float(part.get("width")) for part in root.iter() if part.tag.endswith("rect") and part.get("height") == "17"
    ]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2) and widths[1] == widths[2]
    assert "50%" in texts(root) and "history" in texts(root)


def test_heat_is_strongest_at_the_largest():
    root = drawn(heat(np.array([[0.0, 0.2], [0.4, 0.1]]), ["one", "two"], ["1", "2"], "heat"))
    strength = [
        float(re.search(r"opacity:([\d.]+)", part.get("style")).group(1))
        for part in root.iter()
        if part.tag.endswith("rect")
    ]
    assert strength == [0.0, 0.5, 1.0, 0.25] and ".40" in texts(root)
