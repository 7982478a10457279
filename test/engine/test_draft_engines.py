"""The graphs of drafts compiled ahead of time for RTX 30, 40 and 50, with no GPU; drafts beside a target on engines."""

from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.engine.building import build_model
from specdrive_ros.engine.profile import find_profile
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import DRAFT_GRAPHS

pytest.importorskip("onnxscript", reason="needs the train extra")
onnx = pytest.importorskip("onnx", reason="needs the train extra")

WORDS = 500  # that the drafts of conftest.py can say


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
        assert bindings["eagle3_newest"]["seen"].profiles[0] == ((1,), (200,), (1024,))
        assert bindings["eagle3_newest"]["taps"].profiles[0] == ((1, 576), (8, 576), (512, 576))
    else:
        block = bindings["dflash_block"]
        assert block["head"].dtype == block["past_1"].dtype == "float16" and block["logits"].dtype == "float32"
        assert block["seen"].dtype == "float32" and block["seen"].profiles[0] == ((3,), (208,), (528,))
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
    """Where a target runs on TensorRT and nothing was built for its draft, that runs on ONNX Runtime: it loads."""
    from specdrive_ros.runtime.drafts import load_draft
    from specdrive_ros.runtime.onnx_drafts import OnnxDFlash, OnnxEagle3

    kind, folder = draft
    networks = make_networks()
    assert networks.runtime == "tensorrt"
    loaded = load_draft(folder, networks, words=np.arange(WORDS))
    assert isinstance(loaded.networks, {"eagle3": OnnxEagle3, "dflash": OnnxDFlash}[kind])


def test_a_proposal_fits_what_the_compiled_engines_say_of_themselves(built, draft, make_networks, device, host_context):
    """Bindings as compiled, in half precision: every shape and address of two rounds is one they were built for."""
    from specdrive_ros.draft.layout import read_draft_config
    from specdrive_ros.engine.graph_file import read_record
    from specdrive_ros.engine.serving import ServedEngine
    from specdrive_ros.runtime.tensorrt_drafts import TensorRtDFlash, TensorRtEagle3

    kind, entries, _ = built
    engines = {
        graph: ServedEngine(
            entry, read_record(draft[1] / f"{graph}.onnx", ""), contexts=[host_context(entry.bindings, 0)]
        )
        for graph, entry in entries.items()
    }
    target = make_networks()
    config = read_draft_config(draft[1], target.config.text)
    states = lambda rows: np.zeros((rows, 3 * 192), np.float32)  # noqa: E731
    tables = lambda rows: (np.zeros((rows, config.head_dim), np.float32),) * 2  # noqa: E731
    words = lambda rows: np.zeros((rows, 192), np.float32)  # noqa: E731
    if kind == "eagle3":
        made = TensorRtEagle3(draft[1], config, engines, target)
        cache = made.new_cache()
        assert cache.row_bytes == 2 * config.num_key_value_heads * config.head_dim * 2
        for rows in (41, 3):
            hidden, logits = made.newest(words(rows), states(rows), *tables(rows), cache.known, cache.reserve(rows))
            cache.advance(rows)
            assert hidden.shape == (1, 192) and logits.shape == (1, WORDS)
            mask = np.zeros((5, cache.length + 5), np.float32)
            made.step(words(5), hidden[[0] * 5], *tables(5), mask, cache.known, cache.reserve(5))
    else:
        made = TensorRtDFlash(config, engines, target, np.zeros((800, 192), np.float32))
        cache = made.new_cache()
        for rows in (41, 3):
            made.inject(states(rows), *tables(rows), cache.reserve(rows))
            cache.advance(rows)
            assert made.fill(words(8), *tables(8), cache.known).shape == (8, 800)
