"""Runs of the original to compare the converted model with."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import BOOL, Array
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.spatial_kernels import MAX_RANK
from onnx_spatial.verification.sizes.candidate_sizes import Candidates, rank_from_sites
from onnx_spatial.verification.sizes.model_inputs import (
    Assignment,
    GraphInput,
    check_given,
    fixed_sizes,
    overrides,
    whole_overrides,
)
from onnx_spatial.verification.sizes.size_search import Search
from onnx_spatial.verification.sizes.trial_runs import Trial

#: Runs of further sizes that a small model gets: what is right at two sizes may be wrong at a third.
#: Many, where another tool computes sizes otherwise.
MORE_SIZES, MANY_SIZES = 4, 24
#: What helps where made-up data does not, on the command lines of `verify` and `convert`.
GIVE_DATA = "give data with --inputs"
#: Dims that a message names; of more, and of those that a converter named, it names the inputs.
NAMED = 4
_MADE_UP = re.compile(r"unk_*\d+|.*\[\d+\]")
#: What onnxruntime says of two nodes with one name.
_SAME_NAME = re.compile(r"same node name \((.*)\)")

#: Operators that take a shape, or what they make one of, as an input: which.
_SHAPED_BY = {"Reshape": 1, "Expand": 1, "Tile": 1, "ConstantOfShape": 0}
#: Operators that models put shapes together with.
_OF_SHAPES = frozenset({"Cast", "Concat", "Gather", "Identity", "Slice", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class RunRequest:
    """What the caller asks for; see `verify`."""

    inputs: Mapping[str, Array] | None
    shapes: Mapping[str, Sequence[int]]
    seed: int
    progress: Callable[[str], None]
    more_sizes: int = MORE_SIZES


@dataclass
class ReferenceRuns:
    """Runs of the original that went through.

    Attributes:
        trials: the runs; none if no legal sizes were found.
        forced: input dims of which only one size runs.
        gaps: why there are no runs.
    """

    trials: list[Trial] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)


def program_of(
    original: reader.Source, infos: Sequence[OperatorInfo], inputs: Sequence[GraphInput]
) -> Program:
    """The original, ready to run.

    Raises:
        RunFailure: something in it cannot be run at all.
    """
    program = Program(original.proto, [f.index for f in infos], original.folder)
    if foreign := program.foreign():
        raise RunFailure(f"nothing here can run the operators {', '.join(foreign)}", "load")
    for wanted in (i for i in inputs if i.default is None):
        if wanted.element_type not in onnx.TensorProto.DataType.values():
            raise RunFailure(f"input {wanted.name!r} is no dense tensor of a known type", "load")
        if wanted.dims is not None and len(wanted.dims) > MAX_RANK:
            reason = f"input {wanted.name!r} has {len(wanted.dims)} dims, numpy {MAX_RANK} at most"
            raise RunFailure(reason, "load")
        if wanted.element_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
            raise RunFailure(
                f"input {wanted.name!r} is complex, and onnxruntime has no complex tensors", "load"
            )
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
    """Run the original on the data given, or on made-up data of sizes that it accepts.

    With `only_first` one run is enough, and `program` still knows what its sites met there.

    Raises:
        UsageError: the data or shapes given do not fit the model, or it does not run on them.
        RunFailure: something in it cannot be run at all.
    """
    if request.inputs is not None:
        return ReferenceRuns([_given(program, check_given(inputs, request.inputs))])
    inputs, fixed = fixed_sizes(inputs, request.shapes)
    inputs = [with_rank(i, infos) for i in inputs]
    open_inputs = [i for i in inputs if i.dims is None and i.default is None]
    if open_inputs:
        unknown = [i.name for i in open_inputs]
        return ReferenceRuns(
            gaps=[f"the rank of input {', '.join(unknown)} is unknown; {_ask(open_inputs)}"]
        )
    request.progress("looking for legal input sizes")
    candidates = Candidates(original.proto, inputs, infos, original.folder)
    search = Search(program, inputs, fixed, candidates, request.seed, request.progress)
    first = search.first()
    if first is None:
        return ReferenceRuns(gaps=[_no_sizes(original.proto, inputs, search)])
    if only_first:
        return ReferenceRuns([first])
    trials = [first, *search.others(first)]
    if program.is_small(first.feeds):
        trials += [*search.varied(trials, request.more_sizes), *search.corners(first)]
    other = overrides(inputs, candidates.parameter_names(), original.folder, request.seed)
    flags = any(i.element_type == BOOL and i.dims == () for i in inputs)
    if other or (flags and len(trials) == 1):
        again = search.again(trials[-1], other)
        trials += [again] if again is not None else []
    for name, values in whole_overrides(
        inputs, candidates.parameter_names(), original.folder
    ).items():
        runs = (search.again(first, {name: value}) for value in values)
        trials += itertools.islice((r for r in runs if r is not None), 1)
    return ReferenceRuns(trials, search.forced)


def _given(program: Program, arrays: dict[str, Array]) -> Trial:
    try:
        outputs = program.run(arrays)
        return Trial(Assignment({}), arrays, outputs, program.executed)
    except RunFailure as failure:
        if failure.stage == "load" or failure.lacks_kernel:
            raise
        raise UsageError(f"the original does not run on the inputs given: {failure}") from None


def with_rank(wanted: GraphInput, infos: Sequence[OperatorInfo]) -> GraphInput:
    """An input whose rank is known where a site that takes it says so."""
    if wanted.dims is not None:
        return wanted
    rank = rank_from_sites(wanted.name, infos)
    dims = None if rank is None else tuple(f"{wanted.name}[{axis}]" for axis in range(rank))
    return GraphInput(wanted.name, wanted.element_type, dims, wanted.default)


def _ask(inputs: Sequence[GraphInput]) -> str:
    """What to do: a --shape for each input whose dims are open, all of its dims in it, or data."""
    words = [f"--shape {shlex.quote(i.name)}={_sizes_of(i)}" for i in inputs]
    return f"give sizes with {' '.join(words)}, or {GIVE_DATA}"


def _sizes_of(wanted: GraphInput) -> str:
    if wanted.dims is None:
        return "SIZE,SIZE,..."
    return ",".join(str(d) if isinstance(d, int) else "SIZE" for d in wanted.dims)


def _mended(failure: RunFailure) -> str:
    """What helps where onnxruntime wants to read a shape, and it lies in another file."""
    if "external tensors" not in str(failure):
        return ""
    return "; onnx.save(onnx.load(MODEL), OUT, save_as_external_data=True) puts it into the model"


def _say_shapes(model: onnx.ModelProto, inputs: set[str]) -> list[str]:
    """Inputs whose values are asked for as a shape, directly or put together with others."""
    wanted: set[str] = set()
    for node in reversed(model.graph.node):
        index = _SHAPED_BY.get(node.op_type)
        if index is not None and index < len(node.input):
            wanted.add(node.input[index])
        if node.op_type in _OF_SHAPES and not wanted.isdisjoint(node.output):
            wanted.update(node.input)
    return [v.name for v in model.graph.input if v.name in wanted & inputs]


def _no_sizes(model: onnx.ModelProto, inputs: Sequence[GraphInput], search: Search) -> str:
    failure = search.last_failure
    twice = _SAME_NAME.search(str(failure))
    if twice is not None:
        return (
            f"two nodes have the name {twice[1]!r}, which onnxruntime refuses; rename one of them"
        )
    if failure is not None and failure.hopeless:
        return f"the original does not load, whatever its sizes: {failure}{_mended(failure)}"
    reasons = [] if failure is None else [str(failure)]
    if search.limit is not None:
        reasons.append(f"inputs of more than {search.limit:,} elements were not tried")
    reason = f" ({'; '.join(reasons)})" if reasons else ""
    shapes = _say_shapes(model, {i.name for i in inputs if i.default is None})
    if shapes:
        names = ", ".join(map(repr, shapes))
        asked = f"no values were found for {names}, by which the model makes its shapes"
        return f"{asked}{reason}; {GIVE_DATA}"
    open_inputs = [
        i for i in inputs if i.default is None and any(isinstance(d, str) for d in i.dims or ())
    ]
    if not open_inputs:
        return f"the original does not run on made-up data{reason}; {GIVE_DATA}"
    symbols = list(
        dict.fromkeys(d for i in open_inputs for d in i.dims or () if isinstance(d, str))
    )
    if len(symbols) > NAMED or any(map(_MADE_UP.fullmatch, symbols)):
        of = "input" if len(open_inputs) == 1 else "inputs"
        symbols = [f"{of} {', '.join(repr(i.name) for i in open_inputs)}"]
    return f"no legal sizes were found for {', '.join(symbols)}{reason}; {_ask(open_inputs)}"
