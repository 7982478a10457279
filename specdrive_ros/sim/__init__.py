"""The embedded driving world: roads, traffic, a kinematic ego, a camera, an expert driver and labels.

Start with `scenario.make_world(family, seed)`. Everything follows from the seed. This folder uses NumPy and OpenCV
only: no ROS, no models, no training.
"""
