"""Every graph of mini compiled ahead of time for RTX 30, 40 and 50, with no GPU, and what the store makes of it."""

import json
import os
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.cli.main import main
from specdrive_ros.engine.axes import Range
from specdrive_ros.engine.building import Listener, build_model
from specdrive_ros.engine.faults import EngineMismatch
from specdrive_ros.engine.graph_file import read_record
from specdrive_ros.engine.manifest import write_manifest
from specdrive_ros.engine.profile import find_profile
from specdrive_ros.engine.serving import ServedEngine
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.bindings import GRAPHS
from specdrive_ros.runtime.networks import ImageRows
from specdrive_ros.runtime.tensorrt_networks import TensorRtNetworks
from specdrive_ros.target.rope import text_positions

MINI = data_roots()[0] / "models" / "mini"


@pytest.fixture(scope="module")
def built(rtx, tmp_path_factory):
    """Engines of every graph for compute capabilities 8.6, 8.9 and 12.0, and what was heard while they were built."""
    store, heard = EngineStore(tmp_path_factory.mktemp("built")), []
    profile = find_profile("rtx-all")
    listener = Listener(lambda graph, why: heard.append(graph), lambda phase, done, total: heard.append(phase))
    return store, profile, build_model(MINI, profile, store, rtx, listener), heard


def test_every_graph_compiles_for_every_generation(built):
    store, profile, outcomes, heard = built
    assert [one.entry.identity.graph for one in outcomes] == list(GRAPHS)
    for one in outcomes:
        assert one.built and "no engine of" in one.why
        assert one.entry.identity.target == "sm_86+sm_89+sm_120"
        content = store.load(one.entry.identity).content
        assert len(content) == one.entry.size > 1_000_000
    assert set(GRAPHS) < set(heard)  # and phases of the compiler


def test_what_it_binds_is_the_binding_table(built):
    bindings = {one.entry.identity.graph: {b.name: b for b in one.entry.bindings} for one in built[2]}
    text = bindings["text"]
    assert text["past_0"].dtype == text["new_7"].dtype == "float16"
    assert text["hidden"].dtype == text["logits"].dtype == "float32" and text["logit_rows"].dtype == "int64"
    assert (text["forbidden"].mode, text["choices"].mode) == ("input", "output")
    assert (text["choices"].dtype, text["best"].dtype) == ("int32", "float32")
    assert text["past_7"].profiles == (
        ((1, 2, 2, 32), (256, 2, 2, 32), (512, 2, 2, 32)),
        ((0, 2, 2, 32), (0, 2, 2, 32), (128, 2, 2, 32)),
    )
    assert text["mask"].profiles[0] == ((1, 2), (16, 272), (64, 576))
    assert bindings["action_step"]["time"].shape == (1, 1, 1) and bindings["action_step"]["time"].profiles == ()
    assert bindings["vision"]["patches"].profiles == (((1, 16, 1536), (1, 60, 1536), (16, 1024, 1536)),)


def test_a_cycle_fits_what_the_compiled_engines_say_of_themselves(built, device, host_context):
    """Bindings as compiled, in half precision: every shape and address of a cycle is one the engines were built for."""
    engines = {
        one.entry.identity.graph: ServedEngine(
            one.entry,
            read_record(MINI / f"{one.entry.identity.graph}.onnx", ""),
            contexts=[
                host_context(one.entry.bindings, index)
                for index in range(len(built[1].graphs[one.entry.identity.graph]))
            ],
        )
        for one in built[2]
    }
    networks = TensorRtNetworks(MINI, engines, device)
    cache = networks.new_cache(300)
    assert cache.row_bytes == 2 * 2 * 32 * 2
    features = networks.encode_images(np.zeros((4 * 60, 1536), np.float32), np.array([[4, 6, 10]]))
    images, forbidden = ImageRows(np.arange(20, 80), features), np.zeros(networks.config.text.vocab_size, bool)
    prompt = np.zeros((81, 192), np.float32)
    networks.extend(prompt, text_positions(0, 141, 0), cache, images=images, logit_rows=[140], forbidden=forbidden)
    cache.truncate(0)
    for tokens, rows in ((141, [140]), (1, None), (16, None), (60, None)):
        embeddings = np.zeros((tokens, 192), np.float32)
        networks.extend(embeddings, text_positions(cache.length, tokens, 0), cache, logit_rows=rows)
    networks.act(np.zeros((64, 2), np.float32), text_positions(218, 64, 0), cache, visible=cache.length)


