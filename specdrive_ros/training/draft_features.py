"""What drafts learn from: the target's own hidden states on its own answers, cached on disk.

A draft has to predict what *this* target writes, so the default answers are the target's greedy ones; the dataset's
labels can be chosen instead. One safetensors file per sample in the layout of `speculators`, plus two arrays
(position_ids and loss_mask):

    hs_<i>.safetensors   token_ids [S], hidden_states [S, taps + 1, E] (last slot: output of the last layer, before
                         the final norm), position_ids [3, S], loss_mask [S] (1: written by the target)
    features.json        target, taps, answers: what must match for another training run to reuse them

Existing samples are kept, so an interrupted run resumes; if all exist, neither scenes nor images are read. PyTorch.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.draft.target_identity import fingerprint
from specdrive_ros.errors import InputError
from specdrive_ros.target.config import require
from specdrive_ros.target.network import AlpamayoTarget, TextOutput
from specdrive_ros.target.prompt import Prompt
from specdrive_ros.training.frame_features import FrameFeatures
from specdrive_ros.training.samples import SampleSet

ANSWERS = ("greedy", "labels")
RECORD = "features.json"


@dataclass(frozen=True)
class FeatureSettings:
    """count: number of samples, spread over the whole set; dtype: of the states on disk."""

    taps: tuple[int, ...]
    answers: str = "greedy"
    count: int = 8000
    batch: int = 16
    max_new_tokens: int = 64
    dtype: str = "float16"

    def __post_init__(self):
        require(self.answers in ANSWERS, "draft features answers", f"must be one of {', '.join(ANSWERS)}", self.answers)
        known = ("float16", "bfloat16", "float32")
        require(self.dtype in known, "draft features dtype", f"must be one of {', '.join(known)}", self.dtype)


class FeatureWriter:
    """Runs the target over samples and writes its hidden states."""

    def __init__(self, target: AlpamayoTarget, samples: SampleSet, frames: FrameFeatures, rules: ReasoningRules,
                 settings: FeatureSettings):
        self.target, self.samples, self.frames = target, samples, frames
        self.rules, self.settings = rules, settings
        self.prompt: Prompt = samples.prompt

    def write(self, folder: Path, bar) -> "DraftFeatures":
        """Writes whatever is missing. Raises `InputError` if the folder belongs to another target or other taps."""
        chosen = chosen_samples(len(self.samples), self.settings.count)
        write_record(folder, feature_record(self.target, self.settings, len(self.samples)))
        missing = [number for number in range(len(chosen)) if not _path(folder, number).exists()]
        bar.advance(len(chosen) - len(missing))
        for start in range(0, len(missing), self.settings.batch):
            numbers = missing[start : start + self.settings.batch]
            self._write_batch(folder, numbers, chosen[numbers])
            bar.advance(len(numbers))
        return DraftFeatures(folder)

    @torch.no_grad()
    def _write_batch(self, folder: Path, numbers: list[int], indices: np.ndarray) -> None:
        prompts = torch.from_numpy(self.samples.prompt_ids[indices])
        embeddings, prefill = self._prefill(prompts, self.frames.once(self.samples.frame_rows[indices]))
        if self.settings.answers == "greedy":
            answers = self._greedy_answers(prefill)
        else:
            answers = [self.samples.reasonings[index][0].tolist() for index in indices]
        longest = max(map(len, answers))
        padded = torch.tensor([answer + [self.rules.cot_end] * (longest - len(answer)) for answer in answers])
        ids, written = torch.cat([prompts, padded], dim=1), self.target.embed(padded)
        positions = self._positions(ids.shape[1])
        behind = positions[:, None, prompts.shape[1] :].expand(3, *padded.shape)
        output = self.target.text_forward(written, behind, past=prefill.key_values)
        entering = [torch.cat(rows, 1) for rows in zip([embeddings, *prefill.layers], [written, *output.layers])]
        states = torch.stack([entering[tap] for tap in (*self.settings.taps, len(output.layers))], dim=2)
        for row, (number, answer) in enumerate(zip(numbers, answers)):
            self._save(_path(folder, number), ids[row], states[row], positions, len(answer))

    def _save(self, path: Path, ids: Tensor, states: Tensor, positions: Tensor, answered: int) -> None:
        size = len(self.prompt.token_ids) + answered
        stored = states[:size].to(getattr(torch, self.settings.dtype))
        if not torch.isfinite(stored).all():
            raise InputError(f"{path}: hidden states do not fit {self.settings.dtype}; use bfloat16")
        written = torch.arange(size) >= len(self.prompt.token_ids)
        unfinished = path.with_suffix(".unfinished")
        save_file({
            "token_ids": ids[:size].clone(), "hidden_states": stored.contiguous(),
            "position_ids": positions[:, :size].int().contiguous(), "loss_mask": written.to(torch.uint8),
        }, str(unfinished))  # fmt: skip
        os.replace(unfinished, path)

    def _positions(self, size: int) -> Tensor:
        """[3, size]: position ids of the prompt, then of text."""
        prompt = torch.from_numpy(np.asarray(self.prompt.position_ids))
        beyond = torch.arange(prompt.shape[1], size) + int(self.prompt.rope_delta)
        return torch.cat([prompt, beyond.expand(3, -1)], dim=1)[:, :size]

    def _prefill(self, ids: Tensor, images: Tensor) -> tuple[Tensor, TextOutput]:
        """Prompts [B, T], images [B, A, 1 + K, V, E] -> embeddings and the output of the single pass over them."""
        batch, size = ids.shape
        image_mask = torch.zeros(batch, size, dtype=torch.bool)
        image_mask[:, torch.from_numpy(np.asarray(self.prompt.image_rows))] = True
        levels = images.float().permute(2, 0, 1, 3, 4).flatten(1, 3)
        embeddings = self.target.embed_prompt(ids, image_mask, levels[0])
        positions = self._positions(size)[:, None].expand(3, batch, size)
        return embeddings, self.target.text_forward(
            embeddings, positions, deepstack=list(levels[1:]), image_mask=image_mask
        )

    def _greedy_answers(self, output: TextOutput) -> list[list[int]]:
        """The target's greedy answer to each prompt, given the pass over the prompts; includes the two closing
        tokens."""
        written: list[list[int]] = [[] for _ in output.hidden]
        closed = np.zeros(len(written), bool)
        while True:
            logits = self.rules.allowed(self.target.logits(output.hidden[:, -1]).numpy())
            for row in np.flatnonzero(~closed):
                tokens, _ = self.rules.settle(int(logits[row].argmax()), written[row])
                written[row] += tokens
                closed[row] = self.rules.ended(written[row])
            if closed.all():
                return written
            newest = torch.tensor([tokens[-1] for tokens in written])[:, None]
            slot = output.key_values[0][0].shape[2]
            positions = torch.full((3, len(written), 1), slot + int(self.prompt.rope_delta))
            output = self.target.text_forward(self.target.embed(newest), positions, past=output.key_values)


def chosen_samples(samples: int, count: int) -> np.ndarray:
    """[min(count, samples)] numbers of the samples to cache, spread over all; file n holds the n-th of them."""
    return np.linspace(0, samples - 1, min(count, samples)).astype(int)


def feature_record(target: AlpamayoTarget, settings: FeatureSettings, samples: int) -> dict:
    """What identifies cached states, as JSON; `count` is the number of the `samples` that the settings use."""
    norm = target.language_model.norm.weight.detach().numpy()
    count = len(chosen_samples(samples, settings.count))
    return {"target": fingerprint(norm), **asdict(settings), "taps": list(settings.taps), "count": count}


def write_record(folder: Path, record: dict) -> None:
    """Writes the record. Raises `InputError` if the folder holds states with a different one."""
    path = folder / RECORD
    if path.exists() and (found := json.loads(path.read_text(encoding="utf-8"))) != record:
        differing = ", ".join(sorted(name for name in record if found.get(name) != record[name]))
        raise InputError(f"{folder}: holds states made with another {differing}; delete it or name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")


def known_features(folder: Path, record: dict) -> "DraftFeatures | None":
    """The cached states, if the folder's record matches and all of them exist; else None."""
    path = folder / RECORD
    if not path.exists() or json.loads(path.read_text(encoding="utf-8")) != record:
        return None
    found = DraftFeatures(folder)
    return found if all(path.exists() for path in found.paths) else None


