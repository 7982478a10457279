"""The stages of a golden folder of drafts: our value and the tolerance of every array in its files.

One function per family of files, with the arrays' names as in the files. Proposals go through the same classes that
drive, on the PyTorch runtime. What only the decoding loop makes (`e2e/`, `eagle_verify/`) is not computed here.
"""

import re
from types import SimpleNamespace

import numpy as np
import torch

from specdrive_ros.draft.dflash import DFlashDraft
from specdrive_ros.draft.dynamic_tree import likeliest, log_softmax
from specdrive_ros.draft.eagle3 import Eagle3Draft
from specdrive_ros.draft.rope import DraftRope
from specdrive_ros.evaluation.golden_drafts_reference import DraftReference
from specdrive_ros.evaluation.golden_stages import EXACT, Outcome
from specdrive_ros.runtime.torch_drafts import TorchDFlash, TorchEagle3
from specdrive_ros.training.dflash_training import block_states, dflash_loss, make_blocks
from specdrive_ros.training.eagle3_training import TrainingTimeTest, eagle3_loss, shifted

CLOSE = 1e-4  # logits, hidden states, losses, gradients
_WEIGHTED = ("loss", "loss_num", "loss_den", "grad_norm")
_TREE = re.compile(r"eagle3/tree_(\d+)_(\d+)_(\d+)_([a-z]+?)(_deep)?$")

GIVEN = frozenset((
    "prompt_ids", "next_token", "aux_hidden_cat", "attention_mask", "input_ids", "loss_mask", "step_weights", "d2t",
    "t2d", "input_ids_with_next", "accepted_aux_hidden", "gamma", "block_ids", "verify_ids", "context_features",
))  # fmt: skip


def recompute_onestep(reference: DraftReference, file: str) -> Outcome:
    which = file.rpartition("onestep_")[2]
    weights, _, theta = which.partition("_rope")
    given, draft = reference.arrays(f"eagle3/onestep_{weights}"), reference.draft(f"eagle3/draft_{weights}")
    ids, size = given["draft_input_ids"], given["draft_input_ids"].shape[1]
    logits, entering = reference.run_target(given["prompt_ids"])
    fused = draft.fc(torch.cat([entering[tap] for tap in draft.config.tap_layers], -1))
    rope = DraftRope("flat", draft.config.head_dim, float(theta)) if theta else draft.config.make_rope()
    mask = torch.full((size, size), torch.finfo(torch.float32).min).triu(1)
    embeddings = torch.from_numpy(reference.embed(ids))
    hidden, rows = draft(embeddings, fused, _tables(rope, 0, size), None, mask)
    return {
        **{f"aux_hidden_{i}": (entering[tap], CLOSE) for i, tap in enumerate(draft.config.tap_layers)},
        "target_logits": (logits, CLOSE),
        "draft_input_ids": (np.append(given["prompt_ids"][:, 1:], given["next_token"], axis=1), EXACT),
        "next_token": (logits[:, -1:].argmax(-1), EXACT),
        "position_ids": (np.arange(size)[None], EXACT),
        "fused_hidden": (fused.detach(), CLOSE),
        "midlayer_out": (hidden.detach(), CLOSE),
        "normed": (draft.norm(hidden).detach(), CLOSE),
        "draft_logits": (draft.logits(hidden).detach(), CLOSE),
        "kv_key": (rows[:, :, 0].transpose(1, 2).detach(), CLOSE),
        "kv_value": (rows[:, :, 1].transpose(1, 2).detach(), CLOSE),
    }


def recompute_chain(reference: DraftReference, file: str) -> Outcome:
    given, count = reference.arrays(file), len(reference.arrays(file)["chain_tokens"])
    spy = _Spy(TorchEagle3(reference.draft(f"eagle3/draft_{file.rpartition('_')[2]}")))
    draft = Eagle3Draft(spy, reference.embed, depth=count - 1, top_k=1)
    prompt = given["prompt_ids"][0]
    context = _context(prompt, given["next_token"].item(), _taps(reference, spy.config, prompt), 0)
    tokens, parents, scores = draft.propose(context, count)
    return {
        "chain_tokens": (tokens, EXACT),
        "chain_cum_logprob": (scores, CLOSE),
        "step_logits": (np.stack([logits[-1] for _, logits in spy.passes]), CLOSE),
        "step_hidden": (np.stack([hidden[-1] for hidden, _ in spy.passes]), CLOSE),
        "step_position_ids": (len(prompt) - 1 + np.arange(count), EXACT),
    }


