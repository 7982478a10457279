"""`specdrive budget`: table, JSON document, errors."""

import json

import pytest

from specdrive_ros.cli.main import main


def ask(capsys, *argv):
    assert main(["budget", *argv]) == 0
    return capsys.readouterr().out


def fault(capsys, *argv) -> str:
    assert main(["budget", *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_table(capsys):
    out = ask(capsys, "--device", "thor", "--precision", "nvfp4", "--draft", "eagle3", "--accepted-length", "5")
    for word in ("predicted, not measured", "prefill, 3027 tokens", "a pass of 60", "key-value cache"):
        assert word in out
    assert "bandwidth binds" in out
    assert "100 ms do not hold: without any reasoning a cycle takes" in out


def test_a_deadline_that_holds(capsys):
    out = ask(capsys, "--target", "mini", "--device", "orin-agx")
    assert "100 ms hold from an accepted length of 1 on" in out


def test_a_model_that_does_not_fit(capsys):
    assert "does not fit: " in ask(capsys, "--device", "orin-nano")


def test_json_document(capsys):
    asked = ("--device", "h200", "--draft", "dflash", "--accepted-length", "5", "7.4", "--json")
    document = json.loads(ask(capsys, *asked))
    assert document["predicted"] is True and document["device"] == "H200 SXM" and document["memory_gb"]["fits"]
    assert [one["accepted_length"] for one in document["cycles"]] == [1, 5, 7.4]
    fixed = sum(document["stages"][name]["ms"] for name in ("vision", "prefill", "action"))
    assert document["without_reasoning_ms"] == pytest.approx(fixed)
    for one in document["cycles"]:
        assert one["holds"] == (one["cycle_ms"] <= 100)
    assert document["binds"] in ("compute", "bandwidth", "launch overhead")


def test_all_devices(capsys):
    out = ask(capsys, "--device", "all", "--precision", "fp8", "--draft", "dflash", "--accepted-length", "7.4")
    assert "H200 SXM" in out and "has no fp8" in out
    document = json.loads(ask(capsys, "--device", "all", "--precision", "fp8", "--json"))
    errors = [one["device"] for one in document["devices"] if "error" in one]
    assert "Jetson AGX Orin 64GB" in errors and len(document["devices"]) > len(errors)


def test_check(capsys):
    out = ask(capsys, "--check")
    assert "fitted (bandwidth)" in out and "rows held out: error of the time" in out
    document = json.loads(ask(capsys, "--check", "--json"))
    fitted = [row for row in document["rows"] if row["fit"]]
    assert {row["time_error"] for row in fitted} == {None} and len(document["rows"]) > len(fitted)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "--device is missing; known names: drive-thor, h100"),
        (["--device", "mars"], "device 'mars': neither a file nor a name; known names: drive-thor"),
        (["--device", "h100", "--target", "nix"], "model 'nix': neither a folder nor a name; known names: mini"),
        (["--device", "h100", "--target", "qwen3-8b"], "it must be a driving model"),
        (["--device", "orin-agx", "--precision", "fp8"], "has no fp8 arithmetic"),
        (["--device", "h100", "--accepted-length", "3"], "without a draft it is 1"),
        (["--device", "h100", "--measured", "nix.json"], "nix.json: no measurement"),
        (["--device", "h100", "--reasoning", "0"], "reasoning must be a whole number of at least 1"),
        (["--device", "h100", "--reasoning", "99999999999"], "reasoning must be at most 100000, got 99999999999"),
    ],
)
def test_errors(capsys, argv, said):
    assert said in fault(capsys, *argv)
