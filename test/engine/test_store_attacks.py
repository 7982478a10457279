"""What damage, swaps, races and tricks do to a store, its manifest and a build: told, mended, refused, never fatal."""

import json
import logging
import os
import shutil
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from specdrive_ros.engine import building
from specdrive_ros.engine.axes import Range
from specdrive_ros.engine.builder import BuiltEngine, _keep_timing_cache, _open_timing_cache
from specdrive_ros.engine.cuda_driver import DeviceInfo
from specdrive_ros.engine.faults import EngineDamaged, EngineMismatch
from specdrive_ros.engine.graph_file import graph_identity_parts
from specdrive_ros.engine.identity import EngineIdentity
from specdrive_ros.engine.manifest import MANIFEST, write_manifest
from specdrive_ros.engine.profile import find_profile
from specdrive_ros.engine.serving import serve
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.bindings import ADDED, GraphRecord

MINI = data_roots()[0] / "models" / "mini"
GRAPH = "action_step"
ADA = DeviceInfo("a card", "8.9")


@pytest.fixture(scope="module")
def identity():
    """Of an engine of mini's action step, as it would be built today by a module that is not installed."""
    _, onnx, weights = graph_identity_parts(MINI / f"{GRAPH}.onnx", "")
    return EngineIdentity(GRAPH, onnx, weights, "fp16", '{"shapes":[]}', "tensorrt", "10.0", "sm_86+sm_89",
                          added=ADDED[GRAPH])


@pytest.fixture
def store(tmp_path):
    return EngineStore(tmp_path / "engines")


@pytest.fixture(autouse=True)
def no_module(monkeypatch):
    """Versions are what the identities say, whatever is installed."""
    monkeypatch.setattr("specdrive_ros.engine.serving.installed_version", lambda builder: None)


# --- the manifest's file


def test_a_pipe_for_a_manifest_does_not_wait_for_a_writer(store, identity):
    store.put(identity, b"engine")
    (store.folder / MANIFEST).unlink()
    os.mkfifo(store.folder / MANIFEST)
    with pytest.raises(EngineDamaged, match="manifest.json: damaged .no regular file."):
        store.load(identity)
    store.put(identity, b"again")
    assert store.load(identity).content == b"again"


@pytest.mark.parametrize("size", [16 * 2**20 + 1, 2**34])
def test_a_manifest_without_end_is_not_read_to_its_end(store, identity, size):
    store.put(identity, b"engine")
    os.truncate(store.folder / MANIFEST, size)
    with pytest.raises(EngineDamaged, match="larger than 16777216 bytes"):
        store.load(identity)
    (store.folder / MANIFEST).unlink()
    (store.folder / MANIFEST).symlink_to("/dev/zero")
    with pytest.raises(EngineDamaged, match="no regular file"):
        store.load(identity)


def test_a_folder_for_a_manifest(store, identity):
    (store.folder / MANIFEST).mkdir(parents=True)
    with pytest.raises(EngineDamaged, match="manifest.json: damaged"):
        store.load(identity)
    store.put(identity, b"engine")
    assert store.load(identity).content == b"engine"


@pytest.mark.parametrize("version", ["true", "1.0", '"1"'])
def test_a_version_that_only_looks_like_ours(store, identity, version):
    store.put(identity, b"engine")
    text = (store.folder / MANIFEST).read_text()
    (store.folder / MANIFEST).write_text(text.replace('"version": 1,', f'"version": {version},', 1))
    with pytest.raises(EngineDamaged, match="this package reads 1"):
        store.load(identity)


