"""Image messages, raw and compressed, -> RGB uint8 [H, W, 3], or the reason why not.

Knows nothing about ROS: it takes the fields of sensor_msgs/Image and CompressedImage as they are.
Conventions where sensor_msgs leaves a choice:
  8UC3, 8UC4, 16UC3, 16UC4  have no colour order; taken as blue first, like OpenCV
  8UC1, 16UC1               are grey
  16 bit                    is scaled by 255/65535, full range to full range
  YUV                       is BT.601 in video range (luma 16 … 235), as in OpenCV and cv_bridge
  alpha                     is dropped, EXIF orientation is ignored: a camera's rows stay its rows
"""

from dataclasses import dataclass
from enum import Enum

import cv2
import numpy as np

from specdrive_ros.errors import InputError

LARGEST_PIXELS = 1 << 26  # 67 million: an image that claims to be larger is not decoded


class ImageFault(str, Enum):
    """Names are stable: they are keys in `inputs.rejected`."""

    ZERO_SIZE = "ZERO_SIZE"
    ODD_SIZE = "ODD_SIZE"
    TOO_LARGE = "TOO_LARGE"
    SMALL_STEP = "SMALL_STEP"
    SHORT_DATA = "SHORT_DATA"
    UNKNOWN_ENCODING = "UNKNOWN_ENCODING"
    NOT_A_PICTURE = "NOT_A_PICTURE"
    NOT_DECODABLE = "NOT_DECODABLE"

    def __str__(self) -> str:
        return self.value


class BadImage(InputError):
    """Raised for a message that is not a valid image; `fault` is the reason to act on."""

    def __init__(self, fault: ImageFault, text: str):
        super().__init__(text)
        self.fault = fault


@dataclass(frozen=True)
class Packed:
    """Interleaved pixels: channels of 8 or 16 bits, and OpenCV's conversion code from 8 bits to RGB."""

    channels: int
    bits: int
    to_rgb: int | None
    even_width: bool = False
    smallest: int = 1


@dataclass(frozen=True)
class SemiPlanar:
    """A luma plane above a half-size plane of interleaved chroma, both with the message's step."""

    to_rgb: int


def _encodings() -> dict[str, Packed | SemiPlanar]:
    table: dict[str, Packed | SemiPlanar] = {
        "nv12": SemiPlanar(cv2.COLOR_YUV2RGB_NV12),
        "nv21": SemiPlanar(cv2.COLOR_YUV2RGB_NV21),
        "yuv422": Packed(2, 8, cv2.COLOR_YUV2RGB_UYVY, even_width=True),
        "yuv422_yuy2": Packed(2, 8, cv2.COLOR_YUV2RGB_YUY2, even_width=True),
    }
    table |= {"uyvy": table["yuv422"], "yuyv": table["yuv422_yuy2"]}
    for bits in (8, 16):
        table |= {
            f"rgb{bits}": Packed(3, bits, None),
            f"bgr{bits}": Packed(3, bits, cv2.COLOR_BGR2RGB),
            f"rgba{bits}": Packed(4, bits, cv2.COLOR_RGBA2RGB),
            f"bgra{bits}": Packed(4, bits, cv2.COLOR_BGRA2RGB),
            f"mono{bits}": Packed(1, bits, cv2.COLOR_GRAY2RGB),
            f"{bits}uc1": Packed(1, bits, cv2.COLOR_GRAY2RGB),
            f"{bits}uc3": Packed(3, bits, cv2.COLOR_BGR2RGB),
            f"{bits}uc4": Packed(4, bits, cv2.COLOR_BGRA2RGB),
            # sensor_msgs names the mosaic by its first two rows, OpenCV's old codes by the next two
            f"bayer_rggb{bits}": Packed(1, bits, cv2.COLOR_BayerBG2RGB, smallest=3),
            f"bayer_bggr{bits}": Packed(1, bits, cv2.COLOR_BayerRG2RGB, smallest=3),
            f"bayer_gbrg{bits}": Packed(1, bits, cv2.COLOR_BayerGR2RGB, smallest=3),
            f"bayer_grbg{bits}": Packed(1, bits, cv2.COLOR_BayerGB2RGB, smallest=3),
        }
    return table


ENCODINGS = _encodings()


def decode_message(message: object) -> np.ndarray:
    """A sensor_msgs/Image or CompressedImage, from ROS or a bag -> uint8 [H, W, 3] RGB. Raises BadImage."""
    if hasattr(message, "format"):
        return decode_compressed(message.format, message.data)
    big_endian = bool(message.is_bigendian)
    return decode_image(message.encoding, message.height, message.width, message.step, big_endian, message.data)


def decode_image(
    encoding: str, height: int, width: int, step: int, is_bigendian: bool, data: bytes
) -> np.ndarray:
    """The fields of a sensor_msgs/Image -> uint8 [height, width, 3] RGB.

    data: anything with a buffer of bytes. An rgb8 image without padding is returned as a view, not a copy.
    The last row may lack its padding. Raises BadImage, and nothing else, for any content.
    """
    layout = ENCODINGS.get(encoding.lower())
    if layout is None:
        raise _unknown_encoding(encoding)
    if height <= 0 or width <= 0:
        raise BadImage(ImageFault.ZERO_SIZE, f"image of {width}x{height} pixels has no pixels")
    if height * width > LARGEST_PIXELS:
        raise _too_large(width, height)
    if isinstance(layout, SemiPlanar):
        return _decode_semi_planar(layout, encoding, height, width, step, data)
    return _decode_packed(layout, encoding, height, width, step, is_bigendian, data)


