"""Node parameters as tables: name, default, meaning, limits. One table per node, declared and read here.

An integer is accepted where a float is meant (rclpy alone would refuse `cycle_hz:=10`). A wrong value is refused with
the rule and the value, at start and when set later. Does not know what the parameters are for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from specdrive_ros.errors import InputError

Value = bool | int | float | str | list
QOS_OVERRIDES = "qos_overrides."  # declared later, by each subscription


@dataclass(frozen=True)
class ParameterSpec:
    """One parameter. Its type is that of the default; `element` is the type of a list's elements.

    read_only: the value is only read when the node is made, so later changes are refused.
    """

    name: str
    default: Value
    description: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    element: type = str
    read_only: bool = False

    def check(self, value: object) -> Value:
        """The value in the declared type. Raises InputError with the rule and the value."""
        if isinstance(self.default, list):
            return self._check_list(value)
        wanted = type(self.default)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise self._refusal(value)
        if self.choices and value not in self.choices:
            raise self._refusal(value)
        if self.minimum is not None and not self.minimum <= value <= self.maximum:
            raise self._refusal(value)
        return value

    def _check_list(self, value: object) -> list:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self._refusal(value)
        if any(type(element) is not self.element for element in value):
            raise self._refusal(value)
        return list(value)

    def _refusal(self, value: object) -> InputError:
        return InputError(f"parameter {self.name}: {value!r}; must be {self.rule()}")

    def rule(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if isinstance(self.default, list):
            return f"a list of {self.element.__name__}"
        limits = "" if self.minimum is None else f" from {self.minimum} to {self.maximum}"
        return f"{type(self.default).__name__}{limits}"

    def descriptor(self) -> ParameterDescriptor:
        description = f"{self.description} ({self.rule()})"
        descriptor = ParameterDescriptor(
            name=self.name, description=description, read_only=self.read_only, dynamic_typing=True
        )
        if self.minimum is not None and isinstance(self.default, float):
            limits = FloatingPointRange(from_value=float(self.minimum), to_value=float(self.maximum))
            descriptor.floating_point_range = [limits]
        elif self.minimum is not None:
            limits = IntegerRange(from_value=int(self.minimum), to_value=int(self.maximum), step=1)
            descriptor.integer_range = [limits]
        return descriptor


def declare(node: Node, specs: Sequence[ParameterSpec]) -> None:
    """Declares the table on a node and refuses later changes that break a rule.

    Raises InputError if a value given at start breaks one.
    """
    for spec in specs:
        try:
            spec.check(node.declare_parameter(spec.name, spec.default, spec.descriptor()).value)
        except InvalidParameterValueException as error:
            raise InputError(f"parameter {spec.name}: {error}; must be {spec.rule()}") from error
    by_name = {spec.name: spec for spec in specs}
    node.add_on_set_parameters_callback(lambda changes: _judge(by_name, changes))
    _warn_of_unknown(node, list(by_name))


def _warn_of_unknown(node: Node, names: Sequence[str]) -> None:
    """Warns of misspelt names in a parameter file, which ROS ignores silently. Not an error: a file may serve other
    nodes too.

    rclpy has no public way to read what a node was given at start.
    """
    for name in getattr(node, "_parameter_overrides", {}):
        if name in names or node.has_parameter(name) or name.startswith(QOS_OVERRIDES):
            continue
        close = get_close_matches(name, names, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        node.get_logger().warning(f"parameter {name}: not known here and ignored{hint}")


def _judge(specs: dict[str, ParameterSpec], changes: Sequence[Parameter]) -> SetParametersResult:
    for change in changes:
        if change.name in specs:
            try:
                specs[change.name].check(change.value)
            except InputError as error:
                return SetParametersResult(successful=False, reason=str(error))
    return SetParametersResult(successful=True)


def refuse_unless(node: Node, specs: Sequence[ParameterSpec], make: Callable[[dict[str, Value]], object]) -> None:
    """Refuses changes after which `make` would raise InputError: values that are valid alone but not together."""
    by_name = {spec.name: spec for spec in specs}

    def judge(changes: Sequence[Parameter]) -> SetParametersResult:
        changed = {change.name: change.value for change in changes if change.name in by_name}
        try:
            if changed:
                make(read(node, specs) | {name: by_name[name].check(value) for name, value in changed.items()})
        except InputError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    node.add_on_set_parameters_callback(judge)


def refuse_while(node: Node, specs: Sequence[ParameterSpec], why: Callable[[], str]) -> None:
    """Refuses changes of these parameters while `why` returns a reason; they are only read at other times."""
    names = {spec.name for spec in specs}

    def judge(changes: Sequence[Parameter]) -> SetParametersResult:
        refused = [change.name for change in changes if change.name in names]
        reason = why() if refused else ""
        if not reason:
            return SetParametersResult(successful=True)
        return SetParametersResult(successful=False, reason=f"parameter {', '.join(refused)}: {reason}")

    node.add_on_set_parameters_callback(judge)


def read(node: Node, specs: Sequence[ParameterSpec]) -> dict[str, Value]:
    """Every parameter of the table in its declared type."""
    return {spec.name: spec.check(node.get_parameter(spec.name).value) for spec in specs}


def on_change(node: Node, names: Sequence[str], act: Callable[[], None]) -> None:
    """Calls `act` after a change of any of these parameters was accepted."""

    def changed(changes: Sequence[Parameter]) -> None:
        if any(change.name in names for change in changes):
            act()

    node.add_post_set_parameters_callback(changed)
