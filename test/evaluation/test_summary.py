import json

import numpy as np
import pytest

from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.evaluation.summary import (
    LATENCY_STAGES,
    build_summary,
    cycles_summary,
    inputs_summary,
    latency_summary,
    prepare_out_file,
    prepare_out_folder,
    reasoning_summary,
    summary_text,
    validate_summary,
    write_summary,
)


def a_summary(**changes) -> dict:
    parts = dict(
        model="mini",
        runtime="onnxruntime",
        draft="none",
        seed=0,
        cycles=cycles_summary(observed=10, planned=9, late=1, republished=1, dropped=2),
        latency_ms=latency_summary([{"total": 40.0}]),
        reasoning=reasoning_summary([]),
        inputs=inputs_summary(frames=12, odometry=40),
        scenarios=[{"name": "cruise", "seed": 0, "outcome": "success", "distance_m": 80.5, "why": ""}],
    )
    return build_summary(**parts | changes)


def test_latency_quantiles_are_those_of_numpy_and_every_stage_is_there():
    totals = [float(value) for value in range(1, 102)]
    summary = latency_summary([{"total": total} for total in totals])
    assert list(summary) == list(LATENCY_STAGES)
    assert summary["total"] == {"median": 51.0, "p90": 91.0, "p99": 100.0, "max": 101.0}
    assert summary["draft"] == {"median": 0.0, "p90": 0.0, "p99": 0.0, "max": 0.0}


def test_a_stage_that_some_cycles_lack_is_judged_by_the_others():
    assert latency_summary([{"vision": 4.0}, {}, {"vision": 8.0}])["vision"]["median"] == 6.0


def test_plain_decoding_has_accepted_length_one(make_plan):
    summary = reasoning_summary([make_plan(tokens=12, passes=12), make_plan(tokens=9, passes=9)])
    assert summary == {
        "tokens": 21,
        "target_passes": 21,
        "accepted_length": 1.0,
        "routine_share": 0.0,
        "truncated": 0,
    }


def test_accepted_length_weighs_plans_by_their_passes(make_plan):
    summary = reasoning_summary(
        [make_plan(tokens=16, passes=2), make_plan(tokens=4, passes=3, truncated=True)]
    )
    assert summary["accepted_length"] == 4.0
    assert summary["routine_share"] == 0.75
    assert summary["truncated"] == 1


def test_the_document_keeps_the_order_of_the_contract():
    assert list(a_summary()) == [
        "version",
        "model",
        "runtime",
        "draft",
        "seed",
        "cycles",
        "latency_ms",
        "reasoning",
        "scenarios",
        "inputs",
    ]


def test_equal_numbers_give_equal_bytes():
    refused = {"too short": 2, "bad encoding": 1}
    one = a_summary(inputs=inputs_summary(frames=1, odometry=1, rejected=refused))
    other = a_summary(inputs=inputs_summary(frames=1, odometry=1, rejected=dict(reversed(refused.items()))))
    assert summary_text(one) == summary_text(other)
    assert json.loads(summary_text(one)) == one


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("cycles", "late"), -1, "summary.cycles.late: -1"),
        (("cycles", "late"), 1.5, "summary.cycles.late: 1.5"),
        (("cycles", "late"), True, "summary.cycles.late: True"),
        (("cycles", "fallback", "stop"), "0", "summary.cycles.fallback.stop: '0'"),
        (("latency_ms", "vision", "p99"), float("nan"), "summary.latency_ms.vision.p99: nan"),
        (("model",), None, "summary.model: None"),
        (("version",), 2, "summary.version: 2"),
        (("inputs", "rejected", "gap"), "many", "summary.inputs.rejected['gap']"),
        (("scenarios", 0, "outcome"), "crash", "summary.scenarios[0].outcome: 'crash'"),
        (("scenarios", 0, "distance_m"), None, "summary.scenarios[0].distance_m: None"),
    ],
)
def test_a_wrong_value_is_named(path, value, message):
    summary = a_summary()
    part = summary
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(WorkFailed) as refusal:
        validate_summary(summary)
    assert str(refusal.value).startswith(message)


def test_a_missing_key_is_named():
    summary = a_summary()
    del summary["reasoning"]["truncated"]
    with pytest.raises(WorkFailed, match=r"^summary\.reasoning\.truncated: missing$"):
        validate_summary(summary)


def test_trajectory_errors_may_be_null_where_nothing_could_be_judged():
    horizons = {"1s": 0.5, "3s": 1.0, "6.4s": None}
    errors = {"ade_m": horizons, "fde_m": horizons, "constant_velocity_ade_m": horizons, "evaluated": 3}
    validate_summary(a_summary(scenarios=None, trajectory=errors))
    with pytest.raises(WorkFailed, match="summary.trajectory.ade_m.3s: missing"):
        validate_summary(a_summary(scenarios=None, trajectory=errors | {"ade_m": {"1s": 1.0}}))


def test_nothing_is_written_when_the_document_is_wrong(tmp_path):
    path = tmp_path / "summary.json"
    write_summary(path, a_summary())
    before = path.read_bytes()
    with pytest.raises(WorkFailed):
        write_summary(path, a_summary(seed=np.int64(-1)))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_an_out_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot write to --out") as refusal:
        prepare_out_folder(tmp_path / "file" / "out")
    assert "\n" not in str(refusal.value)


def test_an_out_file_is_proven_and_what_is_there_stays(tmp_path):
    path = tmp_path / "new" / "bench.json"
    assert prepare_out_file(path) == path and list(path.parent.iterdir()) == []
    path.write_text("older")
    prepare_out_file(path)
    assert path.read_text() == "older"
    with pytest.raises(InputError, match="cannot write to --out .*new; name a file"):
        prepare_out_file(path.parent)
    with pytest.raises(InputError, match="cannot write to --out"):
        prepare_out_file(path / "below.json")


def test_the_out_folder_is_made_and_left_empty(tmp_path):
    assert list(prepare_out_folder(tmp_path / "a" / "b").iterdir()) == []
