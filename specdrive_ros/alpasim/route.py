"""A route as a polyline, and how far a path deviates from it. No model here uses a route: this only reports."""

import numpy as np


def distance_to_route(points: np.ndarray, route: np.ndarray) -> float:
    """Largest distance of `points` [N, 2] from the polyline `route` [M, 2], metres; M >= 2."""
    start, step = route[:-1], np.diff(route, axis=0)
    length_squared = np.maximum((step**2).sum(axis=1), 1e-12)
    ahead = points[:, None] - start
    along = np.clip((ahead * step).sum(axis=-1) / length_squared, 0.0, 1.0)
    apart = np.linalg.norm(ahead - along[..., None] * step, axis=-1)
    return float(apart.min(axis=1).max())
