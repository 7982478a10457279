from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from specdrive_ros.draft.config import DFlashConfig
from specdrive_ros.draft.target_identity import check_fingerprint, fingerprint, fingerprint_of, output_head
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.drafts import check_mask_token, load_draft
from specdrive_ros.target.config import TargetConfig

ALPAMAYO = Path(__file__).parents[1] / "golden" / "alpamayo_A" / "checkpoint"


def config(**changes):
    sizes = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                 num_key_value_heads=2, head_dim=16, vocab_size=900, target_layers=4, tap_layers=(2,), rope_theta=1e4,
                 block_size=8, mask_token_id=5)  # fmt: skip
    return DFlashConfig(**(sizes | changes))


def test_every_training_step_makes_another_target():
    norm = np.ones(64, np.float32)
    moved = norm.copy()
    moved[3] += 1e-6
    assert fingerprint(norm) == fingerprint(norm.astype(np.float64)) != fingerprint(moved)


def test_a_draft_of_other_weights_is_refused():
    found = fingerprint_of(ALPAMAYO)
    check_fingerprint(config(target=found), found, "drafts/x")
    check_fingerprint(config(), found, "drafts/x")  # public files name no target
    with pytest.raises(InputError, match=f"drafts/x: was trained on the target abcd, this one is {found}"):
        check_fingerprint(config(target="abcd"), found, "drafts/x")


def test_the_head_is_the_targets_own():
    text = TargetConfig.load(ALPAMAYO).text
    assert output_head(ALPAMAYO).shape == (text.vocab_size, text.hidden_size)


def test_a_mask_that_is_a_trajectory_bin_is_refused():
    """Qwen's first free id, which public drafts take for their mask, is the first trajectory bin here."""
    with pytest.raises(InputError, match="mask_token_id 412 is the trajectory token <i12>"):
        check_mask_token(config(mask_token_id=412), 400, 100, "drafts/x")
    check_mask_token(config(mask_token_id=399), 400, 100, "drafts/x")


def test_a_draft_for_another_target_never_proposes(golden):
    networks = SimpleNamespace(config=TargetConfig.load(ALPAMAYO), tap_layers=(2, 2, 1), runtime="onnxruntime")
    with pytest.raises(InputError, match="draft_fit: is a draft for a target with"):
        load_draft(golden / "eagle3/draft_fit", networks)
    with pytest.raises(InputError, match="runtime 'abacus': unknown to drafts"):
        load_draft(golden / "eagle3/draft_fit", networks, "abacus")
