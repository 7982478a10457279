"""The stages of a golden folder: our value and the tolerance of every array in its files.

One function per file, with the arrays' names as in the file. Knows neither the file's values, except where a stage
starts from them, nor how values are compared.
"""

import numpy as np
import torch

from specdrive_ros.evaluation.golden_reference import Reference, Run, first_slots
from specdrive_ros.target.network import KeyValues, flow_times
from specdrive_ros.target.pixels import cut_patches, fit_size, resize
from specdrive_ros.target.prompt import placeholder_ids
from specdrive_ros.target.rope import rotary_tables
from specdrive_ros.target.tokens import future_action, future_bins, history_bins, history_positions
from specdrive_ros.target.unicycle import (
    action_to_trajectory,
    denormalize,
    speed_at_t0,
    trajectory_to_action,
    within_bounds,
)

EXACT = 0.0
ACTIVATION = 1e-4  # hidden states, logits, keys and values, velocities at given x
ACTION = 1e-3  # of a sample that runs freely from the noise
POSITION_M = 1e-3
SPEED_MPS = HEADING_RAD = 1e-3  # least squares in float32 compared with ours in float64 …
FLOAT32_FIT = 2e-3  # … and differentiated once more, to accelerations and curvatures
FLOAT64_FIT = 1e-6
GREY_LEVEL = 1.0
GREY_SHARE = 0.005  # of the resized values may differ by one grey level
ROUNDING = 1e-6

Outcome = dict[str, tuple[object, float]]  # array name -> (our value, tolerance)


