"""The documentation: messages are quoted as the tools say them, and links lead somewhere.

That every page is in a table of contents, and every reference leads to something, the build of the
site holds: its warnings are errors.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
import pytest
from building import one_node
from onnx import parser
from onnx.reference import ReferenceEvaluator

from onnx_spatial.cli.main import commands

TOP = Path(__file__).parents[1]
DOCS = TOP / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


def slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", [*PAGES, TOP / "README.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), target
        if anchor and to.suffix == ".md":
            assert anchor in anchors(to), target


@pytest.mark.parametrize("page", [*PAGES, TOP / "README.md"], ids=lambda p: p.name)
def test_the_package_is_installed_from_its_repository(page):
    """No release exists: `pip install onnx-spatial`, also with an extra, is a command that fails."""
    commands = re.findall(r"pip install ([^\n`&#]*)", page.read_text("utf-8"))
    packages = [word.strip("'\"") for command in commands for word in command.split()]
    releases = [word for word in packages if re.fullmatch(r"onnx-spatial(\[.*\])?", word)]
    assert len(releases) == sum(command.count("onnx-spatial @ git+") for command in commands)


def test_files_and_folders_that_contributors_look_for_exist():
    text = (DOCS / "contributing.md").read_text("utf-8")
    command = re.search(r"^python -m pytest (tests/operators (?:[^\n\\]|\\\n)*)$", text, re.M)
    assert command is not None
    named = {*command[1].replace("\\\n", " ").split()}
    named |= {*re.findall(r"`((?:[a-z_.]+/)+(?:[a-z_]+\.py)?)`", text)}
    assert len(named) > 30
    here = (TOP, TOP / "onnx_spatial")
    assert [path for path in named if not any((top / path).exists() for top in here)] == []


#: Messages of other tools that the page of errors quotes.
QUOTES = re.findall(r"(?<=[|>] )`([^`]+)`(?= [|<])", (DOCS / "errors.md").read_text("utf-8"))


def spatial(domain: str) -> bytes:
    data = np.zeros((4, 2, 2, 1), np.float32), np.array([2, 2]), np.zeros((2, 2), np.int64)
    model = one_node("SpaceToBatchND", data, domain=domain)
    del model.opset_import[1:]
    return bytes(model.SerializeToString())


def zoo(name: str) -> bytes:
    return (TOP / "models" / name / "model.onnx").read_bytes()


def same_padding() -> bytes:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,8,8] x) => (float[1,1,8,8] y)
        <float[1,1,3,3] w = {1, 1, 1, 1, 1, 1, 1, 1, 1}> {
            y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 2]> (x, w) }"""
    return bytes(parser.parse_model(text).SerializeToString())


def loaded(model: bytes) -> None:
    """Load in a process of its own: what it says of a domain depends on sessions made before."""
    program = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.stdin.buffer.read())"
    run = subprocess.run([sys.executable, "-c", program], input=model, capture_output=True)
    if run.returncode:
        raise RuntimeError(run.stderr.decode())


def run(model: bytes) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options)
    session.run(None, {"x": np.ones((1, 1, 8, 8), np.float32)})


def checked(model: bytes) -> None:
    onnx.checker.check_model(onnx.load_from_string(model))


def evaluated(model: bytes) -> None:
    ReferenceEvaluator(onnx.load_from_string(model))


@pytest.mark.parametrize(
    ("words", "tool", "model"),
    [
        ("tensorflow:SpaceToBatchND(-1)", loaded, zoo("wavenet")),
        ("org.openvinotoolkit:SpaceToBatch(-1)", loaded, zoo("openvino_style")),
        ("[TypeInferenceError]", loaded, zoo("raft")),
        ("No Op registered", loaded, spatial("")),
        ("No Op registered", checked, spatial("")),
        ("No opset import", loaded, spatial("ai.onnx.contrib")),
        ("has input size 3 not in range", loaded, zoo("leftover")),
        ("is unknown", evaluated, zoo("wavenet")),
        ("Dilation not supported", run, same_padding()),
    ],
)
def test_the_page_of_errors_quotes_what_the_tools_say(words, tool, model):
    quote = next(text for text in QUOTES if words in text)
    with pytest.raises(Exception) as caught:  # noqa: PT011  of the tools' own types
        tool(model)
    text = f"{caught.type.__name__}: {caught.value}"
    assert re.search(re.escape(quote).replace(r"\.\.\.", ".*"), text), text


@pytest.mark.parametrize("page", [*PAGES, TOP / "README.md"], ids=lambda p: p.name)
def test_commands_can_be_pasted(page, tmp_path, monkeypatch):
    """Each line that begins with the program parses: its command, options and values exist."""
    monkeypatch.chdir(tmp_path)
    program = click.Context(commands, **commands.context_settings)
    for name in ("data.npz", "inputs.npz"):
        (tmp_path / name).touch()
    blocks = re.findall(r"^ *```console\n(.*?)^ *```", page.read_text("utf-8"), re.M | re.S)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        command = line.strip().removeprefix("$ ")
        if re.match("onnx-spatial [a-z]", command):
            _, name, *words = shlex.split(command, comments=True)
            context = commands.commands[name].make_context(name, words, parent=program)
            assert not context.args
