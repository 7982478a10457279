"""Lets the planner's process build engines: on a robot, the node is what is installed and started."""

from rclpy.lifecycle import LifecycleNode

from specdrive_ros.errors import WorkFailed


def build_engines_and_exit(node: LifecycleNode, settings: dict) -> None:
    """If the settings ask for it, builds engines and exits: 0 done, 1 the work failed. Raises InputError for bad
    settings."""
    if not settings["build_engines_only"]:
        return
    from specdrive_ros.engine.building import build_for_model

    log = node.get_logger().info
    try:
        outcomes = build_for_model(settings["model"], settings["build_engines_only"], log)
    except WorkFailed as error:
        node.get_logger().error(f"engines: {error}")
        raise SystemExit(1) from None
    log(f"engines: {sum(one.built for one in outcomes)} built, {sum(not one.built for one in outcomes)} up to date")
    raise SystemExit(0)
