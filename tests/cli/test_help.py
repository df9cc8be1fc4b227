"""Help: every option is a sentence in a group, and shown without importing what takes long."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import onnx_spatial
from onnx_spatial.cli import options
from onnx_spatial.cli.main import commands
from onnx_spatial.conversion import options as choices

NAMES = ["convert", "inspect", "optimize", "validate", "verify"]


@pytest.mark.parametrize("name", NAMES)
def test_help_has_every_option_once_as_a_sentence_in_a_group_and_fits(name, cli, monkeypatch):
    assert sorted(commands.commands) == NAMES
    command = commands.commands[name]
    own = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    grouped = [option for group in options.OPTIONS.values() for option in group]
    monkeypatch.setenv("COLUMNS", "80")
    text = cli(f"{name} --help").out
    _, _, listed = re.split(rf"^({'|'.join(options.OPTIONS)}):$", text, maxsplit=1, flags=re.M)
    for option in own:
        assert option in grouped and re.fullmatch(r"[A-Z].*\.", option.help, re.DOTALL)
        assert len(re.findall(rf"^ +(?:-\w, )?{option.opts[-1]}\b[ \n]", listed, re.M)) == 1
    assert len(re.findall(r"^  -h, --help ", text, re.M)) == 1
    examples = [line.strip() for line in text.partition("Examples:\n")[2].splitlines()]
    assert len(examples) >= 2 and max(map(len, text.splitlines())) <= 80
    for argument in (each for each in command.params if isinstance(each, click.Argument)):
        (item,) = argument.type.shell_complete(click.Context(command), argument, "m")
        assert item.type == "file"
    for example in examples:  # it parses: what fails comes later
        program, first, *words = shlex.split(example)
        assert (program, first) == ("onnx-spatial", name)
        command.make_context(name, words, resilient_parsing=False)


def test_a_call_without_arguments_gets_the_help(cli):
    shown = cli("")
    text = shown.err or shown.out  # older versions of click print it to stdout
    assert text.startswith("Usage: onnx-spatial")


MODELS = Path(__file__).parents[2] / "models"
HEAVY = ("google.protobuf", "numpy", "onnx", "onnx_ir", "onnxruntime", "rich", "sympy")
#: Run command lines in one process.
RUN = """
import os, sys
from onnx_spatial.cli import main
def run(words, **environment):
    os.environ.update(environment)
    try:
        main(words.split())
    except SystemExit as end:
        assert not end.code, end.code
"""


def ran(code: str) -> tuple[list[str], list[str]]:
    """The lines that a fresh process prints, and the heavy packages that it imports."""
    look = f"\nprint('imported:', *(name for name in {HEAVY} if name in sys.modules))"
    command = [sys.executable, "-c", f"import sys\n{code}{look}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    return lines, last.split()[1:]


def test_help_and_version_import_nothing_heavy():
    every = ["--version", "--help", *(f"{name} --help" for name in commands.commands)]
    lines, imported = ran(f"{RUN}\nfor words in {every}: run(words)")
    assert sum("onnx-spatial" in line for line in lines) >= len(every)
    assert imported == []


COMPLETED = {
    "onnx-spatial ": [*commands.commands],
    "onnx-spatial convert --mo": ["--mode"],
    "onnx-spatial convert --mode ": [*choices.MODES],
    "onnx-spatial inspect --prefer ": [*choices.LOWERING_NAMES],
}


def test_completion_imports_nothing_heavy():
    code = RUN
    for words in COMPLETED:
        number = len(words.split()) - (not words.endswith(" "))
        code += f"""
run("", _ONNX_SPATIAL_COMPLETE="bash_complete", COMP_WORDS={words!r}, COMP_CWORD="{number}")"""
    code += '\nrun("", _ONNX_SPATIAL_COMPLETE="zsh_source")'
    lines, imported = ran(code)
    found = [line.partition(",")[2] for line in lines if line.startswith("plain,")]
    assert sorted(found) == sorted(name for names in COMPLETED.values() for name in names)
    assert any("#compdef onnx-spatial" in line for line in lines)
    assert imported == []


def test_the_package_imports_nothing_heavy_before_it_is_used():
    code = """
import onnx_spatial; dir(onnx_spatial)
from onnx_spatial import SpatialError, UsageError, __version__
from onnx_spatial.validation import Options, Report; Options()"""
    assert ran(code) == ([], [])
    shown = "import onnx_spatial.{}; print(onnx_spatial.verify, onnx_spatial.convert)"
    for first in ("verification.run.sessions", "api", "cli.commands"):  # which are modules, too
        assert ran(shown.format(first))[0][0].count("<function") == 2
    assert {"numpy", "onnx", "onnx_ir", "onnxruntime"} <= {*ran(f"{code}\nonnx_spatial.convert")[1]}


def test_commands_load_neither_sympy_nor_what_verify_does_without(tmp_path):
    """onnx_ir imports sympy, which takes some 0.4 s; the model has sizes with names."""
    model = str(MODELS / "yolov2_dynamic" / "model.onnx")
    converted = str(tmp_path / "converted.onnx")
    onnx_spatial.convert(model, converted, verify=False)
    code = f"""{RUN}
import gc
run("verify -q {model} {converted}")
unneeded = ("chains.find_chains", "report.page", "report.graphs")
print(*(name for name in unneeded if f"onnx_spatial.{{name}}" in sys.modules), gc.isenabled())
print(type(sys.modules["onnx.reference"]).__name__)
run("inspect -q {model}")
print("onnx_ir" in sys.modules, "sympy.core" in sys.modules)"""
    assert ran(code)[0] == ["True", "_LazyModule", "True False"]
