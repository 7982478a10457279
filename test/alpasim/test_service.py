"""The service over real gRPC, driven by the fake loop of carla-driver-interface and by hand.

Mini drives, sessions do not mix, and whatever is wrong is answered with one status.
"""

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

grpc = pytest.importorskip("grpc", reason="needs the alpasim extra")
pytest.importorskip("carla_driver_interface", reason="needs the alpasim extra")

from carla_driver_interface import protocol  # noqa: E402
from carla_driver_interface.contract import METADATA_KEY, contract_metadata, negotiate  # noqa: E402
from carla_driver_interface.testing import FakeCamera, FakeLoop  # noqa: E402

from specdrive_ros.alpasim import server
from specdrive_ros.alpasim.planners import Planners  # noqa: E402
from specdrive_ros.alpasim.server import serving  # noqa: E402
from specdrive_ros.alpasim.service import DriverService, ServiceOptions  # noqa: E402
from specdrive_ros.cycle import Planner  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402

HOST = "127.0.0.1"
Code = grpc.StatusCode
CAMERA = FakeCamera("camera_front", width=320, height=192)


@pytest.fixture(scope="module")
def mini():
    return Planners(Planner.load("mini", threads=1, draft="carryover"))


@pytest.fixture
def start():
    """start(planners, **options) -> (service, "host:port"); all end with the test."""
    opened = []

    def begin(planners, clock=time.monotonic, **options):
        options = ServiceOptions(**{"sessions": 3, **options})
        service = DriverService(planners, options, clock)
        context = serving(service, HOST, 0, options.sessions)
        opened.append(context)
        return service, f"{HOST}:{context.__enter__()}"

    yield begin
    for context in opened:
        context.__exit__(None, None, None)


class Client:
    """Calls by hand: one session of one camera at 10 Hz."""

    def __init__(self, target, name="by hand", cameras=("camera_front",)):
        self.channel = grpc.insecure_channel(target, options=protocol.channel_options())
        self.stub = protocol.EgodriverServiceStub(self.channel)
        self.name, self.cameras = name, cameras

    def begin(self, seed=0, metadata=None, name=None):
        request = protocol.DriveSessionRequest(session_uuid=self.name if name is None else name, random_seed=seed)
        for camera in self.cameras:
            request.rollout_spec.vehicle.available_cameras.add(logical_id=camera)
        self.stub.start_session(request, metadata=metadata)

    def picture(self, at_us, content, camera="camera_front", start_us=None, name=None):
        image = protocol.RolloutCameraImage.CameraImage(
            frame_start_us=at_us if start_us is None else start_us, frame_end_us=at_us, image_bytes=content,
            logical_id=camera,
        )  # fmt: skip
        self.stub.submit_image_observation(
            protocol.RolloutCameraImage(session_uuid=name or self.name, camera_image=image)
        )

    def pose(self, *at_us, x=None, w=1.0, states=None, name=None):
        message = protocol.RolloutEgoTrajectory(session_uuid=name or self.name)
        for at in at_us:
            vec = protocol.Vec3(x=5e-6 * at if x is None else x)
            message.trajectory.poses.add(pose=protocol.Pose(vec=vec, quat=protocol.Quat(w=w)), timestamp_us=at)
        for _ in at_us if states is None else range(states):
            message.dynamic_states.add(linear_velocity=protocol.Vec3(x=5.0))
        self.stub.submit_egomotion_observation(message)

    def drive(self, at_us, name=None):
        query_us = at_us + 100_000
        return self.stub.drive(
            protocol.DriveRequest(session_uuid=name or self.name, time_now_us=at_us, time_query_us=query_us)
        )

    def route(self, at_us, *points, name=None):
        waypoints = [protocol.Vec3(x=x, y=y) for x, y in points]
        route = protocol.Route(timestamp_us=at_us, waypoints=waypoints)
        self.stub.submit_route(protocol.RouteRequest(session_uuid=name or self.name, route=route))

    def truth(self, name):
        self.stub.submit_recording_ground_truth(protocol.GroundTruthRequest(session_uuid=name))

    def end(self, name=None):
        self.stub.close_session(protocol.DriveSessionCloseRequest(session_uuid=name or self.name))

    def two_seconds(self, jpeg):
        for at_us in range(0, 2_000_001, 100_000):
            self.pose(at_us)
            self.picture(at_us, jpeg)


