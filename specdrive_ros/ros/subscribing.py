"""A subscription whose quality of service parameters may override, and that says whose messages it will never get.

A publisher that offers less than a subscription asks for (best effort for reliable) is not connected, and nobody is
told but a line in a log.
"""

from collections.abc import Callable

from rclpy.event_handler import SubscriptionEventCallbacks, UnsupportedEventTypeError
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription

from specdrive_ros.errors import InputError
from specdrive_ros.ros import qos


def subscribe(
    node: Node,
    kind: type,
    topic: str,
    take: Callable,
    profile: QoSProfile,
    on_mismatch: Callable[[int], None] | None = None,
) -> Subscription:
    """on_mismatch: called with how many publishers there were that do not match; not by every middleware.

    Raises InputError for a quality of service that does not exist.
    """
    options = {"qos_overriding_options": qos.overridable()}
    if on_mismatch is None:
        return _created(node, kind, topic, take, profile, **options)

    def mismatch(info) -> None:
        node.get_logger().warning(f"a publisher of {node.resolve_topic_name(topic)} offers less than is asked for")
        on_mismatch(info.total_count)

    try:
        events = SubscriptionEventCallbacks(incompatible_qos=mismatch)
        return _created(node, kind, topic, take, profile, event_callbacks=events, **options)
    except UnsupportedEventTypeError:
        return _created(node, kind, topic, take, profile, **options)


def _created(node: Node, kind: type, topic: str, *arguments, **options) -> Subscription:
    try:
        return node.create_subscription(kind, topic, *arguments, **options)
    except UnsupportedEventTypeError:
        raise
    except Exception as error:  # rclpy has another exception for each way a quality of service can be wrong
        name, reason = node.resolve_topic_name(topic), str(error).splitlines()[0]
        raise InputError(f"{name}: cannot be subscribed to ({reason}); see parameters qos_overrides.{name}") from error
