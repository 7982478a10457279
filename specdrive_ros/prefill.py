"""The pass over the prompt, part of which may go ahead of its newest image.

A prompt has its images camera by camera, oldest first, and attention is causal: everything before the newest image of
the first camera depends on nothing that comes later. Two consecutive observations share these frames, moved up by one
place. So that part can go through the target while the next image is awaited (`begin`), and `run` goes on from its keys
and values. The rows are the same in two passes as in one; only the moment changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdrive_ros.decoding.state import Carried, DecodingState
from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.registry import CARRYOVER
from specdrive_ros.runtime.frame_encoder import EncodedFrame
from specdrive_ros.runtime.networks import ImageRows, KeyValueCache, TargetNetworks, TextOutput
from specdrive_ros.shapes import HISTORY_POSES
from specdrive_ros.target.prompt import Prompt, build_prompt
from specdrive_ros.target.rope import text_positions
from specdrive_ros.target.tokens import TargetTokenizer

UNKNOWN_HISTORY = np.zeros((HISTORY_POSES, 3))  # its tokens come after every image


@dataclass(frozen=True)
class _Begun:
    """The part of a prompt that is in the cache. frames: its images; asked: how its pass was asked for."""

    token_ids: np.ndarray
    positions: np.ndarray
    frames: tuple[EncodedFrame, ...]
    taps: np.ndarray
    reads_taps: bool

    def starts(self, prompt: Prompt, frames: Sequence[EncodedFrame], reads_taps: bool) -> bool:
        """Whether this is the beginning of a prompt with these images."""
        rows = len(self.token_ids)
        return (
            self.reads_taps == reads_taps
            and rows < len(prompt.token_ids)
            and all(one is other for one, other in zip(self.frames, frames))
            and np.array_equal(self.token_ids, prompt.token_ids[:rows])
            and np.array_equal(self.positions, prompt.position_ids[:, :rows])
        )


class Prefill:
    """One cache serves all prompts. begun_rows: rows of the latest prompt that went ahead of it."""

    def __init__(self, networks: TargetNetworks, tokenizer: TargetTokenizer):
        self.networks, self.tokenizer, self.begun_rows = networks, tokenizer, 0
        self._cache: KeyValueCache | None = None
        self._begun: _Begun | None = None

    def forget(self) -> None:
        self._begun = None

    def run(
        self,
        frames: Sequence[EncodedFrame],
        history_xyz: np.ndarray,
        room: int,
        carried: tuple[int, ...] = (),
        *,
        forbidden: np.ndarray | None = None,
        taps: bool = True,
    ) -> DecodingState:
        """The state after the prompt and the text `carried` that rides along after it. Valid until the next call.

        frames: of all cameras, in the order of the prompt; history_xyz: [16, 3] m, ego frame at t0; room: cache rows
        needed after the prompt; forbidden, taps: of `TargetNetworks.extend`.
        """
        prompt = build_prompt(self.networks.config, self.tokenizer, _grids(frames), history_xyz)
        length, begun, self._begun = len(prompt.token_ids), self._begun, None
        if begun and not (begun.starts(prompt, frames, taps) and self._has_room(begun, length, len(carried), room)):
            begun = None
        if begun is None:
            self._empty(length + room)
        first = len(begun.token_ids) if begun else 0
        behind = text_positions(length, len(carried), prompt.rope_delta)
        positions = np.concatenate([prompt.position_ids, behind], axis=1)
        output = self._pass(
            np.concatenate([prompt.token_ids, np.array(carried, np.int64)])[first:],
            positions[:, first:],
            prompt.image_rows[prompt.image_rows >= first] - first,
            frames[len(begun.frames) if begun else 0 :],
            np.arange(length - 1, length + len(carried)) - first,
            forbidden,
            taps,
        )
        seen = np.concatenate([begun.taps, output.taps]) if begun else output.taps
        self.begun_rows = first
        state = DecodingState(self._cache, None, seen, prompt.rope_delta, prompt.token_ids, positions)
        state.follow(output.logits, output.choices, 0)
        if carried:
            riding = TokenTree.chain(carried, proposers=(CARRYOVER,) * len(carried))
            rest = [None if each is None else each[1:] for each in (output.logits, output.choices)]
            state.carried = Carried(riding, *rest)
        return state

    def begin(
        self,
        shared: Sequence[EncodedFrame],
        images: int,
        room: int,
        *,
        forbidden: np.ndarray | None = None,
        taps: bool = True,
    ) -> bool:
        """Takes the beginning of the next prompt through the target. The present state is no longer valid after it.

        shared: its first images; images: how many it has in all, more than these. Returns False, with nothing done,
        where the networks have no room for a prompt in two passes.
        """
        grids = np.concatenate([_grids(shared), np.repeat(shared[-1].grid[None], images - len(shared), axis=0)])
        prompt = build_prompt(self.networks.config, self.tokenizer, grids, UNKNOWN_HISTORY)
        merged = self.networks.config.vision.spatial_merge_size**2
        rows = prompt.image_rows[: sum(int(frame.grid.prod()) // merged for frame in shared)]
        end, length = int(prompt.image_rows[len(rows)]), len(prompt.token_ids)
        if not (self.networks.takes(end, 0, 1) and self.networks.takes(length - end, end, 1)):
            return False
        self._begun = None
        self._empty(length + room)
        token_ids, positions = prompt.token_ids[:end], prompt.position_ids[:, :end]
        output = self._pass(token_ids, positions, rows, shared, np.array([end - 1]), forbidden, taps)
        self._begun = _Begun(token_ids, positions, tuple(shared), output.taps, taps)
        return True

    def _has_room(self, begun: _Begun, length: int, carried: int, room: int) -> bool:
        """Whether the rest of a prompt and the text behind it fit into one pass, and all of it into the cache."""
        rows = len(begun.token_ids)
        return self._cache.capacity >= length + room and self.networks.takes(length + carried - rows, rows, 1 + carried)

    def _pass(
        self,
        token_ids: np.ndarray,
        positions: np.ndarray,
        image_rows: np.ndarray,
        frames: Sequence[EncodedFrame],
        logit_rows: np.ndarray,
        forbidden: np.ndarray | None,
        taps: bool,
    ) -> TextOutput:
        first, *others = [frame.features for frame in frames]
        return self.networks.extend(
            self.networks.embed(np.delete(token_ids, image_rows)),
            positions,
            self._cache,
            images=ImageRows(image_rows, first.followed_by(others)),
            logit_rows=logit_rows,
            forbidden=forbidden,
            taps=taps,
        )

    def _empty(self, capacity: int) -> None:
        """The same cache for every prompt; a new one only when the images, and so the prompt, have grown."""
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = self.networks.new_cache(capacity)
        self._cache.truncate(0)


def _grids(frames: Sequence[EncodedFrame]) -> np.ndarray:
    return np.stack([frame.grid for frame in frames])
