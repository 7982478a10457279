"""Which topics of a bag are the model's cameras and the odometry: as given, else found by type and name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.bags import Bag, Topic

COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
IMAGE_TYPES = frozenset({"sensor_msgs/msg/Image", COMPRESSED_IMAGE})
ODOMETRY_TYPES = frozenset({"nav_msgs/msg/Odometry"})


@dataclass(frozen=True)
class Sources:
    """Topics of one bag: image topic -> camera name, and the odometry topic."""

    cameras: Mapping[str, str]
    odometry: str

    @property
    def topics(self) -> tuple[str, ...]:
        return (*self.cameras, self.odometry)


def find_sources(
    bag: Bag, cameras: Sequence[str], given: Mapping[str, str] | None = None, odometry: str | None = None
) -> Sources:
    """The topics as given, or found by type and name if none was given.

    given: image topic -> camera name. Raises InputError, listing the candidates, if a topic is wrong or the choice is
    ambiguous.
    """
    chosen = dict(given or {})
    for topic, camera in chosen.items():
        if camera not in cameras:
            raise InputError(f"--camera {topic}={camera}: the model's cameras are {', '.join(cameras)}")
        bag.topic(topic, IMAGE_TYPES)
    lacking = [camera for camera in cameras if camera not in chosen.values()]
    free = [topic for topic in _image_topics(bag) if topic.name not in chosen]
    for camera in lacking:
        chosen[_topic_for(bag, camera, free, alone=len(lacking) == 1)] = camera
    return Sources(chosen, _odometry_topic(bag, odometry))


def _image_topics(bag: Bag) -> list[Topic]:
    """Image topics with messages; if a camera has raw and compressed topics, only the raw one. Depth is left out."""
    topics = [t for t in bag.topics if t.type in IMAGE_TYPES and t.serialization == "cdr"]
    topics = [t for t in topics if not t.name.lower().endswith("depth")]
    raw = {t.name for t in topics if t.type != COMPRESSED_IMAGE}
    return [t for t in topics if t.name.removesuffix("/compressed") not in raw - {t.name}]


def _topic_for(bag: Bag, camera: str, free: Sequence[Topic], alone: bool) -> str:
    named = [topic for topic in free if camera in topic.name.split("/")]
    if len(named) == 1:
        return named[0].name
    if alone and len(free) == 1:
        return free[0].name
    problem = f"it is not clear which topic is camera {camera}" if free else f"no topic for camera {camera}"
    raise InputError(f"bag {bag.path}: {problem}; give --camera TOPIC={camera}; "
                     f"image topics: {bag.listing(IMAGE_TYPES)}; all topics: {bag.listing()}")


def _odometry_topic(bag: Bag, given: str | None) -> str:
    if given is not None:
        return bag.topic(given, ODOMETRY_TYPES).name
    found = [topic for topic in bag.topics if topic.type in ODOMETRY_TYPES and topic.serialization == "cdr"]
    if len(found) == 1:
        return found[0].name
    problem = "more than one odometry" if found else "no odometry (nav_msgs/msg/Odometry)"
    raise InputError(f"bag {bag.path}: {problem}; give --odometry TOPIC; "
                     f"odometry: {bag.listing(ODOMETRY_TYPES)}; all topics: {bag.listing()}")
