import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.target.config import ImageLimits
from specdrive_ros.target.pixels import cut_patches, fit_size, patchify, resize

RELEASED = ImageLimits(163840, 196608)


@pytest.fixture(scope="module")
def frames(arrays):
    return np.moveaxis(arrays("inputs")["images"].reshape(-1, 3, 90, 160), 1, -1)


def test_resize_is_that_of_the_reference(frames, arrays):
    ours = np.moveaxis(resize(frames, 64, 128), -1, 1).astype(int)
    difference = np.abs(ours - arrays("inputs")["images_resized"])
    assert difference.max() <= 1
    assert np.mean(difference > 0) <= 0.005


def test_patches_are_those_of_the_reference(frames, arrays, config):
    patches, grid_thw = patchify(frames, config)
    np.testing.assert_array_equal(grid_thw, arrays("inputs")["image_grid_thw"])
    np.testing.assert_allclose(patches, arrays("inputs")["pixel_values"], atol=2 / 255 + 1e-6)
    exact = cut_patches(np.moveaxis(arrays("inputs")["images_resized"], 1, -1), config.vision)
    np.testing.assert_array_equal(exact, arrays("inputs")["pixel_values"])


@pytest.mark.parametrize(
    "old, new", [((375, 1242), (96, 320)), ((96, 160), (480, 320)), ((33, 65), (64, 32))]
)
def test_resize_is_torchs_antialiased_bicubic(old, new):
    torch = pytest.importorskip("torch", reason="needs the train extra")
    frames = np.random.default_rng(0).integers(0, 256, (2, *old, 3), dtype=np.uint8)
    image = torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()
    theirs = torch.nn.functional.interpolate(image, size=new, mode="bicubic", antialias=True).permute(
        0, 2, 3, 1
    )
    difference = np.abs(resize(frames, *new).astype(int) - theirs.numpy())
    assert difference.max() <= 1
    assert np.mean(difference > 0) <= 0.005


def test_an_image_of_the_right_size_is_not_touched():
    frames = np.random.default_rng(0).integers(0, 256, (4, 96, 160, 3), dtype=np.uint8)
    assert resize(frames, 96, 160) is frames


@pytest.mark.parametrize(
    "size, limits, expected",
    [
        ((1080, 1920), RELEASED, (320, 576)),
        ((90, 160), ImageLimits(8192, 12288), (64, 128)),
        ((96, 160), ImageLimits(15360, 15360), (96, 160)),
        ((20, 20), ImageLimits(8192, 12288), (96, 96)),
        ((4000, 40), RELEASED, (4064, 64)),
    ],
)
def test_sizes_are_whole_blocks_within_the_limits(size, limits, expected):
    assert fit_size(*size, 32, limits) == expected


@pytest.mark.parametrize("size", [(1, 500), (0, 10)])
def test_slivers_are_refused(size):
    with pytest.raises(InputError, match="sides"):
        fit_size(*size, 32, RELEASED)
