"""The graphs of drafts compiled ahead of time for RTX 30, 40 and 50, with no GPU; drafts beside a target on engines."""

import os
import platform
import sys
from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.engine.building import build_model
from specdrive_ros.engine.profile import find_profile
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.engine.tensorrt import RTX, find_tensorrt
from specdrive_ros.errors import InputError
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.bindings import DRAFT_GRAPHS

pytest.importorskip("onnxscript", reason="needs the train extra")
onnx = pytest.importorskip("onnx", reason="needs the train extra")

MINI = data_roots()[0] / "models" / "mini"
KINDS = ("eagle3", "dflash")
WORDS = 500


@pytest.fixture(scope="module", params=KINDS)
def draft(request, tmp_path_factory):
    """Kind and folder of a draft for mini with chance weights and its graphs."""
    import torch

    from specdrive_ros.draft.checkpoint import new_draft, save_draft
    from specdrive_ros.draft.target_identity import fingerprint_of
    from specdrive_ros.runtime.draft_export import export_draft
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.training.draft_training import DraftTraining, draft_config

    folder, config = tmp_path_factory.mktemp("drafts") / f"{request.param}-flat", TargetConfig.load(MINI)
    folder.mkdir()
    torch.manual_seed(0)
    training = DraftTraining(request.param, "flat", block_size=8)
    made = new_draft(draft_config(config, training, (2, 4, 5), WORDS, 3, fingerprint_of(MINI)))
    if request.param == "eagle3":
        made.set_vocabulary(np.arange(WORDS))
    save_draft(made, folder)
    export_draft(folder, folder, config.text)
    return request.param, folder


@pytest.fixture(scope="module")
def rtx():
    try:
        return find_tensorrt(RTX)
    except InputError as error:
        if os.environ.get("CI") and (sys.platform, platform.machine()) == ("linux", "x86_64"):
            pytest.fail(f"the tests' environment must have it: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def built(draft, rtx, tmp_path_factory):
    """Kind, entries by graph, and the store."""
    kind, folder = draft
    store = EngineStore(tmp_path_factory.mktemp("built"))
    outcomes = build_model(folder, find_profile("rtx-all"), store, rtx)
    return kind, {one.entry.identity.graph: one.entry for one in outcomes}, store


def test_every_graph_compiles_for_every_generation(built):
    kind, entries, store = built
    assert tuple(entries) == DRAFT_GRAPHS[kind]
    for entry in entries.values():
        assert entry.identity.target == "sm_86+sm_89+sm_120"
        assert len(store.load(entry.identity).content) == entry.size > 100_000


def test_what_they_bind_is_the_binding_table(built):
    kind, entries, _ = built
    bindings = {graph: {one.name: one for one in entry.bindings} for graph, entry in entries.items()}
    if kind == "eagle3":
        step = bindings["eagle3_step"]
        assert step["past_0"].dtype == step["new_0"].dtype == "float16"
        assert step["hidden"].dtype == step["logits"].dtype == "float32"
        assert step["mask"].profiles[0] == ((1, 2), (10, 202), (64, 576))
        assert bindings["eagle3_newest"]["taps"].profiles[0] == ((1, 576), (8, 576), (512, 576))
    else:
        block = bindings["dflash_block"]
        assert block["head"].dtype == block["past_1"].dtype == "float16" and block["logits"].dtype == "float32"
        assert block["head"].profiles[0] == ((192, 1), (192, 1024), (192, 8192))
        assert bindings["dflash_context"]["new_1"].dtype == "float16"


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_types_agree_throughout(draft, precision):
    """Strict inference refuses a node whose inputs are of two types."""
    from specdrive_ros.engine.precision import to_precision

    kind, folder = draft
    for name in DRAFT_GRAPHS[kind]:
        graph = onnx.load(str(folder / f"{name}.onnx"), load_external_data=False)
        onnx.shape_inference.infer_shapes(to_precision(graph, precision), check_type=True, strict_mode=True)


def test_a_profile_that_says_nothing_of_a_draft(draft, rtx, tmp_path):
    kind, folder = draft
    profile = find_profile("rtx-ada")
    without = replace(profile, graphs={"text": profile.graphs["text"]})
    with pytest.raises(InputError, match=f"profile rtx-ada: says nothing of {DRAFT_GRAPHS[kind][0]}"):
        build_model(folder, without, EngineStore(tmp_path / "engines"), rtx)


def test_a_draft_runs_beside_a_target_on_engines(draft, make_networks):
    """Where a target runs on TensorRT, its draft runs on ONNX Runtime: it loads, and proposes."""
    from specdrive_ros.runtime.drafts import load_draft
    from specdrive_ros.runtime.onnx_drafts import OnnxDFlash, OnnxEagle3

    kind, folder = draft
    networks = make_networks()
    assert networks.runtime == "tensorrt"
    loaded = load_draft(folder, networks, words=np.arange(WORDS))
    assert isinstance(loaded.networks, {"eagle3": OnnxEagle3, "dflash": OnnxDFlash}[kind])