def refused(code, text, call, *arguments, **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    assert caught.value.code() is code, caught.value.details()
    assert re.search(text, caught.value.details()) and "\n" not in caught.value.details()


def test_the_packages_own_loop_drives_mini(mini, start):
    """Three seconds from standing: first it waits for its history, then mini's plans are followed."""
    service, target = start(mini, client="carla")
    with FakeLoop(target, [CAMERA], initial_speed_mps=4.0) as loop:
        result = loop.run(30, seed=7)
    assert result.steps == 30 and not result.terminated_by_policy
    assert not service._sessions and service.totals["sessions"] == 1
    assert service.totals["planned"] + service.totals["stop"] + service.totals["republished"] == 15
    assert service.totals["warming_up"] == 15 and service.totals["planned"] >= 10
    scalars = [dict(debug.scalars) for debug in result.debug]
    assert all(scalar["t0_age_s"] == 0.0 for scalar in scalars)
    assert scalars[-1]["reasoning_tokens"] > 2 and scalars[-1]["route_distance_m"] >= 0
    assert np.isfinite(result.ego.positions).all() and np.abs(result.lateral_offsets_m).max() < 3
    assert 4.0 > result.speeds_mps[10] > 0.5  # it brakes while it waits, it does not stand still at once


def test_the_same_seed_drives_the_same_and_sessions_do_not_mix(mini, start):
    """Two sessions at the same time, each as if it were alone."""
    _, target = start(mini)

    def drive(lateral_m):
        with FakeLoop(target, [CAMERA], initial_speed_mps=5.0, initial_lateral_offset_m=lateral_m) as loop:
            return loop.run(20, seed=3).ego.positions

    alone = [drive(0.0), drive(0.8)]
    together = [None, None]
    threads = [
        threading.Thread(target=lambda i=i, lateral_m=lateral_m: together.__setitem__(i, drive(lateral_m)))
        for i, lateral_m in enumerate((0.0, 0.8))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for expected, found in zip(alone, together):
        np.testing.assert_array_equal(expected, found)
    assert np.abs(alone[0] - alone[1])[:, 1].min() > 0


def test_alpasim_reads_reasoning_without_our_packages(mini, start, jpeg):
    _, target = start(mini)
    client = Client(target)
    client.begin()
    client.two_seconds(jpeg)
    response = client.drive(2_000_000)
    debug = pickle.loads(response.debug_info.unstructured_debug_info)
    assert debug["source"] in ("planned", "stop") and debug["policy_name"] == "specdrive"
    assert isinstance(debug["reasoning_text"], str) and all(type(v) is float for v in debug["scalars"].values())
    stamps = [pose.timestamp_us for pose in response.trajectory.poses]
    assert stamps == list(range(2_000_000, 8_400_001, 100_000))
    client.end()


def test_version_and_contract_revision(planners, start):
    _, target = start(planners, name="mini")
    client = Client(target)
    version, revision = negotiate(client.stub)
    assert version.version_id.endswith("-mini") and revision == 2
    client.begin(metadata=contract_metadata(1))
    client.end()
    refused(Code.FAILED_PRECONDITION, "revision 9", client.begin, metadata=((METADATA_KEY, "9"),))


def test_whatever_is_wrong_has_one_status(planners, start, jpeg):
    service, target = start(planners, until_ready="refuse")
    client = Client(target, cameras=("camera_front", "camera_rear"))
    refused(Code.FAILED_PRECONDITION, "camera rgb_front: not declared; declared are camera_front", client.begin)
    client = Client(target)
    calls = [
        (client.drive, 0),
        (client.end,),
        (client.pose, 0),
        (client.picture, 0, jpeg),
        (client.route, 0),
        (client.truth,),
    ]
    for call, *arguments in calls:
        refused(Code.NOT_FOUND, "session 'nobody': is not open", call, *arguments, name="nobody")
    refused(Code.INVALID_ARGUMENT, "session_uuid: of 0 characters", client.begin, name="")
    client.begin()
    refused(Code.ALREADY_EXISTS, "session by hand: is open already", client.begin)

    refused(Code.FAILED_PRECONDITION, "NO_ODOMETRY", client.drive, 0)
    client.pose(0)
    refused(Code.FAILED_PRECONDITION, "NO_FRAMES", client.drive, 0)
    client.picture(0, jpeg)
    refused(Code.FAILED_PRECONDITION, "TOO_SHORT: odometry reaches 0.00 s back", client.drive, 0)

    wrong = Code.INVALID_ARGUMENT
    refused(wrong, "camera 'camera_rear' was not declared", client.picture, 100_000, jpeg, camera="camera_rear")
    refused(wrong, "damaged or cut short", client.picture, 100_000, jpeg[: len(jpeg) // 2])
    refused(wrong, "neither JPEG nor PNG", client.picture, 100_000, b"")
    refused(wrong, "frame_end_us: 5 is before frame_start_us 9", client.picture, 5, jpeg, start_us=9)
    refused(wrong, "frame_end_us: 18446744073709551615 us", client.picture, 2**64 - 1, jpeg)
    refused(wrong, "numbers", client.pose, 100_000, x=float("nan"))
    refused(wrong, "quaternion", client.pose, 100_000, w=0.0)
    refused(wrong, "dynamic_states: 2 for 1 poses", client.pose, 100_000, states=2)
    refused(wrong, "timestamps must rise", client.pose, 200_000, 100_000)
    refused(wrong, "numbers", client.route, 0, (0.0, 0.0), (float("inf"), 0.0))
    client.two_seconds(jpeg)
    refused(wrong, "a drive is never of the past", client.drive, 1_000_000)

    response = client.drive(2_000_000)  # and after all that it drives
    assert len(response.trajectory.poses) == 65
    client.end()
    refused(Code.NOT_FOUND, "close it once", client.end)
    refused(Code.NOT_FOUND, "is not open", client.drive, 2_100_000)
    assert service.totals["planned"] == 1 and service.refused["NOT_FOUND"] == 8


def test_no_more_sessions_than_allowed(planners, start):
    _, target = start(planners, sessions=2)
    clients = [Client(target, name) for name in "abc"]
    for client in clients[:2]:
        client.begin()
    refused(Code.RESOURCE_EXHAUSTED, "2 are open", clients[2].begin)
    clients[0].end()
    clients[2].begin()


def test_a_session_that_nobody_calls_is_closed_and_its_planner_serves_the_next(planners, straight_on, start, jpeg):
    now_s = [0.0]
    service, target = start(planners, lambda: now_s[0], sessions=1, idle_s=60.0)
    dead, next_one = Client(target, "dead"), Client(target, "next")
    dead.begin()
    now_s[0] = 40.0
    dead.pose(0)
    now_s[0] = 99.0
    refused(Code.RESOURCE_EXHAUSTED, "without a call for 60 s it is closed, the longest is so for 59 s", next_one.begin)
    now_s[0] = 101.0
    next_one.begin()
    assert straight_on.forgotten == 1
    for call, *arguments in ((dead.pose, 100_000), (dead.drive, 100_000), (dead.picture, 0, jpeg), (dead.end,)):
        refused(Code.NOT_FOUND, "'dead': was closed after 60 s without a call; begin it anew", call, *arguments)
    next_one.two_seconds(jpeg)
    assert len(next_one.drive(2_000_000).trajectory.poses) == 65
    next_one.end()
    refused(Code.NOT_FOUND, "close it once", next_one.end)
    dead.begin()
    dead.pose(0)
    now_s[0] = 1000.0
    service.expire()
    assert not service._sessions and service.totals["expired"] == 2


def test_a_call_that_takes_long_is_no_idle_session(planners, straight_on, start, jpeg, monkeypatch):
    now_s, begun, go_on = [0.0], threading.Event(), threading.Event()
    service, target = start(planners, lambda: now_s[0], idle_s=60.0)
    client, plan = Client(target), straight_on.plan
    client.begin()
    client.two_seconds(jpeg)

    def slow(observation):
        begun.set()
        go_on.wait()
        return plan(observation)

    monkeypatch.setattr(straight_on, "plan", slow)
    answered = client.stub.drive.future(
        protocol.DriveRequest(session_uuid=client.name, time_now_us=2_000_000, time_query_us=2_100_000)
    )
    begun.wait()
    now_s[0] = 1000.0
    service.expire()
    go_on.set()
    assert len(answered.result().trajectory.poses) == 65
    now_s[0] = 1059.0
    service.expire()
    client.end()


def test_the_server_looks_for_idle_sessions_by_itself(planners, start, monkeypatch):
    monkeypatch.setattr(server, "EXPIRE_EVERY_S", 0.01)
    service, target = start(planners, idle_s=0.02)
    Client(target).begin()
    while service._sessions:
        threading.Event().wait(0.01)
    assert start(planners, idle_s=0.0)[0].expire() is None


def test_a_model_that_fails_is_an_internal_error_and_no_end(planners, straight_on, start, jpeg, monkeypatch):
    _, target = start(planners)
    client = Client(target)
    client.begin()
    client.two_seconds(jpeg)

    def fail(observation):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(straight_on, "plan", fail)
        refused(Code.INTERNAL, "RuntimeError: out of memory", client.drive, 2_000_000)
    client.pose(2_100_000)
    client.picture(2_100_000, jpeg)
    assert len(client.drive(2_100_000).trajectory.poses) == 65


WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None\n"
    "from specdrive_ros.cli.main import main\n"
    "sys.exit(main(sys.argv[1:]))"
)


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_the_command_serves_without_torch_and_ends_on_a_signal(checkout, number):
    options = ["--port", "0", "--draft", "none", "--client", "carla", "--json"]
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", "--alpasim", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            ready = process.stderr.readline()
            found = re.fullmatch(r"mini drives at (127\.0\.0\.1:\d+); Ctrl-C ends\n", ready)
            assert found, ready + process.stderr.read()
            with FakeLoop(found[1], [CAMERA]) as loop:
                assert loop.run(3).steps == 3
            process.send_signal(number)
            output, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0 and "Traceback" not in errors
    assert '"warming_up": 3' in output


def test_a_port_that_is_taken_is_said(planners, start):
    _, target = start(planners)
    service = DriverService(planners)
    with pytest.raises(InputError, match="cannot be listened on"):
        with serving(service, HOST, int(target.rpartition(":")[2]), 1):
            pass
