import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdrive_ros.target.rope import (
    frequency_axes,
    patch_rows_columns,
    position_grid_weights,
    prompt_positions,
    rotary_tables,
    text_positions,
)

IMAGE = 9


def test_reference_tables(config, arrays):
    expected = arrays("expected_prefill")
    cos, sin = rotary_tables(expected["position_ids"], config.text)
    np.testing.assert_allclose(cos, expected["rope_cos"], atol=1e-6)
    np.testing.assert_allclose(sin, expected["rope_sin"], atol=1e-6)


def test_sections_are_interleaved():
    assert frequency_axes((4, 2, 2)).tolist() == [0, 1, 2, 0, 1, 2, 0, 0]
    released = frequency_axes((24, 20, 20))
    assert np.bincount(released).tolist() == [24, 20, 20]
    assert (released[60:] == 0).all()


def test_images_count_rows_and_columns_from_where_the_text_stopped():
    ids = np.array([1, 1, *[IMAGE] * 6, 1, *[IMAGE], 1])
    positions, rope_delta = prompt_positions(ids, IMAGE, np.array([[1, 4, 6], [1, 2, 2]]), 2)
    assert positions[0].tolist() == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7]
    assert positions[1].tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7]
    assert positions[2].tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7]
    assert rope_delta == 7 + 1 - 11


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=4),
    st.lists(st.integers(0, 6), min_size=5, max_size=5),
)
def test_the_next_token_stands_one_after_the_largest_position(grids, texts):
    ids = [1] * (texts[0] + 1)
    for (rows, columns), text in zip(grids, texts[1:]):
        ids += [IMAGE] * (rows * columns) + [1] * (text + 1)
    grid_thw = np.array([(1, 2 * rows, 2 * columns) for rows, columns in grids]).reshape(-1, 3)
    positions, rope_delta = prompt_positions(np.array(ids), IMAGE, grid_thw, 2)
    assert text_positions(len(ids), 1, rope_delta)[0, 0] == positions.max() + 1
    assert (np.diff(positions.max(axis=0)[np.array(ids) != IMAGE]) >= 1).all()


def test_placeholders_that_do_not_fit_the_grids_are_refused():
    with pytest.raises(ValueError, match="3 image placeholders.*need 2"):
        prompt_positions(np.array([IMAGE] * 3), IMAGE, np.array([[1, 2, 4]]), 2)


def test_patches_are_grouped_by_merge_block():
    row, column = patch_rows_columns(4, 4, 2)
    assert row[:8].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert column[:8].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]


def test_an_image_as_large_as_the_grid_takes_its_entries_as_they_are(config):
    side = config.vision.position_grid_side
    indices, weights = position_grid_weights(side, side, config.vision)
    row, column = patch_rows_columns(side, side, 2)
    strongest = indices[np.arange(side * side), weights.argmax(-1)]
    np.testing.assert_array_equal(strongest, row * side + column)
    np.testing.assert_allclose(weights.max(-1), 1, atol=1e-5)


def test_positions_between_grid_entries_weigh_four_of_them(config):
    _, weights = position_grid_weights(6, 10, config.vision)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert (weights >= 0).all()
