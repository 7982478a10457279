from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.plan import Plan
from specdrive_ros.safety.plan_checks import CHECKS, NAMES, PlanLimits, check_plan, violations
from specdrive_ros.shapes import WAYPOINT_TIMES_S


@pytest.fixture
def plan() -> Plan:
    """Straight on at 10 m/s."""
    zeros = np.zeros(64)
    xyz = np.stack([10 * WAYPOINT_TIMES_S, zeros, zeros], axis=-1)
    return Plan(5, "Keep going.", (1, 2), xyz, zeros, zeros + 10, zeros, zeros, 10.0)


def at(values: np.ndarray, row: int, value: float) -> np.ndarray:
    changed = values.copy()
    changed[row] = value
    return changed


def names(plan, observation) -> list[str]:
    return [text.split(":")[0] for text in violations(plan, observation)]


def test_a_good_plan_passes(plan, observed):
    assert violations(plan, observed(10.0)) == [] and check_plan(plan, observed(10.0)) == ""


@pytest.mark.parametrize("field", ["xyz", "yaw", "speed_mps", "acceleration", "curvature"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite(plan, observed, field, value):
    broken = replace(plan, **{field: at(getattr(plan, field), 40, value)})
    assert names(broken, observed(10.0)) == ["NOT_FINITE"]


def test_begins_elsewhere(plan, observed):
    assert names(replace(plan, xyz=plan.xyz + [0, 1.5, 0]), observed(10.0)) == ["START"]


@pytest.mark.parametrize(("speed_mps", "fine"), [(8.0, True), (12.5, True), (5.0, False), (15.0, False)])
def test_begins_with_another_speed(plan, observed, speed_mps, fine):
    assert ("START_SPEED" not in names(plan, observed(speed_mps))) is fine


@pytest.mark.parametrize(
    ("field", "value", "name"), [("acceleration", -9.9, "ACCELERATION"), ("curvature", 0.34, "CURVATURE")]
)
def test_out_of_bounds(plan, observed, field, value, name):
    assert names(replace(plan, **{field: at(getattr(plan, field), 30, value)}), observed(10.0)) == [name]


def test_curvature_at_a_standstill_turns_nothing(plan, observed):
    standing = replace(plan, speed_mps=at(plan.speed_mps, 63, 0.1), curvature=at(plan.curvature, 63, 2.0))
    assert violations(standing, observed(10.0)) == []


def test_reverse_needs_a_reason(plan, observed):
    backwards = replace(plan, speed_mps=np.full(64, -1.0), xyz=-plan.xyz / 10, v0_mps=-1.0)
    assert "REVERSE" in names(backwards, observed(0.0))
    assert "REVERSE" not in names(backwards, observed(-1.0))
    rolling = replace(plan, speed_mps=at(np.zeros(64), 63, -1.0), xyz=0 * plan.xyz, v0_mps=0.0)
    assert violations(rolling, observed(0.0)) == []


def test_one_line_names_every_fault(plan, observed):
    broken = replace(plan, xyz=plan.xyz + [0, 3, 0], acceleration=plan.acceleration + 20)
    assert check_plan(broken, observed(10.0)) == "START: begins 3.0 m from the ego; ACCELERATION: 20.0 m/s²"


def test_another_shape_is_named(plan, observed):
    assert names(replace(plan, yaw=plan.yaw[:-1]), observed(10.0)) == ["SHAPE"]
    assert names(replace(plan, xyz=plan.xyz[:, :2]), observed(10.0)) == ["SHAPE"]


def test_waypoints_out_of_order_in_time(plan, observed):
    swapped = plan.xyz.copy()
    swapped[[20, 24]] = swapped[[24, 20]]
    assert names(replace(plan, xyz=swapped), observed(10.0)) == ["STEP"]
    repeated = plan.xyz.copy()
    repeated[30:] -= [2.0, 0.0, 0.0]
    assert names(replace(plan, xyz=repeated), observed(10.0)) == ["STEP"]


def test_to_the_side_and_how_quickly(plan, observed):
    bent = replace(plan, curvature=np.minimum(np.arange(64) * 0.01, 0.15))
    assert names(bent, observed(10.0)) == ["LATERAL_ACCELERATION"]
    jerky = replace(plan, curvature=np.where(np.arange(64) < 30, -0.16, 0.16), speed_mps=plan.speed_mps * 0 + 5,
                    xyz=plan.xyz / 2, v0_mps=5.0)
    assert names(jerky, observed(5.0)) == ["CURVATURE_RATE"]


def test_limits_are_parameters(plan, observed):
    tight = PlanLimits(start_speed_mps=0.1)
    assert violations(plan, observed(12.0)) == []
    assert violations(plan, observed(12.0), tight)[0].startswith("START_SPEED")
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="curvature_per_m"):
            PlanLimits(curvature_per_m=wrong)


def test_every_check_has_its_name():
    assert len(set(NAMES)) == len(NAMES) and set(CHECKS) < set(NAMES)
