"""What a training command shows and keeps of its curves; only the first of several processes does."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

from specdrive_ros.cli.progress import progress


def validation_lines(record: dict) -> list[str]:
    """The figures of a training record's validation, one per line."""
    return [f"{name:28s} {value:.3f}" for name, value in record["validation"].items()]


@contextmanager
def _silent(_name: str, _total: int, _done: int = 0):
    yield SimpleNamespace(advance=lambda *_: None)


@contextmanager
def training_output(folder: Path) -> Iterator[tuple]:
    """(`progress`, a writer with `add_scalar`) of a run whose TensorBoard curves go to `folder`."""
    import torch
    from accelerate import PartialState

    if not PartialState(cpu=not torch.cuda.is_available()).is_main_process:
        yield _silent, SimpleNamespace(add_scalar=lambda *_: None)
        return
    from torch.utils.tensorboard import SummaryWriter

    with closing(SummaryWriter(folder)) as log:
        yield progress, log
