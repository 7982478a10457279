"""Sim, planner and controller as processes; one of them is killed outright, and the others do what is safe."""

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("ackermann_msgs.msg")
from ackermann_msgs.msg import AckermannDrive  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from specdrive_ros.msg import CycleStats, Trajectory  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402

ROLE = "/carla/ego_vehicle"
PLANNER = """
import sys
sys.path.insert(0, sys.argv[1])
from small_world import ConstantVelocity
from specdrive_ros.ros.planner_node import PlannerNode
from specdrive_ros.ros.run_node import run_node
ConstantVelocity.cameras, ConstantVelocity.cruise_mps = ("rgb_front",), 5.0
make = lambda: PlannerNode(lambda settings: ConstantVelocity())
sys.exit(run_node(make, sys.argv[2:], PlannerNode.autostart))
"""
REMAPS = {
    "planner": {"~/input/rgb_front/image": f"{ROLE}/rgb_front/image", "~/input/odometry": f"{ROLE}/odometry"},
    "controller": {
        "~/input/trajectory": "/planner/output/trajectory",
        "~/input/odometry": f"{ROLE}/odometry",
        "~/output/ackermann_cmd": f"{ROLE}/ackermann_cmd",
    },
    "sim": {},
}
PARAMETERS = {
    "planner": ["use_sim_time:=true", "autostart:=true", "deadline_ms:=500", "republish_max_age_s:=0.3"],
    "controller": ["use_sim_time:=true"],
    "sim": ['scenarios:=["cruise:5"]', "count:=50", "lead_in_s:=2.0", "command_timeout_s:=0.5"],
}


class Drill:
    """The three processes and an ear beside them."""

    def __init__(self, graph):
        self.graph, self.node = graph, graph.listener("ear")
        self.trajectories, self.stats, self.commands, self.odometry = [], [], [], []
        for kind, topic, kept, profile in (
            (Trajectory, "/planner/output/trajectory", self.trajectories, qos.output()),
            (CycleStats, "/planner/output/cycle_stats", self.stats, qos.output()),
            (AckermannDrive, f"{ROLE}/ackermann_cmd", self.commands, qos.command_input()),
            (Odometry, f"{ROLE}/odometry", self.odometry, qos.odometry_input()),
        ):
            self.node.create_subscription(kind, topic, kept.append, qos.deep(profile))
        self.processes = {name: self.start(name) for name in ("planner", "controller")}
        assert graph.spin_until(lambda: self.trajectories and self.commands)
        self.processes["sim"] = self.start("sim")
        assert graph.spin_until(self.follows)

    def start(self, name: str):
        arguments = ["--ros-args"]
        for parameter in PARAMETERS[name]:
            arguments += ["-p", parameter]
        for inside, outside in REMAPS[name].items():
            arguments += ["-r", f"{inside}:={outside}"]
        if name == "planner":
            return self.graph.start("-c", PLANNER, str(Path(__file__).parent), *arguments)
        return self.graph.start("-m", f"specdrive_ros.ros.{name}_node", *arguments)

    def follows(self) -> bool:
        """Plans are made and followed, and the car is fast enough to see it brake."""
        if not (self.trajectories and self.commands and self.odometry):
            return False
        planned = self.trajectories[-1].source == Trajectory.PLANNED
        return planned and self.commands[-1].speed > 1.0 and self.odometry[-1].twist.twist.linear.x > 2.0

    def kill(self, name: str) -> None:
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()
        for kept in (self.trajectories, self.stats, self.commands, self.odometry):
            kept.clear()


@pytest.fixture
def drill(graph):
    return Drill(graph)


def test_without_a_planner_the_car_is_stopped_and_a_new_one_takes_over(drill):
    drill.kill("planner")
    assert drill.graph.spin_until(lambda: drill.commands and drill.commands[-1].speed == 0.0)
    assert drill.commands[-1].acceleration > 1.0, "brakes"
    drill.start("planner")  # which finds the car standing, or in the next scenario
    assert drill.graph.spin_until(lambda: Trajectory.PLANNED in {each.source for each in drill.trajectories})


def test_without_a_controller_the_world_brakes_by_itself(drill):
    drill.kill("controller")
    assert drill.graph.spin_until(
        lambda: len(drill.odometry) > 40
        and drill.odometry[-1].twist.twist.linear.x < drill.odometry[0].twist.twist.linear.x - 1.0
    )
    drill.commands.clear()
    drill.start("controller")
    assert drill.graph.spin_until(lambda: len(drill.commands) > 20)


def test_without_a_world_the_planner_says_to_stop_and_the_controller_brakes(drill):
    drill.kill("sim")
    assert drill.graph.spin_until(lambda: any(each.source == Trajectory.STOP for each in drill.trajectories))
    assert drill.graph.spin_until(
        lambda: any(each.fallback_reason == CycleStats.INPUT_STALE for each in drill.stats), 10.0
    )
    assert drill.graph.spin_until(lambda: drill.commands and drill.commands[-1].speed == 0.0)
    drill.start("sim")  # its clock begins anew
    assert drill.graph.spin_until(drill.follows)
