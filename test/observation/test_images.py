"""Every encoding is built here from one reference picture by plain NumPy, and must come back."""

import array

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdrive_ros.errors import InputError
from specdrive_ros.observation.images import (
    ENCODINGS,
    BadImage,
    ImageFault,
    decode_compressed,
    decode_image,
)

HEIGHT, WIDTH = 12, 18


def picture():
    """Smooth colour ramps, red, green and blue running differently: no symmetry hides a swap."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    red, green, blue = 40 + 10 * columns, 230 - 12 * rows, 20 + 5 * rows + 4 * columns
    return np.stack([red, green, blue], axis=-1).astype(np.uint8)


RGB = picture()
GREY = RGB[..., 1]
GREY_RGB = np.repeat(GREY[..., None], 3, axis=2)
ALPHA = np.full((HEIGHT, WIDTH, 1), 9, np.uint8)


def packed(pixels, pad, big=False):
    """Rows of any integer type -> (step, bytes) with `pad` bytes of rubbish after each row."""
    rows = pixels.reshape(len(pixels), -1)
    rows = rows.astype(rows.dtype.newbyteorder(">" if big else "<"))
    raw = [row.tobytes() + b"\xaa" * pad for row in rows]
    return len(raw[0]), b"".join(raw)


def decoded(encoding, pixels, pad=0, big=False, height=HEIGHT, width=WIDTH):
    step, data = packed(pixels, pad, big)
    return decode_image(encoding, height, width, step, big, data)


COLOURS = {
    "rgb8": (RGB, RGB), "bgr8": (RGB[..., ::-1], RGB), "8UC3": (RGB[..., ::-1], RGB),
    "rgba8": (np.concatenate([RGB, ALPHA], axis=2), RGB),
    "bgra8": (np.concatenate([RGB[..., ::-1], ALPHA], axis=2), RGB),
    "8UC4": (np.concatenate([RGB[..., ::-1], ALPHA], axis=2), RGB),
    "mono8": (GREY, GREY_RGB), "8UC1": (GREY, GREY_RGB),
}
WIDE = {"rgb16": "rgb8", "bgr16": "bgr8", "mono16": "mono8", "16UC1": "8UC1", "16UC3": "8UC3",
        "rgba16": "rgba8", "bgra16": "bgra8", "16UC4": "8UC4"}


@pytest.mark.parametrize("pad", [0, 1, 5, 64])
@pytest.mark.parametrize("encoding", COLOURS)
def test_eight_bit_encodings_are_exact_with_any_row_padding(encoding, pad):
    pixels, expected = COLOURS[encoding]
    np.testing.assert_array_equal(decoded(encoding, np.ascontiguousarray(pixels), pad), expected)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("encoding", WIDE)
def test_sixteen_bit_encodings_in_both_byte_orders(encoding, pad, big):
    pixels, expected = COLOURS[WIDE[encoding]]
    wide = pixels.astype(np.uint16) * 257  # full range to full range
    np.testing.assert_array_equal(decoded(encoding, wide, pad, big), expected)


def mosaic(pattern):
    """Keep of each pixel the one colour that the sensor's filter lets through."""
    raw = np.zeros((HEIGHT, WIDTH), np.uint8)
    for index, colour in enumerate(pattern):
        row, column = divmod(index, 2)
        raw[row::2, column::2] = RGB[row::2, column::2, "rgb".index(colour)]
    return raw


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize("bits", [8, 16])
def test_bayer_interpolates_the_ramps_back(pattern, bits):
    raw = mosaic(pattern)
    raw = raw if bits == 8 else raw.astype(np.uint16) * 257
    answer = decoded(f"bayer_{pattern}{bits}", raw, pad=1, big=bits == 16)
    inner = (slice(2, -2), slice(2, -2))
    assert np.abs(answer[inner].astype(int) - RGB[inner]).max() <= 2


def to_video_yuv(rgb):
    """BT.601, luma 16 … 235, chroma 16 … 240, from the standard's own coefficients."""
    r, g, b = np.moveaxis(rgb / 255.0, -1, 0)
    luma = 0.299 * r + 0.587 * g + 0.114 * b
    blue, red = (b - luma) / 1.772, (r - luma) / 1.402
    return np.stack([16 + 219 * luma, 128 + 224 * blue, 128 + 224 * red], axis=-1)


