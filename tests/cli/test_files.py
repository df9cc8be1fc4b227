"""Where results go: files, folders, the model itself, weights beside it, pages; in whatever encoding."""

import contextlib
import io
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
import structure
from adapter import run
from commands import PLAIN, S2B, ran, write
from onnx import numpy_helper, parser
from report_models import net

import onnx_spatial
from onnx_spatial import Verification, api
from onnx_spatial.report import graphs
from onnx_spatial.report import page as report_page
from onnx_spatial.verification import Unproven


@pytest.fixture(autouse=True)
def models(cli):
    for name, text in {"a.onnx": S2B, "b.onnx": S2B, "plain.onnx": PLAIN}.items():
        write(text, name)
    Path("bad.onnx").write_bytes(b"no model")


@pytest.mark.parametrize("made", [True, False])
def test_several_models_go_into_a_folder(made, cli):
    if made:
        Path("out").mkdir()
    done = cli("convert a.onnx plain.onnx -o out")
    assert done.code == 0 and sorted(os.listdir("out")) == ["a.onnx", "plain.onnx"]
    assert "a.onnx: 1 operator became" in done.out
    assert "plain.onnx: no spatial operators" in done.out
    assert done.lines[-1].startswith("2 written in ")


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ("convert bad.onnx a.onnx plain.onnx -o out/", "2 written, 1 failed: bad.onnx"),
        (
            "convert bad.onnx a.onnx plain.onnx --check",
            "1 would change, 1 unchanged, 1 failed: bad.onnx",
        ),
        ("convert a.onnx plain.onnx --in-place", "1 written, 1 unchanged"),
    ],
)
def test_the_last_line_counts_several_models(words, last, cli):
    assert re.sub(r" in \S+ [mu]?s", "", cli(words).lines[-1]) == last


def test_all_are_done_before_failing(cli):
    done = cli("convert bad.onnx a.onnx -o out/ --json")
    bad, good = done.document["models"]
    assert (done.code, bad["exit_code"], good["changed"]) == (2, 2, True)
    assert os.listdir("out") == ["a.onnx"] and "bad.onnx" in done.error
    done = cli("inspect bad.onnx a.onnx")
    assert done.code == 2 and "not an ONNX model" in done.error
    assert "1 spatial operator in domain" in done.out


def test_models_keep_their_folders_inside_the_output(cli):
    models = ["models/net/one/model.onnx", "models/net/two/model.onnx", "models/./three.onnx"]
    for model in models:
        write(S2B, model)
    assert cli(f"convert {Path(models[0]).absolute()} {' '.join(models[1:])} -o out -q").code == 0
    written = sorted(path.relative_to("out").as_posix() for path in Path("out").rglob("*.onnx"))
    assert written == ["net/one/model.onnx", "net/two/model.onnx", "three.onnx"]
    cli(f"convert {' '.join(models[:2])} -o pair/ -q")
    assert sorted(os.listdir("pair")) == ["one", "two"]


def test_one_model_goes_into_a_folder_or_a_file_with_a_suffix_or_that_exists(cli):
    cli("convert a.onnx -o out/ -q")
    cli("convert b.onnx -o out -q")
    assert sorted(os.listdir("out")) == ["a.onnx", "b.onnx"]
    Path("made_before").touch()
    for name in ("new.onnx", "new.model", "made_before"):
        assert cli(f"convert a.onnx -o {name} -q").code == 0
        assert onnx.load(name).graph.node


def test_check_writes_nothing_and_fails_if_a_model_would_change(cli):
    before = sorted(os.listdir())
    assert cli("convert plain.onnx --check").code == 0
    done = cli("convert a.onnx plain.onnx --check")
    assert done.code == 1 and "a.onnx: 1 operator became" in done.out and "PASSED" not in done.out
    assert done.out.count("would change; nothing was written") == 1
    assert sorted(os.listdir()) == before


