import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.runtime import registry


def test_unknown_runtime(tmp_path):
    with pytest.raises(InputError, match="'tpu': unknown; it must be one of onnxruntime, torch"):
        registry.load_networks(tmp_path, "tpu")


def test_runtime_that_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.RUNTIMES, "torch", ("no_such_module", "Networks", "install it"))
    with pytest.raises(InputError, match="no_such_module is not installed; install it"):
        registry.load_networks(tmp_path, "torch")
