"""Declare every option once, as the help shows it, and make commands of them.

OPTIONS    title of a group in the help -> its options, in the order of the help
command    arguments + names of values -> a command with grouped help, and examples at its end
           it gets the values by name, and `output` in place of --json, --quiet and --verbose
"""

from __future__ import annotations

import gc
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli.output import Output
from onnx_spatial.conversion.options import LOWERING_NAMES, MODES, ConvertOptions

if TYPE_CHECKING:
    from onnx_spatial.verification import VerifyOptions

#: New objects between two looks for cyclic garbage, of which a command makes little. With Python's own
#: 700 a conversion of 10,000 nodes spends a sixth of its time there.
_NEW_OBJECTS = 100_000

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _collect_pairs(
    form: str, parse: Callable[[str], Any], *, kind: str = "sizes", named: bool = True
) -> Callable[[click.Context, click.Parameter, Sequence[str]], Any]:
    """Return a callback that collects NAME=VALUE pairs in a dict; a name may hold '=' and ':'.

    Args:
        form: what a pair must be, with an example.
        parse: parses what is behind the name; None if it is something else.
        kind: of the values, in words.
        named: whether NAME is required. If not, and no value has one, the result is that one value, or
            None.
    """

    def collect(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> Any:
        option, result = parameter.opts[0], dict[str, Any]()
        for value in values:
            name, equals, text = value.rpartition("=")
            parsed = parse(text)
            if parsed is None or (not name and (named or equals)):
                raise click.UsageError(f"{option} must be {form}, not {value!r}")
            if result.setdefault(name, parsed) != parsed:
                what = (
                    f"{option} {name!r}" if named else f"{option} of {name!r}" if name else option
                )
                raise click.UsageError(f"{what} is set twice, to different {kind}")
        return result if named or result.keys() - {""} else result.get("")

    return collect


def _parse_dim(text: str) -> int | None:
    dims = _parse_dims(text)
    return dims[0] if dims is not None and len(dims) == 1 else None


def _parse_dims(text: str) -> tuple[int, ...] | None:
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isdecimal() for part in parts):
        return None
    dims = tuple(map(int, parts))
    if max(dims, default=0).bit_length() > 63:  # no int64, which a dim is
        raise click.UsageError(f"the size {max(dims)} is too large")
    return dims