TEXT_ALONE = {"text": ({"T": Range(1, 16, 64), "S": Range(1, 256, 512), "R": Range(1, 16, 64)},)}


@pytest.fixture(scope="module")
def in_fp16(rtx, tmp_path_factory):
    """Profile and bytes of an engine of text with weights in 16 bits."""
    profile = replace(find_profile("rtx-ada"), graphs=TEXT_ALONE, precision="fp16")
    (one,) = build_model(MINI, profile, EngineStore(tmp_path_factory.mktemp("fp16")), rtx)
    return profile, one.entry.size


@pytest.fixture(scope="module", params=["fp8", "int8w", "int4w"])
def few_bits(request, tmp_path_factory):
    """A variant with weights in few bits, its folder, and bytes that its weights would have more in 16 bits."""
    from specdrive_ros.runtime.variants import write_variant

    onnx = pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp(request.param) / "mini"
    write_variant(MINI, folder, request.param)
    graph = onnx.load(folder / "text.onnx", load_external_data=False).graph
    numbers = sum(int(np.prod(one.dims)) for one in graph.initializer if one.name.endswith(".stored"))
    return request.param, folder, 2 * numbers - (folder / "text.onnx.data").stat().st_size


def test_weights_in_few_bits_stay_in_few_bits(rtx, in_fp16, few_bits, tmp_path):
    """Under half precision: no builder folds them into it, so the engine is smaller by what they are."""
    (profile, size), (_, folder, saved) = in_fp16, few_bits
    (one,) = build_model(folder, profile, EngineStore(tmp_path / "engines"), rtx)
    assert {binding.name for binding in one.entry.bindings} > {"hidden", "past_0", "logits", "choices"}
    assert saved > 3_000_000 and 0.8 * saved < size - one.entry.size < 1.2 * saved


def test_whole_numbers_compile_for_every_generation(rtx, few_bits, tmp_path):
    """RTX 30 has no FP8; int8 and int4 weights compile for all three."""
    kind, folder, _ = few_bits
    if kind == "fp8":
        pytest.skip("not for 8.6")
    profile = replace(find_profile("rtx-all"), graphs=TEXT_ALONE)
    (one,) = build_model(folder, profile, EngineStore(tmp_path / "engines"), rtx)
    assert one.entry.identity.target == "sm_86+sm_89+sm_120" and one.entry.size > 1_000_000


def test_nothing_is_built_twice(built, rtx):
    store, profile, _, _ = built
    again = build_model(MINI, profile, store, rtx, Listener(lambda graph, why: pytest.fail(f"built {graph} again")))
    assert not any(one.built for one in again)


@pytest.fixture(scope="module")
def small_once(rtx, tmp_path_factory):
    store = EngineStore(tmp_path_factory.mktemp("small") / "engines")
    profile = replace(find_profile("rtx-ada"), graphs={"action_step": ({"S": Range(1, 16, 32)},)}, precision="fp32")
    build_model(MINI, profile, store, rtx)
    return profile, store


@pytest.fixture
def small(small_once, tmp_path):
    """A copy of mini, a profile with one graph of it, and a store: for changes."""
    profile, store = small_once
    shutil.copytree(MINI, tmp_path / "mini")
    shutil.copytree(store.folder, tmp_path / "engines")
    return tmp_path / "mini", profile, EngineStore(tmp_path / "engines")


