"""Writes an MCAP file of a drive that Foxglove and `ros2 bag` can open: camera, odometry, plan and reasoning.

Messages are CDR with their definitions in the file: no ROS is needed, neither to write nor to read it. Everything is
stamped t0. Knows plans and images, nothing about worlds or processes.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from mcap.well_known import MessageEncoding, Profile, SchemaEncoding
from mcap.writer import Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from specdrive_ros.decoding.statistics import accepted_length, routine_share
from specdrive_ros.errors import WorkFailed
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import NANOSECONDS, WAYPOINT_TIMES_S

MAP_FRAME, EGO_FRAME = "map", "ego_vehicle"
JPEG_QUALITY = 92
WAYPOINT_OFFSETS_NS = tuple(round(time_s * NANOSECONDS) for time_s in WAYPOINT_TIMES_S.tolist())
SOURCES = {"planned": 0, "republished": 1, "stop": 2}  # the constants of Trajectory.msg
ROLE = "/carla/ego_vehicle"


@dataclass(frozen=True)
class RecordedPose:
    """Pose of the rear axle in the map at t0: m, m, rad; speed in m/s."""

    x: float
    y: float
    yaw: float
    speed_mps: float


class DriveRecording:
    """Writes one file; a context manager.

    camera: its name; the defaults of `role` and the frames give the topics of the live graph.
    """

    def __init__(
        self,
        path: Path,
        camera: str = "rgb_front",
        *,
        role: str = ROLE,
        map_frame: str = MAP_FRAME,
        ego_frame: str = EGO_FRAME,
    ):
        self.camera, self.role, self.map_frame, self.ego_frame = camera, role, map_frame, ego_frame
        self._types = _typestore()
        self._channels: dict[str, int] = {}
        self._sequence: dict[str, int] = {}
        self._file = Path(path).open("wb")
        self._writer = Writer(self._file)
        self._writer.start(profile=Profile.ROS2, library="specdrive_ros")

    def __enter__(self) -> "DriveRecording":
        return self

    def __exit__(self, *exception) -> None:
        self._writer.finish()
        self._file.close()

    def write_scenario(self, stamp_ns: int, text: str) -> None:
        """Writes a line of text on what began or ended at this time."""
        self._write("/sim/scenario", stamp_ns, self._message("std_msgs/msg/String", data=text))

    def write_cycle(self, rgb: np.ndarray, plan: Plan, pose: RecordedPose, source: str = "planned") -> None:
        """Writes one planning cycle. rgb: uint8 [H, W, 3] as seen at t0; source: a name from `SOURCES`."""
        t0_ns = plan.t0_ns
        self._write(f"{self.role}/{self.camera}/image/compressed", t0_ns, self._image(t0_ns, rgb))
        self._write("/tf", t0_ns, self._transform(t0_ns, pose))
        self._write(f"{self.role}/odometry", t0_ns, self._odometry(t0_ns, pose))
        poses = [self._pose(*row) for row in np.column_stack([plan.xyz, plan.yaw]).tolist()]
        self._write("/planner/output/path", t0_ns, self._path(plan, poses))
        self._write("/planner/output/trajectory", t0_ns, self._trajectory(plan, poses, SOURCES[source]))
        self._write("/planner/output/reasoning", t0_ns, self._reasoning(plan))
        text = self._message("std_msgs/msg/String", data=plan.reasoning)
        self._write("/planner/output/reasoning_text", t0_ns, text)

    def _write(self, topic: str, stamp_ns: int, message) -> None:
        kind = message.__msgtype__
        if topic not in self._channels:
            self._channels[topic] = self._open_channel(topic, kind)
        sequence = self._sequence[topic] = self._sequence.get(topic, -1) + 1
        data = bytes(self._types.serialize_cdr(message, kind))
        self._writer.add_message(self._channels[topic], stamp_ns, data, stamp_ns, sequence)

    def _open_channel(self, topic: str, kind: str) -> int:
        definition, _ = self._types.generate_msgdef(kind, ros_version=2)
        schema = self._writer.register_schema(kind, SchemaEncoding.ROS2, definition.encode())
        return self._writer.register_channel(topic, MessageEncoding.CDR, schema)

    def _message(self, kind: str, **fields):
        return self._types.types[kind](**fields)

    # Messages

    def _stamp(self, time_ns: int):
        seconds, rest = divmod(int(time_ns), NANOSECONDS)
        return self._message("builtin_interfaces/msg/Time", sec=seconds, nanosec=rest)

    def _header(self, time_ns: int, frame: str):
        return self._message("std_msgs/msg/Header", stamp=self._stamp(time_ns), frame_id=frame)

    def _image(self, t0_ns: int, rgb: np.ndarray):
        _, encoded = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        header = self._header(t0_ns, f"{self.ego_frame}/{self.camera}")
        return self._message(
            "sensor_msgs/msg/CompressedImage", header=header, format="jpeg", data=encoded.reshape(-1)
        )

    def _vector(self, kind: str, x: float, y: float, z: float = 0.0):
        return self._message(f"geometry_msgs/msg/{kind}", x=float(x), y=float(y), z=float(z))

    def _rotation(self, yaw: float):
        half = yaw / 2
        return self._message(
            "geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=math.sin(half), w=math.cos(half)
        )

    def _pose(self, x: float, y: float, z: float, yaw: float):
        position = self._vector("Point", x, y, z)
        return self._message("geometry_msgs/msg/Pose", position=position, orientation=self._rotation(yaw))

    def _transform(self, t0_ns: int, pose: RecordedPose):
        transform = self._message(
            "geometry_msgs/msg/Transform",
            translation=self._vector("Vector3", pose.x, pose.y),
            rotation=self._rotation(pose.yaw),
        )
        stamped = self._message(
            "geometry_msgs/msg/TransformStamped",
            header=self._header(t0_ns, self.map_frame),
            child_frame_id=self.ego_frame,
            transform=transform,
        )
        return self._message("tf2_msgs/msg/TFMessage", transforms=[stamped])

    def _odometry(self, t0_ns: int, pose: RecordedPose):
        unknown = np.zeros(36)
        twist = self._message(
            "geometry_msgs/msg/Twist",
            linear=self._vector("Vector3", pose.speed_mps, 0.0),
            angular=self._vector("Vector3", 0.0, 0.0),
        )
        return self._message(
            "nav_msgs/msg/Odometry",
            header=self._header(t0_ns, self.map_frame),
            child_frame_id=self.ego_frame,
            pose=self._message(
                "geometry_msgs/msg/PoseWithCovariance",
                pose=self._pose(pose.x, pose.y, 0.0, pose.yaw),
                covariance=unknown,
            ),
            twist=self._message("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=unknown),
        )

    def _path(self, plan: Plan, poses: list):
        stamps_ns = (plan.t0_ns + offset_ns for offset_ns in WAYPOINT_OFFSETS_NS)
        rows = [
            self._message(
                "geometry_msgs/msg/PoseStamped", header=self._header(at_ns, self.ego_frame), pose=pose
            )
            for at_ns, pose in zip(stamps_ns, poses, strict=True)
        ]
        header = self._header(plan.t0_ns, self.ego_frame)
        return self._message("nav_msgs/msg/Path", header=header, poses=rows)

    def _trajectory(self, plan: Plan, poses: list, source: int):
        columns = (plan.speed_mps.tolist(), plan.acceleration.tolist(), plan.curvature.tolist())
        points = [self._waypoint(*row) for row in zip(WAYPOINT_OFFSETS_NS, poses, *columns, strict=True)]
        header = self._header(plan.t0_ns, self.ego_frame)
        return self._message("specdrive_ros/msg/Trajectory", header=header, source=source, points=points)

    def _waypoint(self, offset_ns: int, pose, speed_mps: float, acceleration: float, curvature: float):
        seconds, rest = divmod(offset_ns, NANOSECONDS)
        return self._message(
            "specdrive_ros/msg/TrajectoryPoint",
            time_from_start=self._message("builtin_interfaces/msg/Duration", sec=seconds, nanosec=rest),
            pose=pose,
            longitudinal_velocity_mps=speed_mps,
            acceleration_mps2=acceleration,
            curvature_per_m=curvature,
        )

    def _reasoning(self, plan: Plan):
        tokens, passes = len(plan.token_ids), plan.target_passes
        return self._message(
            "specdrive_ros/msg/Reasoning",
            header=self._header(plan.t0_ns, self.ego_frame),
            text=plan.reasoning,
            tokens=tokens,
            target_passes=passes,
            accepted_length=accepted_length(tokens, passes),
            routine_share=routine_share(tokens, passes),
            truncated=plan.truncated,
        )


def _typestore():
    """The common interfaces of ROS 2 plus this package's own messages."""
    store = get_typestore(Stores.ROS2_JAZZY)
    for path in sorted(_message_folder().glob("*.msg")):
        name = f"specdrive_ros/msg/{path.stem}"
        store.register(get_types_from_msg(path.read_text(encoding="utf-8"), name))
    return store


def _message_folder() -> Path:
    """`msg` of the checkout, or the folder of an installation's messages. Raises WorkFailed if there is neither."""
    for above in Path(__file__).parents:
        for folder in (above / "msg", above / "share" / "specdrive_ros" / "msg"):
            if (folder / "Trajectory.msg").is_file():
                return folder
    raise WorkFailed(
        "message definitions of specdrive_ros not found; run from the checkout or build with colcon"
    )
