"""From messages to observations without a graph: order, drops, resets, bad input, bounded memory."""

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.observation.refusal import Reason, Refusal  # noqa: E402
from specdrive_ros.ros.conversions import header, nanoseconds  # noqa: E402
from specdrive_ros.ros import diagnostics  # noqa: E402
from specdrive_ros.ros.diagnostics import ERROR, OK, WARN, InputMonitor, signature  # noqa: E402
from specdrive_ros.ros.inbox import Arrival, Batch, Inbox  # noqa: E402
from specdrive_ros.ros.perception import ODOMETRY, DroppedCycle, InputPolicy, Perceived, Perception  # noqa: E402

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


def test_inbox_says_what_waits():
    inbox = Inbox({"front": 2, "tele": 2, "odometry": 2})
    inbox.put("odometry", 1, 0)
    assert not inbox.waiting(["front", "tele"]) and inbox.waiting(["front", "odometry"])
    inbox.put("tele", 1, 0)
    assert inbox.waiting(["front", "tele"])
    inbox.take()
    assert not inbox.waiting(["front", "tele", "odometry"])


def test_a_fault_is_shown_once_however_late_that_is(monkeypatch):
    monitor = InputMonitor("front", "/front", 1e9)
    monitor.note_arrival()
    monitor.note_warning("ODD", "odd")
    monkeypatch.setattr(diagnostics, "SHOW_REFUSAL_S", 0.0)
    assert monitor.health().code == "ODD", "looked at, but nobody was told"
    assert monitor.health(shown=True).code == "ODD"
    assert monitor.health().level == OK


def test_a_signature_changes_with_the_trouble_not_with_the_numbers():
    monitor = InputMonitor("front", "/front", 1e9)
    nothing = signature([monitor.health()])
    assert monitor.health().level == ERROR
    monitor.note_arrival()
    fresh = signature([monitor.health()])
    monitor.note_arrival()
    assert monitor.health().level == OK
    assert nothing != fresh == signature([monitor.health()])


# Policies


def policed(policy: InputPolicy, cameras: tuple[str, ...] = ("front",)) -> Feed:
    feed = Feed()
    feed.monitors = {name: InputMonitor(name, f"/{name}", 0.5) for name in (*cameras, ODOMETRY)}
    feed.perception = Perception(cameras, 10.0, feed.monitors, policy)
    return feed


def test_odometry_of_another_frame_is_refused_by_name():
    feed = policed(InputPolicy(odometry_frames=("base_link", "ego_vehicle")))
    feed.give(*range(20))
    monitor = feed.monitors[ODOMETRY]
    monitor.note_arrival()
    assert monitor.rejected == {"WRONG_FRAME": 20} and "base_link, ego_vehicle" in monitor.health().text
    assert feed.perception.observation().reason is Reason.NO_ODOMETRY


@pytest.mark.parametrize(("variance", "said"),
                         [(9.0, "3.0 m; limit 1"), (-1.0, "no covariance"), (float("nan"), "no c")])
def test_an_uncertain_position_is_used_and_said(variance, said):
    feed = policed(InputPolicy(max_std_m=1.0))
    for tenth in range(20):
        message = odometry(tenth * TENTH_NS)
        message.pose.covariance[7] = variance
        feed.take(front=image(tenth * TENTH_NS), odometry=message)
    monitor = feed.monitors[ODOMETRY]
    monitor.note_arrival()
    assert said in monitor.health().text and monitor.health().level == WARN
    assert isinstance(feed.perception.observation(), Perceived)


@pytest.mark.parametrize(("cameras", "kind"), [("wait", Refusal), ("last", Perceived), ("drop", DroppedCycle)])
def test_a_set_that_stays_incomplete(cameras, kind):
    feed = policed(InputPolicy(cameras, wait_s=0.0, max_age_s=0.35), ("front", "tele"))
    for tenth in range(20):
        feed.take(front=image(tenth * TENTH_NS), tele=image(tenth * TENTH_NS), odometry=odometry(tenth * TENTH_NS))
    assert isinstance(feed.perception.observation(), Perceived)
    feed.take(front=image(20 * TENTH_NS), odometry=odometry(20 * TENTH_NS))
    answer = feed.perception.observation()
    assert type(answer) is kind
    if cameras == "last":
        stamps = answer.observation.frame_stamps_ns
        assert (stamps["front"][-1], stamps["tele"][-1]) == (20 * TENTH_NS, 19 * TENTH_NS)
    if cameras == "drop":
        assert feed.perception.dropped == 1 and feed.perception.observation() is None, "one cycle is dropped once"
    feed.take(front=image(24 * TENTH_NS), odometry=odometry(24 * TENTH_NS))
    late = feed.perception.observation()
    assert isinstance(late, Refusal), "half a second is older than the limit, too"


