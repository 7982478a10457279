"""Copies a checkpoint's files to another folder, for graphs that stand beside them. Knows no networks and no
graphs."""

import json
import shutil
from pathlib import Path

from specdrive_ros.runtime.weights_file import weights_files
from specdrive_ros.target.config import TargetConfig


def copy_checkpoint(config: TargetConfig, folder: Path) -> None:
    """Copies configs, tokenizer, weights and backbone of a checkpoint to another folder, but not its graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*config.folder.glob("*.json"), *config.folder.glob("*.y*ml"), *weights_files(config.folder)):
        shutil.copy2(path, folder)
    released = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    name = Path(released["vlm_name_or_path"])
    if not name.is_absolute() and ".." not in name.parts:
        ignored = shutil.ignore_patterns("*.safetensors", "*.bin", "*.onnx*")
        shutil.copytree(config.backbone_folder, folder / name, dirs_exist_ok=True, ignore=ignored)
