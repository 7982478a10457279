"""The planner's output topics: turns one decision and its statistics into messages, the trajectory first.

Only the worker and, while it is held up, the deadline watch publish here, never both at once.
"""

import time
from collections.abc import Callable, Mapping

from nav_msgs.msg import Path
from rclpy.lifecycle import LifecycleNode
from std_msgs.msg import String

from specdrive_ros.msg import CycleStats, Reasoning, Trajectory
from specdrive_ros.ros import qos
from specdrive_ros.ros.autoware_output import autoware_trajectory, load_messages
from specdrive_ros.ros.conversions import TrajectoryWriter, path_message, reasoning_message, set_stages
from specdrive_ros.ros.decision import Decision
from specdrive_ros.ros.vehicle_geometry import VehicleGeometry
from specdrive_ros.shapes import FUTURE_WAYPOINTS

OUTPUT_TYPES = {
    "trajectory": Trajectory,
    "path": Path,
    "reasoning": Reasoning,
    "reasoning_text": String,
    "cycle_stats": CycleStats,
}
NANOSECONDS_PER_MS = 1_000_000


class PlanOutputs:
    """Publishers of a lifecycle node; after `close` nothing is published.

    car:      asked for each plan in Autoware's format, since the car's geometry may become known late.
    autoware: also publishes the plan in that format. Raises InputError if its messages are not installed.
    """

    def __init__(self, node: LifecycleNode, car: Callable[[], VehicleGeometry], *, autoware: bool = False):
        self._node, self._car, self._writer = node, car, TrajectoryWriter(FUTURE_WAYPOINTS)
        self._autoware = load_messages() if autoware else None
        self._publishers = {
            name: node.create_lifecycle_publisher(kind, f"~/output/{name}", qos.output())
            for name, kind in self._types().items()
        }

    def _types(self) -> dict[str, type]:
        return OUTPUT_TYPES | ({"autoware": self._autoware.Trajectory} if self._autoware else {})

    def close(self) -> None:
        publishers, self._publishers = self._publishers, {}
        for publisher in publishers.values():
            self._node.destroy_lifecycle_publisher(publisher)

    def _is_heard(self, name: str) -> bool:
        return name in self._publishers and self._publishers[name].get_subscription_count() > 0

    def _send(self, name: str, message: object) -> None:
        if name in self._publishers:
            self._publishers[name].publish(message)

    def publish(
        self, decision: Decision, frame_id: str, stats: CycleStats, stage_ms: Mapping[str, float], arrived_ns: int,
        deadline_ms: float,
    ) -> dict[str, float]:
        """Sends everything and fills in the statistics. Returns the stages including `publish` and `total`,
        milliseconds.

        arrived_ns: steady time from which `total` counts.
        """
        begun_ns = time.monotonic_ns()
        trajectory = self._writer.trajectory(decision.plan, frame_id, decision.source)
        self._send("trajectory", trajectory)
        done_ns = time.monotonic_ns()
        publish_ms, total_ms = (done_ns - begun_ns) / NANOSECONDS_PER_MS, (done_ns - arrived_ns) / NANOSECONDS_PER_MS
        stages = {**stage_ms, "publish": publish_ms, "total": total_ms}
        stats.header = trajectory.header
        stats.late = total_ms > deadline_ms
        set_stages(stats, stages)
        if self._autoware:
            self._send("autoware", autoware_trajectory(self._autoware, trajectory, self._car()))
        if self._is_heard("path"):
            self._send("path", path_message(trajectory))
        if decision.source == Trajectory.PLANNED:
            reasoning = reasoning_message(decision.plan, frame_id)
            self._send("reasoning", reasoning)
            self._send("reasoning_text", String(data=reasoning.text))
        self._send("cycle_stats", stats)
        return stages
