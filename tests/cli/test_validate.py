"""`onnx-spatial validate` as a person or a pipeline meets it."""

import re
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import in_process
from signals import below, heard, is_alive
from validating import FOREIGN, HANGING, PLAIN, REFUSED, STRANGE_DOMAIN, save

from onnx_spatial.cli.options import _parse_memory as memory_size
from onnx_spatial.validation import ModelResult, Report


@pytest.fixture(autouse=True)
def models(cli):
    for name, text in (("plain", PLAIN), ("bad one", REFUSED), ("foreign", FOREIGN)):
        save(Path(f"models/{name}.onnx"), text)


def test_all_pass(cli):
    save(Path("good/a.onnx"))
    save(Path("good/b\n::error::.onnx"), PLAIN)  # a line of :: is a command to GitHub's runner
    done = cli("validate good -j 2 -v --strict-proof --mode lower --mode function")
    assert (done.code, done.err) == (0, "")
    assert re.match(r"PASSED +good/a\.onnx +1 operator, .* (ms|us|s)$", done.lines[0])
    assert re.match(r"PASSED +good/b\\n::error::\.onnx +0 operators, ", done.lines[1])
    assert re.fullmatch(r"PASSED  2 models: all passed in .*", done.lines[-1])
    # Each mode is told as by `verify`, and proofs are counted over all.
    modes = re.findall(r"PASSED  mode (\w+): proven: 1 operator for every", done.out)
    assert modes == ["lower", "function"]
    assert "proven: 2 operators for every size" in done.lines and "  assumed: " in done.out


def test_one_fails_after_all_were_looked_at_and_the_line_to_see_it_again_works(cli):
    done = cli("validate models --seed 5 --mode function")
    assert done.code == 1
    assert [line.split()[0] for line in done.lines[:3]] == ["FAILED", "UNVERIFIED", "PASSED"]
    assert "convert:function: SpaceToBatchND node 's2b' (main graph): " in done.out
    last = "FAILED  3 models: 1 passed, 1 failed, 1 unverified in "
    assert done.lines[-1].startswith(last)
    command = "validate 'models/bad one.onnx' --seed 5 --mode function"
    assert f"  run it again with: onnx-spatial {command}" in done.lines
    assert cli(command).code == 1
    done = cli("validate models -q")
    assert done.out == "" and done.error.startswith("error: models/bad one.onnx: failed: ")
    done = cli("validate models --json")
    document = done.document
    assert (document["version"], document["exit_code"]) == (2, 1)
    assert [each["status"] for each in document["models"]] == ["failed", "unverified", "passed"]
    entry = document["models"][0]["entries"][0]
    assert (entry["level"], entry["source"], entry["nodes"]) == ("error", "convert:lower", ["s2b"])
    assert done.err.startswith("FAILED  3 models")


def test_what_is_not_verified_and_that_domains_and_files_of_others_are_told(cli):
    Path("text.onnx").write_bytes(b"no model")
    save(Path("strange.onnx"), STRANGE_DOMAIN)
    done = cli("validate models/foreign.onnx --strict")
    assert done.code == 1 and done.lines[-1].startswith("FAILED  1 model: 1 unverified in ")
    done = cli("validate text.onnx strange.onnx")
    assert "  load: is not an ONNX model" in done.out
    line = "domain 'somebody.else' is not accepted for this operator; use --domain somebody.else"
    assert done.code == 1 and line in done.out and cli("validate strange.onnx").code == 0


def test_reports_are_written_and_annotations_go_beside_them(cli, tmp_path, monkeypatch):
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }.items():
        monkeypatch.setenv(name, value)
    save(Path("m/a.onnx"), REFUSED)
    done = cli("validate m --junit-xml r.xml --json")
    assert done.document["status"] == "failed"
    (case,) = ElementTree.parse("r.xml").iter("testcase")
    assert [child.tag for child in case] == ["failure", "system-out"]
    assert "| failed | m/a.onnx | 1 |" in Path("summary.md").read_text()
    annotation = "::error file=m/a.onnx,title=onnx-spatial%3A FAILED [not-divisible]::failed: "
    assert done.err.startswith(annotation)