@pytest.mark.parametrize("position", range(0, 100, 7))
def test_any_byte_of_an_entry_changed(store, identity, position):
    """At some of a hundred places, each in another part of the manifest: damaged, or not the wanted engine."""
    store.put(identity, b"engine", model="m")
    content = bytearray((store.folder / MANIFEST).read_bytes())
    content[len(content) * position // 100] ^= 0x01
    (store.folder / MANIFEST).write_bytes(content)
    with pytest.raises((EngineDamaged, EngineMismatch)):
        store.load(identity)


# --- removing


def test_what_two_entries_share_stays_for_the_other(store, identity):
    other = replace(identity, target="sm_120")
    store.put(identity, b"the same")
    store.put(other, b"the same")
    (removed,) = store.prune({other.key: "old"})
    assert removed.why == "old"
    assert store.load(identity).content == b"the same"
    with pytest.raises(EngineMismatch, match="target: sm_86.sm_89 -> sm_120$"):
        store.load(other)


def test_a_folder_that_cannot_be_written(store, identity, monkeypatch):
    store.put(identity, b"engine")

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("specdrive_ros.engine.manifest.os.replace", refuse)
    with pytest.raises(InputError, match="engines cannot be removed there .Read-only file system"):
        store.prune()
    assert store.load(identity).content == b"engine"


# --- what a machine serves


@pytest.fixture
def two(store, identity):
    """An older engine in fp16 and a newer one in bf16, both of which fit."""
    entries = [
        replace(store.put(replace(identity, precision=kind), kind.encode()), built_at=f"2026-01-0{day}T00:00:00+00:00")
        for day, kind in enumerate(("fp16", "bf16"), start=1)
    ]
    write_manifest(store.folder, entries)
    return entries


def test_the_newest_that_fits(store, two):
    assert serve(store, MINI, GRAPH, ADA).content == b"bf16"
    with pytest.raises(EngineMismatch, match="target: sm_86.sm_89 -> another sm_90; build it with"):
        serve(store, MINI, GRAPH, DeviceInfo("another", "9.0"))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone", "swap"])
def test_a_damaged_one_gives_way_to_an_older_one(store, two, caplog, damage):
    older, newer = (store.folder / entry.file for entry in two)
    if damage == "gone":
        newer.unlink()
    elif damage == "swap":
        newer.write_bytes(older.read_bytes())
    else:
        newer.write_bytes({"flip": b"bf17", "cut": b"bf1", "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        assert serve(store, MINI, GRAPH, ADA).content == b"fp16"
    assert newer.name in caplog.text and "another engine of action_step is looked for" in caplog.text
    older.write_bytes(b"fp17")
    with pytest.raises((EngineDamaged, InputError), match=newer.name):
        serve(store, MINI, GRAPH, ADA)


# --- graphs and builds


@pytest.fixture
def small(tmp_path):
    """A copy of mini and a profile with one graph of it that needs no rewriting."""
    folder = shutil.copytree(MINI, tmp_path / "mini")
    shapes = {GRAPH: ({"S": Range(1, 16, 32)},)}
    return folder, replace(find_profile("rtx-ada"), graphs=shapes, precision="fp32", targets=("8.9",))


MODULE = SimpleNamespace(name="tensorrt_rtx", version="1.0", ahead_of_time=True)


def test_one_weight_inside_the_graph_changed(small, store):
    """A bias too small to lie beside it; large ones are hashed with their file."""
    onnx = pytest.importorskip("onnx")
    folder, profile = small
    before = building.wanted_identity(folder, GRAPH, profile, MODULE)
    store.put(before, b"engine")
    graph = onnx.load(folder / f"{GRAPH}.onnx", load_external_data=False)
    inside = next(one for one in graph.graph.initializer if len(one.raw_data) >= 4)
    content = bytearray(inside.raw_data)
    content[0] ^= 1
    inside.raw_data = bytes(content)
    onnx.save(graph, folder / f"{GRAPH}.onnx")
    with pytest.raises(EngineMismatch, match="was built from something else: onnx: [0-9a-f]{12} -> [0-9a-f]{12}$"):
        store.load(building.wanted_identity(folder, GRAPH, profile, MODULE))


def test_data_under_any_name_is_part_of_what_an_engine_is(tmp_path):
    onnx = pytest.importorskip("onnx")
    tensor = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], b"\0" * 8, raw=True)
    body = onnx.helper.make_graph([], "g", [], [], [tensor])
    graph = onnx.helper.make_model(body)
    onnx.helper.set_model_props(graph, GraphRecord(GRAPH, (), 0, {}).to_metadata())
    onnx.external_data_helper.convert_model_to_external_data(graph, location="other.bin", size_threshold=0)
    path = tmp_path / "g.onnx"
    onnx.save_model(graph, str(path))
    _, _, files = graph_identity_parts(path, "")
    assert set(files) == {"other.bin"}
    (tmp_path / "other.bin").write_bytes(b"\1" + (tmp_path / "other.bin").read_bytes()[1:])
    assert graph_identity_parts(path, "")[2] != files
    (tmp_path / "other.bin").unlink()
    with pytest.raises(InputError, match="other.bin: cannot be read .*; export it"):
        graph_identity_parts(path, "export it")


def graph_at(path, record: object, location: str = ""):
    """A graph whose metadata say `record`, with a weight at `location` where one is given."""
    onnx = pytest.importorskip("onnx")
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[1])
    if location:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
    graph = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor]))
    said = record if isinstance(record, str) else json.dumps(record)
    onnx.helper.set_model_props(graph, {"specdrive": said})
    path.write_bytes(graph.SerializeToString())
    return path


