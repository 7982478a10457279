"""The `specdrive` script as a module."""

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "specdrive"


def load(path=SCRIPT):
    loader = SourceFileLoader("specdrive_bootstrap", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