def test_off_a_terminal_each_model_has_its_line_when_it_is_done(cli, capsys, monkeypatch):
    seen = []

    def out_of_order(models, options, *, watch, **more):
        for number in (1, 0, 2):
            watch(number, ModelResult(models[number], "passed", "passed: yes"))
            seen.append(re.findall(r"^PASSED +models/(\w+)", capsys.readouterr().out, re.MULTILINE))
        return Report([], options)

    monkeypatch.setattr("onnx_spatial.validation.run.validate", out_of_order)
    assert cli("validate models").code == 0
    assert seen == [[], ["bad", "foreign"], ["plain"]]


def test_colours_are_forced_and_forbidden_and_bring_no_frames_of_a_spinner(cli, monkeypatch):
    name = "a name that a narrow table would fold " * 3
    save(Path(f"long/{name}.onnx"), REFUSED)
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = cli("validate long")
    assert done.err == "" and "\x1b[1;31mFAILED" in done.lines[0] and name in done.lines[0]
    monkeypatch.setenv("NO_COLOR", "1")
    # Bold is no colour: only the codes 30 to 49 and 90 to 107 are.
    codes = re.findall(r"\x1b\[([\d;]*)m", cli("validate long").out)
    assert {code for found in codes for code in found.split(";")} <= {"", "0", "1", "2"}
    sizes = {"500M": 500 << 20, "4g": 4 << 30, "1.5GiB": 3 << 29, "4096": 4096}
    assert {text: memory_size(None, None, text) for text in sizes} == sizes


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(("name", "jobs"), [("SIGINT", 1), ("SIGTERM", 2)])
def test_an_interrupt_ends_all_that_was_started_and_what_was_done_is_reported(name, jobs):
    for letter, text in zip("abc", (PLAIN, HANGING, HANGING), strict=True):
        save(Path(f"slow/{letter}.onnx"), text)
    with heard():
        process = in_process(f"validate slow --junit-xml r.xml -j {jobs}")
    assert re.match(r"PASSED +slow/a\.onnx ", process.stdout.readline())
    started: list[int] = []
    while process.poll() is None and len(started) < jobs:
        time.sleep(0.2)
        started = below(process.pid)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "error: interrupted")
    deadline = time.monotonic() + 10
    while any(map(is_alive, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, started))
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["SKIPPED", "SKIPPED"]
    assert lines[-1].startswith("INTERRUPTED  3 models: 1 passed, 2 skipped in ")
    cases = list(ElementTree.parse("r.xml").iter("testcase"))
    assert [case[0].tag for case in cases] == ["system-out", "skipped", "skipped"]
    assert {case[0].get("type") for case in cases[1:]} == {"not-run"}


def test_a_failure_that_is_expected_is_shown_and_does_not_fail_the_run(cli):
    done = cli("validate models --exclude foreign* --expect-failure bad*")
    assert done.code == 0 and "run it again" not in done.out
    assert re.search(r"^XFAILED +models/bad one\.onnx ", done.out, re.MULTILINE)
    assert done.lines[-1].startswith("PASSED  2 models: 1 passed, 1 xfailed")
    assert "matches no model" not in done.out
    done = cli("validate models/plain.onnx --expect-failure *")
    assert done.code == 1
    assert "expectation: expected to fail (--expect-failure), but it does not" in done.out
    again = "onnx-spatial validate models/plain.onnx --seed 0 --expect-failure models/plain.onnx"
    assert f"run it again with: {again}" in done.out
    out = cli("validate models --expect-failure bad* --expect-failure worse* --exclude worse").out
    assert "--expect-failure worse*: matches no model" in out
    assert "--exclude worse: matches no model; for a folder write 'worse/*'" in out


def test_names_of_dims_and_inputs_that_no_model_has_are_told(cli):
    save(Path("models/named.onnx"), PLAIN.replace("N", "Q"))
    done = cli("validate models --static Q=1 --static QQ=1 --shape x=4 --shape y=4")
    assert "--static QQ: no dim has this name in any model" in done.lines
    assert "--shape y: no input has this name in any model" in done.lines
    assert not any(line.startswith(("--static Q:", "--shape x:")) for line in done.lines)
