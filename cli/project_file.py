"""Read the options of a project: onnx-spatial.toml, or [tool.onnx-spatial] of pyproject.toml.

    domain = ["my.domain"]              # for every command that has the option
    shape = { x = [1, 64, 48, 3] }
    [validate]                          # for one command
    expect-failure = ["models/broken/*"]

Options of the command line go before those of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

NAME, TABLE = "onnx-spatial.toml", "onnx-spatial"
#: Options that say what a single call does; a file may not set them.
_NEVER = {"help", "version", "output", "in-place", "json", "quiet", "verbose"}


def defaults(commands: Mapping[str, click.Command], start: Path) -> dict[str, dict[str, Any]]:
    """Return the defaults that the project file in a folder, or the nearest above it, sets.

    Args:
        commands: the commands by name.
        start: the folder.

    Returns:
        Name of a command -> name of a parameter -> its default, as click's default_map takes it.

    Raises:
        click.UsageError: the file is no TOML, or sets what is no option.
    """
    for folder in (start, *start.parents):
        for path in (folder / NAME, folder / "pyproject.toml"):
            if path.is_file() and (table := _table(path)) is not None:
                return _by_command(path, table, commands)
    return {}


def _table(path: Path) -> dict[str, Any] | None:
    import tomllib  # most runs have no such file

    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        if path.name != NAME:  # another tool's matter
            return None
        raise click.UsageError(f"{path}: cannot be read: {error}") from None
    table = content if path.name == NAME else content.get("tool", {}).get(TABLE)
    if table is None or isinstance(table, dict):
        return table
    raise click.UsageError(f"{path}: tool.{TABLE} must be a table")


def _by_command(
    path: Path, table: dict[str, Any], commands: Mapping[str, click.Command]
) -> dict[str, dict[str, Any]]:
    own = {name: values for name, values in table.items() if name in commands}
    common = {name: value for name, value in table.items() if name not in commands}
    result: dict[str, dict[str, Any]] = {}
    known: set[str] = set()
    for name, command in commands.items():
        options = {
            text.removeprefix("--"): option
            for option in command.params
            if isinstance(option, click.Option)
            for text in option.opts
            if text.startswith("--") and text.removeprefix("--") not in _NEVER
        }
        known |= {*options}
        values = own.get(name, {})
        if not isinstance(values, dict) or (unknown := sorted(values.keys() - options)):
            what = f"{name} has no option {unknown[0]!r}" if isinstance(values, dict) else name
            raise click.UsageError(
                f"{path}: {what}; the command line lists the options with --help"
            )
        both = {key: value for key, value in common.items() if key in options} | values
        result[name] = {
            str(options[key].name): _value(path, options[key], value) for key, value in both.items()
        }
    if unknown := sorted(common.keys() - known):
        raise click.UsageError(f"{path}: no command has an option {unknown[0]!r}")
    return result


def _value(path: Path, option: click.Option, value: Any) -> Any:
    """Return a value as the command line would have it; paths are relative to the project file."""
    if isinstance(value, dict):
        value = [f"{name}={_text(each)}" for name, each in value.items()]
    if option.multiple:
        return [_text(each) for each in (value if isinstance(value, list) else [value])]
    if isinstance(value, bool):
        return value
    text = _text(value)
    return str(path.parent / text) if isinstance(option.type, click.Path) else text


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