RECORD = asdict(GraphRecord(GRAPH, (), 0, {}))


@pytest.mark.parametrize("record", [
    *(RECORD | {"weights": value} for value in ([], None, 5, {"a": 5})),
    *(RECORD | {"tap_layers": value} for value in ("ab", [None], 5)),
    *(RECORD | {name: value} for name in ("graph", "variant", "flow_steps") for value in (None, [], 1.5)),
    "[" * 100_000, "null", "[]",
])  # fmt: skip
def test_a_graph_that_says_nonsense_of_itself(tmp_path, record):
    with pytest.raises(InputError, match="g.onnx: was not exported by this package; export it"):
        graph_identity_parts(graph_at(tmp_path / "g.onnx", record), "export it")


@pytest.mark.parametrize("name", ["/dev/zero", "../secret", "a/../../secret", "a\0b"])
def test_weights_from_outside_of_the_folder(tmp_path, name):
    (tmp_path / "secret").write_bytes(b"0000")
    (tmp_path / "model").mkdir()
    for path in (
        graph_at(tmp_path / "model" / "g.onnx", RECORD, name),
        graph_at(tmp_path / "model" / "h.onnx", RECORD | {"weights": {name: "0"}}),
    ):
        with pytest.raises(InputError, match="takes weights from .*, which is outside of its folder; export it"):
            graph_identity_parts(path, "export it")


def test_a_pipe_for_a_graph_or_for_weights_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    graph_at(tmp_path / "g.onnx", RECORD, "pipe")
    for name in ("pipe", "g.onnx"):
        with pytest.raises(InputError, match="pipe: is no regular file; export it"):
            graph_identity_parts(tmp_path / name, "export it")


@pytest.mark.parametrize("changed", [f"{GRAPH}.onnx", "model.safetensors"])
def test_what_changes_while_it_is_compiled_is_not_kept(small, store, monkeypatch, changed):
    folder, profile = small

    def compile_slowly(*_, **__):
        path = folder / changed
        other = path.with_name("unfinished")
        other.write_bytes(path.read_bytes()[:-1] + b"x")
        os.replace(other, path)
        return BuiltEngine(b"engine", (), 1.0)

    monkeypatch.setattr(building, "build_engine", compile_slowly)
    with pytest.raises(WorkFailed, match="were changed while it was compiled; nothing is kept"):
        building.build_model(folder, profile, store, MODULE)
    assert store.entries() == []


class FakeConfig:
    """Of a builder that measures kernels: the cache it was given, the one it has."""

    def create_timing_cache(self, content):
        return SimpleNamespace(content=content)

    def set_timing_cache(self, cache, ignore_mismatch):
        self.cache = cache
        return cache.content != b"of another version"

    def get_timing_cache(self):
        return SimpleNamespace(serialize=lambda: b"measured")


def test_measured_kernels_are_kept_where_no_engine_was_yet(tmp_path, caplog):
    """The folder of a first build is not there; one that cannot be written costs the next build time, not this one."""
    path, config = tmp_path / "new" / "timing.cache", FakeConfig()
    assert _open_timing_cache(config, path).content == b""
    _keep_timing_cache(config, path)
    assert path.read_bytes() == b"measured" and _open_timing_cache(config, path).content == b"measured"
    path.write_bytes(b"of another version")
    assert _open_timing_cache(config, path).content == b""
    (tmp_path / "file").write_text("")
    _keep_timing_cache(config, tmp_path / "file" / "timing.cache")
    assert "cannot be kept" in caplog.text
