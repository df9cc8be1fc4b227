"""Define the options that commands share."""

from __future__ import annotations

import functools
import gc
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnx_spatial.cli.output import Output
from onnx_spatial.conversion.options import MODES, STRATEGY_NAMES, ConvertOptions

if TYPE_CHECKING:
    from onnx_spatial.verification import VerifyOptions

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def grouped(
    name: str, *options: Callable[[F], F], make: Callable[..., object] = dict
) -> Callable[[F], F]:
    """Add options to a command, which gets their values as one argument.

    Args:
        name: of the argument.
        options: in the order of the help text.
        make: makes the argument of the values by name; without it they are a dict.
    """

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run(*arguments: Any, **values: Any) -> Any:
            group = make(**{each: values.pop(each) for each in names})
            return command(*arguments, **values, **{name: group})

        decorated: Any = run
        before = len(getattr(command, "__click_params__", ()))
        for option in reversed(options):
            decorated = option(decorated)
        names = [parameter.name for parameter in decorated.__click_params__[before:]]
        return decorated  # type: ignore[no-any-return]

    return decorate


def _start(as_json: bool, quiet: bool, verbose: int) -> Output:
    """Set up the output of the run as the options say."""
    output = click.get_current_context().obj
    output = output if isinstance(output, Output) else Output()
    # They may stand in front of the command, too.
    verbosity = max(verbose, output.verbosity)
    output.json, output.quiet = as_json, quiet or output.quiet
    output.verbosity = verbosity
    if verbosity > 1:
        logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")
        logging.getLogger("onnx_spatial").setLevel(logging.DEBUG)
    # onnx_ir logs remarks about odd models; what matters is in the messages of this package.
    logging.getLogger("onnx_ir").setLevel(logging.WARNING if verbosity else logging.CRITICAL)
    from onnx_spatial.verification import limits  # imports what help and completion do without

    limits.limit_to_machine()
    gc.freeze()  # no collection has to look at what was imported
    gc.enable()  # `main` disabled it
    return output


def _by_name(
    option: str,
    form: str,
    values: Sequence[str],
    parse: Callable[[str], R | None],
    *,
    kind: str = "sizes",
    named: bool = True,
) -> dict[str, R]:
    """Parse NAME=VALUE pairs; a name may hold '=' and ':'.

    Args:
        option: as it is typed.
        form: what a pair must be, with an example.
        values: the pairs.
        parse: parses what is behind the name; None if it is something else.
        kind: of the values, in words.
        named: whether each must have a name; the value without one is that of "".

    Raises:
        click.UsageError: a pair has another form, or a name has two values.
    """
    result: dict[str, R] = {}
    for value in values:
        name, equals, text = value.rpartition("=")
        parsed = parse(text)
        if parsed is None or (not name and (named or equals)):
            raise click.UsageError(f"{option} must be {form}, not {value!r}")
        if result.setdefault(name, parsed) != parsed:
            what = f"{option} {name!r}" if named else f"{option} of {name!r}" if name else option
            raise click.UsageError(f"{what} is set twice, to different {kind}")
    return result


def _check_sizes(option: str, sizes: Mapping[str, Sequence[int]]) -> None:
    """Check that sizes are those that a dim of ONNX, an int64, can have."""
    for name, dims in sizes.items():
        if max(dims, default=0) >= 2**63:
            raise click.UsageError(f"{option} {name!r}: the size is too large")


