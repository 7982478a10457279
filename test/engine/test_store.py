"""The store against damage, swaps, staleness and neighbours: never fatal, never served, always a reason."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from specdrive_ros.engine import building
from specdrive_ros.engine.building import build_model
from specdrive_ros.engine.faults import EngineDamaged, EngineMismatch, EngineMissing
from specdrive_ros.engine.identity import EngineIdentity
from specdrive_ros.engine.manifest import MANIFEST, Binding
from specdrive_ros.engine.profile import find_profile
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import InputError
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.bindings import EXPORT_VERSION

TEXT = EngineIdentity(
    graph="text",
    onnx="a" * 64,
    weights={"model.safetensors": "b" * 64},
    precision="fp16",
    profile='{"optimisation_level":3,"shapes":[{"T":[1,16,64]}]}',
    builder="tensorrt_rtx",
    builder_version="1.7.1",
    target="sm_89",
)
VISION = replace(TEXT, graph="vision", onnx="c" * 64)
CONTENT = bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path):
    made = EngineStore(tmp_path / "engines")
    made.put(TEXT, CONTENT, model="m", build_s=1.5, bindings=(Binding("hidden", "input", "float32", (-1, 8)),))
    made.put(VISION, CONTENT[::-1])
    return made


def entry_of(store, graph="text"):
    return next(entry for entry in store.entries() if entry.identity.graph == graph)


def file_of(store, graph="text"):
    return store.folder / entry_of(store, graph).file


def refusal(store, kind, identity=TEXT) -> str:
    with pytest.raises(kind) as caught:
        store.load(identity)
    assert isinstance(caught.value, InputError) and "\n" not in str(caught.value)
    return str(caught.value)


def edit_manifest(store, change) -> None:
    path = store.folder / MANIFEST
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_what_was_put_is_served(store):
    stored = store.load(TEXT)
    assert stored.content == CONTENT and stored.entry.model == "m" and stored.entry.size == len(CONTENT)
    assert stored.entry.bindings == (Binding("hidden", "input", "float32", (-1, 8)),)
    assert store.load(VISION).content == CONTENT[::-1]


@pytest.mark.parametrize("position", [0, 1, 5000, len(CONTENT) - 1])
def test_one_flipped_byte(store, position):
    content = bytearray(CONTENT)
    content[position] ^= 0x10
    file_of(store).write_bytes(content)
    assert "is not what was written (its sha256 differs" in refusal(store, EngineDamaged)
    assert store.load(VISION)


@pytest.mark.parametrize("length", [0, 1, len(CONTENT) - 1])
def test_cut_short(store, length):
    file_of(store).write_bytes(CONTENT[:length])
    assert f"has {length} bytes, its manifest says {len(CONTENT)}" in refusal(store, EngineDamaged)


def test_grown(store):
    with file_of(store).open("ab") as file:
        file.write(b"more")
    assert f"has {len(CONTENT) + 4} bytes" in refusal(store, EngineDamaged)


def test_file_gone(store):
    file_of(store).unlink()
    assert "is in the manifest, but gone" in refusal(store, EngineMissing)


def test_link_pipe_or_folder_for_an_engine(store, tmp_path):
    path = file_of(store)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert "cannot be read" in refusal(store, EngineDamaged)
    path.unlink()
    os.mkfifo(path)
    assert "is no regular file" in refusal(store, EngineDamaged)  # and does not wait for a writer
    path.unlink()
    path.mkdir()
    assert "is no regular file" in refusal(store, EngineDamaged)


def test_engine_that_no_manifest_names_is_not_served(tmp_path, store):
    other = EngineStore(tmp_path / "other")
    other.folder.mkdir()
    (other.folder / file_of(store).name).write_bytes(CONTENT)
    assert "no engine of text" in refusal(other, EngineMissing)


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("onnx", "d" * 64, f"onnx: {'a' * 12} -> {'d' * 12}"),
        ("weights", {"model.safetensors": "e" * 64}, f"weights model.safetensors: {'b' * 12} -> {'e' * 12}"),
        ("weights", {}, f"weights model.safetensors: {'b' * 12} -> none"),
        ("precision", "bf16", "precision: fp16 -> bf16"),
        ("builder", "tensorrt", "builder: tensorrt_rtx -> tensorrt"),
        ("builder_version", "1.8.0", "builder_version: 1.7.1 -> 1.8.0"),
        ("target", "sm_120", "target: sm_89 -> sm_120"),
        ("export_version", EXPORT_VERSION + 1, f"export_version: {EXPORT_VERSION} -> {EXPORT_VERSION + 1}"),
        (
            "profile",
            '{"optimisation_level":3,"shapes":[{"T":[1,16,128]}]}',
            'profile shapes: [{"T":[1,16,64]}] -> [{"T":[1,16,128]}]',
        ),
    ],
)
def test_whatever_changes_is_named_and_nothing_else(store, part, value, said):
    message = refusal(store, EngineMismatch, replace(TEXT, **{part: value}))
    assert message.endswith(f"was built from something else: {said}")


def test_the_nearest_engine_is_the_one_compared(store):
    store.put(replace(TEXT, target="sm_120", builder_version="1.6"), b"other")
    assert refusal(store, EngineMismatch, replace(TEXT, precision="fp32")).endswith("precision: fp16 -> fp32")


def test_several_engines_of_a_graph_live_beside_each_other(store):
    store.put(replace(TEXT, target="sm_120"), b"for another")
    assert store.load(replace(TEXT, target="sm_120")).content == b"for another"
    assert store.load(TEXT).content == CONTENT


def test_building_again_replaces(store):
    store.put(TEXT, b"newer")
    assert store.load(TEXT).content == b"newer"
    assert len(store.entries()) == 2


def test_same_content_for_two_identities(store):
    store.put(replace(TEXT, target="sm_86"), CONTENT)
    assert store.load(replace(TEXT, target="sm_86")).content == store.load(TEXT).content
    removed = store.prune({})
    assert removed == [] and store.load(TEXT)


def test_no_engine_without_a_byte(store):
    with pytest.raises(InputError, match="without a byte"):
        store.put(TEXT, b"")


# --- the manifest


def swap_files(document):
    one, two = document["engines"]
    for part in ("file", "sha256", "size"):
        one[part], two[part] = two[part], one[part]


def swap_identities(document):
    one, two = document["engines"]
    for part in ("identity", "key"):
        one[part], two[part] = two[part], one[part]


@pytest.mark.parametrize(
    "change",
    [
        swap_files,
        swap_identities,
        lambda document: document["engines"][0].update(sha256="0" * 64),
        lambda document: document["engines"][0].update(size=1),
        lambda document: document["engines"][0]["identity"].update(builder_version="1.8"),
        lambda document: document["engines"][0]["identity"].update(graph="vision"),
        lambda document: document["engines"][0]["identity"].update(unknown="part"),
        lambda document: document["engines"][0]["identity"].pop("target"),
        lambda document: document["engines"][0].update(key="0" * 64),
        lambda document: document["engines"][0].pop("seal"),
        lambda document: document["engines"][0].update(bindings=[{"name": "hidden"}]),
        lambda document: document["engines"][0].update(bindings=None),
        lambda document: document["engines"][0].update(file="../../etc/passwd"),
        lambda document: document["engines"].append(document["engines"][0]),
        lambda document: document["engines"].append(None),
        lambda document: document.update(version=99),
        lambda document: document.update(engines={}),
    ],
)
def test_edited_manifest(store, change):
    edit_manifest(store, change)
    message = refusal(store, EngineDamaged)
    assert "manifest.json: damaged" in message and "no engine of it is loaded" in message


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b'{"version": 1}', b"[" * 100_000, b'{"version": NaN}']
)
def test_garbage_for_a_manifest(store, content):
    (store.folder / MANIFEST).write_bytes(content)
    assert "manifest.json: damaged" in refusal(store, EngineDamaged)


def test_manifest_of_another_folder(store, tmp_path):
    """Whole in itself, but its engines are not these."""
    other = EngineStore(tmp_path / "other")
    other.put(replace(TEXT, onnx="f" * 64), b"of another model")
    (store.folder / MANIFEST).write_bytes((other.folder / MANIFEST).read_bytes())
    assert f"onnx: {'f' * 12} -> {'a' * 12}" in refusal(store, EngineMismatch)
    assert "is in the manifest, but gone" in refusal(store, EngineMissing, replace(TEXT, onnx="f" * 64))


def test_manifest_rolled_back(store):
    old = (store.folder / MANIFEST).read_bytes()
    store.put(replace(TEXT, builder_version="1.8"), b"newer")
    (store.folder / MANIFEST).write_bytes(old)
    assert "builder_version: 1.7.1 -> 1.8" in refusal(store, EngineMismatch, replace(TEXT, builder_version="1.8"))


def test_building_after_a_damaged_manifest(store):
    (store.folder / MANIFEST).write_bytes(b"{")
    store.put(TEXT, b"again")
    assert store.load(TEXT).content == b"again" and [e.identity.graph for e in store.entries()] == ["text"]
    assert (store.folder / f"{MANIFEST}.damaged").read_bytes() == b"{"


# --- crashes and neighbours


def test_crash_while_writing_leaves_what_was_there(store, monkeypatch):
    before = sorted(path.name for path in store.folder.iterdir())

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("specdrive_ros.engine.manifest.os.replace", no_space)
    with pytest.raises(InputError, match="engines cannot be written there .No space left"):
        store.put(TEXT, b"newer")
    monkeypatch.undo()
    assert sorted(path.name for path in store.folder.iterdir()) == before
    assert store.load(TEXT).content == CONTENT


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="engines cannot be written there"):
        EngineStore(tmp_path / "file").put(TEXT, CONTENT)
    with pytest.raises(InputError, match="engines cannot be written there"):
        EngineStore(tmp_path / "file").prove_writable()


def test_a_folder_is_proven_before_anything_is_compiled(tmp_path, monkeypatch):
    store, profile = EngineStore(tmp_path / "file"), find_profile("rtx-ada")
    store.folder.write_text("")
    monkeypatch.setattr(building, "build_engine", lambda *_, **__: pytest.fail("it was compiled"))
    with pytest.raises(InputError, match="engines cannot be written there"):
        build_model(data_roots()[0] / "models" / "mini", profile, store, SimpleNamespace(name="none", version="1"))


def test_a_store_that_can_be_written_is_left_as_it_is(store):
    before = [entry.identity for entry in store.entries()]
    store.prove_writable()
    assert [entry.identity for entry in store.entries()] == before and store.load(TEXT).content == CONTENT


WRITER = """
import sys
from dataclasses import replace
from test_store import TEXT
from specdrive_ros.engine.store import EngineStore
store = EngineStore(sys.argv[1])
print("ready", flush=True)
for number in range(60):
    store.put(TEXT, bytes([number]) * (200_000 + number), model=str(number))
    if number % 7 == 0:
        store.prune()