def recompute_inputs(reference: Reference) -> Outcome:
    config, inputs = reference.config, reference.inputs
    block = config.vision.patch_size * config.vision.spatial_merge_size
    height, width = fit_size(*reference.frames.shape[1:3], block, config.images)
    resized = np.moveaxis(resize(reference.frames, height, width), -1, 1)
    grid = [1, height // config.vision.patch_size, width // config.vision.patch_size]
    given = inputs["images_resized"]
    share = np.mean(resized != given) if resized.shape == given.shape else 1.0
    return {
        "images_resized": (resized, GREY_LEVEL if share <= GREY_SHARE else EXACT),
        "pixel_values": (cut_patches(np.moveaxis(given, 1, -1), config.vision), ROUNDING),
        "image_grid_thw": (np.tile(grid, (len(reference.frames), 1)), EXACT),
        "input_ids_raw": (
            placeholder_ids(config, reference.tokenizer, inputs["image_grid_thw"])[None],
            EXACT,
        ),
        "input_ids": (reference.prompt.token_ids[None], EXACT),
        "attention_mask": (np.ones((1, reference.prompt_length), np.int64), EXACT),
    }


def recompute_history_tokens(reference: Reference) -> Outcome:
    given, config = reference.arrays("expected_history_tokens"), reference.config.history
    return {
        "bins": (history_bins(given["xyz"], config), EXACT),
        "token_ids": (reference.tokenizer.history_tokens(given["xyz"]), EXACT),
        "decoded_xyz": (history_positions(given["bins"], config), POSITION_M),
    }


def recompute_vision(reference: Reference) -> Outcome:
    target, vision = reference.target, reference.vision
    positions = [
        target.patch_positions(int(rows), int(columns))
        for _, rows, columns in reference.inputs["image_grid_thw"]
    ]
    patches = target.embed_patches(torch.from_numpy(reference.inputs["pixel_values"]))
    return {
        "patch_embed": (patches, ACTIVATION),
        "pos_embed_interpolated": (torch.cat(positions), ACTIVATION),
        "image_embeds": (vision.embeddings, ACTIVATION),
        **{f"block_out_{index}": (block, ACTIVATION) for index, block in enumerate(vision.blocks)},
        **{f"deepstack_{index}": (rows, ACTIVATION) for index, rows in enumerate(vision.deepstack)},
    }


def recompute_prefill(reference: Reference) -> Outcome:
    prefill, prompt = reference.prefill, reference.prompt
    cos, sin = rotary_tables(prompt.position_ids, reference.config.text)
    rows = reference.arrays("expected_prefill")["logit_positions"]
    entering = [reference.prompt_embeddings, *prefill.layers[:-1]]
    return {
        "position_ids": (prompt.position_ids[:, None], EXACT),
        "rope_deltas": ([[prompt.rope_delta]], EXACT),
        "rope_cos": (cos[None], ACTIVATION),
        "rope_sin": (sin[None], ACTIVATION),
        "inputs_embeds": (reference.prompt_embeddings, ACTIVATION),
        "final_norm": (prefill.hidden, ACTIVATION),
        "logits": (reference.target.logits(prefill.hidden[0, rows]), ACTIVATION),
        **{f"layer_in_{layer}": (hidden, ACTIVATION) for layer, hidden in enumerate(entering)},
        **{
            f"layer_out_pre_deepstack_{layer}": (out, ACTIVATION)
            for layer, out in enumerate(reference.layer_outputs)
        },
        **_keys_and_values(prefill.key_values),
    }


def recompute_greedy(reference: Reference) -> Outcome:
    greedy = reference.greedy
    masked = np.sort(reference.mask_trajectory(greedy.logits), axis=-1)
    stopped = reference.stopped_tokens()
    first = reference.prompt_length + reference.prompt.rope_delta
    return {
        "tokens": (greedy.tokens, EXACT),
        "unmasked_argmax": (greedy.logits.argmax(-1), EXACT),
        "logits": (greedy.logits, ACTIVATION),
        "final_hidden": (greedy.hidden, ACTIVATION),
        "position_of_token": (first + np.arange(len(greedy.tokens)), EXACT),
        "margin": (masked[:, -1] - masked[:, -2], ACTIVATION),
        "sequence_with_stop": (reference.greedy_run().raw, EXACT),
        "cot_text": (reference.tokenizer.decode(stopped), EXACT),
    }


def recompute_key_values(reference: Reference) -> Outcome:
    run = reference.greedy_run()
    offset = int(run.offset[0])
    kept = first_slots(run.key_values, offset)
    ours, expected = _checksums(kept), reference.arrays("expected_kv").get("checksums")
    if expected is not None and expected.shape == ours.shape:
        # Relative to the sums of absolute values and of squares.
        ours = expected + (ours - expected) / np.maximum(expected[..., [1, 1, 2]], 1.0)
    return {
        "shape": (run.key_values[0][0].shape, EXACT),
        "offset": (offset, EXACT),
        "checksums": (ours, ACTIVATION),
        **_keys_and_values(kept),
    }


def recompute_action(reference: Reference) -> Outcome:
    run, given = reference.greedy_run(), reference.arrays("expected_action")
    return {
        "sequences_raw": (run.raw, EXACT),
        **_action_of(run, reference.inputs["noise"], given),
        **_probes(run),
    }


def _probes(run: Run) -> Outcome:
    """The velocity field and the expert's hidden states at given x and flow times."""
    x, outcome = torch.from_numpy(run.reference.inputs["x_probe"]), {}
    for time in run.reference.inputs["t_probe"]:
        entering, layers, leaving = run.expert_pass(x, time)
        found = {"expert_in": entering, "expert_out": leaving, "v": run.velocity(x, time)}
        found |= {f"expert_layer{layer}_out": out for layer, out in enumerate(layers)}
        outcome |= {f"{name}_at_t{time:g}": (value, ACTIVATION) for name, value in found.items()}
    return outcome


def _action_of(run: Run, noise: np.ndarray, given: dict[str, np.ndarray]) -> Outcome:
    """The hand-over to the expert, and the trajectory it makes from the noise."""
    reference, batch = run.reference, len(run.raw)
    space, path = reference.config.action_space, run.sample_path(noise)
    action = path[-1].numpy()
    v0 = speed_at_t0(space, *reference.history)
    rolled = action_to_trajectory(space, action, v0, reference.history[0][-1, 2])
    waypoint_columns = np.zeros((batch, space.n_waypoints), bool)
    return {
        "sequences": (run.sequences, EXACT),
        "offset": (run.offset, EXACT),
        "has_traj_future_start": (run.has_start, EXACT),
        "rope_deltas": (np.full((batch, 1), reference.prompt.rope_delta), EXACT),
        "cache_len": (run.cache_length, EXACT),
        "expert_position_ids": (run.expert_positions, EXACT),
        "expert_mask_hidden": (np.concatenate([~run.visible.numpy(), waypoint_columns], axis=1), EXACT),
        "time_steps": (flow_times(), ROUNDING),
        "x_steps": (path, ACTION),
        "v_steps": (run.velocities_at(given["x_steps"]), ACTIVATION),
        "action": (action, ACTION),
        "accel": (denormalize(space, action)[..., 0], ACTION),
        "curvature": (denormalize(space, action)[..., 1], ACTION),
        "v0": (np.full(batch, v0), SPEED_MPS),
        "pred_xyz": (rolled.xyz[None, None], POSITION_M),
        "pred_rot": (rolled.rotation[None, None], POSITION_M),
    }


def recompute_sampled(reference: Reference) -> Outcome:
    """The sampled tokens are given (they depend on the reference's random generator); everything after them is
    ours."""
    given = reference.arrays("expected_sampled")
    sequences, settings = given["sequences_raw"], reference.meta["settings"]["sampling"]
    generated = torch.from_numpy(sequences[:, reference.prompt_length : -1])
    past = [
        (keys.expand(len(sequences), -1, -1, -1), values.expand(len(sequences), -1, -1, -1))
        for keys, values in reference.prefill.key_values
    ]
    passed = reference.extend(generated, past)
    first = reference.prefill.hidden[:, -1:].expand(len(sequences), -1, -1)
    logits = reference.target.logits(torch.cat([first, passed.hidden], dim=1)).transpose(0, 1)
    masked = reference.mask_trajectory(logits.numpy())
    run = Run(reference, sequences, passed.key_values)
    return {
        "logits": (masked, ACTIVATION),
        "scores": (_scores(masked, settings), ACTIVATION),
        "cot_text": ([_chain_of_causation(reference, row) for row in run.sequences], EXACT),
        **_action_of(run, reference.inputs["noise3"], given),
    }


def recompute_edge(reference: Reference) -> Outcome:
    """Greedy runs ended by a limit: the text cut short, or the trajectory's start as the last token."""
    given, outcome = reference.arrays("expected_edge"), {}
    for name in sorted({key.rpartition(".")[0] for key in given}):
        arrays = {key.rpartition(".")[2]: value for key, value in given.items() if key.startswith(f"{name}.")}
        run = reference.greedy_run(int(arrays["max_new_tokens"]))
        found = {
            "sequences_raw": (run.raw, EXACT),
            **_action_of(run, reference.inputs["noise"], arrays),
        }
        outcome |= {f"{name}.{key}": value for key, value in found.items()}
    return outcome


def recompute_unicycle(reference: Reference) -> Outcome:
    given, space = reference.arrays("expected_unicycle"), reference.config.action_space
    fit = trajectory_to_action(
        space, given["history_xyz"], given["history_rot"], given["future_xyz"], given["future_rot"]
    )
    heights = given["history_xyz"][:, -1, 2]
    rolled = action_to_trajectory(space, fit.action, fit.v0, heights)
    found: Outcome = {
        "v0": (fit.v0, SPEED_MPS),
        "v": (fit.speed_mps, SPEED_MPS),
        "theta_smooth": (fit.heading, HEADING_RAD),
        "action": (fit.action, FLOAT32_FIT),
        "accel": (fit.physical[..., 0], FLOAT32_FIT),
        "curvature": (fit.physical[..., 1], FLOAT32_FIT),
        "recon_xyz": (rolled.xyz, POSITION_M),
        "recon_rot": (rolled.rotation, POSITION_M),
    }
    bounds = within_bounds(space, fit.action)
    bins = future_bins(given["action"], reference.config.future)
    decoded = action_to_trajectory(
        space, future_action(given["future_bins"], reference.config.future), fit.v0, heights
    )
    return {
        **found,
        **{f"{name}_f64": (value, FLOAT64_FIT) for name, (value, _) in found.items()},
        "within_bounds": (bounds, EXACT),
        "within_bounds_f64": (bounds, EXACT),
        "future_bins": (bins, EXACT),
        "future_token_ids": (bins + reference.tokenizer.base_size, EXACT),
        "future_decoded_xyz": (decoded.xyz, POSITION_M),
        **_hand_made_actions(reference, given),
    }


def _hand_made_actions(reference: Reference, given: dict[str, np.ndarray]) -> Outcome:
    space = reference.config.action_space
    v0 = speed_at_t0(space, given["act_history_xyz"], given["act_history_rot"])
    height = given["act_history_xyz"][-1, 2]
    own, slow = (action_to_trajectory(space, given["act_action"], speed, height) for speed in (v0, 3.0))
    return {
        "act_v0": (np.full(len(given["act_action"]), v0), SPEED_MPS),
        "act_xyz": (own.xyz, POSITION_M),
        "act_rot": (own.rotation, POSITION_M),
        "act_xyz_v0_3": (slow.xyz, POSITION_M),
        "act_rot_v0_3": (slow.rotation, POSITION_M),
        "act_within_bounds": (within_bounds(space, given["act_action"]), EXACT),
    }


def _keys_and_values(key_values: KeyValues) -> Outcome:
    return {
        f"{kind}_{layer}": (tensor, ACTIVATION)
        for layer, pair in enumerate(key_values)
        for kind, tensor in zip(("key", "value"), pair)
    }


def _checksums(key_values: KeyValues) -> np.ndarray:
    """[layers, key/value, (sum, sum of absolute values, sum of squares)] in float64."""
    flat = np.array([[tensor.double().flatten().numpy() for tensor in pair] for pair in key_values])
    return np.stack([flat.sum(-1), np.abs(flat).sum(-1), (flat**2).sum(-1)], axis=-1)


def _scores(logits: np.ndarray, settings: dict) -> np.ndarray:
    """The scores that the reference samples from: temperature, then top-k, then top-p."""
    scores = logits / settings["temperature"]
    if top_k := settings.get("top_k"):
        smallest = np.partition(scores, -top_k, axis=-1)[..., -top_k, None]
        scores = np.where(scores < smallest, -np.inf, scores)
    return _nucleus(scores, settings["top_p"])


def _nucleus(scores: np.ndarray, top_p: float) -> np.ndarray:
    """The scores, with -inf for tokens once more likely ones hold `top_p` of the probability."""
    order = np.argsort(scores, axis=-1)
    ranked = np.take_along_axis(scores, order, axis=-1)
    shares = np.exp(ranked - ranked[..., -1:])
    unlikely = np.cumsum(shares, axis=-1) / shares.sum(axis=-1, keepdims=True) <= 1 - top_p
    unlikely[..., -1] = False
    kept = np.where(unlikely, -np.inf, ranked)
    out = np.empty_like(scores)
    np.put_along_axis(out, order, kept, axis=-1)
    return out


def _chain_of_causation(reference: Reference, sequence: np.ndarray) -> str:
    """The text before `<|cot_end|>`; empty if the reasoning never ends."""
    generated = list(sequence[reference.prompt_length :])
    end = reference.tokenizer.cot_end
    return reference.tokenizer.decode(generated[: generated.index(end)]) if end in generated else ""
