"""A recorded bag played at the node in simulated time, as fast as recorded, four times as fast, and in a loop."""

import time

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from nav_msgs.msg import Odometry  # noqa: E402
from rclpy.serialization import serialize_message  # noqa: E402
from rosbags.rosbag2 import Reader, StoragePlugin, Writer  # noqa: E402
from rosbags.typesys import Stores, get_typestore  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.msg import Trajectory  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.conversions import header, nanoseconds, stamp  # noqa: E402
from specdrive_ros.shapes import NANOSECONDS  # noqa: E402

from .small_world import CAMERAS, SPEED, SUCCESS, ConstantVelocity, World, make_planner  # noqa: E402

FIRST_NS = 50 * NANOSECONDS
BAG_S, PLANNABLE_S = 3.0, 1.5
LEAD = 4  # samples of odometry before the first picture: what is sent when only one end has matched is lost
MOST_UNDER_WAY = 14  # messages: those of a fifth of a second
TYPES = {"sensor_msgs/msg/Image": Image, "nav_msgs/msg/Odometry": Odometry}


@pytest.fixture
def bag(tmp_path):
    """Three seconds at 5 m/s: two cameras at 10 Hz, odometry at 50 Hz, which begins a little earlier."""
    path = tmp_path / "bag"
    store = get_typestore(Stores.LATEST)
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        odometry = writer.add_connection("/planner/input/odometry", "nav_msgs/msg/Odometry", typestore=store)
        cameras = {
            camera: writer.add_connection(f"/planner/input/{camera}/image", "sensor_msgs/msg/Image", typestore=store)
            for camera in CAMERAS
        }
        for step in range(-LEAD, int(BAG_S * 50) + 1):
            at_ns = FIRST_NS + step * NANOSECONDS // 50
            message = Odometry(header=header(at_ns, "map"), child_frame_id="rear_axle")
            message.pose.pose.position.x = SPEED * step / 50
            message.pose.pose.orientation.w = 1.0
            message.twist.twist.linear.x = SPEED
            writer.write(odometry, at_ns, serialize_message(message))
            for camera, connection in cameras.items() if step >= 0 and step % 5 == 0 else ():
                data = np.full((24, 32, 3), step, np.uint8).tobytes()
                picture = Image(header=header(at_ns, camera), height=24, width=32, encoding="rgb8", step=96, data=data)
                writer.write(connection, at_ns, serialize_message(picture))
    return path


class Player:
    """Publishes a bag's messages when they are due, and `/clock` with them, as `ros2 bag play --clock` does.

    Player and node share this process: on a busy machine the player waits for what is under way, and before the clock
    goes back for the first plan of the round, rather than see who starves whom.
    """

    def __init__(self, graph, planner_node, planner, path, rate: float, rounds: int = 1):
        self._planner_node, self._planner, self._planned, self._sent = planner_node, planner, 0, 0
        with Reader(path) as reader:
            rows = [(at_ns, connection.topic, bytes(raw)) for connection, at_ns, raw in reader.messages()]
            kinds = {connection.topic: TYPES[connection.msgtype] for connection in reader.connections}
        node = graph.listener("player")
        self.publishers = {topic: node.create_publisher(kind, topic, qos.output()) for topic, kind in kinds.items()}
        self.clock = node.create_publisher(Clock, "/clock", qos.output())
        span_ns = rows[-1][0] - rows[0][0] + NANOSECONDS // 10
        self._due = [
            ((turn * span_ns + at_ns - rows[0][0]) / NANOSECONDS / rate, turn, at_ns, topic, raw)
            for turn in range(rounds)
            for at_ns, topic, raw in rows
        ]
        self._begun, self._turn = None, 0

    def matched(self) -> bool:
        return all(each.get_subscription_count() for each in (*self.publishers.values(), self.clock))

    def finished(self) -> bool:
        """Plays what is due; True when all has been played."""
        self._begun = self._begun or time.monotonic()
        while self._due and self._due[0][0] <= time.monotonic() - self._begun and self._may_go_on(self._due[0][1]):
            _, self._turn, at_ns, topic, raw = self._due.pop(0)
            self.clock.publish(Clock(clock=stamp(at_ns)))
            self.publishers[topic].publish(raw)
            self._sent += 1
        return not self._due

    def _may_go_on(self, turn: int) -> bool:
        if turn != self._turn:
            if len(self._planner.observations) == self._planned:
                return False
            self._planned, self._turn = len(self._planner.observations), turn
        return self._sent - self._planner_node.messages_received < MOST_UNDER_WAY


