"""From messages to observations without a graph: order, drops, resets, bad input, bounded memory."""

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.observation.refusal import Reason, Refusal  # noqa: E402
from specdrive_ros.ros.conversions import header, nanoseconds  # noqa: E402
from specdrive_ros.ros.diagnostics import ERROR, OK, WARN, InputMonitor, signature  # noqa: E402
from specdrive_ros.ros.inbox import Arrival, Batch, Inbox  # noqa: E402
from specdrive_ros.ros.perception import ODOMETRY, Perceived, Perception  # noqa: E402

TENTH_NS = 100_000_000


def odometry(stamp_ns: int, **changes) -> Odometry:
    message = Odometry(header=header(stamp_ns, "map"), child_frame_id="car")
    message.pose.pose.position.x = changes.get("x", 5e-9 * stamp_ns)
    message.pose.pose.orientation.w = changes.get("w", 1.0)
    message.twist.twist.linear.x = 5.0
    return message


def image(stamp_ns: int, encoding: str = "rgb8") -> Image:
    return Image(header=header(stamp_ns, "cam"), height=2, width=2, encoding=encoding, step=6, data=bytes(12))


class Feed:
    """A perception of one camera and what it is given, tenth by tenth."""

    def __init__(self, cycle_hz: float = 10.0):
        self.monitors = {name: InputMonitor(name, f"/{name}", 0.5) for name in ("front", ODOMETRY)}
        self.perception = Perception(("front",), cycle_hz, self.monitors)

    def give(self, *tenths: int) -> None:
        stamps = [tenth * TENTH_NS for tenth in tenths]
        self.take_all({"front": list(map(image, stamps)), ODOMETRY: list(map(odometry, stamps))})

    def take(self, **messages) -> None:
        self.take_all({name: [message] for name, message in messages.items()})

    def take_all(self, messages: dict, lost_ns: tuple[int, ...] = ()) -> None:
        arrivals = {
            name: [Arrival(one, nanoseconds(one.header.stamp), 7) for one in messages.get(name, [])]
            for name in self.monitors
        }
        self.perception.absorb(Batch(False, arrivals, {"front": list(lost_ns), ODOMETRY: []}))


def test_says_why_there_is_nothing_yet():
    feed = Feed()
    assert feed.perception.observation().reason is Reason.NO_FRAMES
    feed.give(*range(5))
    assert feed.perception.observation().reason is Reason.TOO_SHORT


def test_newest_wins_older_are_counted_and_stay_history():
    feed = Feed()
    feed.give(*range(20))
    first = feed.perception.observation()
    assert isinstance(first, Perceived) and first.observation.t0_ns == 19 * TENTH_NS
    assert feed.perception.dropped == 0
    assert feed.perception.observation() is None
    feed.give(20, 21, 22)
    second = feed.perception.observation()
    assert second.observation.t0_ns == 22 * TENTH_NS and feed.perception.dropped == 2
    stamps = second.observation.frame_stamps_ns["front"]
    assert stamps.tolist() == [tenth * TENTH_NS for tenth in (19, 20, 21, 22)]
    assert second.frame_id == "car" and second.arrived_ns == 7
    assert second.newest_ns == {"front": 22 * TENTH_NS, ODOMETRY: 22 * TENTH_NS}


def test_frames_that_gave_way_in_the_inbox_count_as_dropped():
    feed = Feed()
    feed.give(*range(20))
    assert isinstance(feed.perception.observation(), Perceived)
    stamp = 23 * TENTH_NS
    lost = (20 * TENTH_NS, 21 * TENTH_NS, 22 * TENTH_NS)
    feed.take_all({"front": [image(stamp)], ODOMETRY: [odometry(stamp)]}, lost)
    assert feed.perception.observation().observation.t0_ns == stamp and feed.perception.dropped == 3


def test_a_fast_camera_does_not_make_more_cycles_nor_drops():
    feed = Feed(cycle_hz=10.0)
    planned = []
    for tenth in range(40):
        for third in range(3):
            stamp_ns = tenth * TENTH_NS + third * TENTH_NS // 3
            feed.take(front=image(stamp_ns), odometry=odometry(stamp_ns))
            answer = feed.perception.observation()
            if isinstance(answer, Perceived):
                planned.append(answer.observation.t0_ns)
    steps = np.diff(planned)
    assert 90_000_000 <= steps.min() and steps.max() <= 110_000_000
    assert feed.perception.dropped == 0


def test_bad_messages_are_refused_by_name():
    feed = Feed()
    feed.give(*range(20))
    feed.take(front=image(20 * TENTH_NS, "telepathy8"), odometry=odometry(20 * TENTH_NS, x=float("nan")))
    front, own = (feed.monitors[name] for name in ("front", ODOMETRY))
    for monitor in (front, own):
        monitor.note_arrival()
    assert front.health().level == WARN and "telepathy8" in front.health().text
    assert own.health().code == "NOT_FINITE"
    feed.take(odometry=odometry(21 * TENTH_NS, w=0.0))
    assert own.health().code == "ZERO_QUATERNION"
    assert isinstance(feed.perception.observation(), Perceived)


@pytest.mark.parametrize("how", ["reset", "stamps"])
def test_an_earlier_time_starts_anew(how):
    feed = Feed()
    feed.give(*range(100, 120))
    assert isinstance(feed.perception.observation(), Perceived)
    if how == "reset":
        feed.perception.reset()
    feed.give(*range(10))
    assert isinstance(feed.perception.observation(), Refusal)
    feed.give(*range(10, 20))
    again = feed.perception.observation()
    assert again.observation.t0_ns == 19 * TENTH_NS and feed.perception.dropped == 0


def test_memory_is_bounded_without_odometry():
    feed = Feed()
    for tenth in range(3000):
        feed.take(front=image(tenth * TENTH_NS))
        feed.perception.observation()
    assert len(feed.perception._arrivals) < 2000 and len(feed.perception._pending_ns) < 2000


# The inbox and the monitors beside it


def test_inbox_keeps_the_newest_and_says_what_it_lost():
    inbox = Inbox({"front": 2})
    assert [inbox.put("front", number, 10 * number) for number in range(4)] == [False, False, True, True]
    batch = inbox.take()
    assert not batch.was_reset and [arrival.message for arrival in batch.arrivals["front"]] == [2, 3]
    assert batch.lost_ns == {"front": [0, 10]}


def test_inbox_reset_drops_what_waits_and_close_ends_it():
    inbox = Inbox({"front": 2})
    inbox.put("front", 1, 0)
    inbox.reset()
    assert inbox.take() == Batch(True, {"front": []}, {"front": []})
    inbox.put("front", 2, 0)
    inbox.close()
    assert inbox.take() is None


def test_a_signature_changes_with_the_trouble_not_with_the_numbers():
    monitor = InputMonitor("front", "/front", 1e9)
    nothing = signature([monitor.health()])
    assert monitor.health().level == ERROR
    monitor.note_arrival()
    fresh = signature([monitor.health()])
    monitor.note_arrival()
    assert monitor.health().level == OK
    assert nothing != fresh == signature([monitor.health()])
