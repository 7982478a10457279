"""The one place of names for time grids, axes and shapes.

Time grids: the history ends at t0 (its last pose is the ego itself), the future begins one step
after t0. Frames: `x` forward, `y` left, `z` up (REP 103), the origin is the rear axle
(`base_link`), angles in radians, counter-clockwise positive.
"""

import numpy as np

HISTORY_POSES = 16
HISTORY_STEP_S = 0.1
HISTORY_TIMES_S = (np.arange(HISTORY_POSES) - (HISTORY_POSES - 1)) * HISTORY_STEP_S  # -1.5 … 0.0

FUTURE_WAYPOINTS = 64
WAYPOINT_STEP_S = 0.1
WAYPOINT_TIMES_S = (np.arange(FUTURE_WAYPOINTS) + 1) * WAYPOINT_STEP_S  # 0.1 … 6.4

FRAMES_PER_CAMERA = 4
FRAME_STEP_S = 0.1
PICTURE_SIZE = 160, 256  # rows by columns of mini's cameras; other models take what their limits say

FLOW_STEPS = 10  # of the published action head: Euler steps from noise (flow time 0) to action (flow time 1)

ACCELERATION, CURVATURE = 0, 1  # columns of an action: m/s², 1/m

NANOSECONDS = 1_000_000_000
