"""One graph's engine with everything that a pass needs on the device: buffers, contexts, sizes, downloads.

Made once, for the largest shapes it was built for. Knows addresses and shapes; the caller knows what a graph means.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from specdrive_ros.engine.memory import Device, PinnedPool
from specdrive_ros.engine.runner import Call, EngineRunner, Tensor
from specdrive_ros.engine.serving import ServedEngine
from specdrive_ros.engine.sizes import fit, ranges_of
from specdrive_ros.errors import WorkFailed
from specdrive_ros.runtime.device_arena import Arena, Shapes

_SPOKEN = {"best": "logits"}


class DeviceGraph:
    """output_shapes: sizes -> shapes of the outputs of a pass with these; elsewhere, beside: as in `Arena`."""

    def __init__(
        self,
        name: str,
        engine: ServedEngine,
        device: Device,
        pinned: PinnedPool,
        output_shapes: Callable[[Mapping[str, int]], Shapes],
        *,
        elsewhere: Sequence[str] = (),
        beside: Mapping[str, str] | None = None,
        use_graphs: bool = True,
    ):
        bindings = engine.entry.bindings
        self.name, self.output_shapes = name, output_shapes
        self.profiles = ranges_of(engine.entry.identity.profile)
        self.runner = EngineRunner(name, engine.contexts, bindings, device, use_graphs)
        self.bindings = self.runner.bindings
        largest = [{letter: range.largest for letter, range in one.items()} for one in self.profiles]
        self.arena = Arena(device, bindings, [output_shapes(sizes) for sizes in largest], elsewhere, beside)
        self._device, self._pinned = device, pinned

    def fit(self, sizes: Mapping[str, int], exact: Sequence[str] = ()) -> tuple[int, dict[str, int]]:
        """(optimisation profile, padded sizes). Raises `InputError` if the engine was not built for such sizes."""
        return fit(self.name, self.profiles, sizes, exact)

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether the engine was built for such sizes."""
        return any(all(size <= one[letter].largest for letter, size in sizes.items()) for one in self.profiles)

    def profile_of(self, sizes: Mapping[str, int]) -> int:
        """The profile for exactly these sizes. Raises `InputError` as `fit` does."""
        return self.fit(sizes, exact=tuple(sizes))[0]

    def run(self, profile: int, *calls: Call) -> None:
        """Queues the calls, one after another."""
        self.runner.run(profile, calls)

    def fetch(self, wanted: Shapes, given: Mapping[str, Tensor]) -> tuple[np.ndarray, ...]:
        """Copies the leading parts of outputs to the host, into pinned memory. Waits.

        Raises `WorkFailed` if a value is not finite: better no plan than one made from it.
        """
        arrays = [self._pinned.take(shape, np.dtype(self.arena.dtype(name))) for name, shape in wanted.items()]
        for name, array in zip(wanted, arrays, strict=True):
            self._device.download(array.ctypes.data, given[name].address, array.nbytes)
        self._device.synchronize()
        for name, array in zip(wanted, arrays, strict=True):
            if array.size and not np.isfinite(array.max()):
                raise WorkFailed(f"an engine's {_SPOKEN.get(name, name)} are not finite; build it in fp32 or bf16")
        return tuple(arrays)
