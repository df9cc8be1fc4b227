"""Help: each option a sentence and in a group, examples that parse, completion of file names."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from adapter import run

from onnx_spatial.cli import options
from onnx_spatial.cli.main import commands

NAMES = sorted(name for name, c in commands.commands.items() if isinstance(c, options.Command))


def options_of(name: str) -> list[click.Option]:
    return [p for p in commands.commands[name].params if isinstance(p, click.Option)]


def test_every_command_has_grouped_help():
    assert {"convert", "inspect", "optimize", "validate", "verify"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_a_sentence_in_a_group(name):
    grouped = [option for group in options.OPTIONS.values() for option in group]
    for option in options_of(name):
        assert option in grouped, option.name
        assert re.fullmatch(r"[A-Z].*\.", option.help, re.DOTALL), option.help


@pytest.mark.parametrize("name", NAMES)
def test_help_has_every_option_once_and_fits(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    _, _, listed = re.split(rf"^({'|'.join(options.OPTIONS)}):$", text, maxsplit=1, flags=re.M)
    for option in options_of(name):
        assert len(re.findall(rf"^ +(?:-\w, )?{option.opts[-1]}\b[ \n]", listed, re.M)) == 1
    assert len(re.findall(r"^  -h, --help ", text, re.M)) == 1
    examples = text.partition("Examples:\n")[2].splitlines()
    assert len(examples) >= 2
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_command_lines(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for example in commands.commands[name].examples:
        command, *words = shlex.split(example)
        assert command == name
        # It parses: what fails comes later.
        commands.commands[command].make_context(name, words, resilient_parsing=False)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "explain"])
def test_models_are_completed_as_file_names(name):
    arguments = [p for p in commands.commands[name].params if isinstance(p, click.Argument)]
    context = click.Context(commands.commands[name])
    for argument in arguments:
        (item,) = argument.type.shell_complete(context, argument, "m")
        assert item.type == "file"


def test_a_call_without_arguments_gets_the_help(capsys):
    run([])
    shown = capsys.readouterr()
    text = shown.err or shown.out  # older versions of click print it to stdout
    assert text.startswith("Usage: onnx-spatial")
    assert run(["convert"]) == 2