def from_video_yuv(yuv):
    y, u, v = np.moveaxis((yuv - [16, 128, 128]) / [219, 224, 224], -1, 0)
    r, b = y + 1.402 * v, y + 1.772 * u
    g = (y - 0.299 * r - 0.114 * b) / 0.587
    return np.clip(255 * np.stack([r, g, b], axis=-1), 0, 255)


def test_the_yuv_formulas_of_this_test_are_inverse():
    np.testing.assert_allclose(from_video_yuv(to_video_yuv(RGB)), RGB, atol=1e-9)


@pytest.mark.parametrize("pad", [0, 2, 7])
@pytest.mark.parametrize("encoding, order", [
    ("yuv422", "uyvy"), ("uyvy", "uyvy"), ("yuv422_yuy2", "yuyv"), ("yuyv", "yuyv")])
def test_yuv422_in_both_orders(encoding, order, pad):
    yuv = np.rint(to_video_yuv(RGB))
    yuv[:, 1::2, 1:] = yuv[:, 0::2, 1:]  # two neighbours share their chroma
    sample = np.stack([yuv[..., 0], np.where(np.arange(WIDTH) % 2, yuv[..., 2], yuv[..., 1])], axis=-1)
    sample = sample[..., ::-1] if order == "uyvy" else sample
    answer = decoded(encoding, sample.astype(np.uint8), pad)
    assert np.abs(answer - from_video_yuv(yuv)).max() <= 2