def recompute_tree(reference: DraftReference, file: str) -> Outcome:
    given = reference.arrays(file)
    size, depth, top_k, weights, _ = _TREE.match(file).groups()
    draft = Eagle3Draft(
        _Spy(TorchEagle3(reference.draft(f"eagle3/draft_{weights}"))), reference.embed,
        depth=int(depth), top_k=int(top_k),
    )  # fmt: skip
    prompt = given["prompt_ids"][0]
    context = _context(prompt, given["next_token"].item(), _taps(reference, draft.config, prompt), 0)
    tree = _Tree(draft, context, int(size))
    outcome = tree.outcome()
    if "target_tree_logits" in given:
        outcome |= _verified(reference, tree, prompt)
        outcome["draft_kv_len_after_round1"] = (draft.cache.length, EXACT)
    if "round2/draft_tokens" in given:
        sequence, states = given["round2/input_ids_with_next"][0], given["round2/accepted_aux_hidden"][0]
        context = _context(sequence[:-1], int(sequence[-1]), states, draft.cache.length)
        outcome |= {f"round2/{name}": value for name, value in _Tree(draft, context, int(size)).outcome().items()}
        outcome["draft_kv_len_after_round2"] = (draft.cache.length, EXACT)
    return outcome


class _Tree:
    """One proposal with everything the reference records about it; node 0 is the root."""

    def __init__(self, draft: Eagle3Draft, context, size: int):
        self.candidates = draft.candidates(context, size - 1)
        self.selected, tokens, parents, scores = self.candidates.best(size - 1)
        self.tokens = np.append(context.newest_token, draft.networks.token_ids[tokens])
        self.parents, self.scores = np.append(-1, parents + 1), np.append(np.float32(0), scores)
        self.first_level = likeliest(log_softmax(draft.networks.first_logits), draft.top_k)
        self.depths, self.seen = np.zeros(size, np.int64), np.eye(size, dtype=bool)
        for node in range(1, size):
            self.depths[node] = self.depths[self.parents[node]] + 1
            self.seen[node] |= self.seen[self.parents[node]]

    def outcome(self) -> Outcome:
        paths = self.leaf_paths()
        by_tokens = sorted(paths.tolist(), key=lambda path: [node if node >= 0 else len(self.tokens) for node in path])
        return {
            "draft_tokens": (self.tokens, EXACT),
            "parents": (self.parents, EXACT),
            "tree_mask": (self.seen.astype(np.uint8), EXACT),
            "tree_position_ids": (self.depths, EXACT),
            "selected_index": (self.selected, EXACT),
            "level1_tokens_draft_vocab": (self.first_level, EXACT),
            "cum_logprob": (self.scores, CLOSE),
            "all_candidate_scores": (self.candidates.scores, CLOSE),
            "retrieve_indices": (paths, EXACT),
            "retrieve_indices_sampling_order": (np.array(by_tokens), EXACT),
        }

    def leaf_paths(self) -> np.ndarray:
        """[leaves, deepest + 1] nodes from the root to each leaf, padded with -1."""
        leaves = np.setdiff1d(np.arange(len(self.tokens)), self.parents)
        paths = np.full((len(leaves), self.depths.max() + 1), -1)
        for row, leaf in enumerate(leaves):
            path = np.flatnonzero(self.seen[leaf])
            paths[row, : len(path)] = path
        return paths


