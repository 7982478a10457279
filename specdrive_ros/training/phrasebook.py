"""Learns a phrasebook from the driving scenes of a data folder or from a text file with one sentence per line.

Repetitions count: frequent continuations are proposed first. Knows no network.
"""

from pathlib import Path

from specdrive_ros.draft.phrasebook import Phrasebook
from specdrive_ros.errors import InputError
from specdrive_ros.target.tokens import TargetTokenizer


def read_lines(path: Path) -> list[str]:
    """The chains of causation in a text file. Raises `InputError` if it cannot be read or has none."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); a text, one chain of causation a line") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error}); one chain of causation a line") from None
    lines = [line for line in lines if line]
    if not lines:
        raise InputError(f"{path}: has no sentence; must have one chain of causation a line")
    return lines


def sentences_of_scenes(folder: Path) -> list[str]:
    """The chains of causation of the training scenes in a data folder."""
    from specdrive_ros.training.scenes import open_shards

    return [words["text"] for shard in open_shards(Path(folder) / "train") for words in shard.words]


def closed_ids(texts: list[str], tokenizer: TargetTokenizer) -> list[tuple[int, ...]]:
    """Token ids of the sentences, each followed by the two tokens that close a reasoning."""
    ids: dict[str, tuple[int, ...]] = {}
    for text in texts:
        if text not in ids:
            ids[text] = (*tokenizer.encode(text), tokenizer.cot_end, tokenizer.traj_future_start)
    return [ids[text] for text in texts]


def learn_phrasebook(texts: list[str], tokenizer: TargetTokenizer, out: Path) -> dict:
    """Learns a phrasebook and writes it to `out`; returns its path and sizes."""
    sentences = closed_ids(texts, tokenizer)
    book = Phrasebook.learn(sentences)
    book.save(out, tokenizer.fingerprint)
    return {
        "phrasebook": str(out),
        "sentences": len(sentences),
        "distinct": len(set(sentences)),
        "nodes": len(book.tokens),
        "bytes": out.stat().st_size,
    }
