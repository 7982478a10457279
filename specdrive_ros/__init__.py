"""Real-time reasoning for autonomous driving: a VLA planner under speculative decoding, as a ROS 2 node.

Read `cycle.py` first: one planning cycle, observation in, plan out.
"""

from pkgutil import extend_path

# colcon puts the generated `specdrive_ros.msg` into its own install tree. Running from a checkout,
# both halves of the package (sources here, messages there) must be found under one name.
__path__ = extend_path(__path__, __name__)

__version__ = "0.1.0"
