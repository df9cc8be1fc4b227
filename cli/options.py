"""Options that commands share, and where their output goes.

Results go to stdout, everything else (progress, errors) to stderr. With --json stdout holds one JSON
document and nothing else.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, TypeVar

import click
from rich.console import Console

from onnx_spatial.errors import ConversionError, SpatialError, VerificationError
from onnx_spatial.operators.shapes import INT64_MAX
from onnx_spatial.options import STRATEGY_NAMES

F = TypeVar("F", bound=Callable[..., Any])


class Documented(Protocol):
    """What a command finds out about a model."""

    def to_dict(self) -> dict[str, object]:
        """For --json."""


R = TypeVar("R", bound=Documented)

#: Is called with a line of text now and then, where there is a terminal.
Progress = Callable[[str], None] | None

#: Width of tables where there is no terminal to fit: wide enough that nothing is folded.
_PIPE_WIDTH = 1000


class Output:
    """What a command prints, and how."""

    def __init__(self) -> None:
        self.json = False
        self.quiet = False
        self.verbose = False

    @property
    def out(self) -> Console:
        """Results for a person."""
        return _console(sys.stdout)

    @property
    def err(self) -> Console:
        """Progress and errors."""
        return _console(sys.stderr)

    @property
    def interactive(self) -> bool:
        """Whether somebody watches: progress is shown in a line that is written over."""
        return _is_terminal(sys.stderr)

    def document(self, document: dict[str, object]) -> None:
        """The one JSON document of a run with --json."""
        json.dump(document, sys.stdout, indent=2, allow_nan=True)
        sys.stdout.write("\n")

    def fail(self, message: str, code: int, error: SpatialError | None = None) -> None:
        """One line on stderr; with --json also a document that says the same."""
        line = " ".join(message.splitlines())
        sys.stderr.write(f"error: {line}\n")
        if not self.json:
            return
        document: dict[str, object] = {"version": 1, "error": line, "exit_code": code}
        if isinstance(error, ConversionError) and error.inspection is not None:
            document["inspection"] = error.inspection.to_dict()  # type: ignore[attr-defined]
        if isinstance(error, VerificationError) and error.verification is not None:
            document["verification"] = error.verification.to_dict()  # type: ignore[attr-defined]
        self.document(document)

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None] | None]:
        """A line that says what is going on; only on a terminal."""
        if self.quiet or not self.interactive:
            yield None
            return
        spinner = "line" if self.err.options.ascii_only else "dots"
        with self.err.status("reading", spinner=spinner) as status:
            yield lambda text: status.update(text)


def write_anything() -> None:
    r"""Have stdout and stderr write what their encoding lacks, as \u20ac, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def _console(file: TextIO) -> Console:
    width = None if _is_terminal(file) else _PIPE_WIDTH
    return Console(file=file, highlight=False, markup=False, emoji=False, width=width)


def _is_terminal(file: TextIO) -> bool:
    """Whether a line can be written over; what has FORCE_COLOR only is a terminal to rich, too."""
    try:
        return file.isatty()
    except ValueError:  # it was closed
        return False


def output_options(command: F) -> F:
    """--json, --quiet, --verbose"""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Say more."),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
    ):
        command = option(command)
    return command


def model_options(command: F) -> F:
    """--domain, --static, --max-rank"""
    for option in (
        click.option(
            "--max-rank",
            type=click.IntRange(min=1),
            metavar="N",
            help="No new tensor may have more than N dims.",
        ),
        static_option,
        domain_option,
    ):
        command = option(command)
    return command


oracle_option = click.option(
    "--oracle",
    "oracles",
    multiple=True,
    type=click.Choice(("tensorflow", "openvino")),
    help="Compare the definition of each operator with this runtime's as well; may be repeated.",
)

prefer_option = click.option(
    "--prefer",
    "strategy",
    type=click.Choice(STRATEGY_NAMES),
    metavar="STRATEGY",
    help="Lower with this one wherever it applies (slices: no Transpose); see docs/operators.md.",
)

static_option = click.option(
    "--static",
    multiple=True,
    metavar="NAME=DIM",
    help="Fix a symbolic dim; may be repeated.",
)

