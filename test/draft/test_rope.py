import numpy as np
import pytest

from specdrive_ros.draft.rope import DraftRope
from specdrive_ros.target.config import TextConfig
from specdrive_ros.target.rope import prompt_positions, rotary_tables

TEXT = TextConfig(
    hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, vocab_size=50, mrope_section=(4, 2, 2), rope_theta=5e6,
)  # fmt: skip
IMAGE = 7


@pytest.fixture
def prompt():
    """Two words, an image of 2 x 3 tokens, three words: positions as the target sees them, and its rope_delta."""
    ids = np.array([1, 2, *[IMAGE] * 6, 3, 4, 5])
    return prompt_positions(ids, IMAGE, np.array([[1, 4, 6]]), merge=2)


def test_mirrored_rows_turn_as_the_target_turns_them(prompt):
    positions, delta = prompt
    rope = DraftRope("mirror", 16, TEXT.rope_theta, TEXT.mrope_section)
    for ours, theirs in zip(rope.tables(rope.rows(0, positions)), rotary_tables(positions, TEXT)):
        np.testing.assert_array_equal(ours, theirs)
    assert rope.beyond(11, 2, delta).tolist() == [[11 + delta, 12 + delta]] * 3
    assert delta == -3  # six tokens of the image advance the text by three


def test_flat_rows_count_on_through_the_image(prompt):
    positions, delta = prompt
    rope = DraftRope("flat", 16, TEXT.rope_theta)
    assert rope.rows(4, positions[:, 4:6]).tolist() == [[4, 5]] * 3
    assert rope.beyond(11, 2, delta).tolist() == [[11, 12]] * 3
    text_only = np.broadcast_to(np.arange(11), (3, 11))
    for ours, theirs in zip(rope.tables(rope.rows(0, positions)), rotary_tables(text_only, TEXT)):
        np.testing.assert_array_equal(ours, theirs)


def test_the_settings_differ_inside_an_image_only_by_place(prompt):
    positions, _ = prompt
    flat, mirror = DraftRope("flat", 16, 1e4), DraftRope("mirror", 16, 1e4, (4, 2, 2))
    tables = [rope.tables(rope.rows(0, positions))[0] for rope in (flat, mirror)]
    same = [np.array_equal(one, other) for one, other in zip(*tables)]
    assert same[:3] == [True, True, True]  # two words and the image's first token stand where they are counted
    assert not any(same[3:])
