"""Two planners in two namespaces hear and say their own; a cleaned up node has let go of its model."""

import gc
import weakref

import pytest

pytest.importorskip("specdrive_ros.msg")
from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from specdrive_ros.msg import Trajectory  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.fault_source import FaultSource  # noqa: E402
from specdrive_ros.ros.planner_node import PlannerNode  # noqa: E402

from .small_world import CAMERAS, SUCCESS, ConstantVelocity, make_planner  # noqa: E402


def test_two_planners_do_not_hear_each_other(graph):
    nodes, heard, said = {}, {"one": [], "two": []}, set()
    ear = graph.listener("ear")
    for name in heard:
        node = PlannerNode(
            lambda settings: ConstantVelocity(), namespace=name, context=graph.context, use_global_arguments=False
        )
        nodes[name] = graph.add(node)
        assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
        ear.create_subscription(Trajectory, f"/{name}/planner/output/trajectory", heard[name].append, qos.output())
    ear.create_subscription(
        DiagnosticArray, "/diagnostics", lambda message: said.update(each.name for each in message.status), qos.output()
    )
    topics = [f"/one/planner/input/{camera}/image" for camera in CAMERAS]
    graph.add(
        FaultSource(topics, "/one/planner/input/odometry", size=(24, 32), slow_motion=True, context=graph.context,
                    use_global_arguments=False)
    )
    assert graph.spin_until(lambda: any(each.source == Trajectory.PLANNED for each in heard["one"]))
    assert graph.spin_until(lambda: {"one/planner: cycle", "two/planner: cycle"} <= said)
    assert graph.spin_until(lambda: heard["two"]) and {each.source for each in heard["two"]} == {Trajectory.STOP}
    for node in nodes.values():
        node.close()


def test_cleanup_lets_go_of_the_model(graph):
    planner = ConstantVelocity()
    node, _ = make_planner(graph, load=lambda settings, kept=[planner]: kept.pop())
    gone = weakref.ref(planner)
    del planner
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    assert node.trigger_deactivate() == SUCCESS and node.trigger_cleanup() == SUCCESS
    gc.collect()
    assert gone() is None
