import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specdrive_ros.draft.phrasebook import Phrasebook
from specdrive_ros.errors import InputError

END = 99
SENTENCES = [(1, 2, 3, END)] * 6 + [(1, 2, 4, END)] * 3 + [(1, 5, 6, 7, END)]


@pytest.fixture
def book() -> Phrasebook:
    return Phrasebook.learn(SENTENCES)


def paths(tree) -> list[list[int]]:
    return [tree.tokens[path].tolist() for path in tree.paths()]


def test_the_most_frequent_comes_first(book):
    assert book.chain((1,), 9).tokens.tolist() == [2, 3, END]
    tree = book.tree((1,), 9)
    assert [2, 3, END] in paths(tree) and [2, 4, END] in paths(tree) and [5, 6, 7, END] in paths(tree)
    assert (np.diff(tree.log_probs) <= 0).all(), "best first"
    assert np.exp(tree.log_probs[0]) == pytest.approx(0.9, abs=0.05)


def test_shares_of_a_context_are_probabilities(book):
    for written in ((), (1,), (1, 2), (8, 8), (4, 2)):
        shares = np.exp([-surprise for _, surprise, _ in book.predictions(book.context(written))])
        assert 0 < shares.sum() <= 1 + 1e-9


def test_an_unknown_beginning_falls_back_on_its_end(book):
    assert book.chain((8, 5), 9).tokens.tolist() == [6, 7, END]
    assert book.chain((8, 8, 2), 2).tokens.tolist() == [3, END]


def test_nothing_follows_the_end_and_the_budget_holds(book):
    assert len(book.tree((1, 2, 3, END), 9)) == 0
    assert [path[-1] for path in paths(book.tree((1,), 50))].count(END) >= 3
    for nodes in (0, 1, 3):
        assert len(book.tree((1,), nodes)) == nodes and len(book.chain((1,), nodes)) == nodes


def test_saved_and_loaded_it_says_the_same(book, tmp_path):
    path = tmp_path / "drafts" / "phrasebook.safetensors"
    book.save(path, "abc")
    loaded = Phrasebook.load(path, "abc")
    assert paths(loaded.tree((1,), 20)) == paths(book.tree((1,), 20))
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_loads_in_milliseconds(tmp_path):
    random = np.random.default_rng(0)
    big = Phrasebook.learn([(*random.integers(1, 60, 12), END) for _ in range(600)])
    big.save(tmp_path / "big", "x")
    least = min(_seconds(lambda: Phrasebook.load(tmp_path / "big", "x")) for _ in range(5))
    assert len(big.tokens) > 10_000 and least < 0.05


def _seconds(call) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def test_another_tokenizer_is_refused_by_name(book, tmp_path):
    book.save(tmp_path / "book", "abc")
    with pytest.raises(InputError, match="is a phrasebook of tokenizer abc, the model's is def; .*train draft"):
        Phrasebook.load(tmp_path / "book", "def")


@pytest.mark.parametrize("damage", ["missing", "text", "cut", "other", "loop", "shape", "metadata"])
def test_what_is_no_phrasebook_is_one_clear_line(book, tmp_path, damage):
    path = tmp_path / "book"
    book.save(path, "abc")
    arrays, about = load_file(path), {"kind": "phrasebook", "version": "1", "tokenizer": "abc", "end": "99"}
    if damage == "missing":
        path.unlink()
    elif damage == "text":
        path.write_text("no such thing")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "other":
        save_file({"weight": np.zeros(3)}, path)
    elif damage == "metadata":
        save_file(arrays, path, metadata=about | {"end": "x"})
    elif damage == "loop":
        arrays["first_child"][3] = 0
        save_file(arrays, path, metadata=about)
    elif damage == "shape":
        save_file(arrays | {"tokens": arrays["tokens"][:-1]}, path, metadata=about)
    with pytest.raises(InputError, match="phrasebook") as refusal:
        Phrasebook.load(path, "abc")
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_sentences_must_end_alike():
    with pytest.raises(InputError, match="end alike"):
        Phrasebook.learn([(1, 2), (1, 3)])
    with pytest.raises(InputError, match="end alike"):
        Phrasebook.learn([])


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "book.safetensors").mkdir()
    with pytest.raises(InputError, match="book.safetensors: cannot be written"):
        Phrasebook.learn([(1, 2)]).save(tmp_path / "book.safetensors", "abc")
    assert [path.name for path in tmp_path.iterdir()] == ["book.safetensors"]
