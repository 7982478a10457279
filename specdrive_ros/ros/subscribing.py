"""A subscription whose quality of service can be overridden by parameters, and that reports publishers it cannot hear.

A publisher that offers less than a subscription asks for (best effort for reliable) is not connected, and apart from a
log line nobody is told.
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
    """Subscribes to a topic.

    on_mismatch: called with the total number of incompatible publishers; not supported by every middleware.
    Raises InputError for an invalid quality of service.
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
