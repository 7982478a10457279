"""What is installed for which command, and the messages that are built with it."""

import shutil

import pytest

from specdrive_ros.cli.commands import COMMANDS

from .script import SCRIPT


def test_requirements_are_read_as_toml_has_them(real):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib to compare with")
    text = (SCRIPT.parent / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    assert real.read_requirements(text) == {"": project["dependencies"], **project["optional-dependencies"]}


def test_driving_needs_no_torch_and_testing_does(real):
    assert not any(
        name.startswith(("torch", "transformers")) for name in real.requirements(["", "ros", "colcon"])
    )
    assert "torch==2.13.0" in real.requirements(["test"])


def test_folders_of_the_machine_that_built_the_wheels_are_replaced(bootstrap, monkeypatch):
    python = "/opt/python/cp312-cp312"
    numpy_headers = f"{python}/lib/python3.12/site-packages/numpy/_core/include"
    path = bootstrap.VENV / "share/std_msgs/cmake/export.cmake"
    path.parent.mkdir(parents=True)
    path.write_text(f'set(X "${{_PREFIX}}/include;{python}/include/python3.12;{numpy_headers}")')
    answer = "/usr/include/python3.12\n/venv/numpy/include\n"
    monkeypatch.setattr(bootstrap, "python_says", lambda code: answer)
    for _ in range(2):
        bootstrap.rewrite_build_paths()
        assert path.read_text() == 'set(X "${_PREFIX}/include;/usr/include/python3.12;/venv/numpy/include")'


def test_every_extra_of_a_command_exists(real):
    lists = real.read_requirements((SCRIPT.parent / "pyproject.toml").read_text())
    assert {command.extra for command in COMMANDS.values()} <= set(lists)


def test_messages_are_built_again_when_a_definition_changes(real, monkeypatch, tmp_path):
    for folder in ("msg", "interfaces"):
        shutil.copytree(SCRIPT.parent / folder, tmp_path / folder)
    for name in ("CMakeLists.txt", "package.xml", "pyproject.toml"):
        shutil.copy(SCRIPT.parent / name, tmp_path)
    monkeypatch.setattr(real, "ROOT", tmp_path)
    before = real.messages_key(None)
    assert real.messages_key(None) == before
    (tmp_path / "msg/Reasoning.msg").write_text("string text\n")
    assert real.messages_key(None) != before


def test_a_build_that_fails_leaves_the_messages_there_are(bootstrap, monkeypatch):
    def fail(*_):
        raise bootstrap.SetupError("out of memory")

    built = bootstrap.INSTALL / "lib"
    built.mkdir(parents=True)
    for name in ("check_compiler", "stage_sources", "message_packages"):
        monkeypatch.setattr(bootstrap, name, lambda *_: [])
    monkeypatch.setattr(bootstrap, "run_logged", fail)
    with pytest.raises(bootstrap.SetupError):
        bootstrap.build_messages(None)
    assert built.is_dir()
