"""Runs one engine: contexts, addresses, CUDA graphs for recurring shapes.

A graph is captured the second time a shape occurs (the first run is the warm-up) and launched from then on. If an
engine cannot be captured, it runs queued call by call, and `capture_fault` says why. Copies no data. The execution
contexts are TensorRT's; tests pass their own.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specdrive_ros.engine.manifest import Binding
from specdrive_ros.engine.memory import Device
from specdrive_ros.errors import SpecdriveError, WorkFailed

_MOST_GRAPHS = 32  # each holds some megabytes on the device


@dataclass(frozen=True)
class Tensor:
    """What is bound to a name: its address and shape."""

    address: int
    shape: tuple[int, ...]


Call = Mapping[str, Tensor]  # one run of the engine: all inputs and outputs


class EngineRunner:
    """Runs calls of one engine on a device's stream; `contexts` has one execution context per profile."""

    def __init__(
        self, name: str, contexts: Sequence, bindings: Sequence[Binding], device: Device, use_graphs: bool = True
    ):
        self.name, self.bindings = name, {binding.name: binding for binding in bindings}
        self._contexts, self._device = contexts, device
        self.capture_fault = "" if use_graphs else "switched off"
        self._graphs: OrderedDict[tuple, int | None] = OrderedDict()

    @property
    def captured(self) -> int:
        """Number of CUDA graphs held now."""
        return sum(graph is not None for graph in self._graphs.values())

    def run(self, profile: int, calls: Sequence[Call]) -> None:
        """Queues the calls, one after another. Returns before they are done."""
        key = (profile, *(tuple(sorted((name, t.address, t.shape) for name, t in call.items())) for call in calls))
        graph = self._graphs.get(key)
        if graph is not None:
            self._graphs.move_to_end(key)
            self._device.launch(graph)
        elif key in self._graphs and not self.capture_fault:
            self._capture(key, lambda: self._enqueue(profile, calls))
        else:
            self._enqueue(profile, calls)
            self._remember(key, None)

    def _capture(self, key: tuple, enqueue: Callable[[], None]) -> None:
        try:
            graph = self._device.capture(enqueue)
        except SpecdriveError as error:
            self.capture_fault = str(error)
            enqueue()
            return
        self._remember(key, graph)
        self._device.launch(graph)

    def _remember(self, key: tuple, graph: int | None) -> None:
        self._graphs[key] = graph
        self._graphs.move_to_end(key)
        while len(self._graphs) > _MOST_GRAPHS:
            _, oldest = self._graphs.popitem(last=False)
            if oldest is not None:
                self._device.drop(oldest)

    def forget(self) -> None:
        """Drops every captured graph, because addresses in them are about to be freed."""
        for graph in self._graphs.values():
            if graph is not None:
                self._device.drop(graph)
        self._graphs.clear()

    def _enqueue(self, profile: int, calls: Sequence[Call]) -> None:
        context = self._contexts[profile]
        for call in calls:
            for name, tensor in call.items():
                self._bind(context, name, tensor)
            if not context.execute_async_v3(self._device.stream):
                raise WorkFailed(f"engine {self.name}: a run could not be queued")

    def _bind(self, context, name: str, tensor: Tensor) -> None:
        binding = self.bindings[name]
        if binding.mode == "input" and not context.set_input_shape(name, tensor.shape):
            raise WorkFailed(f"engine {self.name}: input {name} was not built for the shape {list(tensor.shape)}")
        if not context.set_tensor_address(name, tensor.address):
            raise WorkFailed(f"engine {self.name}: {name} cannot be bound")
