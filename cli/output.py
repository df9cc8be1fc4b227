"""Print what a command finds.

Results go to stdout, everything else (progress, errors) to stderr. With --json stdout holds one JSON
document and nothing else. A reader that closes a pipe early, as `| head` does, changes neither the
work nor the exit code.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from onnx_spatial.cli.progress import Steps, bar
from onnx_spatial.cli.text import PIPE_WIDTH, say, wrapped
from onnx_spatial.errors import Code, ConversionError, SpatialError, VerificationError, one_line
from onnx_spatial.report.figures import duration

if TYPE_CHECKING:
    from rich.console import Console

#: The variable with the file that GitHub Actions shows on the page of a run.
_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


class Output:
    """The streams of a command, and how much it prints."""

    def __init__(self) -> None:
        self.json = False
        self.quiet = False
        #: How often -v is given.
        self.verbosity = 0
        self._seconds = 0.0
        self._explained: object = None

    @property
    def verbose(self) -> bool:
        """Whether more detail is shown."""
        return self.verbosity > 0

    @property
    def out(self) -> Console:
        """The console for results."""
        return _make_console(sys.stdout)

    @property
    def err(self) -> Console:
        """The console for progress and errors."""
        return _make_console(sys.stderr)

    @property
    def interactive(self) -> bool:
        """Whether progress is shown, in a line of a terminal that is overwritten."""
        return _is_terminal(sys.stderr)

    def document(self, document: dict[str, object]) -> None:
        """Print the one JSON document of a run with --json."""
        stream = PipeSafe(sys.stdout)
        json.dump(document, stream, indent=2, allow_nan=True)
        stream.write("\n")

    def fail(
        self, message: str, exit_code: int, code: Code, error: SpatialError | None = None
    ) -> None:
        """Print an error in one line on stderr; with --json also as the document on stdout."""
        line = " ".join(message.splitlines())
        shown = f"error: {self.short(line, error)}"
        PipeSafe(sys.stderr).write(f"{wrapped(shown, _terminal_width(sys.stderr))}\n")
        if not self.json:
            return
        document: dict[str, object] = {"version": 2, **error_document(line, exit_code, code)}
        if isinstance(error, ConversionError) and error.inspection is not None:
            document |= error.inspection.to_dict()  # type: ignore[attr-defined]
        if isinstance(error, VerificationError) and error.verification is not None:
            document["verification"] = error.verification.to_dict()  # type: ignore[attr-defined]
        self.document(document)

    def short(self, line: str, error: SpatialError | None) -> str:
        """Leave the verdict out of an error where the same stream shows it on its own."""
        verdict = error.verification if isinstance(error, VerificationError) else None
        if verdict is None or self.json or self.quiet:
            return line
        if verdict is not self._explained and not _is_one(sys.stdout, sys.stderr):
            return line
        message, status = verdict.message, verdict.status  # type: ignore[attr-defined]
        return line.replace(one_line(message), f"{status}, as said above")

    def explain(self, error: SpatialError) -> None:
        """Print the verdict on a conversion that failed."""
        if isinstance(error, VerificationError) and not (self.json or self.quiet):
            from onnx_spatial.cli import render
            from onnx_spatial.report.outcome import describe_check

            self._explained = error.verification
            made: Any = error.conversion
            verdict: Any = error.verification
            operators = () if made is None else [each.to_dict() for each in made.operators]
            shown = describe_check(verdict.to_dict(), operators, verbose=self.verbose)
            render.parts(self.err, shown)

    @contextmanager
    def progress(self, *, timed: bool = True) -> Iterator[Callable[[str], None] | None]:
        """Show a line of progress while the block runs; yield a function that changes it, or None.

        With -v, and if `timed`, the time of each step is printed in the end.
        """
        steps = Steps() if timed and self.verbose and not self.quiet else None
        show = bar(self.err) if self.interactive and not self.quiet else nullcontext()
        start = time.perf_counter()
        with show as change:
            if steps is None:
                yield change
            else:
                steps.begin("reading")

                def begin(text: str) -> None:
                    steps.begin(text)
                    if change is not None:
                        change(text)

                yield begin
                steps.end()
        self._seconds += time.perf_counter() - start
        if steps is not None:
            say(self.err, str(steps), style="dim")

    @property
    def time(self) -> str:
        """The time of all blocks with progress: "1.20 s"."""
        return duration(self._seconds * 1e6)


def error_document(message: str, exit_code: int, code: Code) -> dict[str, object]:
    """Return an error as a part of a JSON document."""
    return {"error": message, "code": code, "exit_code": exit_code}


def append_to_step_summary(command: str, model: str, *parts: str) -> None:
    """Append the result of a command for one model to the summary of a step of GitHub Actions."""
    if os.environ.get(_STEP_SUMMARY):
        from onnx_spatial.validation.reports import escaped

        text = "; ".join(filter(None, parts))
        append_markdown(f"**onnx-spatial {command}** {escaped(model)}: {escaped(text)}\n")


def append_markdown(text: str) -> None:
    """Append text to the file for summaries that the environment names, if it can be written."""
    if path := os.environ.get(_STEP_SUMMARY):
        with (
            suppress(OSError),
            Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file,
        ):
            file.write(text + "\n")


class PipeSafe:
    """A text stream that discards what is written after the reader of its pipe has gone.

    Without this, click and rich end the process there, with an exit code of their own.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write text, or discard it."""
        with self._discard_closed():
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or discard it."""
        with self._discard_closed():
            self._file.flush()

    @contextmanager
    def _discard_closed(self) -> Iterator[None]:
        """Redirect the stream to the null device if its pipe is closed."""
        try:
            yield
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)


def write_anything() -> None:
    r"""Make stdout and stderr escape characters that their encoding lacks, as in \u20ac."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def _make_console(file: TextIO) -> Console:
    from rich.console import Console  # help and completion print without it

    width = None if _is_terminal(file) else PIPE_WIDTH
    stream: Any = PipeSafe(file)
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width)


def _terminal_width(file: TextIO) -> int:
    """Return the width of a terminal, and that of other files."""
    try:
        return os.get_terminal_size(file.fileno()).columns or PIPE_WIDTH
    except (OSError, ValueError):  # no terminal; closed
        return PIPE_WIDTH


def _is_one(*files: TextIO) -> bool:
    """Return whether two files are one: a terminal, or a pipe that gets both."""
    try:
        return os.path.sameopenfile(*(file.fileno() for file in files))
    except (OSError, ValueError):  # closed, or no file of the system
        return False


def _is_terminal(file: TextIO) -> bool:
    """Return whether a file is a terminal. FORCE_COLOR makes rich think so of any file."""
    try:
        return file.isatty()
    except ValueError:  # it was closed
        return False
