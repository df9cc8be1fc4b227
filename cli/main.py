"""Run a command, and turn what goes wrong into one line and an exit code.

0 done    1 results differ, or a model failed    2 bad usage or unreadable file    3 cannot be converted
130 interrupted

Defaults of options stand in pyproject.toml. The nearest file with such a table counts, and options of
the command line go before it. A key is the name of an option without dashes:

    [tool.onnx-spatial]                    # for every command that has the option
    domain = ["my.domain"]
    [tool.onnx-spatial.validate]           # for one command
    expect-failure = ["models/broken/*"]
"""

from __future__ import annotations

import difflib
import gc
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import onnx_spatial
from onnx_spatial.cli import options
from onnx_spatial.cli.commands import convert, inspect, optimize, validate, verify
from onnx_spatial.cli.output import Output, PipeSafe, write_anything
from onnx_spatial.errors import Code, SpatialError

EPILOG = (
    "Exit codes: 0 done, 1 results differ or a model failed, 2 bad usage or unreadable file, "
    "3 an operator breaks its rules or cannot be converted, 130 interrupted."
)


#: `timeout` and some shells send a signal to a process and to its group: within these seconds they
#: are one.
_ONE_SIGNAL_SECONDS = 0.25
_interrupted = -_ONE_SIGNAL_SECONDS


@click.group(
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=options.PROGRAM,
)
@click.version_option(onnx_spatial.__version__, prog_name="onnx-spatial")
@click.pass_context
def commands(context: click.Context, quiet: bool, verbose: int) -> None:
    """Make ONNX models with SpaceToBatch, BatchToSpace or ExtractImagePatches nodes run anywhere."""
    if isinstance(context.obj, Output):
        context.obj.quiet, context.obj.verbosity = quiet, verbose
    load_defaults(commands.commands, context, Path.cwd())


commands.add_command(inspect)
commands.add_command(convert)
commands.add_command(optimize)
commands.add_command(verify)
commands.add_command(validate)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process."""
    install()
    gc.disable()  # until all is loaded (`options`): what is imported stays, and is no garbage
    try:
        # All end like Ctrl-C does: no files stay behind.
        _on_signals(_raise_interrupt, signal.SIG_DFL, signal.default_int_handler)
        # A thread that sends it would still hold its locks in a process that is forked to verify.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        code = run(arguments)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                PipeSafe(stream).flush()  # else Python itself complains of a closed pipe at exit
        _on_signals(signal.SIG_IGN, _raise_interrupt)  # it is over
    except KeyboardInterrupt:  # just before or after
        code = 130
    finally:
        gc.enable()
    sys.exit(code)


def _on_signals(
    handler: Callable[[int, object], None] | signal.Handlers, *instead_of: object
) -> None:
    """Handle the signals that ask a process to end, unless another handler is set."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in instead_of:
            with suppress(ValueError):  # not on the main thread: others handle them
                signal.signal(number, handler)


def _raise_interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt, but only once for a signal that comes twice at a time."""
    global _interrupted
    before, _interrupted = _interrupted, time.monotonic()
    if _interrupted - before > _ONE_SIGNAL_SECONDS:
        raise KeyboardInterrupt


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    output = Output()
    write_anything()
    start = time.monotonic()
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:  # libraries below remark on odd models; errors are ours to tell
                warnings.simplefilter("ignore")
            code = commands.main(
                arguments, prog_name="onnx-spatial", standalone_mode=False, obj=output
            )
        PipeSafe(sys.stdout).flush()
        return code if isinstance(code, int) else 0
    except SystemExit:  # click: the reader of help or of a model has closed the pipe
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, click.ClickException):
            output.json = "--json" in (sys.argv[1:] if arguments is None else arguments)
            if (
                not arguments and "Commands:" in error.format_message()
            ):  # help, of a call without words
                error.show()
                return error.exit_code
        message, exit_code, code = _describe_error(error, start)
        if code == Code.BUG and output.verbose:
            traceback.print_exc()
        output.fail(message, exit_code, code, error if isinstance(error, SpatialError) else None)
        return exit_code


def _describe_error(error: BaseException, start: float) -> tuple[str, int, Code]:
    """Return the message of an error in one line, its exit code and its short code."""
    if isinstance(error, click.ClickException):
        return _describe_usage(error), error.exit_code, Code.USAGE
    if isinstance(error, SpatialError):
        return str(error), error.exit_code, error.code
    if isinstance(error, MemoryError):
        return "not enough memory; smaller sizes may help (--shape)", 2, Code.NO_MEMORY
    if isinstance(error, OSError):  # what a system may say to any file
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror or error}", 2, Code.UNREADABLE
    # A library that is being loaded may hide an interrupt behind an error of its own.
    if isinstance(error, click.exceptions.Abort | KeyboardInterrupt) or _interrupted > start:
        return "interrupted", 130, Code.INTERRUPTED
    # Any other exception is a fault of this package.
    detail = str(error).splitlines()[0] if str(error) else ""
    advice = "a bug: please report it with the output of -v"
    return f"unexpected {type(error).__name__}: {detail} ({advice})", 2, Code.BUG


def _describe_usage(error: click.ClickException) -> str:
    """Say what is wrong with a command line, where an option belongs, and where to read on."""
    message = " ".join(error.format_message().split())
    if isinstance(error, click.NoSuchOption) and (
        of := options.commands_with(commands, error.option_name)
    ):
        message = f"{error.option_name} is an option of {', '.join(of)}"
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    return f"{message.rstrip('.')}; {context.command_path} --help lists the options"


# Defaults of options


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
        click.UsageError: the file sets what is no option, or cannot be parsed and names the program.
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
    except OSError:
        return None
    except ValueError as error:
        if _TABLE.encode() in path.read_bytes():  # else the matter of other tools
            raise click.UsageError(f"{path}: is no TOML: {error}") from None
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
    for name, settable in options.items():
        of_command = table.get(name, {})
        if not isinstance(of_command, dict):
            raise click.UsageError(
                f"{path}: {name} is a command; its options are a table [tool.{_TABLE}.{name}]"
            )
        _check_keys(f"{path}: {name} has no option", of_command, settable)
        values = {key: value for key, value in common.items() if key in settable} | of_command
        defaults[name] = {
            str(settable[key].name): _parse_value(path, settable[key], value)
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


# Modules that no command needs, though libraries import them at once


#: They are loaded on first use. onnx_ir imports sympy, with which it computes symbolic dims, which takes
#: some 0.4 s of processor time, a fifth of a short command; onnx's evaluator and the others take 0.06 s.
LAZY = frozenset(
    {
        "sympy",
        "onnx_ir._symbolic_shapes",
        "onnx.reference",
        "onnx.compose",
        "google.protobuf.json_format",
    }
)


class _Finder(MetaPathFinder):
    """Finds the modules of `LAZY` as usual, and loads them on first use."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of `LAZY`; None for all others."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in LAZY else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def install() -> None:
    """Load the modules of `LAZY` on first use from now on, in the whole process."""
    sys.meta_path.insert(0, _Finder())
