"""The documentation: links lead somewhere, and commands can be pasted.

That every page is in a table of contents, and every reference leads to something, the build of the
site holds: its warnings are errors.
"""

import re
import shlex
from pathlib import Path

import click
import pytest

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
    named |= {*re.findall(r"\btests/[a-z_/]+(?:\.py)?", text)}
    assert len(named) > 30
    here = (TOP, TOP / "onnx_spatial")
    assert [path for path in named if not any((top / path).exists() for top in here)] == []


def test_commands_can_be_pasted(tmp_path, monkeypatch):
    """Each line that begins with the program parses: its command, options and values exist."""
    monkeypatch.chdir(tmp_path)
    program = click.Context(commands, **commands.context_settings)
    for name in ("data.npz", "inputs.npz"):
        (tmp_path / name).touch()
    text = "\n".join(page.read_text("utf-8") for page in [*PAGES, TOP / "README.md"])
    blocks = re.findall(r"^ *```console\n(.*?)^ *```", text, re.M | re.S)
    lines = [line.strip() for line in "\n".join(blocks).replace("\\\n", " ").splitlines()]
    given = [
        line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?onnx-spatial [a-z]", line)
    ]
    assert len(given) > 15
    for command in given:
        _, name, *words = shlex.split(command, comments=True)
        context = commands.commands[name].make_context(name, words, parent=program)
        assert not context.args
