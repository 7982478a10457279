"""One planner per session on one set of weights, one plan at a time.

What a planner remembers (encoded frames, its last sentence, the cache) belongs to one session. The planner of a closed
session is reset and serves the next one, so that drafts are loaded once per session open at the same time.
"""

from collections.abc import Callable
from threading import Lock

from specdrive_ros.cycle import Planner
from specdrive_ros.observation.observation import Observation
from specdrive_ros.plan import Plan


class Planners:
    """first: has the weights; another: makes one more planner on them. Thread-safe."""

    def __init__(self, first: Planner, another: Callable[[], Planner] | None = None):
        self.model_cameras = tuple(first.cameras)
        self._another = another or (lambda: sibling(first))
        self._free = [first]
        self._pool = Lock()
        self._networks = Lock()  # used by one thread at a time, whichever planner calls them

    def take(self) -> Planner:
        with self._pool:
            return self._free.pop() if self._free else self._another()

    def give_back(self, planner: Planner) -> None:
        planner.forget()
        with self._pool:
            self._free.append(planner)

    def plan(self, planner: Planner, observation: Observation, seed: int) -> Plan:
        """`seed` is for this one inference: the same request at the same point gives the same plan."""
        with self._networks:
            planner.reseed(seed)
            return planner.plan(observation)


def sibling(planner: Planner) -> Planner:
    """Another planner on the same networks."""
    return Planner(planner.settings, planner.networks, planner.tokenizer, draft=planner.draft)
