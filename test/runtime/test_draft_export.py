"""Drafts on ONNX Runtime: the graphs agree with PyTorch, hold no weights, and propose the same."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the train extra")
pytest.importorskip("onnxscript", reason="needs the train extra")

from safetensors.numpy import load_file, save_file  # noqa: E402

from specdrive_ros.draft.checkpoint import load_draft_network  # noqa: E402
from specdrive_ros.draft.dflash import DFlashDraft  # noqa: E402
from specdrive_ros.draft.eagle3 import Eagle3Draft  # noqa: E402
from specdrive_ros.errors import InputError, WorkFailed  # noqa: E402
from specdrive_ros.runtime import draft_export  # noqa: E402
from specdrive_ros.runtime.bindings import DRAFT_GRAPHS  # noqa: E402
from specdrive_ros.runtime.onnx_drafts import OnnxDFlash, OnnxEagle3  # noqa: E402
from specdrive_ros.runtime.torch_drafts import TorchDFlash, TorchEagle3  # noqa: E402
from specdrive_ros.runtime.weights_file import tensor_places  # noqa: E402
from specdrive_ros.target.config import TextConfig  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "drafts_A"
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "head_dim", "vocab_size", "rope_theta", "rms_norm_eps")  # fmt: skip


@pytest.fixture(scope="module")
def text():
    released = json.loads((GOLDEN / "target" / "config.json").read_text())
    return TextConfig(**{name: released[name] for name in SIZES}, mrope_section=(4, 2, 2))


@pytest.fixture(scope="module", params=["eagle3", "dflash"])
def made(request, tmp_path_factory, text):
    """Kind, folder with graphs, what was compared."""
    folder = tmp_path_factory.mktemp("draft") / request.param
    return request.param, folder, draft_export.export_draft(GOLDEN / request.param / "draft_fit", folder, text)


def test_graphs_agree_and_point_into_the_draft(made):
    kind, folder, comparisons = made
    assert len(comparisons) >= 4 and all(one.error <= 1e-4 for one in comparisons)
    places = {(place.offset, place.length) for place in tensor_places(folder).values()}
    for name in DRAFT_GRAPHS[kind]:
        own = 0
        for tensor in onnx.load(folder / f"{name}.onnx", load_external_data=False).graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                entry = {item.key: item.value for item in tensor.external_data}
                assert (int(entry["offset"]), int(entry["length"])) in places
            else:
                own += len(tensor.raw_data)
        assert own < 5_000


def drafts(kind, folder, text):
    """The same draft on PyTorch and on ONNX Runtime."""
    weights = load_file(GOLDEN / "target" / "model.safetensors")
    embedding, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    network, words = load_draft_network(folder, text), np.arange(3, 190)
    if kind == "eagle3":
        pair = TorchEagle3(network), OnnxEagle3(folder, network.config)
        return [Eagle3Draft(each, lambda ids: embedding[ids], depth=4, top_k=5) for each in pair]
    pair = TorchDFlash(network, head, words), OnnxDFlash(folder, network.config, head, words)
    return [DFlashDraft(each, lambda ids: embedding[ids]) for each in pair]


def test_both_runtimes_propose_the_same(made, text):
    kind, folder, _ = made
    given = load_file(GOLDEN / "eagle3" / "onestep_fit.safetensors")
    torch_draft, onnx_draft = drafts(kind, folder, text)
    taps = np.concatenate([given[f"aux_hidden_{k}"][0] for k in range(len(torch_draft.config.tap_layers))], -1)
    ids = np.append(given["prompt_ids"][0], given["next_token"].ravel())
    for first, known in ((0, 10), (10, 11), (11, 14)):
        context = SimpleNamespace(
            prompt_ids=ids[:10], written=tuple(ids[10:known]), newest_token=int(ids[known]), taps=taps[first:known],
            positions=np.broadcast_to(np.arange(first, known), (3, known - first)), rope_delta=0,
        )  # fmt: skip
        one, other = torch_draft.propose(context, 12), onnx_draft.propose(context, 12)
        assert np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])
        np.testing.assert_allclose(one[2], other[2], atol=1e-4)
    np.testing.assert_allclose(torch_draft.cache.known, onnx_draft.cache.known, atol=1e-4)


def test_graphs_of_other_weights_are_refused(made, text, tmp_path):
    kind, folder, _ = made
    folder = shutil.copytree(folder, tmp_path / "changed")
    weights = load_file(folder / "model.safetensors")
    weights["fc.weight"] = weights["fc.weight"] + np.float32(1)
    save_file(weights, str(folder / "model.safetensors"))
    with pytest.raises(InputError, match=f"is not the file {kind}_.*--target MODEL"):
        drafts(kind, folder, text)
    (folder / f"{DRAFT_GRAPHS[kind][1]}.onnx").unlink()
    with pytest.raises(InputError, match="no such graph; export it with: ./specdrive export"):
        drafts(kind, folder, text)


def test_a_graph_that_differs_fails(made, text, tmp_path, monkeypatch):
    _, folder, _ = made
    monkeypatch.setattr(draft_export, "_tracers", lambda _: {})
    monkeypatch.setattr(draft_export, "compare_draft", lambda *_: [draft_export.Comparison("token logits", 0.5, 1e-4)])
    with pytest.raises(WorkFailed, match="token logits differs from PyTorch by 5.0e-01"):
        draft_export.export_draft(folder, folder, text)


def test_proposing_needs_no_torch():
    code = (
        "import sys; import specdrive_ros.runtime.drafts, specdrive_ros.runtime.onnx_drafts; "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=GOLDEN.parents[2]).returncode == 0
