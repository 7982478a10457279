import base64
import re
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest

from specdrive_ros.evaluation.pictures import data_uri, picture_of_plan
from specdrive_ros.evaluation.report import (
    ReportCycle,
    choose_cycles,
    report_html,
    scenario_key,
    write_report,
)
from specdrive_ros.evaluation.summary import (
    build_summary,
    cycles_summary,
    inputs_summary,
    latency_summary,
    reasoning_summary,
)
from specdrive_ros.sim.pinhole import FRONT_CAMERA

VOID = {"meta", "img", "br", "input", "rect", "line", "path", "circle", "polyline"}


class Page(HTMLParser):
    """Checks nesting, gathers tags with their attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.stack, self.tags, self.text = [], [], []
        self.feed(text)
        assert not self.stack, f"never closed: {self.stack}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.stack and self.stack.pop() == tag, f"unexpected end of {tag}"

    def handle_data(self, data):
        if not self.stack or self.stack[-1] not in ("style", "script"):
            self.text.append(data)


def summary_of(scenarios, **more):
    return build_summary(
        model="mini",
        runtime="onnxruntime",
        draft="none",
        seed=0,
        cycles=cycles_summary(observed=10, planned=9, late=1),
        latency_ms=latency_summary([{"total": 40.0, "vision": 12.0}, {"total": 160.0, "vision": 9.0}]),
        reasoning=reasoning_summary([]),
        inputs=inputs_summary(frames=12, odometry=40, rejected={"gap <b>": 1}),
        scenarios=scenarios,
        **more,
    )


def row(name, seed, outcome="success", why=""):
    return {"name": name, "seed": seed, "outcome": outcome, "distance_m": 50.0, "why": why}


@pytest.fixture
def drive(make_plan, picture):
    def cycles(name, seed, count=40, reasoning="Keep the lane"):
        key = scenario_key(name, seed)
        driven = np.stack([np.linspace(0, 40, 30), np.zeros(30), np.zeros(30)], 1)
        return [
            ReportCycle(
                key, 0.1 * k, picture, FRONT_CAMERA, make_plan(0.1 * k, reasoning=reasoning), "", driven
            )
            for k in range(count)
        ]

    return cycles


def test_the_page_is_whole_and_asks_nothing_of_the_network(tmp_path, drive):
    path = tmp_path / "report.html"
    write_report(path, "Drive", summary_of([row("cruise", 0)]), drive("cruise", 0))
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://|//cdn|@import|url\(", text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object")
        assert not (tag == "script" and "src" in attributes)
        if tag == "img":
            assert attributes["src"].startswith("data:image/jpeg;base64,")
    assert sum(tag == "img" for tag, _ in page.tags) == 12


def test_text_from_models_and_bags_is_escaped(drive):
    evil = '<script>alert("x")</script>'
    summary = summary_of([row("cruise", 0, "collision", f"hit {evil}")])
    text = report_html(evil, summary, drive("cruise", 0, 3, reasoning=evil))
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert f"hit {evil}" in "".join(page.text)
    assert "gap <b>" in "".join(page.text)


def test_failures_come_first_and_say_why(drive):
    summary = summary_of([row("cruise", 0), row("obstacle", 7, "collision", "hit a cone at 3 m/s")])
    text = report_html("Drive", summary, drive("cruise", 0, 3) + drive("obstacle", 7, 3))
    sections = re.findall(r'<section class="([^"]*)".*?<h3>(.*?)</h3>', text)
    assert [name for _, name in sections] == ["obstacle, seed 7", "cruise, seed 0"]
    assert "failed" in sections[0][0] and "failed" not in sections[1][0]
    assert "hit a cone at 3 m/s" in text


def test_every_failure_is_listed_with_its_cause_the_last_thought_and_the_last_picture(drive):
    summary = summary_of([row("cruise", 0), row("obstacle", 7, "collision", "hit <a> cone"),
                          row("cruise", 8, "red_light", "crossed"), row("obstacle", 9, "collision", "hit a van")])
    cycles = drive("cruise", 0, 3) + drive("obstacle", 7, 3) + drive("cruise", 8, 3, reasoning="Drive <on>")
    text = report_html("Drive", summary, cycles)
    page = Page(text)
    listed = re.findall(r'<figure class="failure frame">.*?</figure>', text)
    names = [re.search("<b>(.*?)</b>", one)[1] for one in listed]
    assert names == ["obstacle, seed 7", "obstacle, seed 9", "cruise, seed 8"]
    assert [one.count("<img") for one in listed] == [1, 0, 1], "seed 9 made no plan"
    assert "hit &lt;a&gt; cone" in listed[0] and "Drive &lt;on&gt;" in listed[2] and "0.2 s" in listed[2]
    assert "✕ collision 2, ✕ red light 1" in "".join(page.text)


def test_without_a_failure_there_is_no_list_of_them(drive):
    assert "Failures" not in report_html("Drive", summary_of([row("cruise", 0)]), drive("cruise", 0, 2))


def test_a_scenario_without_a_plan_and_a_drive_without_a_scenario_have_a_page():
    Page(report_html("Drive", summary_of([row("cruise", 0, "timeout")]), []))
    Page(report_html("Drive", summary_of([]), []))


def test_a_replay_shows_its_errors_and_where_nothing_could_be_judged(drive):
    horizons = {"1s": 0.51, "3s": 2.0, "6.4s": None}
    errors = {"ade_m": horizons, "fde_m": horizons, "constant_velocity_ade_m": horizons, "evaluated": 3}
    summary = summary_of(None, trajectory=errors) | {"notes": ["kitti has a single image"]}
    text = "".join(Page(report_html("Replay", summary, drive("bag", 0, 2))).text)
    assert "kitti has a single image" in text
    assert "0.51 m" in text and "–" in text and "3 plans could be judged" in text


def test_cycles_without_a_picture_are_in_the_plots_only(drive, make_plan):
    cycles = drive("cruise", 0, 5)
    cycles.append(
        ReportCycle(cycles[0].scenario, 0.5, None, None, make_plan(0.5, reasoning="The light is red"))
    )
    text = report_html("Drive", summary_of([row("cruise", 0)]), cycles)
    assert text.count("<img") == 5
    assert "The light is red" in text


def test_many_scenarios_stay_small(drive):
    rows = [row("cruise", seed) for seed in range(60)]
    cycles = [cycle for seed in range(60) for cycle in drive("cruise", seed, 3)]
    assert len(report_html("Drive", summary_of(rows), cycles)) < 6_000_000


def test_shown_cycles_are_spread_and_catch_each_change_of_mind():
    reasonings = ["a"] * 33 + ["b"] * 41 + ["c"] * 126
    chosen = choose_cycles(reasonings, 12)
    assert chosen[0] == 0 and chosen[-1] == 199 and len(chosen) == 12
    assert 33 in chosen and 74 in chosen
    assert max(np.diff(chosen)) < 40
    assert choose_cycles(["a"] * 5, 12) == [0, 1, 2, 3, 4]


def test_the_plan_is_drawn_where_the_camera_sees_it(make_plan, picture):
    plain = picture_of_plan(picture, None, make_plan())
    left = picture_of_plan(picture, FRONT_CAMERA, make_plan(curvature=0.03))
    right = picture_of_plan(picture, FRONT_CAMERA, make_plan(curvature=-0.03))
    assert plain.shape == left.shape == (336, 560, 3)
    columns_left = np.flatnonzero((left != plain).any((0, 2)))
    columns_right = np.flatnonzero((right != plain).any((0, 2)))
    assert columns_left.mean() < 280 < columns_right.mean()
    assert not (left != plain)[:120].any(), "drawn into the sky"


def test_a_car_that_stands_draws_nothing_and_does_not_fail(make_plan, picture):
    standing = make_plan(speed=0.0)
    np.testing.assert_array_equal(
        picture_of_plan(picture, FRONT_CAMERA, standing), picture_of_plan(picture, None, standing)
    )


def test_large_pictures_are_reduced_and_keep_their_colours(make_plan):
    rgb = np.zeros((874, 1164, 3), np.uint8)
    rgb[..., 0] = 200
    encoded = base64.b64decode(data_uri(picture_of_plan(rgb, None, make_plan())).split(",")[1])
    decoded = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    assert decoded.shape[1] == 560
    np.testing.assert_allclose(decoded[100, 100], (200, 0, 0), atol=6)
