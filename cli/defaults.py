"""Read defaults of options from [tool.onnx-spatial] in pyproject.toml.

    [tool.onnx-spatial]                    # for every command that has the option
    domain = ["my.domain"]
    [tool.onnx-spatial.validate]           # for one command
    expect-failure = ["models/broken/*"]

A key is the name of an option without dashes. The nearest file with such a table counts; options of the
command line go before it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

_TABLE = "onnx-spatial"
#: Options that say what a single call does; a file may not set them.
_NEVER = {"help", "version", "output", "in-place", "json", "quiet", "verbose"}


def load_defaults(
    commands: Mapping[str, click.Command], context: click.Context, start: Path
) -> None:
    """Set the defaults that the nearest pyproject.toml in a folder or above it has, if there is one.

    Args:
        commands: the commands by name.
        context: of the command line; the commands take their defaults from it.
        start: the folder.

    Raises:
        click.UsageError: the file sets what is no option.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file() and (table := _read_table(path)) is not None:
            context.default_map = _by_command(path, table, commands)
            return


def _read_table(path: Path) -> dict[str, Any] | None:
    import tomllib  # most runs have no such file

    try:
        table = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get(_TABLE)
    except (OSError, ValueError):  # the matter of other tools
        return None
    if table is None or isinstance(table, dict):
        return table
    raise click.UsageError(f"{path}: tool.{_TABLE} must be a table")


def _by_command(
    path: Path, table: Mapping[str, Any], commands: Mapping[str, click.Command]
) -> dict[str, dict[str, Any]]:
    """Return the defaults of each command, by the names of its parameters."""
    options = {name: _settable_options(command) for name, command in commands.items()}
    common = {key: value for key, value in table.items() if key not in commands}
    every = {key for names in options.values() for key in names}
    _check_keys(f"{path}: no command has an option", common, every, also=commands)
    defaults = {}
    for name, known in options.items():
        own = table.get(name, {})
        if not isinstance(own, dict):
            raise click.UsageError(
                f"{path}: {name} is a command; its options are a table [tool.{_TABLE}.{name}]"
            )
        _check_keys(f"{path}: {name} has no option", own, known)
        values = {key: value for key, value in common.items() if key in known} | own
        defaults[name] = {
            str(known[key].name): _parse_value(path, known[key], value)
            for key, value in values.items()
        }
    return defaults


def _settable_options(command: click.Command) -> dict[str, click.Option]:
    """Return the options that a file may set, by name without dashes."""
    return {
        text.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for text in option.opts
        if text.startswith("--") and text.removeprefix("--") not in _NEVER
    }


def _check_keys(
    what: str, keys: Iterable[str], known: Iterable[str], also: Iterable[str] = ()
) -> None:
    """Raise an error that names the most similar name, or all, if a key is not known."""
    for key in sorted({*keys} - {*known}):
        names = sorted({*known, *also})
        near = difflib.get_close_matches(key, names, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"use {', '.join(names)}"
        raise click.UsageError(f"{what} {key!r}; {advice}")


def _parse_value(path: Path, option: click.Option, value: Any) -> Any:
    """Return a value as the command line would have it; paths are relative to the file."""
    if option.multiple:
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    if isinstance(option.type, click.Path) and isinstance(value, str):
        return str(path.parent / value)
    return value if isinstance(value, bool) and option.is_flag else str(value)
