"""A model with a front and a tele camera drives the embedded world: both are seen, in the order of the prompt."""

import shutil

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from specdrive_ros.cli import drive as drive_command  # noqa: E402
from specdrive_ros.cycle import Planner  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.evaluation.drive import DriveLog, drive_all_offline  # noqa: E402
from specdrive_ros.shapes import PICTURE_SIZE  # noqa: E402
from specdrive_ros.sim.camera import render  # noqa: E402
from specdrive_ros.sim.pinhole import CAMERAS  # noqa: E402
from specdrive_ros.sim.scenario import make_world  # noqa: E402

BOTH = ("rgb_front", "rgb_front_tele")


@pytest.fixture(scope="module")
def model(tiny_target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "model"
    shutil.copytree(tiny_target, folder)
    (folder / "model.yaml").write_text("max_new_tokens: 6\ncameras: [rgb_front, rgb_front_tele]\n")
    return folder


@pytest.fixture(scope="module")
def planner(model):
    return Planner.load(model, runtime="torch", threads=1)


class Watched:
    """Hands on to a planner and keeps what it was shown."""

    def __init__(self, planner):
        self.planner, self.cameras, self.observations = planner, planner.cameras, []

    def plan(self, observation):
        self.observations.append(observation)
        return self.planner.plan(observation)


def test_a_drive_shows_the_planner_both_cameras(planner):
    watched = Watched(planner)
    drive_all_offline(watched, [("lead_vehicle", 3)], DriveLog(), seconds=0.5)
    assert len(watched.observations) >= 3
    for observation in watched.observations:
        assert tuple(observation.frames) == BOTH
        front, tele = (observation.frames[name] for name in BOTH)
        assert front.shape == tele.shape == (4, *PICTURE_SIZE, 3) and (front != tele).mean() > 0.5


def test_the_prompt_has_eight_pictures_and_each_camera_counts(planner):
    watched = Watched(planner)
    drive_all_offline(watched, [("lead_vehicle", 3)], DriveLog(), seconds=0.2)
    observation = watched.observations[-1]
    state = planner.perceive(observation, {})
    tokens_of_a_picture = PICTURE_SIZE[0] * PICTURE_SIZE[1] // 32**2  # patches of 16, four of which make a token
    assert (state.prompt_ids == planner.tokenizer.ids["image_pad"]).sum() == 2 * 4 * tokens_of_a_picture
    seen = state.logits.copy()
    for name in BOTH:
        planner.forget()
        frames = observation.frames | {name: np.zeros_like(observation.frames[name])}
        other = planner.perceive(type(observation)(observation.t0_ns, frames, observation.frame_stamps_ns,
                                                   observation.history), {})
        assert np.abs(other.logits - seen).max() > 1e-4
    planner.forget()


def test_the_tele_camera_sees_the_middle_of_the_front_cameras_picture_larger():
    world = make_world("lead_vehicle", 3)
    sizes = [(np.abs(render(world, name).astype(int) - render(world, name, without={"lead"})).max(2) > 24).sum()
             for name in BOTH]
    zoom = CAMERAS[BOTH[1]].fx / CAMERAS[BOTH[0]].fx
    assert sizes[0] > 8 and sizes[1] == pytest.approx(zoom**2 * sizes[0], rel=0.4)


def test_a_camera_that_the_world_does_not_have_is_named(model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "model.yaml").write_text("cameras: [rgb_front, rgb_rear]\n")
    planner = Planner.load(tmp_path / "model", runtime="torch", threads=1)
    with pytest.raises(InputError, match="'rgb_rear'.*rgb_front, rgb_front_tele"):
        drive_all_offline(planner, [("cruise", 0)], DriveLog())


def test_the_command_reports_and_records_the_first_camera(model, tmp_path):
    from argparse import ArgumentParser

    from specdrive_ros.evaluation.bags import open_bag

    parser = ArgumentParser()
    drive_command.add_arguments(parser)
    args = parser.parse_args(["--offline", "--runtime", "torch", "--model", str(model), "--scenario", "cruise",
                              "--seconds", "0.5", "--draft", "none", "--out", str(tmp_path)])  # fmt: skip
    assert drive_command.run(args) == 0
    names = {topic.name for topic in open_bag(tmp_path / "drive.mcap").topics}
    assert "/carla/ego_vehicle/rgb_front/image/compressed" in names
