"""What a drive shows: the planner's topics, the images and poses they belong to, the sim's events.

Messages of one t0 arrive on several topics in any order; once a cycle is complete it is handed on, as arrays without
ROS types. A plan that arrives after its deadline replaces its stand-in. Does not know what is done with it.
"""

import json
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import Image
from std_msgs.msg import String

from specdrive_ros.controller import PoseSample
from specdrive_ros.msg import CycleStats, Reasoning, Trajectory
from specdrive_ros.observation.images import decode_message
from specdrive_ros.plan import Plan
from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import nanoseconds, plan_of, pose_sample, stages_ms
from specdrive_ros.ros.diagnostics import INPUT_STATUS, REJECTED
from specdrive_ros.shapes import NANOSECONDS

SOURCE_NAMES = {Trajectory.PLANNED: "planned", Trajectory.REPUBLISHED: "republished", Trajectory.STOP: "stop"}
PLANNER = "planner"
FRAME_NS = NANOSECONDS // 10
IMAGES_WAITING = 50  # while the screen or the recording is busy
KEPT_STAMPS = 600  # half a minute of odometry: plans later than that do not matter


@dataclass(frozen=True, eq=False)
class DriveCycle:
    """One planning cycle as it was published.

    t0_ns:     stamp of the observation; time_s: since the scenario began.
    scenario:  the sim's event that began it (`name`, `seed`, `index`, `stamp_ns`).
    plan:      rebuilt from the messages; of its token ids only the number is published, so all are 0. `stage_ms` is
               that of CycleStats.
    rgb:       uint8 [H, W, 3], the camera's frame at t0.
    pose:      of the rear axle in the map at t0.
    source:    planned, republished or stop; `note` says why it is not planned.
    """

    t0_ns: int
    time_s: float
    scenario: dict
    plan: Plan
    rgb: np.ndarray
    pose: PoseSample
    source: str
    late: bool
    note: str
    fallback_reason: int


@dataclass
class MessageCounts:
    """Messages that reached the listener, and those that the planner says it dropped and refused.

    rejected: input -> reason -> messages, as of the planner's latest diagnostics, including those from before a
              restart of the planner.
    """

    received: Counter = field(default_factory=Counter)
    dropped: int = 0
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    _newest: dict[tuple[str, str], int] = field(default_factory=dict)

    def note_refused(self, name: str, reason: str, count: int) -> None:
        """count: total since the planner was started."""
        earlier = self._newest.get((name, reason), 0)
        self._newest[name, reason] = count
        reasons = self.rejected.setdefault(name, {})
        reasons[reason] = reasons.get(reason, 0) + (count - earlier if count >= earlier else count)


