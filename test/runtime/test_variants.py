"""Exports in another precision: what is written, what runs, what is refused, what it costs."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from specdrive_ros.cli.main import main
from specdrive_ros.engine.graph_file import read_record
from specdrive_ros.errors import InputError
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.onnx_networks import OnnxNetworks
from specdrive_ros.target.rope import text_positions

pytest.importorskip("onnx", reason="needs the train extra")
from specdrive_ros.runtime.variants import emulated, write_variant  # noqa: E402

MINI = data_roots()[0] / "models" / "mini"


@pytest.fixture(scope="module", params=["int8", "int4", "fp8", "int8w", "int4w"])
def quantised(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "mini"
    write_variant(MINI, folder, request.param)
    return request.param, folder


def logits_of(networks) -> np.ndarray:
    cache = networks.new_cache(64)
    embeddings = networks.embed(np.arange(20))
    return networks.extend(embeddings, text_positions(0, 20, 0), cache).logits


def test_quantised_weights_run_and_are_close(quantised):
    _, folder = quantised
    expected, found = (logits_of(OnnxNetworks(each, threads=1)) for each in (MINI, folder))
    assert np.abs(found - expected).max() > 1e-3  # it is another graph,
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.8  # and still this model, nonsense as the words are


def test_quantised_weights_are_small(quantised):
    kind, folder = quantised
    text = (folder / "text.onnx.data").stat().st_size
    assert text < {"int8": 5e6, "int4": 4e6, "fp8": 5e6, "int8w": 5e6, "int4w": 4e6}[kind]  # 17 MB in fp32


def test_a_variant_says_what_it_is(quantised):
    kind, folder = quantised
    assert [read_record(folder / f"{name}.onnx", "").variant for name in ("vision", "text", "action_step")] == [
        kind,
        kind,
        "fp32",
    ]
    with pytest.raises(InputError, match=f"is in {kind}; start from the fp32 export"):
        write_variant(folder, folder.with_name("again"), "int8")


def test_engines_are_built_from_weights_in_plain_onnx(quantised):
    from specdrive_ros.engine.building import wanted_identity
    from specdrive_ros.engine.profile import find_profile

    kind, folder = quantised
    if kind in ("fp8", "int8w", "int4w"):
        tensorrt = SimpleNamespace(name="tensorrt_rtx", version="1")
        identity, plain = (wanted_identity(each, "text", find_profile("rtx-ada"), tensorrt) for each in (folder, MINI))
        differing = [each.partition(":")[0] for each in identity.differences(plain)]
        assert differing == ["onnx", "weights text.onnx.data", "weights vision.onnx.data"]
        return
    with pytest.raises(InputError, match=f"text.onnx: is in {kind}; engines are built from the fp32 export"):
        wanted_identity(folder, "text", find_profile("rtx-ada"), None)


def test_half_precision_is_for_gpus(tmp_path):
    write_variant(MINI, tmp_path / "half", "bf16")
    with pytest.raises(InputError, match="vision.onnx: is in bf16, which is for GPUs; take the fp32 export, or int8"):
        OnnxNetworks(tmp_path / "half", threads=1)


def test_emulated_half_precision_runs_and_leaves_nothing_behind():
    before = set(MINI.parent.iterdir())
    with emulated(MINI, "bf16") as folder:
        expected, found = (logits_of(OnnxNetworks(each, threads=1)) for each in (MINI, folder))
    assert 1e-4 < np.abs(found - expected).max() / expected.std() < 0.1
    assert set(MINI.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mini", str(MINI), "--precision", "int8"], "a variant needs a folder of its own"),
        (["mini", "out", "--precision", "int8", "--cycles", "0"], "--cycles must be at least 1"),
        (["mini", "out", "--precision", "int8", "--tap-layers", "1"], "belong to an fp32 export"),
        (["mini", "out", "--precision", "int3"], "invalid choice: 'int3'"),
    ],
)
def test_wrong_arguments(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_what_it_costs_is_printed(capsys, tmp_path):
    assert main(["export", "mini", str(tmp_path / "half"), "--precision", "fp16", "--cycles", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    accuracy = document["accuracy"]
    assert document["precision"] == "fp16" and accuracy["cycles"] == 1 and accuracy["tokens"] > 3
    assert accuracy["token_agreement"] >= 0.995 and accuracy["plan_difference_m"]["max"] <= 0.05
    assert 0 < accuracy["logit_error"]["mean"] < accuracy["logit_error"]["max"] < 0.1


def test_a_variant_of_the_model_itself_costs_nothing():
    """The measure of the model against itself is zero, and finds a model that writes other words."""
    from specdrive_ros.cycle import Planner
    from specdrive_ros.evaluation.variant_accuracy import measure_accuracy
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.target.tokens import TargetTokenizer

    networks = OnnxNetworks(MINI, threads=1)
    one, other = (Planner(find_model("mini"), networks, TargetTokenizer.load(networks.config)) for _ in range(2))
    same = measure_accuracy(one, other, 2)
    assert (same.logit_error, same.token_agreement, same.same_reasoning, same.plan_m.max()) == (0, 1, 1, 0)

    class Shifted(OnnxNetworks):
        def run_text(self, *arguments):
            logits, taps = super().run_text(*arguments)
            return np.roll(logits, 1, -1), taps

    odd = Planner(find_model("mini"), Shifted(MINI, threads=1), one.tokenizer)
    assert measure_accuracy(one, odd, 1).token_agreement < 0.5
