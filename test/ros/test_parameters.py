"""The rule of a parameter, and what is refused."""

import pytest

pytest.importorskip("rclpy")
from rclpy.node import Node  # noqa: E402

from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.ros.parameters import ParameterSpec, declare  # noqa: E402
from specdrive_ros.ros.run_node import run_node  # noqa: E402

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


def test_a_misspelt_parameter_is_named_and_what_others_declare_is_not(graph, capfd):
    given = ("rate_hzz:=5.0", "colour:=red", "use_sim_time:=false", "qos_overrides./x.subscription.depth:=3")
    arguments = ["--ros-args", *(part for one in given for part in ("-p", one))]
    node = graph.add(Node("speller", context=graph.context, cli_args=arguments, use_global_arguments=False))
    declare(node, [RATE, MODE])
    warned = [line for line in capfd.readouterr().err.splitlines() if "not known here" in line]
    assert len(warned) == 2
    assert "parameter rate_hzz: not known here and ignored; did you mean rate_hz?" in warned[0]
    assert warned[1].endswith("parameter colour: not known here and ignored")


@pytest.mark.parametrize("content", [None, "deadline_ms: 5\n", "[1,2", "\x00\xff\xfe"])
def test_a_parameter_file_that_is_none_is_one_line_that_names_it(tmp_path, monkeypatch, capsys, content):
    path = tmp_path / "mine ü.yaml"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))

    def ended(code):
        raise SystemExit(code)

    monkeypatch.setattr("specdrive_ros.ros.run_node._end", ended)
    monkeypatch.setattr("specdrive_ros.ros.run_node.signal.signal", lambda *_: None)
    monkeypatch.setattr("specdrive_ros.ros.run_node.signal.set_wakeup_fd", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="2"):
        run_node(lambda: pytest.fail("a node was made"), ["node", "--ros-args", "--params-file", str(path)])
    said = capsys.readouterr().err
    assert f"Couldn't parse params file: '--params-file {path}'" in said
    assert said.count("\n") == 1 and "parser.c" not in said and "Traceback" not in said
