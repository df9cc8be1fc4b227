"""Run a command, and turn what goes wrong into one line and an exit code.

0 done    1 results differ, or a model failed    2 bad usage or unreadable file    3 cannot be converted
130 interrupted
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click

import onnx_spatial
from onnx_spatial.cli import defaults, lazy_imports, options
from onnx_spatial.cli.convert import convert, optimize
from onnx_spatial.cli.inspect import inspect
from onnx_spatial.cli.output import Output, PipeSafe, write_anything
from onnx_spatial.cli.validate import validate
from onnx_spatial.cli.verify import verify
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
    defaults.load_defaults(commands.commands, context, Path.cwd())


commands.add_command(inspect)
commands.add_command(convert)
commands.add_command(optimize)
commands.add_command(verify)
commands.add_command(validate)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process."""
    lazy_imports.install()
    gc.disable()  # until all is loaded (`options`): what is imported stays, and is no garbage
    try:
        # All end like Ctrl-C does: no files stay behind.
        _on_signals(_raise_interrupt, signal.SIG_DFL, signal.default_int_handler)
        # A thread that sends it would still hold its locks in a process that is forked to verify.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        code = run(arguments)
        for stream in filter(None, (sys.stdout, sys.stderr)):
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
