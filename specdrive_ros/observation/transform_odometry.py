"""Odometry from a tree of transforms, for a simulator or a stack that publishes no odometry of its own.

Each edge of the tree is (parent, child, pose of the child in the parent). When an edge on the path from the fixed
frame to the car arrives, the path is multiplied out. Gives no speed: whoever passes the poses on derives it. No ROS.
"""

from dataclasses import dataclass

import numpy as np

from specdrive_ros.geometry import matrix_from_quaternion, quaternion_product

LONGEST_WAY = 32  # edges; more means a loop
CLOCK_BACK_NS = 1_000_000_000  # older than the previous one by more than this: another clock, not a late message


@dataclass(frozen=True)
class Edge:
    """A child's pose in its parent: position [3] m, quaternion [4] x y z w."""

    parent: str
    stamp_ns: int
    position: np.ndarray
    quaternion: np.ndarray


class TransformOdometry:
    """fixed_frame: such as `map`; base_frame: the car's, such as `ego_vehicle`.

    The stamp of an edge that never moves says nothing about when the car was where. When a clock goes back, edges that
    do move belong to another time.
    """

    def __init__(self, fixed_frame: str, base_frame: str):
        self.fixed_frame, self.base_frame = fixed_frame, base_frame
        self._edges: dict[str, Edge] = {}
        self._static: set[str] = set()

    def forget(self) -> None:
        self._edges.clear()
        self._static.clear()

    def add(self, child: str, edge: Edge, *, static: bool = False) -> tuple[int, np.ndarray, np.ndarray] | None:
        """(stamp ns, xyz [3] m, quaternion [4] x y z w) of the car if this edge moves it and the path is complete;
        else None."""
        child = child.lstrip("/")
        before = self._edges.get(child)
        if before is not None and not static and edge.stamp_ns < before.stamp_ns - CLOCK_BACK_NS:
            self._edges = {name: each for name, each in self._edges.items() if name in self._static}
        self._edges[child] = edge
        (self._static.add if static else self._static.discard)(child)
        way = self._way()
        moving = [frame for frame in way if frame not in self._static]
        if child not in moving:
            return None
        position, quaternion = np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])
        for frame in way:
            each = self._edges[frame]
            position = each.position + matrix_from_quaternion(_unit(each.quaternion)) @ position
            quaternion = quaternion_product(_unit(each.quaternion), quaternion)
        return max(self._edges[frame].stamp_ns for frame in moving), position, quaternion

    def _way(self) -> list[str]:
        """Frames from the car up to below the fixed frame; empty if an edge is missing."""
        frame, way = self.base_frame.lstrip("/"), []
        fixed = self.fixed_frame.lstrip("/")
        while frame != fixed:
            if frame not in self._edges or len(way) >= LONGEST_WAY:
                return []
            way.append(frame)
            frame = self._edges[frame].parent.lstrip("/")
        return way


def _unit(quaternion: np.ndarray) -> np.ndarray:
    """Normalised to length 1; a zero quaternion stays as it is, and the history refuses it."""
    norm = np.linalg.norm(quaternion)
    return quaternion / norm if norm > 0 else quaternion
