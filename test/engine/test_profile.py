"""Build profiles: the shipped ones are right, wrong ones are refused with the rule and the value."""

import json

import pytest
import yaml

from specdrive_ros.engine.axes import AXES, Range, letters_of, profile_shapes
from specdrive_ros.engine.profile import BuildProfile, find_profile, profile_names
from specdrive_ros.errors import InputError
from specdrive_ros.installation import data_roots

ROOT = data_roots()[0] / "engines"
GOOD = {"graphs": {"action_step": [{"S": [1, 16, 32]}]}}


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profiles(name):
    profile = find_profile(name)
    assert {"vision", "text", "action_step"} <= profile.graphs.keys() <= AXES.keys()
    assert find_profile(ROOT / "profiles" / f"{name}.yaml") == profile


def test_the_devices_that_were_promised():
    assert {"rtx-ada", "rtx-ampere", "rtx-blackwell", "orin-agx", "thor", "h200"} <= set(profile_names())
    targets = {find_profile(name).targets for name in ("rtx-ampere", "rtx-ada", "rtx-blackwell")}
    assert targets == {("8.6",), ("8.9",), ("12.0",)}


def test_schema_says_what_the_code_says():
    """Keys, choices and graphs of the schema are those that are read."""
    schema = json.loads((ROOT / "profile.schema.json").read_text())
    fields = set(BuildProfile.__dataclass_fields__) - {"name"}
    assert set(schema["properties"]) == fields and schema["required"] == ["graphs"]
    assert set(schema["properties"]["graphs"]["properties"]) == set(AXES)
    letters = {letter for graph in AXES for letter in letters_of(graph)}
    assert set(schema["$defs"]["profiles"]["items"]["propertyNames"]["enum"]) == letters
    profile = BuildProfile("x", {})
    for name, rule in schema["properties"].items():
        if "default" in rule:
            value = getattr(profile, name)
            assert (list(value) if isinstance(value, tuple) else value) == rule["default"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"builder": "trtexec"}, "builder must be one of auto, tensorrt, tensorrt_rtx, got 'trtexec'"),
        ({"precision": "int3"}, "precision must be one of fp32, fp16, bf16, got 'int3'"),
        (
            {"targets": [8.9]},
            'targets must be a list of compute capabilities such as "8.9", or only "current", got [8.9]',
        ),
        ({"targets": []}, "targets must be"),
        ({"targets": ["current", "8.9"]}, "targets must be"),
        ({"targets": ["8.9", "8.9"]}, "targets must be"),
        ({"targets": "8.9"}, "targets must be a list, got '8.9'"),
        ({"workspace_mb": -1}, "workspace_mb must be a whole number 0 … 1048576, got -1"),
        ({"workspace_mb": True}, "workspace_mb must be"),
        ({"optimisation_level": 6}, "optimisation_level must be a whole number 0 … 5, got 6"),
        ({"on_mismatch": "ignore"}, "on_mismatch must be one of rebuild, refuse, got 'ignore'"),
        ({"optimization_level": 3}, "keys among"),
        ({"graphs": {}}, "graphs must be"),
        ({"graphs": []}, "graphs must be"),
        ({"graphs": {"action": [{"S": [1, 2, 3]}]}}, "graphs must be one of vision, text, action_step"),
        ({"graphs": {"action_step": {"S": [1, 2, 3]}}}, "action_step must be a list of mappings"),
        ({"graphs": {"action_step": [{}]}}, "action_step: a profile gives a range for each of S, got {}"),
        ({"graphs": {"action_step": [{"S": [1, 2, 3], "T": [1, 2, 3]}]}}, "a range for each of S"),
        ({"graphs": {"action_step": [{"S": [3, 2, 1]}]}}, "S must be three whole numbers [least, best, largest]"),
        ({"graphs": {"action_step": [{"S": [0, 0, 0]}]}}, "largest >= 1, got [0, 0, 0]"),
        ({"graphs": {"action_step": [{"S": [1, 2]}]}}, "got [1, 2]"),
        ({"graphs": {"action_step": [{"S": [1, 2, "many"]}]}}, "got [1, 2, 'many']"),
        ({"graphs": {"action_step": [{"S": 5}]}}, "got 5"),
        ({"graphs": {"vision": [{"I": [1, 1, 1], "P": [4, 6, 8]}]}}, "P must be multiples of 4, got [4, 6, 8]"),
    ],
)
def test_wrong_values(tmp_path, change, said):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD | change))
    with pytest.raises(InputError) as caught:
        find_profile(path)
    assert str(caught.value).startswith(f"{path}: ") and said in str(caught.value)


@pytest.mark.parametrize("content", ["", "[", "a: b: c", "- 1", "\x00", "graphs: 2026-13-45"])
def test_no_yaml(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match="mine.yaml: "):
        find_profile(path)


def test_a_file_is_a_profile_whatever_its_suffix(tmp_path):
    path = tmp_path / "mein Gerät.txt"
    path.write_text(yaml.safe_dump(GOOD))
    assert find_profile(path).name == "mein Gerät"
    path.write_text("")
    with pytest.raises(InputError, match="mein Gerät.txt: must be a mapping"):
        find_profile(path)


def test_no_profile_of_that_name():
    with pytest.raises(InputError, match="'rtx': no such file, nor a name; known names: .*rtx-ada"):
        find_profile("rtx")
    with pytest.raises(InputError, match="none.yaml: no such profile"):
        find_profile("none.yaml")


def test_what_makes_another_engine_is_in_the_identity():
    profile = find_profile("rtx-ada")
    assert profile.identity_of("vision") != profile.identity_of("text")
    assert find_profile("rtx-ada").identity_of("text") == profile.identity_of("text")


def test_shapes_of_a_mask_are_sums():
    ranges = {"T": Range(1, 16, 64), "S": Range(0, 100, 512), "R": Range(1, 1, 8)}
    assert profile_shapes("text", "mask", (-1, -1), ranges) == ((1, 1), (16, 116), (64, 576))
    assert profile_shapes("text", "past_3", (-1, 2, 8, 128), ranges)[2] == (512, 2, 8, 128)
    assert profile_shapes("text", "hidden", (7, 64), ranges) == ()
    with pytest.raises(InputError, match="text: input hidden varies in axis 1, which no table knows"):
        profile_shapes("text", "hidden", (-1, -1), ranges)
