"""Quality of service of every topic, in one place.

Inputs are best effort, because a camera driver may offer no more and a late frame is useless; our subscriptions can be
overridden with parameters (`qos_overrides./topic.subscription.reliability`). Outputs are reliable, so that both kinds
of listener match.
"""

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

DEEP = 1000  # messages


def _profile(depth: int, reliability: ReliabilityPolicy, durability=DurabilityPolicy.VOLATILE) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=reliability, durability=durability
    )


def image_input() -> QoSProfile:
    """A few frames: those that arrive while one callback runs."""
    return _profile(5, ReliabilityPolicy.BEST_EFFORT)


def odometry_input() -> QoSProfile:
    """A quarter of a second at 200 Hz: history advances even while the node is busy."""
    return _profile(50, ReliabilityPolicy.BEST_EFFORT)


def trajectory_input() -> QoSProfile:
    """Only the newest trajectory is followed."""
    return _profile(1, ReliabilityPolicy.BEST_EFFORT)


def output() -> QoSProfile:
    return _profile(10, ReliabilityPolicy.RELIABLE)


def command() -> QoSProfile:
    """Only the newest command counts, and the last one (a stop) must arrive."""
    return _profile(1, ReliabilityPolicy.RELIABLE)


def command_input() -> QoSProfile:
    """Matches any sender of commands, reliable or not."""
    return _profile(1, ReliabilityPolicy.BEST_EFFORT)


def kept_events() -> QoSProfile:
    """Events that late listeners also receive."""
    return _profile(1000, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)


def told_once() -> QoSProfile:
    """A single message that late listeners also receive."""
    return _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)


def deep(profile: QoSProfile, depth: int = DEEP) -> QoSProfile:
    """The same for a pure listener that must miss nothing while it is busy."""
    return _profile(depth, profile.reliability, profile.durability)


def overridable() -> QoSOverridingOptions:
    """History, depth and reliability as `qos_overrides.<topic>.…` parameters."""
    return QoSOverridingOptions.with_default_policies()
