"""Find sizes at which a model runs, for inputs with open dims.

    x [N, H, W, 3] -> SpaceToBatchND, blocks 4 x 4 -> .. -> MatMul with a weight [12, 5]

    what operators demand    4 divides H and W
    likely sizes             N = 2, H = 40, W = 24: small ones where dims are many
    a repair                 the MatMul fails: W is 12, 24, .., as its weight has 12 rows
    else                     a reason that says which shapes to give

Each repair changes what most likely mends the node that failed, until a later one fails. Runs are
counted, not seconds, so that every machine finds the same sizes.
"""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import Code, OperatorError, UsageError
from onnx_spatial.maps.node import INTEGERS
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import functions
from onnx_spatial.model.io import reader
from onnx_spatial.operators import Dim
from onnx_spatial.operators.operator import is_countable
from onnx_spatial.operators.spellings import BlockCall, InputFacts, NodeFacts, read
from onnx_spatial.verification.options import Array
from onnx_spatial.verification.run.data import (
    INTEGER_MODES,
    Assignment,
    GraphInput,
    check_user_data,
    graph_inputs,
    make_feeds,
    named_dims,
)
from onnx_spatial.verification.run.run_error import RunError
from onnx_spatial.verification.run.sessions import Original

#: Runs of the model, at most.
_MAX_RUNS = 64
#: Elements of an input beyond which sizes are only tried if the first ones, the likely ones, are there.
_MAX_ELEMENTS = 2**20
#: Elements of an input beyond which no data is made up, and bytes that one takes meanwhile.
_LARGEST_INPUT, _BYTES_PER_ELEMENT = 2**28, 16
#: Largest rank of a numpy array; 64 since numpy 2.
_MAX_RANK = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32

#: Likely sizes of an open dim, odd and even ones in turn, where one or two are open beside the batch
#: (images, sequences); and of a batch. All others below the last number come after them.
_USUAL = (33, 40, 17, 24, 65, 48, 35, 32, 113, 64, 49, 16, 129, 96, 225, 128, 299, 224, 257, 256)
_BATCH = (2, 3, 1, 4, 6, 8)
_OTHERS_BELOW = 130
#: The smallest likely size where more are open (volumes), or beside a batch of more than that.
_SMALL, _LARGE_BATCH = 4, 64
#: Of the sizes that operators accept, so many are used: others differ too much from usual ones.
_MAX_LEGAL_SIZES = 7
#: Other sizes of the second run, and other parameters of the first, that are tried.
_TURNS = 3
#: Sizes that are halved and doubled again, as in a U-Net, must be multiples of 8, 16 or 32.
_ROUND = (64, 96, 128)
#: Strides between the input and a value whose size a message names, and sizes next to one that fails.
_STRIDES, _NEXT_SIZES = (1, 2, 4, 8, 16, 32), 8
#: Blocks and pads are drawn below this number, and so often until an operator accepts them.
_AMOUNTS_BELOW, _MAX_DRAWS = 4, 60

#: Names of dims that exporters and inference generate: a message names the input instead.
_MADE_UP = re.compile(r"unk_*\d+|.*\[\d+\]")
#: Advice where generated data does not help, for command lines.
GIVE_DATA = "pass data with --inputs"


@dataclass(frozen=True)
class LegalSizes:
    """A run of the model that succeeded.

    Attributes:
        assignment: sizes and values that its inputs were made of.
        feeds, outputs: its inputs and outputs.
    """

    assignment: Assignment
    feeds: dict[str, Array]
    outputs: dict[str, Any]


@dataclass
class _Group:
    """Symbols that most likely share a size, and the sizes that they may have, likely ones first."""

    symbols: list[str]
    batch: bool
    legal: Sequence[int] = ()


