"""The greedy choice that engines of text make: the host's, to the letter."""

import numpy as np
import pytest

from specdrive_ros.decoding.choice import greedy
from specdrive_ros.engine.building import graph_to_compile
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.bindings import CHOICE_OUTPUTS, FORBIDDEN, HIDDEN

onnx = pytest.importorskip("onnx", reason="needs the train or the tensorrt-rtx extra")
from onnx import TensorProto, helper  # noqa: E402
from onnxruntime import InferenceSession  # noqa: E402

from specdrive_ros.engine.token_choice import add_choice  # noqa: E402

MINI = data_roots()[0] / "models" / "mini"
VOCABULARY = 50


@pytest.fixture(scope="module")
def choose():
    """`choose(logits, forbidden)` -> choices and best of a graph that has nothing but logits."""
    given, logits = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", VOCABULARY]) for name in ("given", "logits")
    )
    node = helper.make_node("Identity", ["given"], ["logits"])
    model = helper.make_model(
        helper.make_graph([node], "logits", [given], [logits]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    onnx.checker.check_model(add_choice(model), full_check=True)
    session = InferenceSession(model.SerializeToString())

    def run(values, forbidden):
        added = np.where(forbidden, np.float32(HIDDEN), np.float32(0))
        return session.run(CHOICE_OUTPUTS, {"given": values.astype(np.float32), FORBIDDEN: added})

    return run


@pytest.mark.parametrize("share", [0.0, 0.3, 0.97])
def test_the_choice_is_the_hosts(choose, share):
    random = np.random.default_rng(0)
    for rows in (1, 7, 60):
        logits = random.standard_normal((rows, VOCABULARY)).astype(np.float32)
        forbidden = random.random(VOCABULARY) < share
        forbidden[random.integers(VOCABULARY)] = False
        choices, best = choose(logits, forbidden)
        masked = np.where(forbidden, -np.inf, logits)
        assert choices.dtype == np.int32 and choices.tolist() == [greedy(row) for row in masked]
        np.testing.assert_array_equal(best, masked.max(1))


def test_of_equal_logits_the_first(choose):
    """Rounded to halves, as bf16 rounds logits of a hundred: many rows have a tie."""
    logits = np.round(np.random.default_rng(0).standard_normal((400, VOCABULARY)) * 2) / 2
    ties = (logits == logits.max(1, keepdims=True)).sum(1) > 1
    assert ties.mean() > 0.4
    assert choose(logits, np.zeros(VOCABULARY, bool))[0].tolist() == logits.argmax(1).tolist()


def test_no_number_is_no_token(choose):
    logits = np.zeros((3, VOCABULARY), np.float32)
    logits[1] = np.nan
    logits[2, 7] = np.inf
    choices, best = choose(logits, np.zeros(VOCABULARY, bool))
    assert choices[0] == 0 and np.isfinite(best).tolist() == [True, False, False]
    assert choices[1] == VOCABULARY or not np.isfinite(best[1])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_is_compiled_has_more_than_what_was_exported(precision):
    path = MINI / "text.onnx"
    before = path.read_bytes()
    compiled = onnx.load_from_string(graph_to_compile(path, "text", precision))
    exported = onnx.load(path, load_external_data=False)
    names = [[each.name for each in graph.graph.output] for graph in (exported, compiled)]
    assert names[1] == [*names[0], *CHOICE_OUTPUTS]
    assert [each.name for each in compiled.graph.input][-1] == FORBIDDEN
    assert path.read_bytes() == before
    assert graph_to_compile(MINI / "vision.onnx", "vision", "fp32") == (MINI / "vision.onnx").read_bytes()
