"""The rule of a parameter, and what is refused."""

import pytest

pytest.importorskip("rclpy")
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.ros.parameters import ParameterSpec  # noqa: E402

RATE = ParameterSpec("rate_hz", 10.0, "rate", 0.5, 100.0)
MODE = ParameterSpec("mode", "raw", "mode", choices=("raw", "compressed"))
NAMES = ParameterSpec("names", [], "names")
COUNT = ParameterSpec("count", 1, "count", 1, 5)
FLAG = ParameterSpec("flag", True, "flag")


@pytest.mark.parametrize("spec, value, checked", [
    (RATE, 20, 20.0), (RATE, 0.5, 0.5), (MODE, "compressed", "compressed"), (COUNT, 5, 5),
    (FLAG, False, False), (NAMES, ["a"], ["a"]), (NAMES, (), []),
])
def test_taken(spec, value, checked):
    assert spec.check(value) == checked and type(spec.check(value)) is type(checked)


@pytest.mark.parametrize("spec, value", [
    (RATE, 0), (RATE, "10"), (RATE, True), (RATE, float("nan")), (MODE, "jpeg"), (NAMES, "a"), (NAMES, [1]),
    (NAMES, None), (COUNT, 6), (COUNT, 1.0), (COUNT, True), (FLAG, 1),
])
def test_refused_with_name_value_and_rule(spec, value):
    with pytest.raises(InputError) as refusal:
        spec.check(value)
    assert spec.name in str(refusal.value) and spec.rule() in str(refusal.value)


def test_descriptor_tells_meaning_and_limits():
    descriptor = RATE.descriptor()
    assert "rate" in descriptor.description
    limits = descriptor.floating_point_range[0]
    assert (limits.from_value, limits.to_value) == (0.5, 100.0)
    assert COUNT.descriptor().integer_range[0].to_value == 5