def _verified(reference: DraftReference, tree: _Tree, prompt: np.ndarray) -> Outcome:
    """The target's pass over the tree, and what greedy verification accepts of it."""
    size, known = len(tree.tokens), len(prompt)
    seen = np.tril(np.ones((known + size, known + size), bool))
    seen[known:, known:] = tree.seen
    positions = np.append(np.arange(known), known + tree.depths)
    logits, _ = reference.run_target(np.append(prompt, tree.tokens)[None], seen[None], positions[None])
    logits = logits[0, known:].numpy()
    paths = tree.leaf_paths()
    agrees = np.where(paths[:, 1:] >= 0, tree.tokens[paths[:, 1:]] == logits.argmax(-1)[paths[:, :-1]], False)
    lengths = np.cumprod(agrees, axis=1).sum(1)
    best = int(lengths.argmax())
    kept = paths[best, : lengths[best] + 1]
    following = int(logits[kept[-1]].argmax())
    return {
        "target_position_ids": (positions[known:], EXACT),
        "target_tree_logits": (logits, CLOSE),
        "candidates": (np.where(paths >= 0, tree.tokens[paths], -1), EXACT),
        "best_candidate": (best, EXACT),
        "accept_length": (lengths[best], EXACT),
        "accepted_kv_rows": (known + kept, EXACT),
        "input_ids_after": (np.append(prompt, tree.tokens[kept])[None], EXACT),
        "new_token_count": (len(kept), EXACT),
        "next_token_after": ([following], EXACT),
    }


def recompute_training_time_test(reference: DraftReference, file: str) -> Outcome:
    given, weights = reference.arrays(file), file.rpartition("ttt_")[2].partition("_")[0]
    draft = reference.draft(f"eagle3/draft_{weights}")
    draft.d2t, draft.t2d = torch.from_numpy(given["d2t"]), torch.from_numpy(given["t2d"])
    ids, batch = given["input_ids"], len(given["input_ids"])
    seen = np.tril(np.ones((ids.shape[1],) * 2, bool)) & given["attention_mask"][:, None].astype(bool)
    target_logits, entering = reference.run_target(ids, seen)
    taps = torch.cat([entering[tap] for tap in draft.config.tap_layers], -1)
    rope = DraftRope("flat", draft.config.head_dim, 10000.0)  # the reference trainer has no other
    passes = TrainingTimeTest(
        draft,
        lambda tokens: torch.from_numpy(reference.embed(tokens.numpy())),
        lambda step: tuple(table.expand(batch, -1, -1) for table in _tables(rope, step, ids.shape[1])),
        torch.from_numpy(given["attention_mask"]),
    )
    given_taps = given.get("aux_hidden_cat")
    logits = passes.logits(torch.from_numpy(ids), taps if given_taps is None else torch.from_numpy(given_taps),
                           len(given["step_losses"]))  # fmt: skip
    loss = eagle3_loss(logits, shifted(target_logits), torch.from_numpy(given["loss_mask"]), draft.t2d)
    loss.total.backward()
    return {
        "input_ids_shifted": (shifted(torch.from_numpy(ids)), EXACT),
        "target_logits_unshifted": (target_logits, CLOSE),
        "target_logits_shifted": (shifted(target_logits), CLOSE),
        "aux_hidden_cat": (taps, CLOSE),
        "step_logits": (torch.stack(logits).detach(), CLOSE),
        "step_losses": (loss.steps, CLOSE),
        "step_acc": (loss.accuracies, CLOSE),
        "step_weights": (0.8 ** np.arange(len(logits)), CLOSE),
        "total_loss": (loss.total.detach(), CLOSE),
        "grad_norm": (_norm(_gradients(draft)), CLOSE),
        **_gradients(draft),
    }


def recompute_rounds(reference: DraftReference, file: str) -> Outcome:
    """The DFlash rounds of a file, each from the reference's own block and features."""
    given, weights = reference.arrays(file), file.rpartition("_")[2]
    network = reference.draft(f"dflash/draft_{weights}")
    draft = DFlashDraft(TorchDFlash(network, reference.head.numpy()), reference.embed)
    prompt = given["prompt_ids"][0]
    _, entering = reference.run_target(prompt[None])
    outcome: Outcome = {"all_target_hidden_states": (_as_huggingface(reference, entering), CLOSE)}
    known = prompt
    for number in range(1, 1 + sum(name.endswith("/block_ids") for name in given)):
        part = {name.partition("/")[2]: value for name, value in given.items() if name.startswith(f"round{number}/")}
        found, known = _round(reference, network, draft, known, part)
        outcome |= {f"round{number}/{name}": value for name, value in found.items()}
    return outcome