@pytest.mark.parametrize("pad", [0, 6])
@pytest.mark.parametrize("encoding, first, second", [("nv12", 1, 2), ("nv21", 2, 1)])
def test_nv12_and_nv21(encoding, first, second, pad):
    yuv = np.rint(to_video_yuv(RGB))
    yuv[..., 1:] = np.repeat(np.repeat(yuv[::2, ::2, 1:], 2, axis=0), 2, axis=1)
    chroma = yuv[::2, ::2][..., [first, second]].reshape(HEIGHT // 2, WIDTH)
    answer = decoded(encoding, np.vstack([yuv[..., 0], chroma]).astype(np.uint8), pad)
    assert np.abs(answer - from_video_yuv(yuv)).max() <= 2


def test_all_known_encodings_have_a_known_right_value_here():
    tested = {*COLOURS, *WIDE, "yuv422", "uyvy", "yuv422_yuy2", "yuyv", "nv12", "nv21"}
    tested |= {f"bayer_{pattern}{bits}" for pattern in ("rggb", "bggr", "gbrg", "grbg") for bits in (8, 16)}
    assert {name.lower() for name in tested} == set(ENCODINGS)


def test_rgb8_is_not_copied_and_any_buffer_is_taken():
    step, data = packed(RGB, 0)
    array_of_rclpy = array.array("B", data)
    for buffer in (data, bytearray(data), memoryview(data), array_of_rclpy, np.frombuffer(data, np.uint8)):
        answer = decode_image("rgb8", HEIGHT, WIDTH, step, False, buffer)
        np.testing.assert_array_equal(answer, RGB)
        assert np.shares_memory(answer, np.frombuffer(buffer, np.uint8))


def test_the_last_row_may_lack_its_padding():
    step, data = packed(RGB, 5)
    np.testing.assert_array_equal(decode_image("rgb8", HEIGHT, WIDTH, step, False, data[:-5]), RGB)
    with pytest.raises(BadImage, match="bytes of data"):
        decode_image("rgb8", HEIGHT, WIDTH, step, False, data[:-6])


@pytest.mark.parametrize("fields, fault", [
    (("rgb8", 0, 4, 12, False, b""), ImageFault.ZERO_SIZE),
    (("rgb8", 4, 0, 0, False, b""), ImageFault.ZERO_SIZE),
    (("bayer_rggb8", 2, 2, 2, False, b"1234"), ImageFault.ZERO_SIZE),
    (("rgb8", 4, 4, 11, False, bytes(100)), ImageFault.SMALL_STEP),
    (("rgb8", 4, 4, 0, False, bytes(48)), ImageFault.SMALL_STEP),
    (("rgb8", 4, 4, 12, False, b""), ImageFault.SHORT_DATA),
    (("mono16", 4, 4, 8, False, bytes(31)), ImageFault.SHORT_DATA),
    (("rgb8", 4, 4, 2**32 - 1, False, bytes(48)), ImageFault.SHORT_DATA),
    (("nv12", 4, 4, 4, False, bytes(23)), ImageFault.SHORT_DATA),
    (("rgb8", 2**32 - 1, 2**32 - 1, 2**32 - 1, False, bytes(48)), ImageFault.TOO_LARGE),
    (("yuv422", 4, 3, 6, False, bytes(24)), ImageFault.ODD_SIZE),
    (("nv12", 3, 4, 4, False, bytes(24)), ImageFault.ODD_SIZE),
    (("32FC1", 4, 4, 16, False, bytes(64)), ImageFault.NOT_A_PICTURE),
    (("", 4, 4, 16, False, bytes(64)), ImageFault.UNKNOWN_ENCODING),
    (("hologram", 4, 4, 16, False, bytes(64)), ImageFault.UNKNOWN_ENCODING),
])
def test_bad_images_are_refused_with_their_fault(fields, fault):
    with pytest.raises(BadImage) as refused:
        decode_image(*fields)
    assert refused.value.fault is fault
    assert isinstance(refused.value, InputError) and "\n" not in str(refused.value)


def encoded(suffix, pixels):
    return cv2.imencode(suffix, pixels)[1].tobytes()


@pytest.mark.parametrize("format", ["jpeg", "jpg", "rgb8; jpeg compressed bgr8", "", "png"])
def test_jpeg_comes_back_in_rgb_whatever_the_format_text(format):
    large = np.kron(RGB, np.ones((8, 8, 1), np.uint8))  # wide enough for JPEG's coarse chroma
    answer = decode_compressed(format, encoded(".jpg", np.ascontiguousarray(large[..., ::-1])))
    assert np.abs(answer.astype(int) - large).mean() < 2


@pytest.mark.parametrize("pixels, expected, tolerance", [
    (RGB[..., ::-1], RGB, 0),
    (np.concatenate([RGB[..., ::-1], ALPHA], axis=2), RGB, 0),
    (GREY, GREY_RGB, 0),
    (RGB[..., ::-1].astype(np.uint16) * 257, RGB, 1),
    (GREY.astype(np.uint16) * 257, GREY_RGB, 1),
])
def test_png_colour_alpha_grey_and_sixteen_bit(pixels, expected, tolerance):
    answer = decode_compressed("bgr8; png compressed bgr8", encoded(".png", np.ascontiguousarray(pixels)))
    assert answer.dtype == np.uint8
    assert np.abs(answer.astype(int) - expected).max() <= tolerance


@pytest.mark.parametrize("format, data, fault", [
    ("jpeg", b"", ImageFault.UNKNOWN_ENCODING),
    ("jpeg", b"no picture at all", ImageFault.UNKNOWN_ENCODING),
    ("jpeg", encoded(".jpg", RGB)[:-200], ImageFault.NOT_DECODABLE),
    ("png", encoded(".png", RGB)[:40], ImageFault.NOT_DECODABLE),
    ("png", b"\x89PNG\r\n\x1a\n", ImageFault.NOT_DECODABLE),
    ("16UC1; compressedDepth png", encoded(".png", RGB), ImageFault.NOT_A_PICTURE),
    ("png", encoded(".png", RGB).replace(b"\x00\x00\x00\x12\x00\x00\x00\x0c", b"\x7f\xff\xff\xff" * 2),
     ImageFault.TOO_LARGE),
])
def test_bad_compressed_images_are_refused_with_their_fault(format, data, fault):
    with pytest.raises(BadImage) as refused:
        decode_compressed(format, data)
    assert refused.value.fault is fault
    assert "\n" not in str(refused.value)


WHOLE = {suffix: encoded(suffix, RGB) for suffix in (".jpg", ".png")}
sizes = st.one_of(st.integers(0, 40), st.sampled_from([2**16, 2**31, 2**32 - 1]))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([*ENCODINGS, "32FC1", "", "?"]), sizes, sizes, sizes, st.booleans(),
    st.binary(max_size=4000))
def test_random_headers_and_bytes_make_a_picture_or_a_reason(encoding, height, width, step, big, data):
    try:
        answer = decode_image(encoding, height, width, step, big, data)
    except BadImage:
        return
    assert answer.shape == (height, width, 3) and answer.dtype == np.uint8


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([".jpg", ".png"]), st.integers(0, 600), st.binary(min_size=1, max_size=8),
    st.text(max_size=20))
def test_damaged_compressed_bytes_make_a_picture_or_a_reason(suffix, offset, rubbish, format):
    content = bytearray(WHOLE[suffix])
    offset %= len(content)
    content[offset:offset + len(rubbish)] = rubbish
    try:
        answer = decode_compressed(format, bytes(content))
    except BadImage:
        return
    assert answer.ndim == 3 and answer.shape[2] == 3 and answer.dtype == np.uint8
