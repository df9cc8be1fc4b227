"""Run the original on given or made-up data, to compare the converted model with it."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import Code, UsageError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import BOOL, Array, is_float
from onnx_spatial.verification.run.data import (
    Assignment,
    GraphInput,
    check_given,
    fixed_sizes,
    named_dims,
    overrides,
)
from onnx_spatial.verification.runtime.context import Sessions
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.spatial_kernels import MAX_RANK
from onnx_spatial.verification.sizes.candidate_sizes import Candidates, rank_from_sites
from onnx_spatial.verification.sizes.large_sizes import TooLargeError
from onnx_spatial.verification.sizes.size_search import Search
from onnx_spatial.verification.sizes.trial_runs import Trial

#: Further sizes at which a small model runs: a model that is right at two sizes may be wrong at a third.
#: Many, where another tool made the conversion.
MORE_SIZES, MANY_SIZES = 4, 24
#: Advice where made-up data does not help, for the command lines of `verify` and `convert`.
GIVE_DATA = "pass data with --inputs"
#: Symbols that a message names; instead of more, and of made-up ones, it names the inputs.
NAMED = 4
_MADE_UP = re.compile(r"unk_*\d+|.*\[\d+\]")
#: onnxruntime's message for two nodes with one name.
_SAME_NAME = re.compile(r"same node name \((.*)\)")

#: Number of the input that is a shape, or that a shape is made of.
_SHAPED_BY = {"Reshape": 1, "Expand": 1, "Tile": 1, "ConstantOfShape": 0}
#: Operators that compute shapes from shapes.
_OF_SHAPES = frozenset({"Cast", "Concat", "Gather", "Identity", "Slice", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class RunRequest:
    """Options of the caller, see `verify`; how many further sizes to run, and whether large ones.

    `shapes_too` are shapes of inputs to run as far as they are legal, and not too large.
    """

    inputs: Mapping[str, Array] | None
    shapes: Mapping[str, Sequence[int]]
    seed: int
    progress: Callable[[str], None]
    more_sizes: int = MORE_SIZES
    large_sizes: bool = True
    shapes_too: Sequence[Mapping[str, Sequence[int]]] = ()


@dataclass
class ReferenceRuns:
    """Successful runs of the original, dims with only one size that runs, or why there are no runs."""

    trials: list[Trial] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)


def program_of(
    original: reader.Source,
    infos: Sequence[OperatorInfo],
    inputs: Sequence[GraphInput],
    sessions: Sessions | None = None,
) -> Program:
    """Make the original ready to run, with the `sessions` of other programs if there are any.

    Raises:
        RunFailure: it cannot be run at all.
    """
    program = Program(original.proto, [f.index for f in infos], original.folder, sessions=sessions)
    if foreign := program.foreign():
        raise RunFailure(f"no runtime here has the operators {', '.join(foreign)}", "load")
    complex_types = (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)
    for graph_input in (i for i in inputs if i.default is None):
        name = f"input {graph_input.name!r}"
        rank = len(graph_input.dims or ())
        if graph_input.element_type not in onnx.TensorProto.DataType.values():
            raise RunFailure(f"{name} is not a dense tensor of a known type", "load")
        if rank > MAX_RANK:
            raise RunFailure(f"{name} has {rank} dims; numpy supports at most {MAX_RANK}", "load")
        if graph_input.element_type in complex_types:
            raise RunFailure(f"{name} is complex, and onnxruntime has no complex tensors", "load")
    return program


def find(
    program: Program,
    original: reader.Source,
    inputs: Sequence[GraphInput],
    infos: Sequence[OperatorInfo],
    request: RunRequest,
    *,
    only_first: bool = False,
) -> ReferenceRuns:
    """Run the original on data from the user, or on made-up data of sizes that it accepts.

    With `only_first` there is one run, and `program.site_inputs` is of that run.

    Raises:
        UsageError: data or shapes from the user do not fit the model, or it does not run on them.
        RunFailure: the original cannot be run at all.
    """
    if request.inputs is not None:
        return ReferenceRuns([_given(program, check_given(inputs, request.inputs))])
    inputs, fixed = fixed_sizes(inputs, request.shapes)
    model, places = original.proto, dict[int, int]()
    if model.functions:
        model = program.flat
        infos, places = _in_calls(program, infos, inputs, original.folder)
    inputs = [with_rank(i, infos) for i in inputs]
    if unknown := [i for i in inputs if i.dims is None and i.default is None]:
        names = ", ".join(i.name for i in unknown)
        return ReferenceRuns(gaps=[f"the rank of input {names} is unknown; {_advice(unknown)}"])
    request.progress("looking for legal input sizes")
    candidates = Candidates(model, inputs, infos, original.folder, places)
    search = Search(program, inputs, fixed, candidates, request.seed, request.progress)
    first = search.first()
    if first is None:
        return ReferenceRuns(gaps=[_no_sizes(original.proto, inputs, search)])
    if only_first:
        return ReferenceRuns([first])
    trials = [first, *search.others(first)]
    if program.is_small(first.feeds):
        trials += [*search.varied(trials, request.more_sizes), *search.corners(first)]
    if request.large_sizes:
        trials += search.large().usual(first)
        for shapes in request.shapes_too:
            with suppress(TooLargeError):
                trial = search.large().at(first, shapes)
                trials += [trial] if trial is not None else []
    parameters = candidates.parameter_names()
    others = list(overrides(inputs, parameters, original.folder, request.seed))
    reals: dict[str, Array] = {}
    if others and all(is_float(value.dtype) for value in others[0].values()):
        reals = others.pop(0)
    flags = any(i.element_type == BOOL and i.dims == () for i in inputs)
    if reals or (flags and len(trials) == 1):
        again = search.again(trials[-1], reals)
        trials += [again] if again is not None else []
    for _, values in itertools.groupby(others, key=list):
        runs = (search.again(first, value) for value in values)
        trials += itertools.islice((r for r in runs if r is not None), 1)
    return ReferenceRuns(trials, search.forced)


def _given(program: Program, arrays: dict[str, Array]) -> Trial:
    try:
        outputs = program.run(arrays)
        return Trial(Assignment({}), arrays, outputs, program.executed)
    except RunFailure as failure:
        if failure.stage == "load" or failure.lacks_kernel:
            raise
        raise UsageError(
            f"the original does not run on the given inputs: {failure}", code=Code.INPUT_DATA
        ) from None


def _in_calls(
    program: Program,
    infos: Sequence[OperatorInfo],
    inputs: Sequence[GraphInput],
    folder: Path | None,
) -> tuple[list[OperatorInfo], dict[int, int]]:
    """Analyse the model with its functions inlined: each call asks for sizes of its own.

    Returns:
        The sites, and the position in the original of each, by its position there.
    """
    domains = {info.node.domain for info in infos}
    found = analysis.find(named_dims(program.flat, inputs), domains, folder)
    nodes = [node for _, _, node in traversal.nodes(program.flat)]
    places = {position: program.site_of(node) for position, node in enumerate(nodes)}
    return [info for info in found if info.known_domain], {
        position: site for position, site in places.items() if site is not None
    }


def with_rank(graph_input: GraphInput, infos: Sequence[OperatorInfo]) -> GraphInput:
    """Give an input of unknown rank the rank that a site requires, if one does."""
    rank = rank_from_sites(graph_input.name, infos) if graph_input.dims is None else None
    if rank is None:
        return graph_input
    return replace(graph_input, dims=tuple(f"{graph_input.name}[{axis}]" for axis in range(rank)))


def _advice(inputs: Sequence[GraphInput]) -> str:
    """Advise to give the shapes of inputs with open dims, or data."""
    options = [f"--shape {shlex.quote(i.name)}={_shape_option(i)}" for i in inputs]
    return f"set sizes with {' '.join(options)}, or {GIVE_DATA}"


def _shape_option(graph_input: GraphInput) -> str:
    if graph_input.dims is None:
        return "SIZE,SIZE,..."
    return ",".join(str(d) if isinstance(d, int) else "SIZE" for d in graph_input.dims)


def _shape_inputs(model: onnx.ModelProto, inputs: set[str]) -> list[str]:
    """Return inputs whose values are used as a shape, directly or as a part of one."""
    shapes: set[str] = set()
    for node in reversed(model.graph.node):
        index = _SHAPED_BY.get(node.op_type)
        if index is not None and index < len(node.input):
            shapes.add(node.input[index])
        if node.op_type in _OF_SHAPES and not shapes.isdisjoint(node.output):
            shapes.update(node.input)
    return [v.name for v in model.graph.input if v.name in shapes & inputs]


def _no_sizes(model: onnx.ModelProto, inputs: Sequence[GraphInput], search: Search) -> str:
    """Say why the search found no legal sizes, and what to do."""
    failure = search.last_failure
    same_name = _SAME_NAME.search(str(failure))
    if same_name is not None:
        name = same_name[1]
        return f"two nodes have the name {name!r}, which onnxruntime refuses; rename one of them"
    if failure is not None and failure.hopeless:
        advice = ""
        if "external tensors" in str(
            failure
        ):  # onnxruntime needs to read a shape from another file
            command = "onnx.save(onnx.load(MODEL), OUT, save_as_external_data=True)"
            advice = f"; {command} moves it into the model"
        return f"the original does not load: {failure}{advice}"
    reasons = [] if failure is None else [str(failure)]
    if search.limit is not None:
        reasons.append(f"inputs of more than {search.limit:,} elements were not tried")
    reason = f" ({'; '.join(reasons)})" if reasons else ""
    inputs = [i for i in inputs if i.default is None]
    if shapes := _shape_inputs(model, {i.name for i in inputs}):
        names = ", ".join(map(repr, shapes))
        missing = f"no legal values were found for {names}, from which the model computes shapes"
        return f"{missing}{reason}; {GIVE_DATA}"
    open_inputs = [i for i in inputs if any(isinstance(d, str) for d in i.dims or ())]
    if not open_inputs:
        return f"the original does not run on generated data{reason}; {GIVE_DATA}"
    dims = (d for i in open_inputs for d in i.dims or () if isinstance(d, str))
    symbols = list(dict.fromkeys(dims))
    if len(symbols) > NAMED or any(map(_MADE_UP.fullmatch, symbols)):
        of = "input" if len(open_inputs) == 1 else "inputs"
        symbols = [f"{of} {', '.join(repr(i.name) for i in open_inputs)}"]
    return f"no legal sizes were found for {', '.join(symbols)}{reason}; {_advice(open_inputs)}"