def test_one_weight_changed(small, rtx):
    model, profile, store = small
    content = bytearray((model / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="model.safetensors: is not the file action_step.onnx was exported from"):
        build_model(model, profile, store, rtx)


def test_graph_changed(small, rtx):
    onnx = pytest.importorskip("onnx")
    model, profile, store = small
    graph = onnx.load(model / "action_step.onnx", load_external_data=False)
    graph.doc_string = "changed"
    onnx.save(graph, model / "action_step.onnx")
    with pytest.raises(EngineMismatch, match="was built from something else: onnx: [0-9a-f]{12} -> [0-9a-f]{12}$"):
        build_model(model, replace(profile, on_mismatch="refuse"), store, rtx)
    (outcome,) = build_model(model, profile, store, rtx)
    assert outcome.built and "onnx:" in outcome.why
    assert not build_model(model, profile, store, rtx)[0].built


def test_damaged_engine_is_built_again(small, rtx):
    model, profile, store = small
    path = store.folder / store.entries()[0].file
    path.write_bytes(path.read_bytes()[:1000])
    (outcome,) = build_model(model, profile, store, rtx)
    assert outcome.built and "has 1000 bytes, its manifest says" in outcome.why
    assert store.load(outcome.entry.identity)


def test_another_version_of_the_module(small, rtx, monkeypatch):
    model, profile, store = small
    monkeypatch.setattr(rtx.module, "__version__", "9.9.9")
    with pytest.raises(EngineMismatch, match=r"builder_version: [\d.]+ -> 9.9.9$"):
        build_model(model, replace(profile, on_mismatch="refuse"), store, rtx)


@pytest.fixture
def heard():
    """Ctrl-C is heard, also where the tests were started in the background and inherited that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_build_and_leaves_nothing(small, rtx, tmp_path, heard):
    (folder, profile, _), store = small, EngineStore(tmp_path / "new")
    handler = heard
    listener = Listener(on_progress=lambda phase, done, total: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        build_model(folder, profile, store, rtx, listener)
    assert signal.getsignal(signal.SIGINT) is handler and not store.entries()
    assert build_model(folder, profile, store, rtx)[0].built


def test_unknown_capability(small, rtx):
    model, profile, store = small
    with pytest.raises(InputError, match="targets: 3.5 is not known to tensorrt_rtx .* it knows .*8.9"):
        build_model(model, replace(profile, targets=("3.5",)), store, rtx)


def test_gpu_at_hand_where_there_is_none(small, rtx):
    from specdrive_ros.engine.cuda_driver import device_at_hand

    try:
        device_at_hand()
    except InputError:
        model, profile, store = small
        with pytest.raises(InputError, match="engines run on a machine with an? NVIDIA GPU|finds no GPU"):
            build_model(model, replace(profile, targets=("current",)), store, rtx)
    else:
        pytest.skip("there is a GPU here")


def test_graph_that_does_not_compile(small, rtx, tmp_path):
    from specdrive_ros.engine.builder import build_engine

    _, profile, _ = small
    with pytest.raises(WorkFailed) as caught:
        build_engine(rtx, "action_step", b"no graph", tmp_path / "action_step.onnx", profile)
    assert str(caught.value)


def test_command_line(small, capsys, tmp_path):
    model, _, store = small
    assert main(["engine", "list", str(store.folder)]) == 0
    assert "action_step" in capsys.readouterr().out
    assert main(["engine", "verify", str(store.folder), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["engines"]
    assert row["fits"] and row["faults"] == []
    assert main(["engine", "inspect", str(store.folder), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["engines"]
    assert {binding["name"] for binding in entry["bindings"]} > {"noise", "time", "past_0", "action"}
    path = store.folder / row["file"]
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert main(["engine", "verify", str(store.folder)]) == 1
    assert "FAULT" in (out := capsys.readouterr().out) and "its sha256 differs" in out
    assert main(["engine", "prune", str(store.folder)]) == 0
    assert not path.exists()
    assert main(["engine", "verify", str(store.folder)]) == 0
    assert main(["engine", "inspect", str(store.folder)]) == 2
    assert main(["engine", "list", str(tmp_path / "none")]) == 2


def test_verify_says_what_changed(small, capsys):
    model, _, store = small
    (model / "action_step.onnx").write_bytes((MINI / "vision.onnx").read_bytes())
    assert main(["engine", "verify", str(store.folder)]) == 0
    assert main(["engine", "verify", str(store.folder), "--model", str(model)]) == 1
    assert "onnx:" in capsys.readouterr().out
    entry = replace(store.entries()[0], model=str(model / "gone"))
    write_manifest(store.folder, [entry])
    assert main(["engine", "verify", str(store.folder)]) == 0
    assert "is not here; name the model with --model" in capsys.readouterr().out