def test_the_present_is_where_odometry_ends():
    feed = Feed()
    feed.give(*range(20))
    feed.perception.absorb(Batch(False, {"front": [], ODOMETRY: []}, {"front": [], ODOMETRY: []}), 1000)
    present = feed.perception.present(1000, odometry_stale_s=1e12)
    assert present.t0_ns == 19 * TENTH_NS and present.history is not None and present.speed_mps == 5.0
    nothing = Feed().perception.present(77, 0.5)
    assert (nothing.t0_ns, nothing.history, nothing.speed_mps) == (77, None, None)


def test_without_odometry_the_present_goes_on_with_the_node_s_clock():
    feed = Feed()
    feed.give(*range(20))
    arrivals = {"front": [Arrival(image(20 * TENTH_NS), 20 * TENTH_NS, 7)], ODOMETRY: []}
    feed.perception.absorb(Batch(False, arrivals, {"front": [], ODOMETRY: []}), 500 * TENTH_NS)
    present = feed.perception.present(503 * TENTH_NS, odometry_stale_s=0.0)
    assert present.t0_ns == 23 * TENTH_NS and present.history is None
    assert feed.perception.present(500 * TENTH_NS, odometry_stale_s=0.0).t0_ns == 20 * TENTH_NS, "a paused simulation"


def test_resets_are_counted():
    feed = Feed()
    feed.give(*range(100, 120))
    feed.perception.reset()
    feed.give(*range(100, 120))
    feed.give(*range(10))
    assert feed.perception.resets == 2


def test_rate_and_age_of_a_monitor():
    monitor = InputMonitor("front", "/front", 10.0, min_hz=1e9, max_age_s=0.0)
    for tenth in range(5):
        monitor.note_arrival(False, tenth * TENTH_NS, "cam", tenth * TENTH_NS + 2 * TENTH_NS)
    assert monitor.health().code == "SLOW" and monitor.health().values["stamp_age_s"] == 0.2
    monitor.max_age_s = 0.1
    assert monitor.health().code == "OLD"
    monitor.note_arrival(False, 3 * TENTH_NS, "cam", 0)
    assert monitor.health().code == "OUT_OF_ORDER" and monitor.health().values["out_of_order"] == 1


def test_every_picture_twice_is_neither_a_frozen_camera_nor_a_dropped_cycle():
    feed = Feed()
    twice = [tenth * TENTH_NS for tenth in range(25) for _ in range(2)]
    pictures = [image(stamp) for stamp in twice]
    for stamp, picture in zip(twice, pictures):
        picture.data = bytes([stamp // TENTH_NS] * 12)
        feed.take(front=picture, odometry=odometry(stamp))
        feed.perception.observation()
    assert feed.monitors["front"].rejected == {"DUPLICATE_FRAME": 25}
    feed.monitors["front"].note_arrival()
    assert feed.monitors["front"].health().code == "DUPLICATE_FRAME" and feed.perception.dropped == 0


@pytest.mark.parametrize(
    "name, make, tenth, word",
    [
        (ODOMETRY, odometry, 19, "twice"),
        ("front", image, 19, "twice"),
        (ODOMETRY, odometry, -20, "jumped"),
    ],
)
def test_a_fault_is_named_alike_when_it_arrives_and_when_it_is_taken_in(name, make, tenth, word):
    feed = Feed()
    feed.give(*range(20))
    monitor = feed.monitors[name]
    for stamp in (19 * TENTH_NS, tenth * TENTH_NS):
        monitor.note_arrival(stamp_ns=stamp)
    assert word in monitor.health().text
    feed.take_all({name: [make(tenth * TENTH_NS)]})
    assert sum(monitor.rejected.values()) == 1 and word in monitor.health().text
