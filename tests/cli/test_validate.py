"""`onnx-spatial validate` as a person or a pipeline meets it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from adapter import run
from signals import heard
from validating import FOREIGN, HANGING, PLAIN, REFUSED, STRANGE_DOMAIN, save

from onnx_spatial.cli.options import _memory as memory_size
from onnx_spatial.validation import ModelResult, Options, Report


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; nothing of a CI system is around."""
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_pass(folder, capsys):
    save(folder / "models" / "a.onnx")
    save(folder / "models" / "b.onnx", PLAIN)
    assert run(["validate", "models", "-j", "2"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert re.match(r"PASSED +models/a\.onnx +1 operator, .* (ms|us|s)$", lines[0])
    assert re.match(r"PASSED +models/b\.onnx +0 operators, ", lines[1])
    assert re.fullmatch(r"PASSED  2 models: 2 passed in .*", lines[-1])
    assert "\x1b" not in out + err
    assert err == ""


def test_one_fails_after_all_were_looked_at_and_the_line_to_see_it_again_works(folder, capsys):
    save(folder / "models" / "a bad.onnx", REFUSED)
    save(folder / "models" / "b.onnx", FOREIGN)
    save(folder / "models" / "c.onnx", PLAIN)
    assert run(["validate", "models", "--seed", "5", "--mode", "function"]) == 1
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["FAILED", "UNVERIFIED", "PASSED"]
    assert "convert:function: SpaceToBatchND node 's2b' (main graph): " in out
    last = out.splitlines()[-1]
    assert last.startswith("FAILED  3 models: 1 passed, 1 failed, 1 unverified in ")
    command = "onnx-spatial validate 'models/a bad.onnx' --seed 5 --mode function"
    assert f"run it again with: {command}\n" in out
    assert run(["validate", "models/a bad.onnx", "--seed", "5", "--mode", "function"]) == 1


def test_strict_fails_what_was_not_verified(folder, capsys):
    save(folder / "a.onnx", FOREIGN)
    assert run(["validate", "a.onnx"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("UNVERIFIED  1 model: 1 unverified")
    assert run(["validate", "a.onnx", "--strict"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAILED  1 model: 1 unverified")


def test_an_operator_that_an_option_would_convert_is_shown_with_the_option(folder, capsys):
    save(folder / "a.onnx", STRANGE_DOMAIN)
    assert run(["validate", "a.onnx"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("  inspect: ")]
    assert line.endswith(
        "domain 'somebody.else' is not accepted for this operator; use --domain somebody.else"
    )


def test_json_is_alone_on_stdout(folder, capsys):
    save(folder / "a.onnx", PLAIN)
    save(folder / "b.onnx", REFUSED)
    assert run(["validate", ".", "--json"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["version"], document["exit_code"]) == (2, 1)
    assert [m["status"] for m in document["models"]] == ["passed", "failed"]
    entry = document["models"][1]["entries"][0]
    assert (entry["level"], entry["source"], entry["nodes"]) == ("error", "convert:lower", ["s2b"])
    assert err.startswith("FAILED  2 models")


def test_quiet_prints_errors_only(folder, capsys):
    save(folder / "a.onnx", PLAIN)
    save(folder / "b.onnx", REFUSED)
    assert run(["validate", "a.onnx", "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert run(["validate", ".", "-q"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: b.onnx: failed: ") and err.count("\n") == 1


def test_reports_are_written_and_annotations_go_beside_them(folder, capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    save(folder / "m" / "a.onnx", REFUSED)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    assert run(["validate", "m", "--junit-xml", "r.xml", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "failed"
    (case,) = ElementTree.parse(folder / "r.xml").iter("testcase")
    assert [child.tag for child in case] == ["failure", "system-out"]
    assert "| failed | m/a.onnx | 1 |" in (folder / "summary.md").read_text()
    assert err.startswith(
        "::error file=m/a.onnx,title=onnx-spatial%3A FAILED [not-divisible]::failed: "
    )


def test_verbose_says_how_far_it_is_and_what_was_compared(folder, capsys):
    save(folder / "a.onnx")
    assert run(["validate", "a.onnx", "-v"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert re.match(r"PASSED +a\.onnx  1 operator, ", out)
    assert "proven: 1 operator for every size; outputs are equal in every bit" in out


def test_proofs_are_counted_over_all_models_and_modes(folder, capsys):
    save(folder / "a.onnx")
    save(folder / "b.onnx", PLAIN)
    assert (
        run(["validate", ".", "--strict-proof", "-v", "--mode", "lower", "--mode", "function"]) == 0
    )
    out = capsys.readouterr().out
    assert out.count("PASSED  proven: 1 operator for every size; ") == 2
    assert "proven: 2 operators for every size" in out.splitlines()
    assert "  assumed: " in out


def test_off_a_terminal_each_model_has_its_line_when_it_is_done(folder, capsys, monkeypatch):
    for name in "abc":
        save(folder / f"{name}.onnx", PLAIN)
    seen = []

    def out_of_order(models, options, *, watch, **more):
        for number in (1, 0, 2):
            watch(number, ModelResult(models[number], "passed", "passed: yes"))
            seen.append(re.findall(r"^PASSED +(\S+)", capsys.readouterr().out, re.MULTILINE))
        return Report([], options)

    monkeypatch.setattr("onnx_spatial.validation.run.validate", out_of_order)
    assert run(["validate", "."]) == 0
    assert seen == [[], ["a.onnx", "b.onnx"], ["c.onnx"]]


def test_colour_that_is_forced_brings_no_frames_of_a_spinner(folder, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    name = "a name that a narrow table would fold " * 3
    save(folder / f"{name}.onnx", REFUSED)
    assert run(["validate", "."]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b[1;31mFAILED" in out.splitlines()[0] and name in out.splitlines()[0]


def test_no_color_is_stronger_than_force_color(folder, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    save(folder / "a.onnx", REFUSED)
    assert run(["validate", "."]) == 1
    # Bold is no colour: only the codes 30 to 49 and 90 to 107 are.
    codes = re.findall(r"\x1b\[([\d;]*)m", capsys.readouterr().out)
    assert {code for found in codes for code in found.split(";")} <= {"", "0", "1", "2"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["empty"], "contains no .onnx file"),
        (["a.onnx", "*.tflite"], "matches no file"),
        (["a.onnx", "--memory", "lots"], "--memory must be a size"),
        (["a.onnx", "--junit-xml", "no/r.xml"], "no/r.xml: cannot be written"),
        (["a.onnx", "--executor", "dask"], "requires --scheduler"),
        (["a.onnx", "--scheduler", "tcp://x"], "requires --executor dask"),
        (
            ["a.onnx", "--executor", "dask", "--scheduler", "x", "-j", "2"],
            "--jobs cannot be combined with --executor",
        ),
        (["a.onnx", "--static", "N"], "--static must be"),
        (["a.onnx", "--seed", "-1"], "seed must be 0 or more"),
        (["a.onnx", "--timeout", "nan"], "timeout must be above 0"),
        ([], "PATH"),
    ],
)
def test_bad_usage_ends_before_any_work(folder, capsys, arguments, reason):
    save(folder / "a.onnx")
    (folder / "empty").mkdir()
    started = time.monotonic()
    assert run(["validate", *arguments]) == 2
    assert time.monotonic() - started < 10
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert "Traceback" not in err


def test_a_file_that_is_no_model_is_a_failure_and_not_bad_usage(folder, capsys):
    (folder / "a.onnx").write_bytes(b"no model")
    assert run(["validate", "a.onnx"]) == 1
    assert "load: is not an ONNX model" in capsys.readouterr().out


def test_a_timeout_is_in_the_command_that_reproduces_it():
    late = ModelResult.without("a.onnx", "failed", "timeout", "it took longer than 3 s")
    wrong = ModelResult.without("b.onnx", "failed", "difference", "it differs")
    report = Report([late, wrong], Options(), limits={"--timeout": "3"})
    assert report.command(late) == "onnx-spatial validate a.onnx --seed 0 --timeout 3"
    assert report.command(wrong) == "onnx-spatial validate b.onnx --seed 0"


@pytest.mark.parametrize(
    ("text", "size"), [("500M", 500 << 20), ("4g", 4 << 30), ("1.5GiB", 3 << 29), ("4096", 4096)]
)
def test_sizes_of_memory(text, size):
    assert memory_size(None, None, text) == size


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_ends_all_that_was_started_and_what_was_done_is_reported(folder, name, jobs):
    save(folder / "a.onnx", PLAIN)
    save(folder / "b.onnx", HANGING)
    save(folder / "c.onnx", HANGING)
    process, started = at_work(".", "--junit-xml", "r.xml", jobs=jobs)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == "error: interrupted"
    assert all_gone(started)
    assert sorted(os.listdir()) == ["a.onnx", "b.onnx", "c.onnx", "r.xml"]
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["SKIPPED", "b.onnx"],
        ["SKIPPED", "c.onnx"],
    ]
    assert out.splitlines()[-1].startswith("INTERRUPTED  3 models: 1 passed, 2 skipped in ")
    cases = list(ElementTree.parse(folder / "r.xml").iter("testcase"))
    assert [case[0].tag for case in cases] == ["system-out", "skipped", "skipped"]
    assert {case[0].get("type") for case in cases[1:]} == {"not-run"}


def at_work(*arguments: str, jobs: int = 1) -> tuple[subprocess.Popen[str], list[int]]:
    """The command once its first model is done and others are being looked at; its processes."""
    command = [sys.executable, "-P", "-m", "onnx_spatial.cli", "validate", *arguments]
    with heard():
        process = subprocess.Popen(
            [*command, "-j", str(jobs)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    assert process.stdout is not None
    assert re.match(r"PASSED +a\.onnx ", process.stdout.readline())
    started: list[int] = []
    while process.poll() is None and len(started) < jobs:
        time.sleep(0.05)
        started = below(process.pid)
    return process, started


def all_gone(processes: list[int]) -> bool:
    """Whether they have ended, or do within seconds."""
    deadline = time.monotonic() + 10
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_alive, processes))


def below(pid: int) -> list[int]:
    """Processes that a process started, and theirs."""
    found = []
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for word in child.read_text().split():
            found += [int(word), *below(int(word))]
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_failure_that_is_expected_is_shown_and_does_not_fail_the_run(folder, capsys):
    save(folder / "bad one.onnx", REFUSED)
    save(folder / "good.onnx", PLAIN)
    assert run(["validate", ".", "--expect-failure", "bad*"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^XFAILED +bad one\.onnx ", out, re.MULTILINE)
    assert "run it again" not in out
    assert out.splitlines()[-1].startswith("PASSED  2 models: 1 passed, 1 xfailed")
    assert "matches no model" not in out
    assert run(["validate", ".", "--expect-failure", "*"]) == 1
    out = capsys.readouterr().out
    assert "expectation: expected to fail (--expect-failure), but it does not" in out
    assert run(["validate", ".", "--expect-failure", "bad*", "--expect-failure", "worse*"]) == 0
    assert "--expect-failure worse*: matches no model" in capsys.readouterr().out
    assert run(["validate", ".", "--exclude", "bad*", "--exclude", "worse"]) == 0
    assert "leaves out" in (shown := capsys.readouterr().out) and shown.count("leaves out") == 1
    assert "--exclude worse: leaves out no model; for a folder write 'worse/*'" in shown
    assert (
        "run it again with: onnx-spatial validate good.onnx --seed 0 --expect-failure good.onnx"
        in out
    )


def test_a_name_with_line_breaks_stays_in_its_line(folder, capsys):
    """A line that begins with :: is a command to GitHub's runner."""
    save(folder / "models" / "a\n::error::b.onnx", PLAIN)
    assert run(["validate", "models", "-v"]) == 0
    out, err = capsys.readouterr()
    assert not re.search(r"^::", out + err, re.MULTILINE)
    assert r"models/a\n::error::b.onnx  0 operators" in out