def _parse_bound(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number >= 0 else None


def _parse_memory(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Parse a size such as 4G into bytes."""
    if text is None:
        return None
    number = r"(\d{1,15}(?:\.\d{1,9})?)([KMGT]?)(?:i?B)?"
    match = re.fullmatch(number, text.strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        raise click.UsageError(f"--memory must be a size such as 500M or 4G, not {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _option(names: str, metavar: str = "", help: str = "", **settings: Any) -> click.Option:
    """Declare an option: a flag without `metavar`; one that may be repeated if that ends in "..."."""
    if metavar.endswith("..."):
        settings, help = {"multiple": True, **settings}, f"{help} May be repeated."
    if metavar:
        settings["metavar"] = metavar.removesuffix("...")
    elif settings.keys().isdisjoint(("type", "count")):
        settings["is_flag"] = True
    return click.Option(names.split(), help=help, **settings)


_FILE = click.Path()
_MODE = "Convert to standard operators, local functions, or Python operators"
_BOUND = {
    "callback": _collect_pairs(
        "a number of 0 or more, or NAME=NUMBER, such as y=1e-2",
        _parse_bound,
        kind="numbers",
        named=False,
    )
}
_SECONDS: Mapping[str, Any] = {
    "type": click.FloatRange(min=0),
    "show_default": True,
    "callback": lambda context, option, seconds: seconds or None,
}

#: Title of a group in the help -> its options.
OPTIONS: Mapping[str, Sequence[click.Option]] = {
    "Which models": (
        _option("--exclude", "GLOB...", "Leave these models out of folders and globs."),
        _option(
            "--expect-failure",
            "GLOB...",
            "Expect these models to fail; it is an error if they do not.",
        ),
    ),
    "What to write": (
        _option(
            "-o --output path",
            "OUT",
            "Write to OUT: a file (FILE.onnx), or into a folder that exists or ends in / (FOLDER/). "
            "Several models go into a folder, and keep their own folders inside it.",
            type=_FILE,
        ),
        _option("--in-place", help="Replace MODEL by the result."),
        _option("--dry-run", help="Convert and verify, but write nothing."),
        _option(
            "--check",
            help="Write and verify nothing; exit with code 1 if a MODEL would change.",
        ),
        _option(
            "--save-as-external-data external",
            help="Write weights of 1 KiB and more to a file OUT.data.",
        ),
        _option(
            "--mode",
            help=f"{_MODE}.",
            type=click.Choice(MODES),
            default="lower",
            show_default=True,
        ),
    ),
    "Conversion": (
        _option(
            "--mode modes",
            help=f"{_MODE} (default: lower). May be repeated.",
            type=click.Choice(MODES),
            multiple=True,
            default=("lower",),
        ),
        _option(
            "--optimize",
            help="Optimize the models: rewrite chains of standard nodes that are spatial operators, "
            "too.",
        ),
        _option("--no-fuse", help="Change only the operators, no nodes beside them."),
        _option(
            "--checked", help="Make a run fail if sizes or parameters break a rule of an operator."
        ),
        _option(
            "--prefer",
            "LOWERING",
            "Use this lowering wherever it applies, such as slices (no Transpose). docs/operators.md "
            "lists the names.",
            type=click.Choice(LOWERING_NAMES),
        ),
        _option(
            "--max-rank",
            "N",
            "Give new tensors at most N dims. `optimize` also rewrites chains of nodes above N.",
            type=click.IntRange(min=1),
        ),
        _option("--domain domains", "NAME...", "Also accept the operators in this domain."),
        _option(
            "--static",
            "NAME=DIM...",
            "Fix a symbolic dim, such as batch=4.",
            callback=_collect_pairs("NAME=DIM, such as batch=4", _parse_dim),
        ),
    ),
    "Verification": (
        _option("--no-verify", help="Do not compare the result with the original."),
        _option(
            "--shape shapes",
            "NAME=1,64,48,3...",
            "Run with this shape of an input.",
            callback=_collect_pairs("NAME=SIZES, such as x=1,64,48,3", _parse_dims),
        ),
        _option(
            "--inputs",
            "FILE.npz|DIR",
            "Run on this data: an .npz with arrays by input name, or a folder of input_N.pb.",
            type=click.Path(exists=True),
        ),
        _option(
            "--seed", "N", "Seed of the generated inputs.", type=click.IntRange(min=0), default=0
        ),
        _option(
            "--rtol",
            "[NAME=]R...",
            "Allow outputs this difference, relative to the largest value of the output. With NAME, "
            "for this output only.",
            **_BOUND,
        ),
        _option(
            "--atol",
            "[NAME=]A...",
            "Allow outputs this absolute difference, in addition to --rtol.",
            **_BOUND,
        ),
        _option(
            "--outputs-only",
            help="Compare outputs only, and prove nothing: for a version of a model with other types "
            "or weights (float16, int8).",
        ),
        _option("--strict", help="Fail if the result cannot be verified, or operators are left."),
        _option("--strict-proof", help="Fail if a part that differs is not proven."),
    ),
    "Failures and limits": (
        _option(
            "--reproducer",
            "DIR",
            "If the models differ, save in DIR two small models, data and a script that show it.",
            type=click.Path(file_okay=False),
        ),
        _option(
            "--memory",
            "SIZE",
            "Stop what needs more memory beside the weights, such as 8G. The default is 4G, or a "
            "quarter of a smaller machine; of validate none.",
            callback=_parse_memory,
        ),
        _option(
            "--time-limit",
            "SECONDS",
            "Stop the verification after this time of the processor. 0 allows any time.",
            default=60.0,
            **_SECONDS,
        ),
        _option(
            "--timeout",
            "SECONDS",
            "Leave a model that takes longer as UNVERIFIED; 0 means no limit.",
            default=600,
            **_SECONDS,
        ),
    ),
    "Processes": (
        _option(
            "-j --jobs",
            "N",
            "Validate N models at a time; 0 means one per core (default: 1).",
            type=click.IntRange(min=0),
        ),
        _option(
            "--executor",
            help="Run on this machine (the default) or on a cluster.",
            type=click.Choice(("local", "dask")),
            default="local",
        ),
        _option("--scheduler", "ADDRESS", "Address of the cluster's scheduler."),
    ),
    "Reports": (
        _option(
            "--html",
            "FILE",
            "Write a report to look at: an HTML page with the graphs side by side, and tables.",
            type=_FILE,
        ),
        _option("--junit-xml", "FILE", "Write a JUnit XML report.", type=_FILE),
    ),
    "Output": (
        _option("--json as_json", help="Print one JSON document on stdout."),
        _option("-q --quiet", help="Print only errors."),
        _option(
            "-v --verbose",
            help="Show more detail and the time of each step; -vv also logs each decision.",
            count=True,
        ),
    ),
}
_BY_NAME = {str(option.name): option for group in OPTIONS.values() for option in group}

#: Options of every command; those of conversions; those of the comparison of two models.
COMMON = "as_json quiet verbose"
EDITING = "mode no_fuse checked prefer max_rank domains static"
VERIFYING = (
    "shapes inputs seed rtol atol outputs_only strict strict_proof reproducer memory time_limit"
)

#: Options that may stand in front of the command, too.
PROGRAM = [_BY_NAME[name] for name in ("quiet", "verbose")]

#: Completed as file names.
MODELS = click.Argument(["models"], nargs=-1, required=True, type=click.Path(), metavar="MODEL...")


class Command(click.Command):
    """A command whose help has its options in groups, and examples at the end.

    Args:
        examples: command lines without the name of the program.
        others: arguments of `click.Command`.
    """

    def __init__(self, *others: Any, examples: Sequence[str], **named: Any) -> None:
        super().__init__(*others, **named)
        self.examples = tuple(examples)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with the output that the options ask for."""
        ctx.params["output"] = _start_output(
            *(ctx.params.pop(n) for n in ("as_json", "quiet", "verbose"))
        )
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        own = {id(parameter) for parameter in self.params}
        for title, group in OPTIONS.items():
            shown = [option for option in group if id(option) in own]
            help_option = self.get_help_option(ctx)
            if title == "Output" and help_option is not None:
                shown.append(help_option)
            records = [option.get_help_record(ctx) for option in shown]
            if records:
                with formatter.section(title):
                    formatter.write_dl([record for record in records if record is not None])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, which are not wrapped: they can be pasted."""
        super().format_epilog(ctx, formatter)
        formatter.write("\nExamples:\n")
        for example in self.examples:
            formatter.write(f"  onnx-spatial {example}\n")


def command(
    summary: str, *arguments: click.Argument, options: str, examples: Sequence[str]
) -> Callable[[Callable[..., int]], Command]:
    """Make a command of a function: its name, help and values come from there.

    Args:
        summary: the command in a few words.
        arguments: positional arguments.
        options: names of values of `OPTIONS`.
        examples: command lines without the name of the program.
    """
    parameters = [*arguments, *(_BY_NAME[name] for name in options.split())]
    return click.command(
        cls=Command, params=parameters, short_help=summary, examples=tuple(examples)
    )


def _start_output(as_json: bool, quiet: bool, verbose: int) -> Output:
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
    from onnx_spatial.verification import process  # imports what help and completion do without

    process.limit_to_machine()
    gc.freeze()  # no collection has to look at what was imported
    gc.set_threshold(_NEW_OBJECTS)
    gc.enable()  # `main` disabled it
    return output


def commands_with(program: click.Group, option: str) -> list[str]:
    """Return the names of the commands that have an option, as it is typed."""
    return [n for n, c in program.commands.items() if any(option in p.opts for p in c.params)]


def convert_options(values: Mapping[str, Any], *, chains: bool) -> ConvertOptions:
    """Return the options of a conversion from the values of a command."""
    names = ("mode", "prefer", "max_rank", "checked", "domains")
    asked = {name: values[name] for name in names if name in values}
    return ConvertOptions(fuse=not values.get("no_fuse"), chains=chains, **asked)


def verify_options(model: str, values: Mapping[str, Any]) -> VerifyOptions:
    """Return how models are compared: in a child process, on data that is read from a file or folder.

    Args:
        model: the original.
        values: of the command, by name.

    Raises:
        UsageError: `inputs` holds no data, or data that fits no input; or options cannot be combined.
        ModelFileError: it cannot be read.
    """
    from onnx_spatial.model.io import reader
    from onnx_spatial.validation import data_sets
    from onnx_spatial.verification import VerifyOptions, process

    asked = {name: values[name] for name in VERIFYING.split()}
    if (path := asked["inputs"]) is not None:
        asked["inputs"] = data_sets.inputs(Path(path), reader.read(model).proto)
    return VerifyOptions(**asked | {"memory": asked["memory"] or process.default_memory()})
