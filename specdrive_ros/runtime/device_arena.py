"""Device memory for one engine's inputs and outputs: allocated once, refilled in every pass.

Values from the host are written into one pinned block and uploaded in one copy; inputs made on the device get a place
after it. Knows addresses and shapes, no graphs.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from specdrive_ros.engine.axes import PAST
from specdrive_ros.engine.manifest import Binding
from specdrive_ros.engine.memory import Device, Layout, array_at, lay_out
from specdrive_ros.engine.runner import Tensor
from specdrive_ros.errors import WorkFailed

Shapes = Mapping[str, tuple[int, ...]]


class Arena:
    """One engine's inputs and outputs, for the largest shapes it was built for.

    elsewhere: inputs that have memory of their own, such as those of the cache
    beside:    name -> input of the same type and size: uploaded for others to place, not an input itself
    """

    def __init__(
        self,
        device: Device,
        bindings: Sequence[Binding],
        largest_outputs: Sequence[Shapes],
        elsewhere: Sequence[str] = (),
        beside: Mapping[str, str] | None = None,
    ):
        self._device, beside = device, dict(beside or {})
        self._dtypes = {binding.name: binding.dtype for binding in bindings}
        self._dtypes |= {name: self._dtypes[like] for name, like in beside.items()}
        inputs = {b.name: _largest(b) for b in bindings if b.mode == "input" and not b.name.startswith(PAST)}
        inputs = {name: shape for name, shape in inputs.items() if name not in elsewhere}
        inputs |= {name: inputs[like] for name, like in beside.items()}
        self._input_size = self._lay_out(inputs).size
        self._output_size = max(self._lay_out(shapes).size for shapes in largest_outputs)
        self._pinned = device.allocate_pinned(self._input_size)
        self._inputs, self._outputs = device.allocate(self._input_size), device.allocate(self._output_size)

    def upload(self, values: Mapping[str, np.ndarray], to_fill: Shapes | None = None) -> dict[str, Tensor]:
        """Fills the pinned block and queues one copy of it; `to_fill` reserves places that nothing is copied to.

        The block is written at once, so the previous upload must be complete: wait for the device in every pass.
        Raises WorkFailed if the values do not fit.
        """
        values = {name: np.asarray(value, self._dtypes[name]) for name, value in values.items()}
        own = {name: value.shape for name, value in values.items()}
        layout, copied = self._lay_out(own | dict(to_fill or {})), self._lay_out(own).size
        if layout.size > self._input_size:
            raise WorkFailed(f"inputs of {layout.size} bytes, the engine was built for {self._input_size}")
        for name, value in values.items():
            array_at(self._pinned + layout.offsets[name], value.shape, value.dtype)[...] = value
        self._device.upload(self._inputs, self._pinned, copied)
        shapes = own | dict(to_fill or {})
        return {name: Tensor(self._inputs + layout.offsets[name], shape) for name, shape in shapes.items()}

    def place_outputs(self, shapes: Shapes) -> dict[str, Tensor]:
        layout = self._lay_out(shapes)
        if layout.size > self._output_size:
            raise WorkFailed(f"outputs of {layout.size} bytes, the engine was built for {self._output_size}")
        return {name: Tensor(self._outputs + layout.offsets[name], shape) for name, shape in shapes.items()}

    def dtype(self, name: str) -> str:
        return self._dtypes[name]

    def _lay_out(self, shapes: Shapes) -> Layout:
        return lay_out({name: (self._dtypes[name], shape) for name, shape in shapes.items()})


def _largest(binding: Binding) -> tuple[int, ...]:
    """The largest shape of an input over the profiles."""
    if not binding.profiles:
        return binding.shape
    return tuple(max(sizes) for sizes in zip(*(ranges[-1] for ranges in binding.profiles), strict=True))