def _decode_packed(
    layout: Packed, encoding: str, height: int, width: int, step: int, is_bigendian: bool, data: bytes
) -> np.ndarray:
    if layout.even_width and width % 2:
        raise BadImage(ImageFault.ODD_SIZE, f"{encoding} image {width} pixels wide; the width must be even")
    if min(height, width) < layout.smallest:
        raise BadImage(ImageFault.ZERO_SIZE, f"{encoding} image of {width}x{height} pixels; at least 3x3")
    item = layout.bits // 8
    pixels = _rows(encoding, height, width * layout.channels, item, step, is_bigendian, data)
    pixels = pixels.reshape(height, width, layout.channels)
    if layout.bits == 16:
        pixels = cv2.convertScaleAbs(pixels, alpha=255 / 65535).reshape(pixels.shape)
    return pixels if layout.to_rgb is None else cv2.cvtColor(pixels, layout.to_rgb)


def _decode_semi_planar(
    layout: SemiPlanar, encoding: str, height: int, width: int, step: int, data: bytes
) -> np.ndarray:
    if width % 2 or height % 2:
        raise BadImage(ImageFault.ODD_SIZE, f"{encoding} image of {width}x{height}; both must be even")
    planes = _rows(encoding, height * 3 // 2, width, 1, step, False, data)
    return cv2.cvtColor(planes, layout.to_rgb)


def _rows(
    encoding: str, rows: int, columns: int, item: int, step: int, is_bigendian: bool, data: bytes
) -> np.ndarray:
    """[rows, columns] of 8 or 16 bits, contiguous and in the machine's byte order, without padding."""
    row_bytes = columns * item
    if step < row_bytes:
        raise BadImage(ImageFault.SMALL_STEP, f"{encoding} image, step {step}; a row takes {row_bytes} bytes")
    size, needed = memoryview(data).nbytes, step * (rows - 1) + row_bytes
    if size < needed:
        raise BadImage(ImageFault.SHORT_DATA,
                       f"{encoding} image with {size} bytes of data; its step and height need {needed}")
    kind = np.dtype(np.uint8) if item == 1 else np.dtype(">u2" if is_bigendian else "<u2")
    view = np.ndarray((rows, columns), kind, np.frombuffer(data, np.uint8), strides=(step, item))
    return np.ascontiguousarray(view, kind.newbyteorder("="))


def _unknown_encoding(encoding: str) -> BadImage:
    if encoding.lower().startswith(("32f", "64f")):
        return BadImage(ImageFault.NOT_A_PICTURE, f"encoding {encoding[:40]!r} holds depth, not colours")
    known = ", ".join(ENCODINGS)
    return BadImage(ImageFault.UNKNOWN_ENCODING, f"encoding {encoding[:40]!r} is unknown; known: {known}")


def _too_large(width: int, height: int) -> BadImage:
    return BadImage(ImageFault.TOO_LARGE, f"image of {width}x{height} pixels; the most is {LARGEST_PIXELS}")


JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
JPEG_END = b"\xff\xd9"


def decode_compressed(format: str, data: bytes) -> np.ndarray:
    """The fields of a sensor_msgs/CompressedImage (JPEG or PNG) -> uint8 [H, W, 3] RGB.

    `format` is free text in practice ("jpeg", "rgb8; jpeg compressed bgr8"), so the data's own signature decides. A
    truncated JPEG is refused, not shown with the rest in grey. Raises BadImage.
    """
    content = bytes(data)
    name = f"compressed image {format[:40]!r} of {len(content)} bytes"
    if "compresseddepth" in format.lower():
        raise BadImage(ImageFault.NOT_A_PICTURE, f"{name} holds depth, not colours")
    if not content.startswith((JPEG, PNG)):
        raise BadImage(ImageFault.UNKNOWN_ENCODING, f"{name} is neither JPEG nor PNG")
    width, height = _jpeg_size(content) if content.startswith(JPEG) else _png_size(content)
    if width * height > LARGEST_PIXELS:
        raise _too_large(width, height)
    rgb = None if width * height == 0 or _is_cut_short(content) else _imdecode(content)
    if rgb is None:
        raise BadImage(ImageFault.NOT_DECODABLE, f"{name} is damaged or cut short")
    return rgb


def _imdecode(content: bytes) -> np.ndarray | None:
    try:
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        return cv2.imdecode(np.frombuffer(content, np.uint8), flags)
    except cv2.error:
        return None


def _is_cut_short(content: bytes) -> bool:
    return content.startswith(JPEG) and content.rfind(JPEG_END, len(content) // 2) < 0


def _png_size(content: bytes) -> tuple[int, int]:
    """(width, height) from the header chunk, which comes first."""
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """(width, height) from the start-of-frame segment; (0, 0) if there is none."""
    offset = 2
    while offset + 9 <= len(content) and content[offset] == 0xFF:
        marker = content[offset + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = content[offset + 5:offset + 7], content[offset + 7:offset + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        length = 0 if marker == 0xFF else int.from_bytes(content[offset + 2:offset + 4], "big")
        offset += 1 if marker == 0xFF else 2 + length
    return 0, 0
