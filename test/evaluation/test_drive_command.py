"""`specdrive drive` with a planner made by formula: arguments, files, output, exit codes."""

import io
import json
import sys
import types
from collections import Counter

import pytest
from rich.console import Console

from specdrive_ros.cli.drive_screen import DriveScreen, print_result
from specdrive_ros.cli.main import main
from specdrive_ros.draft.registry import own_draft
from specdrive_ros.errors import WorkFailed
from specdrive_ros.evaluation.drive import DrivenCycle
from specdrive_ros.evaluation.summary import validate_summary
from specdrive_ros.model_settings import find_model
from specdrive_ros.shapes import NANOSECONDS


class StraightOnPlanner:
    cameras = ("rgb_front",)

    def __init__(self, make_plan):
        self.make_plan = make_plan

    def plan(self, observation):
        speed = observation.history.speed_mps
        return self.make_plan(observation.t0_ns / NANOSECONDS, speed=speed, curvature=0.0)


@pytest.fixture
def planner(monkeypatch, make_plan):
    """Stands in for the model, so that no weights are needed here."""
    planner = StraightOnPlanner(make_plan)
    module = types.ModuleType("specdrive_ros.cycle")
    module.Planner = types.SimpleNamespace(load=lambda model, runtime, seed, draft: planner)
    monkeypatch.setitem(sys.modules, "specdrive_ros.cycle", module)
    return planner


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "cruize"], "cruise, lead_vehicle, traffic_light, obstacle"),
        (["--draft", "eagle4"], "--draft eagle4"),
        (["--runtime", "tensorflow"], "onnxruntime, torch"),
        (["--seconds", "0"], "--seconds 0"),
        (["--seconds", "nan"], "--seconds nan"),
        (["--repeat", "0"], "--repeat 0"),
        (["--seed", "-4"], "--seed -4"),
        (["--latency-ms", "50"], "--offline"),
        (["--offline", "--latency-ms", "-1"], "--latency-ms -1"),
        (["--deadline-ms", "0"], "--deadline-ms 0"),
        (["--appearance", "new"], "it must be one of train, held_out"),
        (["--out", "/dev/null/drive"], "cannot write to --out /dev/null/drive"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["drive", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err and captured.err.count("\n") == 1
    assert not list(tmp_path.rglob("*.json"))


def test_an_offline_drive_writes_its_files_and_prints_as_it_goes(planner, tmp_path, capsys):
    out = tmp_path / "new" / "drive"
    arguments = [
        "drive",
        "--offline",
        "--scenario",
        "cruise",
        "--seconds",
        "1",
        "--seed",
        "7",
        "--out",
        str(out),
    ]
    assert main(arguments) == 0
    assert {entry.name for entry in out.iterdir()} == {"summary.json", "report.html", "drive.mcap"}
    summary = json.loads((out / "summary.json").read_text())
    validate_summary(summary)
    assert summary["scenarios"][0]["seed"] == 7 and summary["draft"] == own_draft(find_model("mini"))
    printed = capsys.readouterr().out
    assert "cruise, seed 7" in printed
    assert printed.count("Keep the lane because the road ahead is free") == 1, "only when it changes"
    assert str(out / "report.html") in printed
    assert "\x1b" not in printed


def test_json_leaves_stdout_to_the_document(planner, tmp_path, capsys):
    out = str(tmp_path)
    assert (
        main(["drive", "--offline", "--scenario", "cruise", "--seconds", "1", "--json", "--out", out]) == 0
    )
    captured = capsys.readouterr()
    validate_summary(json.loads(captured.out))
    assert "cruise, seed 0" in captured.err


def test_ctrl_c_writes_what_was_gathered(planner, tmp_path, monkeypatch):
    plan, calls = planner.plan, []

    def interrupted(observation):
        calls.append(observation)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return plan(observation)

    monkeypatch.setattr(planner, "plan", interrupted)
    assert main(["drive", "--offline", "--scenario", "all", "--out", str(tmp_path)]) == 130
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [row["name"] for row in summary["scenarios"]] == ["cruise"]
    assert "cut short" in summary["scenarios"][0]["why"]
    assert summary["cycles"]["planned"] == 9
    assert (tmp_path / "report.html").exists() and (tmp_path / "drive.mcap").stat().st_size > 1000


def test_a_graph_that_dies_is_exit_code_1_and_what_was_gathered_is_written(
    planner, tmp_path, monkeypatch, capsys
):
    start = {"event": "start", "name": "cruise", "seed": 0, "index": 0, "stamp_ns": 0}

    class DyingGraph:
        context = None

        def __init__(self, scenarios, **settings):
            assert scenarios == [("cruise", 0)] and settings["seconds"] is None

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

        def run(self, listener):
            listener.on_scenario(start)
            raise WorkFailed("planner ended with exit code 3: out of memory")

    class Listener:
        counts = types.SimpleNamespace(
            received=Counter(image=4, odometry=9), dropped=1, rejected={"odometry": {"NOT_FINITE": 2}}
        )

        def __init__(self, context, on_cycle, on_scenario, camera):
            assert camera == "rgb_front"
            self.on_scenario = on_scenario

        def close(self):
            pass

    graph, listener = (
        types.ModuleType(f"specdrive_ros.ros.{name}") for name in ("process_graph", "drive_listener")
    )
    graph.ProcessGraph, listener.DriveListener = DyingGraph, Listener
    monkeypatch.setitem(sys.modules, graph.__name__, graph)
    monkeypatch.setitem(sys.modules, listener.__name__, listener)
    assert main(["drive", "--scenario", "cruise", "--out", str(tmp_path)]) == 1
    assert "planner ended with exit code 3" in capsys.readouterr().err
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["inputs"]["frames"] == 4 and summary["cycles"]["dropped"] == 1
    assert summary["inputs"]["rejected"] == {"NOT_FINITE": 2}
    assert summary["inputs"]["rejected_by_input"] == {"odometry": {"NOT_FINITE": 2}}
    assert summary["scenarios"][0]["why"].startswith("cut short after 0.0 s")


def test_a_fallback_is_said_with_its_reason(make_plan, picture):
    text = io.StringIO()
    with DriveScreen(Console(file=text, width=120), 1) as screen:
        screen.on_event({"event": "start", "name": "cruise", "seed": 0, "index": 0, "stamp_ns": 0})
        for note in ("deadline: 120 ms", "deadline: 120 ms"):
            screen.on_cycle(
                DrivenCycle(1.0, picture, make_plan(), (0, 0, 0), 5.0, "republished", True, note)
            )
    assert text.getvalue().count("[republished] deadline: 120 ms") == 1


def test_a_cycle_of_a_scenario_that_has_ended_is_not_said_under_the_next(make_plan, picture):
    text = io.StringIO()
    with DriveScreen(Console(file=text, width=120), 2) as screen:
        screen.on_event(
            {"event": "start", "name": "obstacle", "seed": 0, "index": 1, "stamp_ns": 20 * NANOSECONDS}
        )
        screen.on_cycle(DrivenCycle(7.8, picture, make_plan(17.8, reasoning="too late"), (0, 0, 0), 5.0))
        screen.on_cycle(DrivenCycle(1.6, picture, make_plan(21.6, reasoning="in time"), (0, 0, 0), 5.0))
    assert "in time" in text.getvalue() and "too late" not in text.getvalue()


def test_a_terminal_gets_a_status_line(make_plan, picture):
    text = io.StringIO()
    with DriveScreen(Console(file=text, width=120, force_terminal=True), 1) as screen:
        screen.on_event({"event": "start", "name": "obstacle", "seed": 3, "index": 0, "stamp_ns": 0})
        screen.on_cycle(DrivenCycle(1.0, picture, make_plan(), (0, 0, 0), 5.0))
    assert "5.0 m/s   40 ms" in text.getvalue()


def test_markup_in_a_models_text_is_printed_as_it_is(planner, tmp_path, capsys):
    text = io.StringIO()
    summary = {
        "scenarios": [
            {"name": "cruise", "seed": 0, "outcome": "collision", "distance_m": 3.0, "why": "[bold]cone[/]"}
        ],
        "cycles": {
            "planned": 1,
            "observed": 1,
            "late": 0,
            "dropped": 0,
            "fallback": {"republished": 0, "stop": 0},
        },
        "latency_ms": {"total": {"median": 1.0, "p99": 1.0, "max": 1.0}},
        "reasoning": {"accepted_length": 1.0},
    }
    print_result(Console(file=text, width=120), summary, ["report.html: [x]"])
    assert "[bold]cone[/]" in text.getvalue() and "report.html: [x]" in text.getvalue()