def test_weights_beside_the_model(cli):
    text = S2B.replace("y = ai", "z = ai").replace("}\n", "y = Mul(z, w) }\n", 1)
    model = parser.parse_model(text)
    weight = np.arange(1000, dtype=np.float32).reshape(-1, 1, 1, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.output[0].type.tensor_type.elem_type = 1
    onnx.save(model, "w.onnx")
    for command in ("convert", "optimize"):
        cli(f"{command} w.onnx -o {command}/ --save-as-external-data --no-verify -q")
        assert sorted(os.listdir(command)) == ["w.onnx", "w.onnx.data"]
        assert (structure.initializer(onnx.load(f"{command}/w.onnx"), "w") == weight).all()


def test_in_place_converts_the_files_themselves_unless_it_fails(cli, monkeypatch):
    files = [Path(name).stat() for name in ("plain.onnx", "a.onnx")]
    before = [(each.st_mtime_ns, each.st_ino) for each in files]
    assert "nothing to do" in cli("convert plain.onnx --in-place").out
    failed = Verification("failed", "failed: on purpose")
    with monkeypatch.context() as patch:
        patch.setattr("onnx_spatial.api.verify_conversion", lambda *a, **k: failed)
        assert cli("convert a.onnx --in-place").code == 1
    files = [Path(name).stat() for name in ("plain.onnx", "a.onnx")]
    assert [(each.st_mtime_ns, each.st_ino) for each in files] == before
    assert "wrote a.onnx" in cli("convert a.onnx b.onnx --in-place").lines
    for name in ("a.onnx", "b.onnx"):
        assert all(node.domain == "" for node in onnx.load(name).graph.node)
    assert sorted(os.listdir()) == ["a.onnx", "b.onnx", "bad.onnx", "plain.onnx"]


def test_in_place_without_verification_keeps_the_original_and_says_where(cli):
    before = Path("a.onnx").read_bytes()
    document = cli("convert a.onnx --in-place --no-verify --json").document
    assert document["backup"] == "a.onnx.orig" and Path("a.onnx.orig").read_bytes() == before
    write(S2B, "a.onnx")
    done = cli("convert a.onnx --in-place --no-verify")
    assert "the original is kept as a.onnx.orig1" in done.lines


NAME = "swap/☃/é"
REPORTS = ("--junit-xml", "--html")
ENCODING = "cp1252"  # which lacks the snowman


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """A model, which lies in the current folder, too."""
    monkeypatch.chdir(tmp_path)
    made = onnx.parser.parse_model(S2B)
    made.graph.node[0].name = NAME
    onnx.save(made, "☃.onnx")
    return made


def printed(encoding: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code, and what a command writes to streams of that encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    texts = [stream.buffer.getvalue().decode(encoding) for stream in (out, err)]
    return code, texts[0], texts[1]


def escaped(text: str) -> str:
    return text.encode(ENCODING, "backslashreplace").decode(ENCODING)


def test_names_are_escaped_where_the_encoding_lacks_them_and_json_is_the_same(model):
    for command in ("inspect ☃.onnx", "convert ☃.onnx -o é☃.onnx", "verify ☃.onnx é☃.onnx",
                    "validate ☃.onnx"):  # fmt: skip
        code, out, err = printed(ENCODING, *command.split(), "-v")
        assert code == 0, err
        assert escaped("☃.onnx" if "validate" in command else NAME) in out, command
    code, out, _ = printed(ENCODING, "inspect", "☃.onnx", "--json")
    assert (code, json.loads(out)["operators"][0]["node"]) == (0, NAME)


def test_errors_are_told(model):
    model.graph.initializer[0].int32_data[1] = 0
    onnx.save(model, "☃.onnx")
    code, _, err = printed(ENCODING, "convert", "☃.onnx", "-o", "o.onnx")
    assert code == 3 and escaped(NAME) in err
    code, _, err = printed(ENCODING, "inspect", "none☃")
    assert code == 2 and escaped("none☃: cannot be read") in err


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_reports_are_utf_8_and_names_of_files_may_be_no_text(model, monkeypatch):
    reports = [word for option in REPORTS for word in (option, option[2:])]
    assert printed("ascii", "validate", "☃.onnx", *reports)[0] == 0
    assert "☃" in Path("html").read_text("utf-8")
    cases = ElementTree.fromstring(Path("junit-xml").read_bytes()).iter("testcase")
    assert any("☃" in str(case.attrib) for case in cases)
    path = os.fsdecode(b"\xff.onnx")
    Path("☃.onnx").rename(path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for wanted, command in (
        (0, ["inspect", path]),
        (0, ["convert", path, "-o", f"{path}.out"]),
        (2, ["convert", path, "-o", path]),
        (1, ["validate", path, "--expect-failure", "*", *reports]),
    ):
        code, out, err = printed("ascii", *command)
        assert code == wanted, err
        assert r"\udcff.onnx" in out + err, command
    assert all(Path(option[2:]).exists() for option in REPORTS)


def test_a_pipe_of_another_encoding(model):
    environment = {**os.environ, "PYTHONIOENCODING": ENCODING, "LC_ALL": "C"}
    done = ran("inspect ☃.onnx", env=environment, encoding=ENCODING)
    assert (done.code, done.err) == (0, "") and escaped(NAME) in done.out


GRAPHS = '<div class="graphs"'


@pytest.fixture
def page(cli):
    """Run a command that writes a page, and return the page."""
    onnx.save(net(20, 1), "net.onnx")

    def written(words: str, code: int = 0) -> str:
        done = cli(f"{words} --html report.html --json")
        assert done.code == code
        json.loads(done.out)  # stdout holds the document alone
        assert not [*Path().glob(".onnx-spatial-*")]
        text = Path("report.html").read_text("utf-8")
        assert text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n")
        return text

    return written


def test_every_command_writes_a_report(page):
    for words, code in (
        ("convert net.onnx --check", 1),
        ("verify net.onnx net.onnx", 1),
        ("validate net.onnx", 0),
    ):
        text, name = page(words, code), words.split()[0]
        assert f"<title>onnx-spatial {name}: net.onnx</title>" in text and GRAPHS in text


def test_failures_are_in_the_report(page, monkeypatch):
    wrong = onnx_spatial.convert("net.onnx").model
    (weight,) = [t for t in wrong.graph.initializer if t.name == "w"]
    array = numpy_helper.to_array(weight) + np.float32(1)
    weight.CopyFrom(numpy_helper.from_array(array, "w"))
    onnx.save(wrong, "wrong.onnx")
    text = page("verify net.onnx wrong.onnx", 1)
    assert "DIFFERS" in text and GRAPHS in text
    text = page("convert net.onnx missing.onnx --dry-run", 2)  # several: those that failed first
    index = text.partition("</table>")[0]
    assert index.index('href="#m2"') < index.index('href="#m1"')
    assert "missing.onnx: cannot be read" in text and text.count('<details class="model"') == 2
    refused = net(20, 1)
    (block,) = [tensor for tensor in refused.graph.initializer if tensor.name == "block"]
    block.CopyFrom(numpy_helper.from_array(np.array([3, 3]), "block"))
    onnx.save(refused, "refused.onnx")
    text = page(
        "validate refused.onnx", 1
    )  # drawn alone, with a link from the operator to its node
    assert f'{GRAPHS} data-sides="1" data-opened="0">' in text and 'data-region="0"' in text
    for found in (text, page("convert refused.onnx --dry-run", 3)):
        assert "is not divisible by its block" in found
    real, part = api.verify_conversion, Unproven("Conv node 'c'", "gave up", "a gap in the proof")

    def verifying(*arguments):
        return replace(real(*arguments), evidence="sampled", unproven=[part])

    monkeypatch.setattr(api, "verify_conversion", verifying)
    text = page("convert net.onnx -o out.onnx --strict-proof", 1)
    assert not Path("out.onnx").exists()
    assert '<span class="badge failed">failed</span>' in text and GRAPHS in text
    assert "2 operators became 1 dilated convolution" in text and "a gap in the proof" in text


def test_what_cannot_be_written_is_one_line(page, cli, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(report_page.os, "access", lambda path, mode: not mode & report_page.os.W_OK)
        done = cli("convert net.onnx --dry-run --html r.html")
        reason = "error: r.html: cannot be written: its folder is read-only"
        assert (done.code, done.out, done.error) == (2, "", reason)  # before any work
    error = OSError(28, "No space left on device")
    monkeypatch.setattr(report_page, "atomic_write", Mock(side_effect=error))
    done = cli("convert net.onnx -o out.onnx --html r.html -q")
    reason = "error: r.html: cannot be written: No space left on device"
    assert (done.code, done.error) == (2, reason)


def test_validation_has_a_section_for_each_model_and_graphs_within_its_room(page, monkeypatch):
    onnx.save(net(300, 2), "large.onnx")
    onnx.save(net(30, 1), "other.onnx")
    words = "validate large.onnx net.onnx other.onnx"
    text = page(words)
    assert text.count('<details class="model"') == text.count(GRAPHS) == 3
    assert text.count(">Outputs<") == text.count(">Operators and regions<") == 3
    badge = '<span class="badge passed">passed</span>'
    assert f'<p class="headline">{badge} 3 models: all passed in ' in text
    assert f"<dt>command</dt><dd>onnx-spatial {words} --seed 0</dd>" in text
    monkeypatch.setattr(graphs, "ROOM", 30_000)
    text = page(words)
    assert text.count(GRAPHS) == 2 and "nodes, are not drawn: they take" in text