class Remembering(ConstantVelocity):
    """Counts how often it was told that nothing holds any more."""

    forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1


def played(graph, bag, rate: float, rounds: int = 1):
    """(node, planner, world) after the bag, and after its last camera set was planned on."""
    planner = Remembering()
    node, _ = make_planner(graph, "use_sim_time:=true", load=lambda settings: planner)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world, player = World(graph, node), Player(graph, node, planner, bag, rate, rounds)
    assert graph.spin_until(world.matched) and graph.spin_until(player.matched)
    assert graph.spin_until(player.finished)
    last_ns = FIRST_NS + round(BAG_S * NANOSECONDS)
    assert graph.spin_until(lambda: planned(world) and planned(world)[-1] == last_ns), "it is not behind at the end"
    assert graph.spin_until(lambda: nanoseconds(world.last("cycle_stats").header.stamp) == last_ns)
    node.close()
    return node, planner, world


def planned(world) -> list[int]:
    return [
        nanoseconds(each.header.stamp) for each in world.heard["trajectory"] if each.source == Trajectory.PLANNED
    ]


def assert_from_the_bag(observation) -> None:
    """t0 is one of the bag's camera sets, its frames lead up to it, and the history is that of 1.5 s at 5 m/s.

    A frame lost on the way (cameras are best effort) is stood in for by a neighbour, and counted.
    """
    since_ns = observation.t0_ns - FIRST_NS
    for camera, frames in observation.frames.items():
        stamps = observation.frame_stamps_ns[camera]
        assert list(frames[:, 0, 0, 0]) == [(each - FIRST_NS) * 50 // NANOSECONDS for each in stamps.tolist()]
        assert (np.diff(stamps) >= 0).all() and observation.t0_ns - 3 * NANOSECONDS // 10 <= stamps[0], stamps
        assert stamps[-1] == observation.t0_ns, "nothing of before the clock went back"
        assert observation.repeated_frames or (np.diff(stamps) == NANOSECONDS // 10).all(), stamps
    assert since_ns % (NANOSECONDS // 10) == 0 and since_ns >= PLANNABLE_S * NANOSECONDS
    np.testing.assert_allclose(observation.history.xyz[:, 0], SPEED * 0.1 * np.arange(-15, 1), atol=1e-6)
    assert observation.history.speed_mps == pytest.approx(SPEED)


@pytest.mark.parametrize("rate", (1.0, 4.0))
def test_a_bag_at_its_own_rate_and_faster(graph, bag, rate):
    node, planner, world = played(graph, bag, rate)
    stamps = [observation.t0_ns for observation in planner.observations]
    assert stamps == sorted(set(stamps)) and planner.forgotten == 0
    for observation in planner.observations:
        assert_from_the_bag(observation)
    assert set(planned(world)) <= set(stamps) and planned(world) == sorted(planned(world))
    dropped = max(stats.dropped_observations for stats in world.heard["cycle_stats"])
    sets = round((BAG_S - PLANNABLE_S) * 10) + 1
    assert len(stamps) + dropped >= sets, "each camera set was planned on or counted as dropped"


def test_a_bag_in_a_loop(graph, bag):
    """The clock goes back twice: each time everything starts anew, and nothing is republished across the seam."""
    node, planner, world = played(graph, bag, 2.0, rounds=3)
    stamps = [observation.t0_ns for observation in planner.observations]
    seams = [index for index in range(1, len(stamps)) if stamps[index] < stamps[index - 1]]
    assert len(seams) == 2 and planner.forgotten >= 2
    for observation in planner.observations:
        assert_from_the_bag(observation)
    plannable_ns = FIRST_NS + round(PLANNABLE_S * NANOSECONDS)
    republished = [each for each in world.heard["trajectory"] if each.source == Trajectory.REPUBLISHED]
    assert all(nanoseconds(each.header.stamp) >= plannable_ns for each in republished)
