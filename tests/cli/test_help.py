"""Help: each option a sentence and in a group, examples that parse, completion of file names."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from onnx_spatial.cli import options
from onnx_spatial.cli.main import commands

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
    for example in examples:  # it parses: what fails comes later
        program, first, *words = shlex.split(example)
        assert (program, first) == ("onnx-spatial", name)
        command.make_context(name, words, resilient_parsing=False)


@pytest.mark.parametrize("name", NAMES)
def test_models_are_completed_as_file_names(name):
    command = commands.commands[name]
    for argument in (each for each in command.params if isinstance(each, click.Argument)):
        (item,) = argument.type.shell_complete(click.Context(command), argument, "m")
        assert item.type == "file"


def test_a_call_without_arguments_gets_the_help(cli):
    shown = cli("")
    text = shown.err or shown.out  # older versions of click print it to stdout
    assert text.startswith("Usage: onnx-spatial")
