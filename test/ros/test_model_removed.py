"""The model's files vanish while the node runs: what is loaded drives on, and what cannot be loaded again is said."""

import shutil

import pytest

pytest.importorskip("specdrive_ros.msg")
from specdrive_ros.model_settings import find_model  # noqa: E402
from specdrive_ros.msg import CycleStats  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.fault_source import FaultSource  # noqa: E402
from specdrive_ros.ros.planner_node import load_planner  # noqa: E402

from .small_world import FAILURE, SUCCESS, make_planner  # noqa: E402

OF_A_PLAN = {CycleStats.NONE, CycleStats.PLAN_REJECTED, CycleStats.REASONING_UNFINISHED}  # the model's, on noise


def test_files_of_the_networks_are_removed_while_it_drives(graph, tmp_path, capfd):
    folder, kept = tmp_path / "mini", tmp_path / "kept"
    shutil.copytree(find_model("mini").checkpoint, folder)
    node, _ = make_planner(graph, f"model:={folder}", "draft:=none", load=load_planner)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    reasons = []
    graph.listener().create_subscription(
        CycleStats, "/planner/output/cycle_stats", lambda each: reasons.append(each.fallback_reason),
        qos.deep(qos.output()),
    )
    topics = [f"/planner/input/{camera}/image" for camera in find_model(folder).cameras]
    graph.add(
        FaultSource(topics, "/planner/input/odometry", slow_motion=True, context=graph.context,
                    use_global_arguments=False)
    )
    assert graph.spin_until(lambda: OF_A_PLAN & set(reasons))
    folder.rename(kept)
    reasons.clear()
    assert graph.spin_until(lambda: sum(reason in OF_A_PLAN for reason in reasons) > 3)
    assert CycleStats.MODEL_FAILED not in reasons
    capfd.readouterr()
    assert node.trigger_deactivate() == SUCCESS and node.trigger_cleanup() == SUCCESS
    assert node.trigger_configure() == FAILURE
    assert str(folder) in capfd.readouterr().err
    kept.rename(folder)
    assert node.trigger_configure() == SUCCESS
    node.close()