class DriveListener:
    """Calls `on_cycle(DriveCycle)` and `on_scenario(event)` from the thread that spins `node`.

    finished: the sim has ended the last scenario. matched: every publisher has been found. caught_up: everything the
    planner said before the end has been taken; on a busy machine it waits in queues.
    """

    def __init__(
        self,
        context: Context,
        *,
        on_cycle: Callable[[DriveCycle], None],
        on_scenario: Callable[[dict], None],
        camera: str = "rgb_front",
        role_name: str = "ego_vehicle",
    ):
        self.node = Node("drive_listener", context=context, use_global_arguments=False)
        self.finished, self._end_ns = False, 0
        self._newest_ns: Counter[str] = Counter()
        self.counts = MessageCounts()
        self._on_cycle, self._on_scenario = on_cycle, on_scenario
        self._parts: OrderedDict[int, dict[str, object]] = OrderedDict()
        self._scenarios: list[dict] = []
        self._stood_in: dict[int, DriveCycle] = {}
        root = f"/carla/{role_name}"
        self._subscriptions = [
            self._listen(Image, f"{root}/{camera}/image", "image", qos.deep(qos.image_input(), IMAGES_WAITING)),
            self._listen(Odometry, f"{root}/odometry", "odometry", qos.deep(qos.odometry_input())),
            self._listen(Trajectory, "/planner/output/trajectory", "trajectory", qos.deep(qos.output())),
            self._listen(Reasoning, "/planner/output/reasoning", "reasoning", qos.deep(qos.output())),
            self._listen(CycleStats, "/planner/output/cycle_stats", "stats", qos.deep(qos.output())),
            self.node.create_subscription(String, "/sim/scenario", self._take_event, qos.kept_events()),
            self.node.create_subscription(
                DiagnosticArray, "/diagnostics", self._take_diagnostics, qos.deep(qos.output())
            ),
        ]

    def _listen(self, kind: type, topic: str, part: str, profile):
        def take(message) -> None:
            self.counts.received[part] += 1
            stamp_ns = nanoseconds(message.header.stamp)
            self._newest_ns[part] = max(self._newest_ns[part], stamp_ns)
            self._take_part(stamp_ns, part, message)

        return self.node.create_subscription(kind, topic, take, profile)

    @property
    def matched(self) -> bool:
        return all(subscription.get_publisher_count() for subscription in self._subscriptions)

    @property
    def caught_up(self) -> bool:
        since_ns = self._end_ns - FRAME_NS
        return self.finished and all(self._newest_ns[part] >= since_ns for part in ("trajectory", "stats"))

    def hand_on_rest(self) -> None:
        """Ends the wait for late plans: nothing more comes, so stand-ins become their cycles' plans."""
        self._hand_on_before(float("inf"))

    def _take_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            node, _, name = status.name.partition(": ")
            if node != PLANNER or not name.startswith(INPUT_STATUS):
                continue
            for pair in status.values:
                if pair.key.startswith(REJECTED):
                    reason = pair.key.removeprefix(REJECTED)
                    self.counts.note_refused(name.removeprefix(INPUT_STATUS), reason, int(pair.value))

    def _take_event(self, message: String) -> None:
        event = json.loads(message.data)
        self._hand_on_before(float("inf"))
        if event["event"] == "start":
            self._scenarios.append(event)
        if event["event"] == "finished":
            self.finished, self._end_ns = True, event.get("stamp_ns", 0)
        self._on_scenario(event)

    def _take_part(self, t0_ns: int, part: str, message: object) -> None:
        parts = self._parts.setdefault(t0_ns, {})
        if part == "stats" and message.fallback_reason == CycleStats.NO_OBSERVATION:
            self._drop_stand_in(parts)
            return
        parts[part] = message
        if part == "stats":
            self.counts.dropped = message.dropped_observations
        while len(self._parts) > KEPT_STAMPS:
            self._parts.popitem(last=False)
        if not self._is_complete(t0_ns, parts):
            return
        if parts["stats"].fallback_reason == CycleStats.DEADLINE:
            self._await_late_plan(t0_ns, parts)
            return
        del self._parts[t0_ns]
        self._stood_in.pop(t0_ns, None)
        self._hand_on_before(t0_ns)
        self._on_cycle(self._cycle(t0_ns, parts))

    def _await_late_plan(self, t0_ns: int, parts: dict) -> None:
        """The stand-in at the deadline is the cycle's plan unless the model's own still comes, late."""
        self._hand_on_before(t0_ns)
        self._stood_in[t0_ns] = self._cycle(t0_ns, parts)
        del parts["trajectory"], parts["stats"]

    def _hand_on_before(self, t0_ns: float) -> None:
        """Hands on cycles whose late plan did not come before a newer cycle's."""
        for earlier_ns in sorted(stamp for stamp in self._stood_in if stamp < t0_ns):
            self._on_cycle(self._stood_in.pop(earlier_ns))

    def _drop_stand_in(self, parts: dict) -> None:
        """A stop for lack of an observation is no cycle; a plan for the same stamp may still come."""
        trajectory = parts.get("trajectory")
        if trajectory is not None and trajectory.source != Trajectory.PLANNED:
            del parts["trajectory"]

    def _is_complete(self, t0_ns: int, parts: dict) -> bool:
        if not {"image", "odometry", "trajectory", "stats"} <= parts.keys() or not self._scenarios:
            return False
        return "reasoning" in parts or parts["trajectory"].source != Trajectory.PLANNED

    def _cycle(self, t0_ns: int, parts: dict) -> DriveCycle:
        trajectory, stats = parts["trajectory"], parts["stats"]
        begun = [event for event in self._scenarios if event["stamp_ns"] <= t0_ns]
        scenario = begun[-1] if begun else self._scenarios[0]
        return DriveCycle(
            t0_ns=t0_ns,
            time_s=(t0_ns - scenario["stamp_ns"]) / NANOSECONDS,
            scenario=scenario,
            plan=plan_of(trajectory, parts.get("reasoning"), stages_ms(stats)),
            rgb=decode_message(parts["image"]),
            pose=pose_sample(parts["odometry"]),
            source=SOURCE_NAMES[trajectory.source],
            late=stats.late,
            note=stats.fallback_text,
            fallback_reason=stats.fallback_reason,
        )

    def close(self) -> None:
        self.node.destroy_node()