"""


def test_reading_while_another_process_writes(store):
    """Every read is a whole engine, old or new, or the file was pruned between two looks at the manifest."""
    paths = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    program = [sys.executable, "-c", WRITER, str(store.folder)]
    reads, seen = 0, set()
    with subprocess.Popen(program, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        while writer.poll() is None:
            stored = store.load(TEXT)
            number = int(stored.entry.model) if stored.entry.model != "m" else -1
            assert stored.content == (bytes([number]) * (200_000 + number) if number >= 0 else CONTENT)
            seen.add(number)
            reads += 1
    assert writer.returncode == 0
    assert reads > 5 and len(seen) > 1
    assert store.load(TEXT).entry.model == "59"


def test_two_writers(store):
    paths = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    program = [sys.executable, "-c", WRITER, str(store.folder)]
    writers = [
        subprocess.Popen(program, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL) for _ in "ab"
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert store.load(TEXT).entry.model == "59" and store.load(VISION).content == CONTENT[::-1]
    assert not [path for path in store.folder.iterdir() if path.name.startswith(".unfinished-")]


# --- prune


def test_prune_takes_damaged_unwanted_and_left_over_files(store):
    store.put(replace(TEXT, target="sm_120"), b"unwanted")
    unwanted = next(entry for entry in store.entries() if entry.identity.target == "sm_120")
    file_of(store, "vision").write_bytes(b"damaged")
    (store.folder / "text-0123456789abcdef.engine").write_bytes(b"of nobody")
    (store.folder / "notes.txt").write_text("mine")
    removed = {one.file: one.why for one in store.prune({unwanted.identity.key: "old"})}
    assert removed.pop(unwanted.file) == "old"
    assert removed.pop("text-0123456789abcdef.engine") == "no manifest names it"
    assert ["bytes, its manifest says" in why for why in removed.values()] == [True]
    assert {path.name for path in store.folder.iterdir()} == {MANIFEST, ".lock", "notes.txt", entry_of(store).file}
    assert store.load(TEXT).content == CONTENT


def test_prune_of_no_folder(tmp_path):
    with pytest.raises(InputError, match="no such folder of engines"):
        EngineStore(tmp_path / "none").prune()


def test_what_an_engine_has_more_than_its_graph(store):
    """A manifest of before says nothing of it: it is read as ever, and what should have more is refused for that."""
    manifest = (store.folder / MANIFEST).read_text()
    assert '"added"' not in manifest and store.load(TEXT).content == CONTENT
    with pytest.raises(EngineMismatch, match="was built from something else: added: nothing -> greedy choice 1$"):
        store.load(replace(TEXT, added="greedy choice 1"))
    store.put(replace(TEXT, added="greedy choice 1"), CONTENT)
    assert '"added": "greedy choice 1"' in (store.folder / MANIFEST).read_text()
    assert store.load(replace(TEXT, added="greedy choice 1")).entry.identity.added == "greedy choice 1"
