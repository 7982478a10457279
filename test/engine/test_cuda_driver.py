"""The calls into the driver, made to a small library of our own that checks what it is given."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from specdrive_ros.engine.cuda_driver import CudaDevice, CudaError, DeviceInfo, device_at_hand
from specdrive_ros.engine.memory import DeviceCache, array_at
from specdrive_ros.errors import InputError


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> str:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    made = tmp_path_factory.mktemp("driver") / "libfake_cuda.so"
    source = Path(__file__).with_name("fake_driver.cpp")
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


@pytest.fixture
def device(library) -> CudaDevice:
    return CudaDevice(library)


def test_the_gpu_at_hand(library):
    assert device_at_hand(library) == DeviceInfo("Fake GPU", "8.9")


def test_no_gpu_and_no_driver(library, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_NO_GPU", "1")
    with pytest.raises(InputError, match="finds no GPU"):
        device_at_hand(library)
    with pytest.raises(InputError, match="no NVIDIA driver here"):
        device_at_hand("libno_cuda.so")


def test_there_and_back(device):
    pinned, address = device.allocate_pinned(64), device.allocate(64)
    array_at(pinned, (16,), np.float32)[:] = np.arange(16)
    device.upload(address, pinned, 64)
    array_at(pinned, (16,), np.float32)[:] = -1
    device.download(pinned, address, 64)
    device.synchronize()
    np.testing.assert_array_equal(array_at(pinned, (16,), np.float32), np.arange(16))
    device.free(address)
    device.free_pinned(pinned)


def test_memory_comes_zeroed(device):
    np.testing.assert_array_equal(array_at(device.allocate(1000), (1000,), np.uint8), 0)


def test_rows_of_every_layer_in_one_call(device):
    cache = DeviceCache(device, layers=3, row_bytes=64, capacity=20)
    source = device.allocate(3 * 512)
    rows = array_at(source, (3, 512), np.uint8)
    rows[:] = np.random.default_rng(0).integers(0, 255, (3, 512))
    cache.write(5, 4, source, 512)
    device.synchronize()
    for layer in range(3):
        kept = array_at(cache.past(20).layer(layer), (20, 64), np.uint8)
        np.testing.assert_array_equal(kept[5:9].ravel(), rows[layer, :256])
        assert not kept[:5].any() and not kept[9:].any()


def test_a_captured_graph_repeats_what_was_queued(device):
    source, target = device.allocate(8), device.allocate(8)
    graph = device.capture(lambda: device.copy_blocks(target, 8, source, 8, 8, 1))
    array_at(source, (8,), np.uint8)[:] = 7
    assert not array_at(target, (8,), np.uint8).any()  # capturing runs nothing
    device.launch(graph)
    device.synchronize()
    assert (array_at(target, (8,), np.uint8) == 7).all()
    device.drop(graph)


def test_capture_that_fails_leaves_the_stream_usable(device, monkeypatch):
    monkeypatch.setenv("FAKE_NO_CAPTURE", "1")
    with pytest.raises(CudaError, match="cannot be captured"):
        device.capture(lambda: None)
    with pytest.raises(ZeroDivisionError):
        device.capture(lambda: 1 / 0)
    device.synchronize()


def test_what_the_driver_says_is_told(device):
    with pytest.raises(CudaError, match=r"cuMemAlloc_v2 failed: out of memory \(2\)"):
        device.allocate(1 << 50)
