"""The planner's parameters: one table, and the objects of the core that are made from it.

All but the tuning parameters are read when the node is configured and can only be changed before that; tuning
parameters apply at once. Does not know what a cycle does with them.
"""

from collections.abc import Mapping
from dataclasses import fields

from specdrive_ros.ros.odometry_source import odometry_parameters
from specdrive_ros.ros.parameters import ParameterSpec
from specdrive_ros.ros.vehicle_geometry import EMBEDDED, RANGES
from specdrive_ros.safety.deadline import Policy
from specdrive_ros.safety.plan_checks import PlanLimits
from specdrive_ros.safety.republish import LONGEST_AGE_S

TOPIC_SUFFIX = {"raw": "image", "compressed": "image/compressed"}
CAMERA_POLICIES = ("wait", "last", "drop")
_LIMITS = PlanLimits()
_CHECKS = {  # limit -> its meaning, largest value that makes sense
    "start_m": ("most from the first waypoint to where the present speed leads", 100.0),
    "start_speed_mps": ("most between the plan's start speed and odometry, beside a tenth of it", 100.0),
    "step_m": ("most between a waypoint and where the speed leads from the one before", 100.0),
    "acceleration_mps2": ("most acceleration along the heading, either sign", 100.0),
    "lateral_mps2": ("most acceleration to the side", 100.0),
    "curvature_per_m": ("tightest curve", 10.0),
    "curvature_rate_per_m_s": ("fastest change of the curvature in a second", 100.0),
    "reverse_m": ("longest way backwards that needs no reason", 100.0),
}
CHECK_PREFIX = "check_"

STRUCTURE = (
    ParameterSpec("model", "mini", "name or folder of the checkpoint"),
    ParameterSpec("runtime", "onnxruntime", "where the networks run", choices=("onnxruntime", "torch", "tensorrt")),
    ParameterSpec("build_engines_only", "",
                  "a build profile's name or file: build the model's engines for it and exit"),
    ParameterSpec("draft", "", "what speeds the reasoning up: none, or drafts joined by +; empty for the model's own"),
    ParameterSpec("cameras", [], "cameras in the prompt's order, empty for the model's own"),
    ParameterSpec("image_transport", "raw", "raw Image or CompressedImage", choices=tuple(TOPIC_SUFFIX)),
    *odometry_parameters(read_only=False),
    ParameterSpec("odometry_frames", "", "child frames that odometry may have, joined by commas; empty for any"),
    ParameterSpec("cycle_hz", 10.0, "most planning cycles a second", 0.1, 100.0),
    ParameterSpec("max_new_tokens", 0, "longest reasoning in tokens, 0 for the model's own limit", 0, 4096),
    ParameterSpec("action_steps_late", 0,
                  "steps of the action head where all of its own would be late, with a deadline_policy that shortens; "
                  "fewer are faster and less accurate, 0: never fewer", 0, 100),
    ParameterSpec("seed", 0, "of the trajectory's noise", 0, 2**31 - 1),
    ParameterSpec("warm_up_cycles", 2, "cycles on grey pictures while configuring; stage budgets begin with them",
                  0, 100),
    ParameterSpec("autoware_output", False, "also publish autoware_planning_msgs/Trajectory on ~/output/autoware"),
    ParameterSpec("wheelbase_m", EMBEDDED.wheelbase_m, "from the rear axle to the front one, for autoware_output",
                  *RANGES["wheelbase_m"]),
    ParameterSpec("autostart", False, "configure and activate without being asked", read_only=True),
)
TUNING = (
    ParameterSpec("deadline_ms", 100.0, "limit from camera message in to trajectory out", 1.0, 60_000.0),
    ParameterSpec("deadline_policy", Policy.REPUBLISH.value,
                  "off: only reported; shorten: narrower passes, then an early end of the reasoning, "
                  "then action_steps_late; republish: "
                  "and at the deadline the last valid plan, else a stop; stop: at the deadline a stop",
                  choices=tuple(policy.value for policy in Policy)),
    ParameterSpec("prefill_ahead", True,
                  "between cycles, take what the next prompt shares with the last one through the target"),
    ParameterSpec("republish_max_age_s", 0.5, "oldest plan that is republished", 0.0, LONGEST_AGE_S),
    ParameterSpec("camera_policy", "wait", "incomplete camera set: wait for it, use the last picture, drop the cycle",
                  choices=CAMERA_POLICIES),
    ParameterSpec("camera_wait_s", 0.03, "how long a set is waited for before last or drop", 0.0, 10.0),
    ParameterSpec("camera_max_age_s", 0.5, "oldest picture that is used with camera_policy last", 0.0, 3.0),
    ParameterSpec("camera_stale_s", 0.5, "a camera silent for longer is an error", 0.05, 60.0),
    ParameterSpec("odometry_stale_s", 0.5, "odometry silent for longer is an error", 0.05, 60.0),
    ParameterSpec("camera_min_hz", 0.0, "a camera slower than this is a warning, 0: never", 0.0, 1000.0),
    ParameterSpec("odometry_min_hz", 0.0, "odometry slower than this is a warning, 0: never", 0.0, 1000.0),
    ParameterSpec("stamp_max_age_s", 0.0, "messages older than this by the node's clock are a warning, 0: never",
                  0.0, 60.0),
    ParameterSpec("odometry_max_std_m", 0.0, "positions less certain than this are a warning, 0: never", 0.0, 1000.0),
    *(
        ParameterSpec(CHECK_PREFIX + name, getattr(_LIMITS, name), text, 0.001, most)
        for name, (text, most) in _CHECKS.items()
    ),
)
PARAMETERS = STRUCTURE + TUNING


def plan_limits(settings: Mapping[str, object]) -> PlanLimits:
    """The limits of the plan checks."""
    return PlanLimits(**{each.name: settings[CHECK_PREFIX + each.name] for each in fields(PlanLimits)})