class SizeSearch:
    """Look for legal sizes of one model.

    Args:
        model: the model; its weights are not read.
        inputs: its inputs.
        infos: its spatial operators, analysed with a name for each open dim (`data.named_dims`).
        run: runs it; raises a RunError where it does not run.
        fixed: sizes that the user gave, by symbol.
        seed: of the generated data.
        memory: bytes that an input may take while it is generated; None: no limit of the caller.
        progress: called with a line of text before each run.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        inputs: Sequence[GraphInput],
        infos: Sequence[OperatorInfo],
        run: Callable[[Mapping[str, Array]], dict[str, Any]],
        *,
        fixed: Mapping[str, int] | None = None,
        seed: int = 0,
        memory: int | None = None,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._run_model, self._seed, self._progress = run, seed, progress
        self._most = min(_LARGEST_INPUT, (memory or 1 << 62) // _BYTES_PER_ELEMENT)
        if model.functions:
            model = functions.inline(named_dims(model, inputs))
            found = analysis.find(model, {info.node.domain for info in infos})
            infos = [info for info in found if info.known_domain]
        self._infos, self._inputs = infos, [_with_rank(i, infos) for i in inputs]
        self._needed = [i for i in self._inputs if i.default is None]
        self._fixed = dict(fixed or {})
        self._model = model
        self._runs, self._limit = 0, float(_MAX_ELEMENTS)

    def first(self) -> LegalSizes:
        """Run the model at likely sizes, and repair what fails, until a run succeeds.

        Raises:
            RunError: no run succeeds, or other sizes would not help.
        """
        proposals = iter([self._likely_start()])
        furthest = (-2, -1)  # position of the node that failed, and the axis that it named
        furthest_message = ""
        empty: LegalSizes | None = None
        tried: set[object] = set()
        while self._runs < _MAX_RUNS and (assignment := next(proposals, None)) is not None:
            key = (*sorted(assignment.sizes.items()), assignment.mode, assignment.number)
            if key in tried or self._exceeds_limit(assignment):
                continue
            tried.add(key)
            result = self._try_sizes(assignment)
            if isinstance(result, LegalSizes):
                if not result.outputs or any(map(np.size, result.outputs.values())):
                    return result
                empty = empty or result
                message = "the outputs have no elements"
                reached = (sys.maxsize, -1)
            elif result.stage == "load" or result.lacks_kernel or result.out_of_memory:
                raise result
            else:
                message = str(result)
                axis = re.search(r"axis (\d+)", message)
                reached = (self._positions.get(result.node, -1), int(axis[1]) if axis else -1)
            if reached >= furthest:
                furthest_message = message
            if reached > furthest:
                furthest = reached
                proposals = self._propose_repairs(assignment, message, position=reached[0])
        if empty is None:
            raise self._no_sizes(furthest_message)
        return empty

    def another(self, first: LegalSizes) -> LegalSizes | None:
        """Run the model at other sizes than those of a run; None if none of a few succeeds.

        Parameters that have a default get another value, too.
        """
        old = first.assignment
        for turn in range(1, _TURNS + 1):
            other = Assignment(self._likely_sizes(turn), mode=old.mode, number=old.number + 1)
            if other.sizes != old.sizes and not self._exceeds_limit(other):
                result = self._try_sizes(other, override=True)
                if isinstance(result, LegalSizes):
                    return result
        return None

    def _try_sizes(
        self, assignment: Assignment, *, override: bool = False
    ) -> LegalSizes | RunError:
        self._runs += 1
        values = self._draw_parameters(assignment, override)
        arrays = make_feeds(self._inputs, assignment, values, self._seed)
        self._progress(f"sizes {self._runs}/{_MAX_RUNS}: looking for legal ones")
        try:
            return LegalSizes(assignment, arrays, self._run_model(arrays))
        except RunError as error:
            return error

    @cached_property
    def _positions(self) -> dict[str, int]:
        """The position of each node, by its label."""
        nodes = enumerate(traversal.nodes(self._model))
        return {traversal.label(node): position for position, (_, _, node) in nodes}

    # Proposals

    def _likely_start(self) -> Assignment:
        """Return likely sizes.

        Raises:
            RunError: no data can be made for an input.
        """
        for graph_input in self._needed:
            if problem := _data_problem(graph_input):
                raise RunError(f"input {graph_input.name!r} {problem}", "sizes")
        if unknown := [i for i in self._needed if i.dims is None]:
            names = ", ".join(i.name for i in unknown)
            advice = _advise_shapes(unknown)
            raise RunError(f"the rank of input {names} is unknown; {advice}", "sizes")
        self._groups = self._group_dims()
        for group in self._groups:
            group.legal = self._legal_sizes(group)
        start = Assignment(self._likely_sizes(0))
        for graph_input in self._needed:
            count = _count_elements(graph_input, start)
            if count > self._most or not is_countable(start.shape(graph_input)):
                many = f"{count:.0e} elements" if count else "no elements, but very large dims"
                most = f"too many to generate (at most {self._most:.0e})"
                raise self._no_sizes(f"input {graph_input.name!r} has {many}, {most}")
            self._limit = max(self._limit, count)
        return start

    def _group_dims(self) -> list[_Group]:
        """Group the open dims by the rank and the axis; batches are one group."""
        groups: dict[tuple[int, int], _Group] = {}
        grouped = set(self._fixed)
        for graph_input in self._needed:
            for axis, dim in enumerate(dims := graph_input.dims or ()):
                if isinstance(dim, str) and dim not in grouped:
                    grouped.add(dim)
                    batch = axis == 0 and len(dims) > 1
                    key = (0, 0) if batch else (len(dims), axis)
                    groups.setdefault(key, _Group([], batch)).symbols.append(dim)
        return list(groups.values())

    def _legal_sizes(self, group: _Group) -> Sequence[int]:
        """Return sizes that the operators accept for a group, the likely ones first."""
        symbols = set(group.symbols)
        calls = [info.call for info in self._infos if info.call is not None]
        typical_batches = [call.typical_batch for call in calls]  # that blocks of 18 x 18 divide
        if group.batch:
            likely: Sequence[int] = (*typical_batches, *_BATCH)
        else:
            batches = {symbol for g in self._groups if g.batch for symbol in g.symbols}
            symbols_of_inputs = (set(graph_input.symbols) for graph_input in self._needed)
            open_dims = min(len(read - batches) for read in symbols_of_inputs if read & symbols)
            is_large = open_dims > 2 or max(typical_batches, default=1) > _LARGE_BATCH
            likely = () if is_large else _USUAL

        def is_accepted(size: int) -> bool:
            return all(
                _accepts_dims(info.facts, [size if dim in symbols else None for dim in data.shape])
                for info in self._infos
                if (data := info.facts.inputs[0]) is not None and data.shape is not None
                if not symbols.isdisjoint(data.shape)
            )

        every = dict.fromkeys((*likely, *range(_SMALL, _OTHERS_BELOW), *range(1, _SMALL)))
        return list(itertools.islice(filter(is_accepted, every), _MAX_LEGAL_SIZES)) or [*every][:1]

    def _likely_sizes(self, turn: int) -> dict[str, int]:
        """Return likely sizes that meet the demands; others in each turn."""
        sizes, position = dict(self._fixed), turn
        for group in self._groups:
            index = turn if group.batch else position
            sizes |= dict.fromkeys(group.symbols, group.legal[index % len(group.legal)])
            position += 0 if group.batch else 2  # in most lists odd or even like this one
        return sizes

    def _draw_parameters(self, assignment: Assignment, override: bool) -> dict[str, Array]:
        """Return values of the inputs that are parameters, for the data that comes to the operators."""
        fed = {i.name for i in self._inputs if i.default is None or override}
        rng = np.random.default_rng([self._seed, assignment.number])
        values: dict[str, Array] = {}
        for info in self._infos:
            if info.place != traversal.Place() or fed.isdisjoint(info.node.input[1:]):
                continue
            inputs = [
                InputFacts.of(values[name]) if name in values else fact
                for name, fact in zip(info.node.input, info.facts.inputs, strict=True)
            ]
            if (x := inputs[0]) is not None and x.shape is not None:
                shape = (assignment.sizes.get(d, d) if isinstance(d, str) else d for d in x.shape)
                inputs[0] = replace(x, shape=tuple(shape))
            drawn = _draw_for_operator(replace(info.facts, inputs=tuple(inputs)), rng)
            named = {info.node.input[i]: value for i, value in drawn.items()}
            values |= {name: value for name, value in named.items() if name in fed}
        return values

    def _propose_repairs(
        self, base: Assignment, message: str, position: int
    ) -> Iterator[Assignment]:
        """Yield what may run where a node failed with a message, the most likely first."""
        if any(i.element_type in INTEGERS for i in self._needed):  # data, or parameters
            yield from (replace(base, mode=mode) for mode in INTEGER_MODES)
            yield from (replace(base, number=base.number + n) for n in range(1, _TURNS + 1))
        sides = [group.symbols for group in self._groups if not group.batch]
        for turn in range(len(_ROUND)):  # other sizes for height and width: a swap is to be seen
            turned = zip(sides, itertools.cycle(_ROUND[turn:] + _ROUND[:turn]), strict=False)
            yield base.resized({symbol: size for symbols, size in turned for symbol in symbols})
        larger = base
        while sides and not self._exceeds_limit(larger := larger.doubled(*sides)):
            yield larger
        groups = [*sides, *(group.symbols for group in self._groups if group.batch)]
        groups += [[symbol] for symbols in groups if len(symbols) > 1 for symbol in symbols]
        numbers = [int(n) for n in re.findall(r"\d+", message) if len(n) < 8]
        if 0 <= position < sys.maxsize:
            # The message of a MatMul does not have the sizes of its weights.
            _, _, failed = next(itertools.islice(traversal.nodes(self._model), position, None))
            weights = (t for t in self._model.graph.initializer if t.name in failed.input)
            numbers += [size for tensor in weights for size in tensor.dims]
        for stride in _STRIDES:
            for symbols, number in itertools.product(groups, dict.fromkeys(filter(None, numbers))):
                yield base.resized(dict.fromkeys(symbols, number * stride))
            if stride == 1:
                for symbols, step in itertools.product(groups, range(1, _NEXT_SIZES)):
                    yield base.resized(dict.fromkeys(symbols, base.sizes[symbols[0]] + step))

    # Messages

    def _exceeds_limit(self, assignment: Assignment) -> bool:
        """Tell whether an input with open dims has too many elements to be tried.

        One with a dim of 0 has none, and other dims that may be too large for an array.
        """
        return any(
            _count_elements(graph_input, assignment) > self._limit
            or not is_countable(assignment.shape(graph_input))
            for graph_input in self._needed
        )

    def _no_sizes(self, failure: str) -> RunError:
        """Say why no legal sizes were found, and what to do."""
        integers = [repr(i.name) for i in self._needed if i.element_type in INTEGERS]
        open_inputs = [i for i in self._needed if i.symbols]
        what = "the original does not run on generated data"
        if open_inputs:
            symbols = list(dict.fromkeys(s for i in open_inputs for s in i.symbols))
            if any(map(_MADE_UP.fullmatch, symbols)):
                of = "input" if len(open_inputs) == 1 else "inputs"
                symbols = [f"{of} {', '.join(repr(i.name) for i in open_inputs)}"]
            what = f"no legal sizes were found for {', '.join(symbols)}"
        elif integers:  # which may be shapes, or indices
            what = f"no legal values were found for {', '.join(integers)}"
        reason = f" ({failure})" if failure else ""
        advice = _advise_shapes(open_inputs) if open_inputs else GIVE_DATA
        return RunError(f"{what}{reason}; {advice}", "sizes")


def _accepts_dims(facts: NodeFacts, dims: Sequence[Dim]) -> bool:
    """Tell whether an operator accepts dims, some of which are unknown, and its output has elements."""
    try:
        return 0 not in read(facts).output_shape([d if isinstance(d, int) else None for d in dims])
    except OperatorError:
        return False


def _draw_for_operator(facts: NodeFacts, rng: np.random.Generator) -> dict[int, Array]:
    """Draw small values for the run-time parameters of a node, by input number, that it accepts."""
    try:
        call = read(facts)
    except OperatorError:
        return {}
    if not isinstance(call, BlockCall):
        return {}
    data = facts.inputs[0]
    unknown = (None,) * (call.rank or call.axes)
    dims = unknown if data is None or data.shape is None else data.shape
    for _ in range(_MAX_DRAWS):
        drawn: dict[int, Array] = {}
        block = np.array(call.block.values or rng.integers(1, _AMOUNTS_BELOW, call.blocked))
        for vector, neutral in ((call.block, 1), (call.begins, 0), (call.ends, 0)):
            if vector.values is not None or vector.input is None:
                continue
            # Without blocks an axis most likely has the channels, whose number later nodes depend on.
            amounts = rng.integers(0, _AMOUNTS_BELOW, call.blocked) * (block > 1)
            fact = facts.inputs[vector.input] or InputFacts()
            shape = (vector.rows,) if vector.step == 1 else (vector.rows, vector.step)
            array = np.full(shape, neutral, fact.dtype or "int64")
            array = drawn.setdefault(vector.input, array)
            entries = array.reshape(-1)[vector.start :: vector.step]
            entries[: vector.length] = block if neutral else amounts
        inputs = [InputFacts.of(drawn[i]) if i in drawn else f for i, f in enumerate(facts.inputs)]
        if _accepts_dims(replace(facts, inputs=tuple(inputs)), dims):
            return drawn
    return {}


def _count_elements(graph_input: GraphInput, assignment: Assignment) -> float:
    """Return the elements of an input; a float, which has room for any product."""
    return float(np.prod([float(size) for size in assignment.shape(graph_input)]))


def _with_rank(graph_input: GraphInput, infos: Iterable[OperatorInfo]) -> GraphInput:
    """Give an input of unknown rank the rank that an operator requires, if one reads it."""
    for info in infos:
        reads = info.place == traversal.Place() and info.node.input[0] == graph_input.name
        if graph_input.dims is None and reads and info.call is not None:
            axes = range(info.call.rank or info.call.axes + 1)
            return replace(graph_input, dims=tuple(f"{graph_input.name}[{axis}]" for axis in axes))
    return graph_input


def _data_problem(graph_input: GraphInput) -> str:
    """Say why no data can be made for an input; "" if it can."""
    if graph_input.element_type not in onnx.TensorProto.DataType.values():
        return "is not a dense tensor of a known type"
    if len(graph_input.dims or ()) > _MAX_RANK:
        return f"has {len(graph_input.dims or ())} dims; numpy supports at most {_MAX_RANK}"
    if graph_input.element_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        return "is complex, and onnxruntime has no complex tensors"
    return ""


def _advise_shapes(inputs: Sequence[GraphInput]) -> str:
    """Advise to give the shapes of inputs with open dims, or data."""
    options = []
    for graph_input in inputs:
        sizes = [str(d) if isinstance(d, int) else "SIZE" for d in graph_input.dims or ()]
        shape = "SIZE,SIZE,..." if graph_input.dims is None else ",".join(sizes)
        options.append(f"--shape {shlex.quote(graph_input.name)}={shape}")
    return f"set sizes with {' '.join(options)}, or {GIVE_DATA}"


# One run


def evaluate(
    model: reader.Model | reader.Source,
    inputs: Mapping[str, Array],
    *,
    domains: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the outputs of a model by name; no runtime has to know its spatial operators.

    Args:
        model: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        inputs: data by input name.
        domains: operator domains of the user's own that hold spatial operators.

    Raises:
        UsageError: the inputs do not fit the model, or it does not run on them.
        ModelFileError: the model cannot be read.
    """
    source = model if isinstance(model, reader.Source) else reader.read(model)
    feeds = check_user_data(graph_inputs(source.proto), inputs)
    try:
        return Original(source, domains).open().run(feeds)
    except RunError as error:
        raise UsageError(
            f"{source.name}: cannot be run on this data: {error}", code=Code.INPUT_DATA
        ) from None
