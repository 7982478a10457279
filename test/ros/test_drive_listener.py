"""Parts of a cycle in any order; what stood in gives way to the late plan; a stop with no observation is no cycle."""

import json

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from builtin_interfaces.msg import Time  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.msg import CycleStats, Reasoning, Trajectory  # noqa: E402
from specdrive_ros.ros.conversions import header, trajectory_message  # noqa: E402
from specdrive_ros.ros.diagnostics import InputMonitor, diagnostic_array  # noqa: E402
from specdrive_ros.ros.drive_listener import DriveListener  # noqa: E402
from specdrive_ros.safety.fallback import stop_from  # noqa: E402
from std_msgs.msg import String  # noqa: E402

TENTH_NS = 100_000_000
TOPICS = {"trajectory": "trajectory", "stats": "cycle_stats"}


@pytest.fixture
def listened(graph):
    """(listener, cycles) fed by hand."""
    cycles = []
    listener = DriveListener(graph.context, on_cycle=cycles.append, on_scenario=lambda event: None)
    graph.add(listener.node)
    event = {"event": "start", "name": "cruise", "seed": 1, "index": 0, "stamp_ns": 0}
    listener._take_event(String(data=json.dumps(event)))
    return listener, cycles


def give(listener, tenth: int, source: int, reason: int = CycleStats.NONE, late: bool = False) -> None:
    """Everything that is published of one cycle."""
    stamp_ns = tenth * TENTH_NS
    odometry = Odometry(header=header(stamp_ns, "map"), child_frame_id="car")
    odometry.pose.pose.orientation.w = 1.0
    image = Image(header=header(stamp_ns, "c"), height=2, width=2, encoding="rgb8", step=6, data=bytes(12))
    parts = {"image": image, "odometry": odometry}
    parts["trajectory"] = trajectory_message(stop_from(stamp_ns, 5.0, 0.0), "car", source)
    if source == Trajectory.PLANNED:
        parts["reasoning"] = Reasoning(header=header(stamp_ns, "car"), text="Keep going.", tokens=3, target_passes=3)
    parts["stats"] = CycleStats(header=header(stamp_ns, "car"), fallback_reason=reason, late=late)
    for name, message in parts.items():
        listener._take_part(stamp_ns, name, message)


def test_a_plan_is_a_cycle(listened):
    listener, cycles = listened
    give(listener, 1, Trajectory.PLANNED)
    assert [(cycle.t0_ns, cycle.source) for cycle in cycles] == [(TENTH_NS, "planned")]
    assert cycles[0].plan.reasoning == "Keep going." and cycles[0].rgb.shape == (2, 2, 3)
    assert np.isfinite(cycles[0].pose.x)


def test_a_late_plan_takes_the_place_of_what_stood_in(listened):
    listener, cycles = listened
    give(listener, 1, Trajectory.REPUBLISHED, CycleStats.DEADLINE)
    assert cycles == []
    give(listener, 1, Trajectory.PLANNED, late=True)
    give(listener, 2, Trajectory.PLANNED)
    assert [(cycle.source, cycle.late) for cycle in cycles] == [("planned", True), ("planned", False)]


def test_what_stood_in_is_the_cycle_s_where_no_plan_came(listened):
    listener, cycles = listened
    give(listener, 1, Trajectory.REPUBLISHED, CycleStats.DEADLINE)
    give(listener, 2, Trajectory.STOP, CycleStats.DEADLINE)
    give(listener, 3, Trajectory.PLANNED)
    assert [cycle.source for cycle in cycles] == ["republished", "stop", "planned"]
    assert [cycle.t0_ns for cycle in cycles] == [TENTH_NS, 2 * TENTH_NS, 3 * TENTH_NS]


def test_the_last_one_is_handed_on_when_the_scenario_ends(listened):
    listener, cycles = listened
    give(listener, 1, Trajectory.STOP, CycleStats.DEADLINE)
    listener._take_event(String(data=json.dumps({"event": "finished"})))
    assert [cycle.source for cycle in cycles] == ["stop"] and listener.finished


def test_it_has_caught_up_when_the_planner_has_said_something_of_the_end(listened):
    listener, cycles = listened
    listener._take_event(String(data=json.dumps({"event": "finished", "stamp_ns": 3 * TENTH_NS})))
    assert listener.finished and not listener.caught_up
    for tenth in (1, 2):
        for name, kind in (("trajectory", Trajectory), ("stats", CycleStats)):
            assert not listener.caught_up
            take = next(each.callback for each in listener._subscriptions if each.topic_name.endswith(TOPICS[name]))
            take(kind(header=header(tenth * TENTH_NS, "car")))
    assert listener.caught_up


def test_a_stop_for_want_of_an_observation_is_no_cycle(listened):
    listener, cycles = listened
    give(listener, 1, Trajectory.STOP, CycleStats.NO_OBSERVATION)
    assert cycles == []
    give(listener, 1, Trajectory.PLANNED)
    assert [cycle.source for cycle in cycles] == ["planned"]


def diagnosed(monitors, node="planner"):
    return diagnostic_array(Time(), node, [monitor.health() for monitor in monitors])


def test_refused_messages_are_counted_by_input_and_reason(listened):
    """As the planner's own monitors say it, over a planner that was started anew."""
    listener, _ = listened
    camera, odometry = (InputMonitor(name, f"/{name}", 1.0) for name in ("rgb_front", "odometry"))
    camera.note_refusal("SHORT_DATA", "too short")
    listener._take_diagnostics(diagnosed([camera, odometry]))
    listener._take_diagnostics(diagnosed([camera, odometry]))
    for _ in range(2):
        camera.note_refusal("SHORT_DATA", "too short")
        odometry.note_refusal("NOT_FINITE", "NaN")
    listener._take_diagnostics(diagnosed([camera, odometry]))
    assert listener.counts.rejected == {"rgb_front": {"SHORT_DATA": 3}, "odometry": {"NOT_FINITE": 2}}
    anew = InputMonitor("rgb_front", "/rgb_front", 1.0)
    anew.note_refusal("SHORT_DATA", "too short")
    listener._take_diagnostics(diagnosed([anew]))
    listener._take_diagnostics(diagnosed([anew], node="another"))
    assert listener.counts.rejected["rgb_front"] == {"SHORT_DATA": 4}
