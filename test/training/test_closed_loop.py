"""Early stopping goes by driving: the weights that drove best come back."""

import pytest

from specdrive_ros.training import closed_loop
from specdrive_ros.training.closed_loop import BestCheckpoint, share_driven
from specdrive_ros.training.scenes import VALIDATION_SEED_BASE


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    return folder


def offer(best, checkpoint, step, driven, displacement_m):
    (checkpoint / "model.safetensors").write_text(f"weights of step {step}")
    return best.offer(checkpoint, step, driven, displacement_m)


def test_the_weights_that_drove_best_come_back_also_after_a_restart(tmp_path, checkpoint):
    assert offer(BestCheckpoint(tmp_path), checkpoint, 1, driven=0.5, displacement_m=1.0)
    assert offer(BestCheckpoint(tmp_path), checkpoint, 2, driven=0.75, displacement_m=1.2)
    assert not offer(BestCheckpoint(tmp_path), checkpoint, 3, driven=0.5, displacement_m=0.4)
    assert not offer(BestCheckpoint(tmp_path), checkpoint, 4, driven=0.75, displacement_m=1.3)
    BestCheckpoint(tmp_path).restore(checkpoint)
    assert (checkpoint / "model.safetensors").read_text() == "weights of step 2"
    assert offer(BestCheckpoint(tmp_path), checkpoint, 5, driven=0.75, displacement_m=1.1)


def test_the_share_is_of_held_out_worlds_families_in_turn(checkpoint, monkeypatch):
    driven = []

    def drive(planner, scenarios, log, latency_s):
        driven.extend(scenarios)
        assert planner == f"planner of {checkpoint.name}" and 0 < latency_s < 1
        for number, (family, seed) in enumerate(scenarios):
            log.on_event({"event": "start", "name": family, "seed": seed, "stamp_ns": number})
            log.on_event({"event": "outcome", "outcome": "success" if family == "merge" else "off_road", "why": "",
                          "distance_m": 1.0, "seconds": 1.0})

    monkeypatch.setattr(closed_loop, "export_checkpoint", lambda *_: None)
    monkeypatch.setattr(closed_loop.Planner, "load", lambda folder: f"planner of {folder.name}")
    monkeypatch.setattr(closed_loop, "drive_all_offline", drive)
    assert share_driven(checkpoint, ("merge", "cruise"), 3) == pytest.approx(2 / 3)
    assert [family for family, _ in driven] == ["merge", "cruise", "merge"]
    assert all(seed > VALIDATION_SEED_BASE + 400_000 for _, seed in driven)
