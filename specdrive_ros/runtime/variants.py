"""Exported graphs in another precision: fp16 and bf16 for GPUs, int8 and int4 for ONNX Runtime on a CPU, int8w, int4w
and fp8 weights for engines.

A variant is a folder of its own: the checkpoint's files and rewritten graphs. int8 and int4 quantise the weights of
matrix products of vision and text with ONNX Runtime's own tools, for its own kernels; int8w, int4w and fp8 those of
the same products in plain ONNX (`weight_only.py`). The action head stays fp32, because little would be gained there.
`evaluation/variant_accuracy.py` measures what a variant costs in accuracy. Needs onnx; driving does not.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime

from specdrive_ros.engine.graph_file import read_record
from specdrive_ros.engine.precision import HALF, to_precision
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import GRAPHS
from specdrive_ros.runtime.checkpoint_copy import copy_checkpoint
from specdrive_ros.runtime.onnx_networks import export_command
from specdrive_ros.runtime.weight_only import SCHEMES, quantise_weights
from specdrive_ros.runtime.weights_file import weights_files
from specdrive_ros.target.config import TargetConfig

VARIANTS = ("fp16", "bf16", "int8", "int4", *SCHEMES)
INT4_BLOCK = 32  # weights that share a scale
_QUANTISED = ("vision", "text")
_KEEP_OUTSIDE = 1024  # bytes; larger weights go into a file beside the graph


def write_variant(model: Path, folder: Path, variant: str, on_graph: Callable[[str], None] = lambda name: None) -> None:
    """Writes `model`'s checkpoint files and its graphs in `variant` into another folder.

    Raises `InputError` for an unknown variant, a model that is not exported or is a variant itself, and the model's
    own folder.
    """
    if variant not in VARIANTS:
        raise InputError(f"precision {variant!r}: must be one of {', '.join(VARIANTS)}")
    if folder.resolve() == model.resolve():
        raise InputError(f"{folder}: a variant needs a folder of its own, beside the graphs it is made from")
    check_plain(model, GRAPHS)
    copy_checkpoint(TargetConfig.load(model), folder)
    for name in GRAPHS:
        on_graph(name)
        _write_graph(model, folder, name, variant)


def check_plain(model: Path, graphs: tuple[str, ...]) -> None:
    """Raises `InputError` if a graph is missing or is not fp32 as exported."""
    for name in graphs:
        record = read_record(model / f"{name}.onnx", export_command(model))
        if record.variant != "fp32":
            raise InputError(f"{model / name}.onnx: is in {record.variant}; start from the fp32 export of the model")


def _write_graph(model: Path, folder: Path, name: str, variant: str) -> None:
    path = model / f"{name}.onnx"
    record = read_record(path, export_command(model))
    if variant in HALF:
        graph = to_precision(onnx.load(str(path), load_external_data=False), variant)
        _copy_data(model, folder, name)
    elif name in _QUANTISED:
        graph = _quantised(path, folder, variant)
    else:
        for part in model.glob(f"{name}.onnx*"):
            shutil.copyfile(part, folder / part.name)
        return
    onnx.helper.set_model_props(graph, replace(record, variant=variant).to_metadata())
    onnx.save_model(graph, str(folder / path.name))
    for written in folder.glob(f"{name}.onnx*"):
        written.chmod(0o644)  # onnx makes data files readable by their owner only


def _copy_data(model: Path, folder: Path, name: str) -> None:
    data = model / f"{name}.onnx.data"
    if data.is_file():
        shutil.copyfile(data, folder / data.name)


def _quantised(path: Path, folder: Path, variant: str) -> onnx.ModelProto:
    """The graph with constants folded and weights quantised. Weights over a kilobyte go into a file beside it."""
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        folded = Path(unfinished) / path.name
        _fold(path, folded)
        made = Path(unfinished) / "quantised.onnx"
        with _quiet_tools():
            if variant in SCHEMES:
                graph = quantise_weights(onnx.load(str(folded)), SCHEMES[variant])
                onnx.save_model(graph, str(made), save_as_external_data=True)
            else:
                {"int8": _quantise_int8, "int4": _quantise_int4}[variant](folded, made)
        graph = onnx.load(str(made))
    data = f"{path.stem}.onnx.data"
    (folder / data).unlink(missing_ok=True)
    onnx.external_data_helper.convert_model_to_external_data(
        graph, all_tensors_to_one_file=True, location=data, size_threshold=_KEEP_OUTSIDE
    )
    return graph


def _fold(path: Path, into: Path) -> None:
    """Turns concatenated and transposed weights into plain ones, as a session does when it loads."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(into)
    options.log_severity_level = 3
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", f"{into.name}.data")
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_min_size_in_bytes", str(_KEEP_OUTSIDE)
    )
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _quantise_int8(folded: Path, made: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        folded, made, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8,
        use_external_data_format=True,
    )  # fmt: skip


def _quantise_int4(folded: Path, made: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load(str(folded)))
    model.replace_gemm_with_matmul()  # a product with a bias or a transposition would be skipped otherwise
    quantiser = MatMulNBitsQuantizer(model.model, block_size=INT4_BLOCK, is_symmetric=True, accuracy_level=4)
    quantiser.process()
    quantiser.model.save_model_to_file(str(made), use_external_data_format=True)


@contextmanager
def _quiet_tools():
    """Silences ONNX Runtime's tools, which log a line per node, and advice on graphs that are not ours."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous)


@contextmanager
def emulated(model: Path, precision: str):
    """A temporary folder whose graphs compute in fp32 and round where those of `precision` would.

    Any CPU runs them, so the cost of a half precision is measured without a GPU.
    """
    check_plain(model, GRAPHS)
    with tempfile.TemporaryDirectory(prefix="specdrive-emulated-") as unfinished:
        folder = Path(unfinished)
        for path in (*model.glob("*.json"), *model.glob("*.y*ml"), *weights_files(model), *model.glob("*.onnx.data")):
            _link(path, folder / path.name)
        backbone = TargetConfig.load(model).backbone_folder
        if backbone.resolve().is_relative_to(model.resolve()):
            shutil.copytree(backbone, folder / backbone.resolve().relative_to(model.resolve()), dirs_exist_ok=True)
        for name in GRAPHS:
            graph = onnx.load(str(model / f"{name}.onnx"), load_external_data=False)
            onnx.save_model(to_precision(graph, precision, emulate=True), str(folder / f"{name}.onnx"))
        yield folder


def _link(source: Path, target: Path) -> None:
    """Hard link; weights are copied only if the temporary folder is on another file system."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