def _round(reference, network, draft, known: np.ndarray, given: dict) -> tuple[Outcome, np.ndarray]:
    before, features, block = draft.cache.length, given["context_features"][0], given["block_ids"][0]
    logits = draft.block_logits(_context(known, int(block[0]), features, before))
    rows, rope = draft.cache.known, draft.config.make_rope()
    layers = network.layer_outputs(
        torch.from_numpy(reference.embed(block)), _tables(rope, len(known), len(block)),
        list(torch.from_numpy(rows)),
    )  # fmt: skip
    verify = given["verify_ids"][0]
    target_logits, entering = reference.run_target(np.append(known, verify)[None])
    target_logits = target_logits[:, len(known) :]
    posterior = target_logits.argmax(-1)[0].numpy()
    accepted = int(np.cumprod(verify[1:] == posterior[:-1]).sum())
    taps = torch.cat([entering[tap] for tap in draft.config.tap_layers], -1)[:, before : len(known)]
    ids = np.full(draft.block_size, draft.config.mask_token_id)
    ids[0] = block[0]
    outcome: Outcome = {
        "block_ids": (ids[None], EXACT),
        "context_features": (taps, CLOSE),
        "fused_context": (network.fuse(torch.from_numpy(features))[None].detach(), CLOSE),
        **{f"layer_{index}_out": (out[None].detach(), CLOSE) for index, out in enumerate(layers)},
        "draft_hidden": (network.norm(layers[-1])[None].detach(), CLOSE),
        "draft_logits": (logits[None], CLOSE),
        "drafted": (logits[None, 1:].argmax(-1), EXACT),
        "position_ids": (np.arange(before, len(known) + len(block))[None], EXACT),
        "draft_cache_len": ([before, len(known) + len(block), draft.cache.length], EXACT),
        "target_logits": (target_logits, CLOSE),
        "posterior": (posterior[None], EXACT),
        "accepted_drafts": (accepted, EXACT),
        "target_cache_len_after_crop": (len(known) + accepted + 1, EXACT),
        "cache_key_last_layer": (rows[-1:, :, 0].swapaxes(1, 2), CLOSE),
        "cache_value_last_layer": (rows[-1:, :, 1].swapaxes(1, 2), CLOSE),
    }
    return outcome, np.append(known, verify[: accepted + 1])


def recompute_block_training(reference: DraftReference, file: str) -> Outcome:
    given, which = reference.arrays(file), file.rpartition("train_specforge_")[2]
    draft = reference.draft(f"dflash/draft_{which.partition('_')[0]}")
    size, gamma = draft.config.block_size, given.get("gamma")
    ids, loss_mask, anchors, keep = (
        torch.from_numpy(given[name]) for name in ("input_ids", "loss_mask", "anchor_positions", "block_keep_mask")
    )
    gamma = float(gamma) if gamma else None  # a file without decay says 0
    blocks = make_blocks(ids, loss_mask, anchors, keep, size, draft.config.mask_token_id, gamma)
    context = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    outcome: Outcome = {
        "anchor_positions": (anchors, EXACT),
        "block_keep_mask": (keep, EXACT),
        "target_ids": (blocks.labels, EXACT),
        "weight_mask": (blocks.supervised, EXACT),
        "attention_mask": (blocks.mask.to(torch.uint8), EXACT),
        "draft_position_ids": (np.concatenate([context, blocks.positions.numpy()], axis=1), EXACT),
        "accuracy_den": (blocks.supervised.sum(), EXACT),
        **_block_losses(reference, draft, given, blocks, context),
    }
    if which.endswith("dpace"):  # another weighting, not implemented here
        outcome = {name: value for name, value in outcome.items() if name not in _WEIGHTED}
    return outcome


