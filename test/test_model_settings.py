import json
from dataclasses import fields

import pytest
import yaml

from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import ModelSettings, find_model


@pytest.fixture
def model(tmp_path):
    """A folder that looks like a checkpoint."""
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_mini_by_name(checkout):
    settings = find_model("mini")
    assert settings.checkpoint.resolve() == checkout / "models" / "mini"
    assert settings.cameras == ("rgb_front",) and settings.action_steps == 4


def test_folder_without_settings_has_defaults(model):
    settings = find_model(model)
    assert settings.checkpoint == model and settings.cameras == ("rgb_front",)


def test_folder_with_settings(model):
    (model / "model.yaml").write_text("cameras: [left, right]\nmax_new_tokens: 24\n")
    settings = find_model(str(model))
    assert (
        settings.cameras == ("left", "right")
        and settings.max_new_tokens == 24
        and settings.checkpoint == model
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cameras: front", "cameras must be a list of names, got 'front'"),
        ("cameras: []", "cameras must be a list of different names"),
        ("cameras: [a, a]", "cameras must be a list of different names"),
        ("max_new_tokens: 1", "max_new_tokens must be a whole number of at least 2, got 1"),
        ("max_new_tokens: many", "max_new_tokens must be a whole number of at least 2, got 'many'"),
        ("action_noise: -0.5", "action_noise must be a number from 0 to 1, got -0.5"),
        ("action_noise: loud", "action_noise must be a number from 0 to 1, got 'loud'"),
        ("forward_only: sometimes", "forward_only must be true or false, got 'sometimes'"),
        ("scenarios: cruise", "scenarios must be a list of names, got 'cruise'"),
        ("scenarios: [cruise, cruise]", "scenarios must be a list of different names"),
        ("frames_per_camera: 5", "frames_per_camera must be 4, got 5"),
        ("cameras: [[a], {b: c}]", "cameras must be a list of different names, got [['a'], {'b': 'c'}]"),
        ("scenarios: [[cruise]]", "scenarios must be a list of different names, got [['cruise']]"),
        ("action_noise: true", "action_noise must be a number from 0 to 1, got True"),
        ("draft: 2026-13-45", "not readable as YAML (month must be in 1..12)"),
        ("camera: [a]", "scenarios, got camera"),
        ("camera: [a]", "keys among action_noise, action_steps, cameras"),
        ("- a", "must be a mapping"),
        ("a: [", "not readable as YAML"),
    ],
)
def test_wrong_settings(model, text, fault):
    (model / "model.yaml").write_text(text)
    with pytest.raises(InputError, match="model.yaml: ") as caught:
        find_model(model)
    assert fault in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["maxi", "../config/mini", ""])
def test_unknown_name(name):
    with pytest.raises(InputError):
        find_model(name)


def test_unknown_name_lists_the_known():
    with pytest.raises(InputError, match="neither a folder nor a name; known names: mini"):
        find_model("maxi")


def test_folder_that_is_no_model(tmp_path):
    with pytest.raises(InputError, match="no config.json"):
        find_model(tmp_path)


def test_schema_says_what_the_settings_are(checkout):
    schema = json.loads((checkout / "config" / "mini.schema.json").read_text())
    assert set(schema["properties"]) == {field.name for field in fields(ModelSettings)}
    for field in fields(ModelSettings)[1:]:
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        assert schema["properties"][field.name]["default"] == default
    mini = yaml.safe_load((checkout / "config" / "mini.yaml").read_text())
    assert mini.keys() == schema["properties"].keys()