domain_option = click.option(
    "--domain",
    "domains",
    multiple=True,
    metavar="NAME",
    help="Accept the operators in this domain too; may be repeated.",
)


def verification_options(command: F) -> F:
    """--shape, --inputs, --seed, --strict, --reproducer"""
    reproducer = click.option(
        "--reproducer",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="If they differ, save two small models, data and a script there that show it.",
    )
    strict = click.option(
        "--strict", is_flag=True, help="Fail unless the whole model was run end to end."
    )
    return data_options(strict(reproducer(command)))


def data_options(command: F) -> F:
    """--shape, --inputs, --seed"""
    for option in (
        click.option("--seed", type=int, default=0, show_default=True, help="Of made-up inputs."),
        click.option(
            "--inputs",
            type=click.Path(exists=True),
            metavar="FILE.npz|DIR",
            help="Run on this data: an .npz by input name, or a folder of input_N.pb.",
        ),
        click.option(
            "--shape",
            "shapes",
            multiple=True,
            metavar="NAME=1,64,48,3",
            help="Size of an input to run with; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def start(context: click.Context, as_json: bool, quiet: bool, verbose: bool) -> Output:
    """The run's output, set up as the options say."""
    output: Output = context.obj if isinstance(context.obj, Output) else Output()
    output.json, output.quiet, output.verbose = as_json, quiet, verbose
    # Libraries below remark on odd models in their own words; what matters is said by ours.
    logging.getLogger("onnx_ir").setLevel(logging.DEBUG if verbose else logging.CRITICAL)
    return output


def each_model(
    output: Output,
    models: Sequence[str],
    look: Callable[[str, Progress], R],
    show: Callable[[R], None],
    code_of: Callable[[R], int] = lambda _: 0,
) -> int:
    """Look at every model, also behind one that fails, and return the highest exit code.

    Args:
        output: of the run; with --json it gets one document in the end.
        models: paths.
        look: at one of them; its second argument is called with lines of progress.
        show: what was found, to a person.
        code_of: exit code of what was found.

    Raises:
        SpatialError: the only model fails.
    """
    code = 0
    documents: list[dict[str, object]] = []
    for model in models:
        try:
            with output.progress() as progress:
                found = look(model, progress)
        except SpatialError as error:
            if len(models) == 1:
                raise
            output.err.print(f"error: {error}", soft_wrap=True)
            documents.append({"model": model, "error": str(error), "exit_code": error.exit_code})
            code = max(code, error.exit_code)
            continue
        documents.append(found.to_dict())
        code = max(code, code_of(found))
        if not output.json and not output.quiet:
            show(found)
    if output.json:
        one = len(models) == 1
        output.document(documents[0] if one else {"version": 1, "models": documents})
    return code


def sizes(option: str, values: Sequence[str]) -> dict[str, int]:
    """NAME=DIM pairs.

    Raises:
        click.UsageError: one is something else.
    """
    result: dict[str, int] = {}
    for value in values:
        name, _, dim = value.rpartition("=")
        if not name or not dim.isdecimal():
            raise click.UsageError(f"{option} wants NAME=DIM, a name and a size, not {value!r}")
        size = int(dim)
        if size > INT64_MAX or result.setdefault(name, size) != size:
            raise click.UsageError(f"{option} gives {name!r} a size that is too large or two sizes")
    return result


def shapes(option: str, values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """NAME=1,64,48,3 pairs. The name may hold '=' and ':'.

    Raises:
        click.UsageError: one is something else.
    """
    result: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, _, dims = value.rpartition("=")
        parts = [d.strip() for d in dims.split(",")] if dims.strip() else []
        if not name or not all(d.isdecimal() for d in parts):
            raise click.UsageError(
                f"{option} wants NAME=1,64,48,3, a name and sizes, not {value!r}"
            )
        found = tuple(int(d) for d in parts)
        if max(found, default=0) > INT64_MAX or result.setdefault(name, found) != found:
            raise click.UsageError(f"{option} gives {name!r} sizes that are too large or differ")
    return result