class DraftFeatures:
    """Cached samples; batches are padded at the end."""

    def __init__(self, folder: Path):
        self.folder, self.record = folder, json.loads((folder / RECORD).read_text(encoding="utf-8"))
        self.paths = [_path(folder, number) for number in range(self.record["count"])]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, number: int) -> dict[str, Tensor]:
        with _reading(self.paths[number]):
            return load_file(self.paths[number])

    def answer_ids(self) -> np.ndarray:
        """Every distinct token that the target wrote, ascending. Does not load the states."""
        found: set[int] = set()
        for path in self.paths:
            with _reading(path), safe_open(str(path), "pt") as file:
                ids, written = (file.get_tensor(name) for name in ("token_ids", "loss_mask"))
            found.update(ids[written.bool()].tolist())
        return np.array(sorted(found))

    def batch(self, numbers: np.ndarray) -> dict[str, Tensor]:
        """token_ids, loss_mask, visible [B, S]; taps [B, S, taps * E]; final [B, S, E]; positions [3, B, S]."""
        samples = [self.read(int(number)) for number in numbers]
        longest = max(len(sample["token_ids"]) for sample in samples)

        def padded(name: str) -> Tensor:
            return torch.stack([
                torch.nn.functional.pad(value, (0, 0) * (value.ndim - 1) + (0, longest - len(value)))
                for value in (sample[name] for sample in samples)
            ])  # fmt: skip

        states = padded("hidden_states").float()
        for sample in samples:
            sample |= {"position_ids": sample["position_ids"].T, "visible": torch.ones_like(sample["loss_mask"])}
        return {
            "token_ids": padded("token_ids"),
            "loss_mask": padded("loss_mask"),
            "visible": padded("visible").bool(),
            "taps": states[:, :, :-1].flatten(2),
            "final": states[:, :, -1],
            "positions": padded("position_ids").permute(2, 0, 1).long(),
        }


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}); delete it to make it again") from None


def _path(folder: Path, number: int) -> Path:
    return folder / f"hs_{number}.safetensors"