def _sizes(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> dict[str, int]:
    """Parse NAME=DIM pairs."""
    form = "NAME=DIM, such as batch=4"
    sizes = _by_name("--static", form, values, lambda t: int(t) if t.isdecimal() else None)
    _check_sizes("--static", {name: (size,) for name, size in sizes.items()})
    return sizes


def _shapes(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Parse NAME=1,64,48,3 pairs."""

    def dims(text: str) -> tuple[int, ...] | None:
        parts = [part.strip() for part in text.split(",")] if text.strip() else []
        return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else None

    shapes = _by_name("--shape", "NAME=SIZES, such as x=1,64,48,3", values, dims)
    _check_sizes("--shape", shapes)
    return shapes


def _tolerances(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> float | dict[str, float] | None:
    """Parse R and NAME=R."""

    def positive(text: str) -> float | None:
        try:
            number = float(text)
        except ValueError:
            return None
        return number if number >= 0 else None

    form = "a number of 0 or more, or NAME=NUMBER, such as y=1e-2"
    result = _by_name(f"--{option.name}", form, values, positive, kind="numbers", named=False)
    return result.get("") if set(result) <= {""} else result


def _memory_size(
    context: click.Context | None, option: click.Parameter | None, text: str | None
) -> int | None:
    """Parse a size such as 4G into bytes; None stays None.

    Raises:
        click.UsageError: it is not a size.
    """
    if text is None:
        return None
    number = r"(\d{1,15}(?:\.\d{1,9})?)([KMGT]?)(?:i?B)?"
    match = re.fullmatch(number, text.strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        raise click.UsageError(f"--memory must be a size such as 500M or 4G, not {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


#: Completed as file names.
models_argument = click.argument(
    "models", nargs=-1, required=True, type=click.Path(), metavar="MODEL..."
)

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
    callback=_sizes,
    metavar="NAME=DIM",
    help="Fix a symbolic dim, such as batch=4. May be repeated.",
)

max_rank_option = click.option(
    "--max-rank",
    type=click.IntRange(min=1),
    metavar="N",
    help="Give new tensors at most N dims. `optimize` also rewrites chains of nodes above N.",
)

shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_shapes,
    metavar="NAME=1,64,48,3",
    help="Run with this shape of an input. May be repeated.",
)

seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the generated inputs."
)

#: The arguments rtol, atol and outputs_only of `onnx_spatial.verify`.
_tolerance_options: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--rtol",
        multiple=True,
        callback=_tolerances,
        metavar="[NAME=]R",
        help="Allow outputs this difference, relative to the largest value of the output. With NAME, "
        "for this output only. May be repeated.",
    ),
    click.option(
        "--atol",
        multiple=True,
        callback=_tolerances,
        metavar="[NAME=]A",
        help="Allow outputs this absolute difference, in addition to --rtol.",
    ),
    click.option(
        "--outputs-only",
        is_flag=True,
        help="Compare outputs only, and prove nothing: for a version of a model with other types or "
        "weights (float16, int8).",
    ),
)

prefer_option = click.option(
    "--prefer",
    type=click.Choice(STRATEGY_NAMES),
    metavar="LOWERING",
    help="Use this lowering wherever it applies, such as slices (no Transpose). "
    "docs/operators.md lists the names.",
)

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
verbose_option = click.option(
    "-v",
    "--verbose",
    count=True,
    help="Show more detail and the time of each step; -vv also logs each decision.",
)

#: --json, --quiet, --verbose: the argument `output`.
output_options = grouped(
    "output",
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
    quiet_option,
    verbose_option,
    make=_start,
)

no_fuse_option = click.option(
    "--no-fuse", is_flag=True, help="Change only the operators, no nodes beside them."
)

checked_option = click.option(
    "--checked",
    is_flag=True,
    help="Make a run fail if sizes or parameters break a rule of an operator.",
)

strict_proof_option = click.option(
    "--strict-proof", is_flag=True, help="Fail if a part that differs is not proven."
)

no_verify_option = click.option(
    "--no-verify", is_flag=True, help="Do not compare the result with the original."
)


def memory_option(help: str) -> Callable[[F], F]:
    """Make the option --memory, which means something else where a process has one model."""
    return click.option("--memory", callback=_memory_size, metavar="SIZE", help=help)


def mode_option(*others: str, help: str = "", **settings: Any) -> Callable[[F], F]:
    """Make the option --mode, which may be repeated in one command and not in others."""
    text = f"Convert to standard operators, local functions, or Python operators{help}."
    return click.option("--mode", *others, type=click.Choice(MODES), help=text, **settings)


#: The attributes of `onnx_spatial.VerifyOptions`, with `inputs` a path: the argument `how_to_verify`.
verification_options = grouped(
    "how_to_verify",
    shape_option,
    click.option(
        "--inputs",
        type=click.Path(exists=True),
        metavar="FILE.npz|DIR",
        help="Run on this data: an .npz with arrays by input name, or a folder of input_N.pb.",
    ),
    seed_option,
    *_tolerance_options,
    click.option(
        "--strict",
        is_flag=True,
        help="Fail if the result cannot be verified, or operators are left.",
    ),
    strict_proof_option,
    click.option(
        "--reproducer",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="If the models differ, save in DIR two small models, data and a script that show it.",
    ),
    memory_option(
        "Stop a run that needs more memory beside the weights, such as 8G. The default is 4G, or a "
        "quarter of a smaller machine."
    ),
    click.option(
        "--time-limit",
        type=click.FloatRange(min=0),
        default=60.0,
        show_default=True,
        callback=lambda context, option, seconds: seconds or None,
        metavar="SECONDS",
        help="Stop the verification after this time of the processor. 0 allows any time.",
    ),
)

#: The options of `ConvertOptions` but `chains`, as `editing`.
editing_options = grouped(
    "editing",
    mode_option(default="lower", show_default=True),
    no_fuse_option,
    checked_option,
    prefer_option,
    max_rank_option,
    domain_option,
)


def convert_options(
    *,
    chains: bool = False,
    no_fuse: bool = False,
    domains: Sequence[str] = (),
    **others: Any,
) -> ConvertOptions:
    """Return the options of a conversion from those of a command."""
    return ConvertOptions(fuse=not no_fuse, chains=chains, domains=tuple(domains), **others)


def check_verification(given: Mapping[str, Any], *, no_verify: bool, check: bool) -> None:
    """Check that options of a verification that is not made are not given.

    Raises:
        click.UsageError: one is.
    """
    for name in ("strict_proof", "rtol", "atol", "outputs_only"):
        if given[name] not in (None, False) and (no_verify or check):
            option, other = name.replace("_", "-"), "check" if check else "no-verify"
            raise click.UsageError(f"--{option} and --{other} cannot be combined")


def verify_options(model: str, how_to_verify: Mapping[str, Any]) -> VerifyOptions:
    """Return how models are compared: in a child process, on data that is read from a file or folder.

    Args:
        model: the original.
        how_to_verify: the options of the command.

    Raises:
        UsageError: `inputs` holds no data, or data that fits no input; or options cannot be combined.
        ModelFileError: it cannot be read.
    """
    from onnx_spatial.model.io import reader
    from onnx_spatial.validation import data_sets
    from onnx_spatial.verification import VerifyOptions, limits

    path = how_to_verify["inputs"]
    arrays = None if path is None else data_sets.inputs(Path(path), reader.read(model).proto)
    memory = how_to_verify["memory"] or limits.default_memory()
    return VerifyOptions(**{**how_to_verify, "inputs": arrays, "memory": memory})
