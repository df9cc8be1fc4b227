"""Read the options of a project: onnx-spatial.toml, or [tool.onnx-spatial] of pyproject.toml.

    domain = ["my.domain"]              # for every command that has the option
    [validate]                          # for one command
    expect-failure = ["models/broken/*"]
    [[models]]                          # for the models that match
    match = "models/raft/*"
    shape = { image = [1, 64, 48, 3] }

Options of the command line go before those of the file, and those of a model before those of a command.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

NAME, TABLE = "onnx-spatial.toml", "onnx-spatial"
#: Options that say what a single call does; a file may not set them.
_NEVER = {"help", "version", "output", "in-place", "json", "quiet", "verbose"}
#: Array of tables with options of single models, and the key that says which models.
_MODELS, _MATCH = "models", "match"
#: Options that a single model may have: those that say how it is converted and run.
_OF_MODELS = (
    "atol",
    "domain",
    "finite",
    "inputs",
    "max-rank",
    "mode",
    "no-fuse",
    "opset",
    "optimize",
    "oracle",
    "outputs-only",
    "prefer",
    "rtol",
    "seed",
    "shape",
    "static",
    "target",
)
#: Key of the entries in click's `Context.meta`.
_META = "onnx_spatial.models"


@dataclass(frozen=True)
class _ModelEntry:
    """Options of the models that match.

    Attributes:
        path: the project file.
        number: position in the file, from 1.
        match: globs of paths, seen from the folder of the file.
        values: name of an option -> its value.
    """

    path: Path
    number: int
    match: tuple[str, ...]
    values: Mapping[str, Any]

    def matches(self, model: str) -> bool:
        """Tell whether the path of a model, or its file name, matches."""
        from onnx_spatial.validation.select.discover import matches

        path = os.path.abspath(model)  # noqa: PTH100  without "..", but with links
        with contextlib.suppress(ValueError):  # on another drive
            path = os.path.relpath(path, self.path.parent)
        return matches(path, self.match)


def load(commands: Mapping[str, click.Command], context: click.Context, start: Path) -> None:
    """Set the defaults of the project file in a folder, or of the nearest above it.

    `options_of_model` returns those of single models.

    Args:
        commands: the commands by name.
        context: of the command line; the commands take their defaults from it.
        start: the folder.

    Raises:
        click.UsageError: the file is no TOML, or sets what is no option.
    """
    for folder in (start, *start.parents):
        for path in (folder / NAME, folder / "pyproject.toml"):
            if path.is_file() and (table := _table(path)) is not None:
                context.meta[_META] = _entries(path, table.pop(_MODELS, []))
                context.default_map = _by_command(path, table, commands)
                return


def options_of_model(model: str) -> dict[str, Any]:
    """Return the options that the project file sets for a model: name of a parameter -> value.

    They are those that the running command has and the command line does not set. Where several
    entries match, the last one that sets an option counts.

    Raises:
        click.UsageError: a value is wrong.
    """
    context = click.get_current_context()
    entries = [entry for entry in context.meta.get(_META, ()) if entry.matches(model)]
    result: dict[str, Any] = {}
    options = _options(context.command) if entries else {}
    for entry in entries:
        for key, value in entry.values.items():
            option = options.get(key)
            name = "" if option is None else str(option.name)
            if option is None or context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
                continue
            try:
                given = _value(entry.path, option, value)
                result[name] = option.process_value(context, given)
            except click.UsageError as error:
                where = f"{entry.path}: {_MODELS}, entry {entry.number}"
                raise click.UsageError(f"{where}: {error.format_message()}") from None
    return result


def _entries(path: Path, tables: Any) -> list[_ModelEntry]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        heading = f"[[{_MODELS}]]" if path.name == NAME else f"[[tool.{TABLE}.{_MODELS}]]"
        raise click.UsageError(f"{path}: write options of models in tables {heading}")
    result = []
    for number, table in enumerate(tables, 1):
        where = f"{path}: {_MODELS}, entry {number}"
        globs = table.pop(_MATCH, None)
        globs = [globs] if isinstance(globs, str) else globs
        if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
            raise click.UsageError(f'{where}: {_MATCH} must say which models: match = "models/*"')
        if unknown := sorted(table.keys() - {*_OF_MODELS}):
            what = f"{where}: {unknown[0]!r} is no option of a single model"
            raise click.UsageError(_with_suggestion(what, unknown[0], (*_OF_MODELS, _MATCH)))
        result.append(_ModelEntry(path, number, tuple(globs), table))
    return result


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options that a file may set, by name without dashes."""
    return {
        text.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for text in option.opts
        if text.startswith("--") and text.removeprefix("--") not in _NEVER
    }


def _with_suggestion(message: str, name: str, known: Iterable[str]) -> str:
    """Add the most similar name to a message, or all names if none is similar."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"{message}; {f'did you mean {near[0]!r}?' if near else 'use ' + ', '.join(names)}"


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
        options = _options(command)
        known |= {*options}
        values = own.get(name, {})
        if not isinstance(values, dict):
            raise click.UsageError(f"{path}: {name} is a command; its options are a table [{name}]")
        if unknown := sorted(values.keys() - options):
            what = f"{path}: {name} has no option {unknown[0]!r}"
            raise click.UsageError(_with_suggestion(what, unknown[0], options))
        both = {key: value for key, value in common.items() if key in options} | values
        result[name] = {
            str(options[key].name): _value(path, options[key], value) for key, value in both.items()
        }
    if unknown := sorted(common.keys() - known):
        what = f"{path}: no command has an option {unknown[0]!r}"
        raise click.UsageError(_with_suggestion(what, unknown[0], {*known, *commands, _MODELS}))
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
