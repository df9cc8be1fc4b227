"""Define the options that commands share, and the loop over models."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import click

from onnx_spatial.cli.output import Output
from onnx_spatial.conversion.options import ORACLE_NAMES, STRATEGY_NAMES
from onnx_spatial.errors import SpatialError

F = TypeVar("F", bound=Callable[..., Any])


class Documented(Protocol):
    """A result about one model that can be printed as JSON."""

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document."""


R = TypeVar("R", bound=Documented)

#: Called with lines of progress; None where there is no terminal.
Progress = Callable[[str], None] | None

#: The path that means standard input or standard output.
DASH = "-"


def grouped(
    name: str, group: Callable[..., object], *options: Callable[[F], F]
) -> Callable[[F], F]:
    """Add options to a command, which gets their values as one argument.

    Args:
        name: of the argument.
        group: makes it; takes the values by the names of its parameters.
        options: in the order of the help text.
    """
    names = tuple(inspect.signature(group).parameters)

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run(*arguments: Any, **values: Any) -> Any:
            made = group(**{each: values.pop(each) for each in names})
            return command(*arguments, **values, **{name: made})

        decorated: Any = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def _start(as_json: bool, quiet: bool, verbose: bool) -> Output:
    """Set up the output of the run as the options say."""
    given = click.get_current_context().obj
    output = given if isinstance(given, Output) else Output()
    output.json, output.quiet, output.verbose = as_json, quiet, verbose
    # onnx_ir logs remarks about odd models; what matters is in the messages of this package.
    logging.getLogger("onnx_ir").setLevel(logging.DEBUG if verbose else logging.CRITICAL)
    return output


@dataclass(frozen=True)
class ModelOptions:
    """Which operators of a model are converted, with which sizes and ranks.

    Attributes:
        domains: operator domains to accept beside the ones that converters are known to use.
        sizes: of symbolic dims, by name.
        max_rank: largest rank that new tensors may have.
    """

    domains: tuple[str, ...]
    sizes: dict[str, int]
    max_rank: int | None


def _model(domains: tuple[str, ...], static: tuple[str, ...], max_rank: int | None) -> ModelOptions:
    return ModelOptions(domains, parse_sizes("--static", static), max_rank)


@dataclass(frozen=True)
class DataOptions:
    """The data that models are run on.

    Attributes:
        shapes: of inputs, by name.
        inputs: file or folder of the data; None: it is generated.
        seed: of generated data.
    """

    shapes: dict[str, tuple[int, ...]]
    inputs: str | None
    seed: int


def _data(shapes: tuple[str, ...], inputs: str | None, seed: int) -> DataOptions:
    return DataOptions(parse_shapes("--shape", shapes), inputs, seed)


domain_option = click.option(
    "--domain",
    "domains",
    multiple=True,
    metavar="NAME",
    help="Also accept the operators in this domain. May be repeated.",
)

static_option = click.option(
    "--static",
    multiple=True,
    metavar="NAME=DIM",
    help="Fix a symbolic dim, such as batch=4. May be repeated.",
)

max_rank_option = click.option(
    "--max-rank",
    type=click.IntRange(min=1),
    metavar="N",
    help="Give new tensors at most N dims.",
)

shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,64,48,3",
    help="Run with this shape of an input. May be repeated.",
)

seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the generated inputs."
)

oracle_option = click.option(
    "--oracle",
    "oracles",
    multiple=True,
    type=click.Choice(ORACLE_NAMES),
    help="Also compare the numpy definition of each operator with this runtime. May be repeated.",
)

prefer_option = click.option(
    "--prefer",
    "strategy",
    type=click.Choice(STRATEGY_NAMES),
    metavar="STRATEGY",
    help="Use this lowering wherever it applies, such as slices (no Transpose). "
    "docs/operators.md lists the names.",
)

#: --json, --quiet, --verbose: the argument `output`.
output_options = grouped(
    "output",
    _start,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
    click.option("-q", "--quiet", is_flag=True, help="Print only errors."),
    click.option("-v", "--verbose", is_flag=True, help="Show more detail."),
)

#: --domain, --static, --max-rank: the argument `model_options`.
model_options = grouped(
    "model_options",
    _model,
    domain_option,
    static_option,
    max_rank_option,
)

#: --shape, --inputs, --seed: the argument `data_options`.
data_options = grouped(
    "data_options",
    _data,
    shape_option,
    click.option(
        "--inputs",
        type=click.Path(exists=True),
        metavar="FILE.npz|DIR",
        help="Run on this data: an .npz with arrays by input name, or a folder of input_N.pb.",
    ),
    seed_option,
)


def verification_options(command: F) -> F:
    """--strict, --reproducer, and those of `data_options`"""
    reproducer = click.option(
        "--reproducer",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="If the models differ, save two small models, data and a script that show it in DIR.",
    )
    strict = click.option(
        "--strict", is_flag=True, help="Fail unless the whole model was run end to end."
    )
    return data_options(strict(reproducer(command)))


def each_model(
    output: Output,
    models: Sequence[str],
    look: Callable[[str, Progress], R],
    show: Callable[[R], None],
    code_of: Callable[[R], int] = lambda _: 0,
) -> int:
    """Process every model, also after one that fails, and return the highest exit code.

    Args:
        output: of the run; with --json it gets one document in the end.
        models: paths.
        look: processes one of them; its second argument is called with lines of progress.
        show: prints a result for a person.
        code_of: the exit code of a result.

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


def parse_sizes(option: str, values: Sequence[str]) -> dict[str, int]:
    """Parse NAME=DIM pairs.

    Raises:
        click.UsageError: one is something else.
    """
    result: dict[str, int] = {}
    for value in values:
        name, _, dim = value.rpartition("=")
        if not name or not dim.isdecimal():
            raise click.UsageError(f"{option} must be NAME=DIM, such as batch=4, not {value!r}")
        size = int(dim)
        if not _is_size(size) or result.setdefault(name, size) != size:
            raise click.UsageError(f"{option} gives {name!r} a size that is too large or two sizes")
    return result


def parse_shapes(option: str, values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parse NAME=1,64,48,3 pairs. The name may hold '=' and ':'.

    Raises:
        click.UsageError: one is something else.
    """
    result: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, _, dims = value.rpartition("=")
        parts = [d.strip() for d in dims.split(",")] if dims.strip() else []
        if not name or not all(d.isdecimal() for d in parts):
            raise click.UsageError(
                f"{option} must be NAME=SIZES, such as x=1,64,48,3, not {value!r}"
            )
        found = tuple(int(d) for d in parts)
        if not all(map(_is_size, found)) or result.setdefault(name, found) != found:
            raise click.UsageError(f"{option} gives {name!r} sizes that are too large or differ")
    return result


def _is_size(number: int) -> bool:
    """Whether a dim of ONNX, an int64, can have this size."""
    return number < 2**63
