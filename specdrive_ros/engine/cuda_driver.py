"""The little of CUDA that running engines needs, called in the driver itself (libcuda), which every GPU machine has.

Needs no other package: device memory and pinned host memory, one stream, copies, CUDA graphs. Everything that takes a
while is queued on the stream; `synchronize` waits for it. Knows no engines.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass

from specdrive_ros.errors import InputError, WorkFailed

LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # device attributes: compute capability
_ON_DEVICE = 2  # memory type
_THREAD_LOCAL = 1  # capture mode: calls from other threads do not end a capture
_NON_BLOCKING = 1  # the stream does not wait for the default one


class CudaError(WorkFailed):
    """A call of the driver failed."""


class _Copy2D(Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        field
        for side in ("src", "dst")
        for field in (
            (f"{side}XInBytes", c_size_t),
            (f"{side}Y", c_size_t),
            (f"{side}MemoryType", c_int),
            (f"{side}Host", c_void_p),
            (f"{side}Device", c_ulonglong),
            (f"{side}Array", c_void_p),
            (f"{side}Pitch", c_size_t),
        )
    ] + [("WidthInBytes", c_size_t), ("Height", c_size_t)]


_SIGNATURES = {
    "cuInit": [c_uint],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetName": [POINTER(c_char), c_int, c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuMemAlloc_v2": [POINTER(c_ulonglong), c_size_t],
    "cuMemFree_v2": [c_ulonglong],
    "cuMemHostAlloc": [POINTER(c_void_p), c_size_t, c_uint],
    "cuMemFreeHost": [c_void_p],
    "cuMemsetD8Async": [c_ulonglong, ctypes.c_ubyte, c_size_t, c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_ulonglong, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_ulonglong, c_size_t, c_void_p],
    "cuMemcpy2DAsync_v2": [POINTER(_Copy2D), c_void_p],
    "cuStreamCreate": [POINTER(c_void_p), c_uint],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamBeginCapture_v2": [c_void_p, c_int],
    "cuStreamEndCapture": [c_void_p, POINTER(c_void_p)],
    "cuGraphInstantiateWithFlags": [POINTER(c_void_p), c_void_p, c_ulonglong],
    "cuGraphLaunch": [c_void_p, c_void_p],
    "cuGraphDestroy": [c_void_p],
    "cuGraphExecDestroy": [c_void_p],
}


@dataclass(frozen=True)
class DeviceInfo:
    """name as given by the driver; compute capability such as "8.9"."""

    name: str
    capability: str


def load_driver(library: str = LIBRARY) -> ctypes.CDLL:
    """The driver, initialised. Raises `InputError` if there is no driver or no GPU."""
    try:
        driver = ctypes.CDLL(library)
        for name, arguments in _SIGNATURES.items():
            getattr(driver, name).argtypes = arguments
            getattr(driver, name).restype = c_int
    except (OSError, AttributeError) as error:
        raise InputError(f"no NVIDIA driver here ({error}); engines run on a machine with an NVIDIA GPU") from None
    count = c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(byref(count)) or not count.value:
        raise InputError("the NVIDIA driver finds no GPU; engines run on a machine with one")
    return driver


def device_at_hand(library: str = LIBRARY) -> DeviceInfo:
    """The first GPU. Raises `InputError` if there is none."""
    driver = load_driver(library)
    device, name, major, minor = c_int(), (c_char * 256)(), c_int(), c_int()
    _check(driver, "cuDeviceGet", byref(device), 0)
    _check(driver, "cuDeviceGetName", name, len(name), device)
    _check(driver, "cuDeviceGetAttribute", byref(major), _MAJOR, device)
    _check(driver, "cuDeviceGetAttribute", byref(minor), _MINOR, device)
    return DeviceInfo(name.value.decode(errors="replace"), f"{major.value}.{minor.value}")


def _check(driver: ctypes.CDLL, call: str, *arguments) -> None:
    status = getattr(driver, call)(*arguments)
    if status:
        text = c_char_p()
        driver.cuGetErrorString(status, byref(text))
        raise CudaError(f"{call} failed: {(text.value or b'unknown error').decode()} ({status})")


class CudaDevice:
    """The first GPU, with one stream. Addresses are plain numbers. One thread at a time; call `use` before a round."""

    def __init__(self, library: str = LIBRARY):
        self._driver = load_driver(library)
        self.info = device_at_hand(library)
        device, self._context, stream = c_int(), c_void_p(), c_void_p()
        self._call("cuDeviceGet", byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self.use()
        self._call("cuStreamCreate", byref(stream), _NON_BLOCKING)
        self.stream = stream.value or 0

    def use(self) -> None:
        """Makes the device current in this thread."""
        self._call("cuCtxSetCurrent", self._context)

    def allocate(self, size: int) -> int:
        """Zeroed device memory, aligned to at least 256 bytes."""
        address = c_ulonglong()
        self._call("cuMemAlloc_v2", byref(address), size)
        self.clear(address.value, size)
        return address.value

    def clear(self, address: int, size: int) -> None:
        """Queues writing zeros to device memory."""
        self._call("cuMemsetD8Async", address, 0, size, self.stream)

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", address)

    def allocate_pinned(self, size: int) -> int:
        """Host memory that the device copies to and from without help from the CPU."""
        address = c_void_p()
        self._call("cuMemHostAlloc", byref(address), size, 0)
        return address.value or 0

    def free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def upload(self, target: int, source: int, size: int) -> None:
        self._call("cuMemcpyHtoDAsync_v2", target, source, size, self.stream)

    def download(self, target: int, source: int, size: int) -> None:
        self._call("cuMemcpyDtoHAsync_v2", target, source, size, self.stream)

    def copy_blocks(
        self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, count: int
    ) -> None:
        """Copies `count` blocks of `width` bytes on the device, their starts `pitch` bytes apart. They must not
        overlap."""
        copy = _Copy2D(
            srcMemoryType=_ON_DEVICE, srcDevice=source, srcPitch=source_pitch,
            dstMemoryType=_ON_DEVICE, dstDevice=target, dstPitch=target_pitch,
            WidthInBytes=width, Height=count,
        )  # fmt: skip
        self._call("cuMemcpy2DAsync_v2", byref(copy), self.stream)

    def synchronize(self) -> None:
        self._call("cuStreamSynchronize", self.stream)

    def capture(self, enqueue: Callable[[], None]) -> int:
        """What `enqueue` queues on the stream, as a CUDA graph. Raises `CudaError` if it cannot be captured."""
        graph, executable = c_void_p(), c_void_p()
        self._call("cuStreamBeginCapture_v2", self.stream, _THREAD_LOCAL)
        try:
            enqueue()
        finally:  # a stream left capturing refuses everything else
            status = self._driver.cuStreamEndCapture(self.stream, byref(graph))
        if status or not graph.value:
            raise CudaError(f"what the engine does cannot be captured as a CUDA graph ({status})")
        try:
            self._call("cuGraphInstantiateWithFlags", byref(executable), graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)
        return executable.value or 0

    def launch(self, captured: int) -> None:
        self._call("cuGraphLaunch", captured, self.stream)

    def drop(self, captured: int) -> None:
        self._call("cuGraphExecDestroy", captured)

    def _call(self, name: str, *arguments) -> None:
        _check(self._driver, name, *arguments)
