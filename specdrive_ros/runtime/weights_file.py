"""Where each tensor of a checkpoint lies in its safetensors file, without loading it and without torch.

Exported graphs point into these files, and embeddings are read from them by row. Knows no networks.
"""

import hashlib
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.json_file import parse_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SHOWN = 3  # names listed before "and N more"
_HEADER_LIMIT = 100_000_000  # bytes; the format's own limit
_ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
# Peak memory while a session is opened, as a multiple of the weights in float32. Measured on a graph of the exported
# kind (two decoder layers and a head, 138 million numbers, one thread; its own memory, not mapped files): 1.75 from
# bfloat16, 1.02 from float32.
_OF_A_SESSION = 2
_NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


@dataclass(frozen=True)
class TensorPlace:
    """A tensor of this type (by safetensors' name) and shape: `length` bytes of `path` from `offset` on."""

    path: Path
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]

    def map(self) -> np.ndarray:
        """The tensor, mapped read-only; bfloat16 as its bits (uint16)."""
        return np.memmap(self.path, _NUMPY[self.dtype], "r", self.offset, self.shape)

    def read(self) -> np.ndarray:
        """The tensor as float32: mapped where it is stored so, else converted."""
        values = self.map()
        if self.dtype == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32, copy=False)


def weights_files(folder: Path) -> list[Path]:
    """The single weights file of a checkpoint folder, or the shards named by its index. Raises `InputError`."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    try:
        names = shard_names((folder / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: no {WEIGHTS} and no {INDEX}; it must be a checkpoint folder") from None
    except (OSError, ValueError):
        raise InputError(
            f"{folder / INDEX}: no index of shards; it must have a 'weight_map' of tensor names to files"
        ) from None
    missing = [name for name in names if Path(name).name != name or not (folder / name).is_file()]
    if missing:
        which = f"{list_some(missing)}, which {'are' if len(missing) > 1 else 'is'} not there"
        raise InputError(f"{folder}: the index names {which}; files not in the folder are not read; fetch it")
    return [folder / name for name in names]


def list_some(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f", and {more} more" if more > 0 else "")


def shard_names(index: str) -> list[str]:
    """The files named by the text of an index. Raises ValueError if it is not an index."""
    try:
        names = sorted(set(parse_json(index)["weight_map"].values()))
    except (KeyError, AttributeError, TypeError):
        raise ValueError("it has no 'weight_map' of tensor names to files") from None
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a shard's name must be text")
    return names


def tensor_places(folder: Path) -> dict[str, TensorPlace]:
    """Every tensor of a checkpoint folder by name. Raises `InputError` for a damaged file."""
    places: dict[str, TensorPlace] = {}
    for path in weights_files(folder):
        places.update(_read_header(path))
    return places


def comparison_bytes(folder: Path) -> int:
    """Approximate memory of a session of the graphs while it is opened: weights in float32, and most of them again as
    it casts, concatenates and packs them."""
    numbers = sum(int(np.prod(place.shape, dtype=np.int64)) for place in tensor_places(folder).values())
    return _OF_A_SESSION * 4 * numbers


def available_bytes() -> int:
    """Memory that this machine could give a process without swapping."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def sha256(path: Path) -> str:
    """Hash of the file's content, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _read_header(path: Path) -> dict[str, TensorPlace]:
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(_HEADER_LIMIT, size - 8):
                raise ValueError("its header is longer than the file")
            header = parse_json(file.read(length))
        places = {
            name: _place(path, 8 + length, size, entry)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: damaged or no safetensors file ({error}); fetch or save it again"
        ) from None
    return places


def _place(path: Path, data_start: int, file_size: int, entry: dict) -> TensorPlace:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not all(type(each) is int and each >= 0 for each in (begin, end, *shape)):
        raise ValueError("shapes and offsets must be whole numbers of at least 0")
    if end - begin != prod(shape) * _ITEM_BYTES[entry["dtype"]]:
        raise ValueError("a tensor's bytes do not fit its shape")
    if data_start + end > file_size:
        raise ValueError("the file ends before its last tensor")
    return TensorPlace(path, data_start + begin, end - begin, entry["dtype"], shape)
