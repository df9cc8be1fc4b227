"""Print what a command finds: sentences, tables, progress, errors, JSON.

m.onnx: 2 spatial operators in domain 'my.domain', opset 13, IR 8       a headline
node  operator        data                     action                   tables, or lists where they
a     SpaceToBatchND  float32 1x4x4x3 -> ...   lower: slices            do not fit
a, b: a note                                                            each sentence once
PASSED  proven: 2 operators for every size                              the verdict

Results go to stdout, everything else (progress, errors) to stderr. With --json stdout holds one JSON
document and nothing else. A reader that closes a pipe early, as `| head` does, changes neither the
work nor the exit code. Sentences are wrapped at spaces in a terminal, and one line each elsewhere.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from onnx_spatial.errors import (
    Code,
    ConversionError,
    SpatialError,
    VerificationError,
    list_names,
    one_line,
)
from onnx_spatial.report.figures import duration

if TYPE_CHECKING:  # help and completion do without
    from rich.console import Console
    from rich.text import Text

    from onnx_spatial.report.outcome import Outcome, Section, Table

#: Style of each level of words, remarks and verdicts.
STYLES = {"passed": "green", "failed": "bold red", "unverified": "yellow"}

#: Width where there is no terminal: wide enough that no table is folded and no sentence wrapped.
PIPE_WIDTH = 1000

#: Spaces at which no line breaks: in "226 -> 68 nodes" and "1.2 ms".
_BOUND = re.compile(
    r"(?<=\S) (?=-> )|(?<= ->) (?=\S)|(?<=\d) (?=(?:us|ms|s|bytes|[kMG]B|nodes?)\b)"
)
#: Replaces these spaces until the lines are made. No name has this character: `one_line` removes
#: control characters.
_PLACE = "\0"


def wrapped(text: str, width: int) -> str:
    """Wrap each line of a text at spaces; a word that is longer than the width stays whole.

    Numbers stay with their unit, and both sides of an arrow on one line. Further lines are indented
    like the first one, and by two columns more.
    """
    if width >= PIPE_WIDTH:
        return text
    lines = []
    for line in text.split("\n"):
        lines += textwrap.wrap(
            _BOUND.sub(_PLACE, line),
            width,
            subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        ) or [""]
    return "\n".join(lines).replace(_PLACE, " ")


def say(console: Console, text: str, *, style: str = "", badge: tuple[str, str] = ("", "")) -> None:
    """Print a text, wrapped at spaces if the console is a terminal.

    `badge` is a word with a style of its own in front of the text.
    """
    from rich.text import Text

    word, its_style = badge
    line = wrapped(f"{word}  {text}" if word else text, console.width)
    styled = Text(line, style=style)
    styled.stylize(its_style, 0, len(word))
    console.print(styled, soft_wrap=True)


def print_table(console: Console, shown: Table) -> None:
    """Print a table; where it does not fit, with the names on lines of their own, or else as a list.

    node  operator        nodes     node                        node
    a     SpaceToBatchND  1 -> 5        operator        nodes       operator: SpaceToBatchND,
                                    a                               nodes: 1 -> 5
                                        SpaceToBatchND  1 -> 5
    """
    columns = shown.columns
    for indent in ("", "    "):
        for left_out in range(len(shown.spare) + 1):
            kept = {h: cells for h, cells in columns.items() if h not in shown.spare[:left_out]}
            if _print_aligned(console, shown, kept, indent):
                return
    name, *others = columns
    for row, label in enumerate(columns[name]):
        console.print(_styled_text(label), soft_wrap=True)
        cells = ", ".join(f"{head}: {columns[head][row]}" for head in others if columns[head][row])
        say(console, f"    {cells}")


def _print_aligned(
    console: Console, shown: Table, columns: Mapping[str, Sequence[str]], indent: str
) -> bool:
    """Print a table if it fits, with an `indent` below lines of names; return whether it did."""
    from rich.cells import cell_len

    from onnx_spatial.report.outcome import NUMBERS

    heads = [*columns][1:] if indent else [*columns]
    widths = [max(map(cell_len, (head, *columns[head]))) for head in heads]
    if not heads or len(indent) + sum(widths) + 2 * (len(heads) - 1) > console.width:
        return False
    name = next(iter(columns))
    for row in range(-1, len(columns[name])):
        if indent:
            console.print(_styled_text(name if row < 0 else columns[name][row], bold=row < 0))
        line = _styled_text(indent)
        for head, width in zip(heads, widths, strict=True):
            cell = head if row < 0 else columns[head][row]
            gap = " " * (width - cell_len(cell))
            style = "bold" if row < 0 else STYLES.get(shown.level(head, cell), "")
            line.append(gap if head in NUMBERS else "").append(cell, style)
            line.append("" if head in NUMBERS else gap).append("  ")
        line.rstrip()
        console.print(line, soft_wrap=True)
    return True


def _styled_text(text: str, *, bold: bool = False) -> Text:
    from rich.text import Text

    return Text(text, "bold" if bold else "")


def badge(status: str, width: int = 0) -> tuple[str, str]:
    """Return a verdict in capitals, and its style."""
    from onnx_spatial.report.outcome import LEVELS

    return status.upper().ljust(width), f"bold {STYLES.get(LEVELS.get(status, ''), '')}".strip()


def print_outcome(console: Console, shown: Outcome) -> None:
    """Print what became of a model."""
    if shown.headline:
        say(console, f"{one_line(shown.name)}: {shown.headline}")
    for kind, values in shown.facts.items():
        say(console, one_line(f"  {kind}: {list_names(values)}"))
    print_sections(console, shown.parts)
    for text, level in shown.remarks:
        say(console, text, style=STYLES.get(level, ""))
    print_sections(console, shown.checks)


def print_sections(console: Console, sections: list[Section]) -> None:
    """Print sections of a description: a sentence, a table, and lines below."""
    for section in sections:
        if section.message:
            say(console, section.message, badge=badge(section.status))
        if section.table is not None:
            print_table(console, section.table)
        for line in section.lines:
            say(console, f"  {line}" if section.message else line)


def print_how_to_run(console: Console, model: Path) -> None:
    """Print lines of Python that run a model of mode "custom-op"."""
    console.print("run it in Python with:")
    for line in (
        "import onnxruntime, onnx_spatial",
        "options = onnxruntime.SessionOptions(); onnx_spatial.custom_ops.register(options)",
        f"session = onnxruntime.InferenceSession({str(model)!r}, options)",
    ):
        console.print(f"    {line}", soft_wrap=True)


_FRACTION = re.compile(r"(?:[a-z]+ )?(\d+)/(\d+)\b")


class Steps:
    """The time that each step of a command takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name = ""
        self._start = time.perf_counter()

    def begin(self, text: str) -> None:
        """Begin the step that a line of progress names, or go on with it."""
        self.end()
        name = re.match(r"[^\d:,]*", text)
        self._name = name[0].strip() if name is not None else ""

    def end(self) -> None:
        """Count the time until now for the step that runs."""
        now = time.perf_counter()
        if self._name:
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._start
        self._start = now

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        parts = [f"{name} {seconds:.2f} s" for name, seconds in self.seconds.items()]
        return f"time: {', '.join(parts)}, {total:.2f} s in all"


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str], None]]:
    """Show a bar while the block runs; yield a function that changes its text and its fraction."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    spinner = "line" if console.options.ascii_only else "dots"
    columns = [
        SpinnerColumn(spinner),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
    ]
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("reading", total=None)

        def show(text: str) -> None:
            fraction = _FRACTION.match(text)
            room = max(console.width - 34, 10)
            line = Text(text)
            line.truncate(room, overflow="ellipsis")
            if fraction is None:
                progress.update(task, description=str(line), total=None)
            else:
                done, total = int(fraction[1]), int(fraction[2])
                progress.update(task, description=str(line), completed=done, total=total)

        yield show


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
        if short := self.short(line, error):
            shown = wrapped(f"error: {short}", _terminal_width(sys.stderr))
            with suppress(OSError):  # the exit code says it, too
                PipeSafe(sys.stderr).write(f"{shown}\n")
        if not self.json:
            return
        document: dict[str, object] = {"version": 2, **error_document(line, exit_code, code)}
        if isinstance(error, ConversionError) and error.inspection is not None:
            document |= error.inspection.to_dict()  # type: ignore[attr-defined]
        if isinstance(error, VerificationError) and error.verification is not None:
            document["verification"] = error.verification.to_dict()  # type: ignore[attr-defined]
        self.document(document)

    def short(self, line: str, error: SpatialError | None) -> str:
        """Leave the verdict out of an error where the same stream shows it; "" if nothing is left."""
        verdict = error.verification if isinstance(error, VerificationError) else None
        if verdict is None or self.json or self.quiet:
            return line
        message, status = one_line(verdict.message), verdict.status  # type: ignore[attr-defined]
        if verdict is self._explained:  # of a conversion
            return line.replace(message, f"{status}, nothing was written")
        return "" if message in line and _is_one(sys.stdout, sys.stderr) else line

    def explain(self, error: SpatialError) -> None:
        """Print the verdict on a conversion that failed."""
        if isinstance(error, VerificationError) and not (self.json or self.quiet):
            from onnx_spatial.report.outcome import describe_check

            self._explained = error.verification
            conversion: Any = error.conversion
            verification: Any = error.verification
            operators = () if conversion is None else conversion.operators
            check = describe_check(verification.to_dict(), operators, verbose=self.verbose)
            print_sections(self.err, check)

    @contextmanager
    def progress(self, *, timed: bool = True) -> Iterator[Callable[[str], None] | None]:
        """Show a line of progress while the block runs; yield a function that changes it, or None.

        With -v, and if `timed`, the time of each step is printed in the end.
        """
        steps = Steps() if timed and self.verbose and not self.quiet else None
        show = progress_bar(self.err) if self.interactive and not self.quiet else nullcontext()
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

    Without this, click and rich end the process there, with an exit code of their own. Another error,
    of a full disk say, is raised once; what is written after it is discarded.
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
        """Redirect the stream to the null device if its pipe is closed, or cannot be written."""
        try:
            yield
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)
            if not isinstance(error, BrokenPipeError):
                raise OSError(error.errno, error.strerror, self._file.name) from None


def write_anything() -> None:
    r"""Make stdout and stderr escape characters that their encoding lacks, as in \u20ac.

    One that the caller has closed, by `>&-`, discards what is written.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - for good
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 - for good
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