def _block_losses(reference, draft, given, blocks, context: np.ndarray) -> Outcome:
    ids = given["input_ids"]
    real = np.tril(np.ones((ids.shape[1],) * 2, bool)) & (ids != reference.pad)[:, None]
    _, entering = reference.run_target(ids, real)
    taps = torch.cat([entering[tap] for tap in draft.config.tap_layers], -1)
    rope = draft.config.make_rope()
    states = block_states(
        draft, torch.from_numpy(reference.embed(blocks.token_ids.flatten(1).numpy())),
        torch.from_numpy(given["context_features"]) if "context_features" in given else taps,
        *(tuple(map(torch.from_numpy, rope.tables(np.stack([at] * 3)))) for at in (context, blocks.positions.numpy())),
        blocks.mask,
    )  # fmt: skip
    logits = (states @ reference.head.T).unflatten(1, blocks.labels.shape[1:])
    loss = dflash_loss(logits, blocks.labels, blocks.weights)
    loss.total.backward()
    gradients = _gradients(draft)
    kept = blocks.mask.any(-1)[:, 0]  # what a block that was not kept computes does not matter
    return {
        "context_features": (taps, CLOSE),
        "draft_hidden": (_where_kept(states, given.get("draft_hidden"), kept), CLOSE),
        "block_logits": (_where_kept(logits.flatten(1, 2), given.get("block_logits"), kept), CLOSE),
        "loss": (loss.total.detach(), CLOSE),
        "loss_den": (loss.weight, CLOSE),
        "loss_num": (loss.weighted.detach(), 1e-3),
        "correct_num": (loss.right, EXACT),
        "accuracy": (loss.right / loss.counted, CLOSE),
        "grad_norm": (_norm(gradients), CLOSE),
        **gradients,
    }


def _where_kept(ours: torch.Tensor, expected: np.ndarray | None, kept: torch.Tensor) -> np.ndarray:
    """Ours [B, N * K, …] in the expected shape, with the expected values at slots of blocks that were not kept."""
    ours = ours.detach().numpy()
    if expected is None:
        return ours
    theirs = expected.reshape(ours.shape)
    return np.where(kept.numpy()[..., None], ours, theirs).reshape(expected.shape)


def _gradients(draft: torch.nn.Module) -> Outcome:
    return {f"grad/{name}": (parameter.grad, CLOSE) for name, parameter in draft.named_parameters()}


def _norm(gradients: Outcome) -> float:
    return np.sqrt(sum(float((value**2).sum()) for value, _ in gradients.values()))


def _as_huggingface(reference: DraftReference, entering: list) -> torch.Tensor:
    """States entering each layer, and the last one after the final norm, as `hidden_states` of transformers."""
    return torch.stack([*entering[:-1], reference.target.model.norm(entering[-1])])


def _taps(reference: DraftReference, config, prompt: np.ndarray) -> np.ndarray:
    _, entering = reference.run_target(prompt[None])
    return np.concatenate([entering[tap][0].numpy() for tap in config.tap_layers], axis=-1)


def _tables(rope: DraftRope, first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(map(torch.from_numpy, rope.tables(rope.beyond(first, count, 0))))


def _context(known: np.ndarray, newest: int, taps: np.ndarray, first: int) -> SimpleNamespace:
    positions = np.broadcast_to(first + np.arange(len(taps)), (3, len(taps)))
    return SimpleNamespace(
        prompt_ids=known, written=(), newest_token=newest, taps=taps, positions=positions, rope_delta=0
    )


class _Spy:
    """Wraps a draft's networks and remembers the result of every pass."""

    def __init__(self, networks: TorchEagle3):
        self.networks, self.passes = networks, []
        self.config, self.token_ids = networks.config, networks.token_ids

    def newest(self, *inputs):
        self.passes = [self.networks.newest(*inputs)]
        return self.passes[0]

    def step(self, *inputs):
        self.passes.append(self.networks.step(*inputs))
        return self.passes[-1]

    @property
    def first_logits(self) -> np.ndarray:
        return self.passes[0][1][0]


STAGES = {
    "eagle3/onestep_*": recompute_onestep,
    "eagle3/chain*": recompute_chain,
    "eagle3/tree_*": recompute_tree,
    "eagle3/ttt_*": recompute_training_time_test,
    "dflash/rounds_*": recompute_rounds,
    "dflash/train_specforge_*": recompute_block_training,
}
