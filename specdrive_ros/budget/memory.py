"""What a cycle keeps on a device, compared with what the device has. Gigabytes are 10^9 bytes. Knows no times."""

from dataclasses import dataclass

from specdrive_ros.budget.device import Device
from specdrive_ros.budget.work import DFLASH_LAYERS, Stages

# Assumed, not measured: the driver's context and libraries; where memory is shared, the operating system, cameras and
# the rest of a driving stack as well.
RESERVED_GB, RESERVED_SHARED_GB = 1.0, 4.0
_HALF, _SINGLE, _GB = 2, 4, 1e9


@dataclass(frozen=True)
class Memory:
    """Gigabytes of each part, and of the device."""

    parts_gb: dict[str, float]
    device_gb: float

    @property
    def needed_gb(self) -> float:
        return sum(self.parts_gb.values())

    @property
    def fits(self) -> bool:
        return self.needed_gb <= self.device_gb


def memory_of(stages: Stages, device: Device, draft: str) -> Memory:
    """Weights as kept for the GPU: matrices in the given precision; embedding, vision and expert in 16 bits."""
    shape, bits = stages.shape, stages.precision.bits
    s, cycle = shape.text, shape.cycle
    heads = stages.head_weights * (bits / 8 + (0 if s.shared_embedding else _HALF))
    draft_layers = {"eagle3": 1, "dflash": DFLASH_LAYERS}.get(draft, 0)
    parts = {
        "weights, language": s.layers * stages.text_layer_weights * bits / 8 + heads,
        "weights, vision": _HALF * stages.vision_weights,
        "weights, action expert": _HALF * stages.expert_weights,
        "weights, draft": stages.draft_weights(draft) * bits / 8,
        "key-value cache": cycle.capacity * stages.row_bytes(s.layers + draft_layers),
        "activations": _activations(stages),
        "reserved": _GB * (RESERVED_SHARED_GB if device.shared_memory else RESERVED_GB),
    }
    return Memory({name: size / _GB for name, size in parts.items() if size}, device.memory_gb.value)


def _activations(stages: Stages) -> float:
    """Peak activations of vision and of the prefill with its mask, and what is passed from one to the other; bytes."""
    shape = stages.shape
    s, v, cycle = shape.text, shape.vision, shape.cycle
    images = cycle.cameras * cycle.frames
    vision = images * cycle.patches * (2 * v.hidden + max(3 * v.hidden, 2 * v.inner)) * _HALF
    prefill = cycle.prompt * (3 * s.hidden + max((s.heads + 2 * s.kv_heads) * s.head, 2 * s.inner)) * _HALF
    prefill += cycle.prompt * cycle.capacity * _HALF
    features = images * cycle.patches // v.merge**2 * v.mergers * s.hidden * _HALF
    return max(vision, prefill) + features + _SINGLE * s.vocabulary * 64
