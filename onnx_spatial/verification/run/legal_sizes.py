"""Find sizes of the open dims of a model, and parameters of its operators, at which it runs.

    x [N, H, W, 3] -> SpaceToBatchND, blocks 4 x 4 -> .. -> MatMul with a weight [12, 5]

    what operators demand    4 divides H and W
    likely sizes             N = 2, H = 40, W = 24: small ones where dims are many
    a repair                 the MatMul fails: W is 12, 24, .., as its message names 12
    else                     a reason that says which shapes to give

Each repair changes what most likely mends the node that failed, until a later one fails. Runs are
counted, not seconds, so that every machine finds the same sizes.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import OperatorError
from onnx_spatial.maps.node import INTEGERS
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import functions
from onnx_spatial.operators import Dim, Operator
from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.operators.spellings import InputFacts, NodeFacts, read
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.run.data import (
    INTEGER_MODES,
    Assignment,
    GraphInput,
    feeds,
    named_dims,
)
from onnx_spatial.verification.run.sessions import RunError

#: Runs of the model, at most.
_MOST_RUNS = 64
#: Elements of an input beyond which sizes are only tried if the first ones, the likely ones, are there.
_MOST_ELEMENTS = 2**20
#: Elements of an input beyond which no data is made up, and bytes that one takes meanwhile.
_LARGEST_INPUT, _BYTES_PER_ELEMENT = 2**28, 16
#: Largest rank of a numpy array; 64 since numpy 2.
_MAX_RANK = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32

#: Likely sizes of an open dim, odd and even ones in turn: of one or two beside the batch (images,
#: sequences), of more (volumes); and of a batch. All others below the last number come after them.
_USUAL = (33, 40, 17, 24, 65, 48, 35, 32, 113, 64, 49, 16, 129, 96, 225, 128, 299, 224, 257, 256)
_SMALL = (5, 8, 3, 4, 7, 6, 9, 12, 11, 16, 17, 24, 2, 33, 32)
_BATCH = (2, 3, 1, 4, 6, 8)
_OTHERS_BELOW = 130
#: Of the sizes that operators accept, so many are used: others differ too much from usual ones.
_LEGAL = 7
#: Doublings of sizes until something is left of them: from 1 to half of `_MOST_ELEMENTS`.
_DOUBLINGS = 20
#: Other sizes, and other parameters, that are tried before what a message says; sizes next to one.
_TURNS, _NEXT = 3, 8
#: Attempts to draw legal parameters and sizes of one operator.
_DRAWS = 60

#: Strides between the input and a value whose size a message names.
_STRIDES = (1, 2, 4, 8, 16, 32)
#: Messages of onnxruntime where windows do not fit, and sizes of 0 or less in its other messages.
_NOTHING_LEFT = re.compile(
    r"Invalid input shape|[Ww]indow|pooled|[{,[(x ](?:0|-[1-9]\d*)(?=[},\])x ]|$)"
)
#: Name of a node in a message of onnxruntime; the last one is that in the innermost body.
_NODE = re.compile(r"[Nn]ame: ?'([^']*)'")

#: What is said of a run whose outputs have no elements.
_EMPTY = "the outputs have no elements"
#: The key of the group of batches.
_BATCHES = (0, 0)
#: Symbols that nobody would know: a message names the inputs instead.
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


class NoLegalSizesError(RunError):
    """No run succeeded: the message says why, and what to do about it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "run")


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
        self._inputs = [_with_rank(i, infos) for i in inputs]
        self._model, self._infos = named_dims(model, self._inputs), infos
        self._needed = [i for i in self._inputs if i.default is None]
        self._fixed = dict(fixed or {})
        self._nodes = [node for _, _, node in traversal.nodes(self._model)]
        labels = map(traversal.label, self._nodes)
        self._positions = {label: position for position, label in enumerate(labels)}
        self._runs = 0
        self._limit = float(_MOST_ELEMENTS)

    def first(self) -> LegalSizes:
        """Run the model at likely sizes, and repair what fails, until a run succeeds.

        Raises:
            NoLegalSizesError: no run succeeds.
            RunError: it does not run, and other sizes of this kind would not help.
        """
        for known in self._needed:
            if problem := _problem(known):
                raise NoLegalSizesError(f"input {known.name!r} {problem}")
        if unknown := [i for i in self._needed if i.dims is None]:
            names = ", ".join(i.name for i in unknown)
            raise NoLegalSizesError(f"the rank of input {names} is unknown; {_advice(unknown)}")
        start = self._with_parameters(self._likely(0), 0)
        for known in self._needed:
            if problem := self._too_large(known, start):
                raise self._none(f"input {known.name!r} {problem}")
        self._limit = max(self._limit, *(_count(i, start) for i in self._needed), 0.0)
        reached, furthest = (-2, False, -1), ""
        empty: LegalSizes | None = None
        tried: set[object] = set()
        proposals: Iterator[Assignment] = iter([start])
        while self._runs < _MOST_RUNS and (assignment := next(proposals, None)) is not None:
            if _key(assignment) in tried or self._exceeds(assignment):
                continue
            tried.add(_key(assignment))
            result = self._run(assignment)
            if isinstance(result, LegalSizes):
                if not result.outputs or any(map(np.size, result.outputs.values())):
                    return result
                empty = empty or result
                message, progress = _EMPTY, (len(self._positions), False, -1)
            elif result.stage == "load" or result.lacks_kernel or result.out_of_memory:
                raise result
            else:
                message, progress = str(result), self._progress_of(result)
            if progress >= reached:
                furthest = message
            if progress > reached:
                reached = progress
                proposals = self._repairs(assignment, message, progress[0])
        if empty is None:
            raise self._none(furthest)
        return empty

    def another(self, first: LegalSizes) -> LegalSizes | None:
        """Run the model at other sizes than those of a run; None if none of a few succeeds."""
        old = first.assignment
        for turn in range(1, _TURNS + 1):
            assignment = replace(self._likely(turn), mode=old.mode, number=old.number + 1)
            assignment = self._with_parameters(assignment, turn, override=True)
            if assignment.sizes != old.sizes and not self._exceeds(assignment):
                result = self._run(assignment)
                if isinstance(result, LegalSizes):
                    return result
        return None

    def _run(self, assignment: Assignment) -> LegalSizes | RunError:
        self._runs += 1
        arrays = feeds(self._inputs, assignment, self._seed)
        self._progress(f"sizes {self._runs}/{_MOST_RUNS}: looking for legal ones")
        try:
            return LegalSizes(assignment, arrays, self._run_model(arrays))
        except RunError as error:
            return error

    # Proposals

    @cached_property
    def _groups(self) -> dict[tuple[int, int], list[str]]:
        """The symbols that most likely share a size, by the rank and the axis; `_BATCHES` are one."""
        groups: dict[tuple[int, int], list[str]] = {}
        grouped = set[str]()
        for known in self._needed:
            for axis, dim in enumerate(dims := known.dims or ()):
                if isinstance(dim, str) and dim not in grouped and dim not in self._fixed:
                    grouped.add(dim)
                    key = _BATCHES if axis == 0 and len(dims) > 1 else (len(dims), axis)
                    groups.setdefault(key, []).append(dim)
        return groups

    @cached_property
    def _legal(self) -> dict[tuple[int, int], list[int]]:
        """Sizes that the symbols of each group may have, the likely ones first."""
        batches = set(self._groups.get(_BATCHES, ()))
        blocks = [info.call.typical_batch for info in self._infos if info.call is not None]
        legal = {}
        for key, symbols in self._groups.items():
            inputs = (set(i.symbols) for i in self._needed)
            open_dims = min(len(each - batches) for each in inputs if each & set(symbols))
            likely = _USUAL if open_dims < 3 else _SMALL
            first = (*blocks, *_BATCH) if key == _BATCHES else likely
            every = dict.fromkeys((*first, *range(1, _OTHERS_BELOW)))
            allowed = (size for size in every if self._allow(symbols, size))
            legal[key] = list(itertools.islice(allowed, _LEGAL)) or [first[0]]
        return legal

    def _likely(self, turn: int) -> Assignment:
        """Return likely sizes that meet the demands; others in each turn."""
        sizes = dict(self._fixed)
        position = turn
        for key, symbols in self._groups.items():
            legal = self._legal[key]
            index = turn if key == _BATCHES else position
            sizes |= dict.fromkeys(symbols, legal[index % len(legal)])
            position += 0 if key == _BATCHES else 2  # in most lists odd or even like this one
        return Assignment(sizes)

    def _allow(self, symbols: Sequence[str], size: int) -> bool:
        """Tell whether the operators whose data has some symbols among its dims accept a size."""
        return all(
            _accepts(operator, [size if dim in symbols else None for dim in dims])
            for operator, dims in self._demanding
            if not set(symbols).isdisjoint(dims)
        )

    @cached_property
    def _demanding(self) -> set[tuple[Operator, tuple[Dim, ...]]]:
        """The operators with known parameters, and the dims of their data."""
        return {
            (info.call.operator, data.shape)
            for info in self._infos
            if info.call is not None and info.call.operator is not None
            if (data := info.facts.inputs[0]) is not None and data.shape is not None
        }

    def _with_parameters(
        self, assignment: Assignment, number: int, *, override: bool = False
    ) -> Assignment:
        """Return an assignment with values for inputs that are parameters of operators.

        They are drawn for the data that comes to the operators; other numbers draw others. With
        `override`, those that have a default get another value, too.
        """
        fed = {i.name for i in self._inputs if i.default is None or override}
        rng = np.random.default_rng([self._seed, number])
        values = dict(assignment.values)
        for info in self._infos:
            names = [name for name in info.node.input[1:] if name in fed]
            if not names or info.place != traversal.Place():
                continue
            inputs = [
                InputFacts.of(values[name]) if name in values else fact
                for name, fact in zip(info.node.input, info.facts.inputs, strict=True)
            ]
            if (x := inputs[0]) is not None and x.shape is not None:
                shape = (assignment.sizes.get(d, d) if isinstance(d, str) else d for d in x.shape)
                inputs[0] = replace(x, shape=tuple(shape))
            drawn = _drawn_parameters(replace(info.facts, inputs=tuple(inputs)), rng, number)
            named = {info.node.input[i]: value for i, value in drawn.items()}
            values |= {name: value for name, value in named.items() if name in names}
        return replace(assignment, values=values)

    def _repairs(self, base: Assignment, message: str, position: int) -> Iterator[Assignment]:
        """Yield what may run where a node failed with a message, the most likely first."""
        integers = [i.name for i in self._needed if i.element_type in INTEGERS]
        if set(integers) - base.values.keys():
            yield from (replace(base, mode=mode) for mode in INTEGER_MODES)
        if base.values:
            yield from (self._with_parameters(base, n) for n in range(1, _TURNS + 1))
        yield from (base.resized(self._likely(turn).sizes) for turn in range(1, _TURNS + 1))
        sides = [symbols for key, symbols in self._groups.items() if key != _BATCHES]
        groups = [*sides, *(s for key, s in self._groups.items() if key == _BATCHES)]
        groups += [[symbol] for symbols in groups if len(symbols) > 1 for symbol in symbols]
        if _NOTHING_LEFT.search(message) or message == _EMPTY:
            yield from self._larger(base, sides)
        numbers = [int(n) for n in re.findall(r"\d+", message) if len(n) < 8]
        numbers += self._stored_sizes(position)
        for stride in _STRIDES:
            for symbols, number in itertools.product(groups, dict.fromkeys(filter(None, numbers))):
                yield base.resized(dict.fromkeys(symbols, number * stride))
            if stride == 1:
                for symbols, step in itertools.product(groups, range(1, _NEXT)):
                    yield base.resized(dict.fromkeys(symbols, base.sizes[symbols[0]] + step))
        yield from self._larger(base, sides)

    def _stored_sizes(self, position: int) -> list[int]:
        """Return the dims of the weights of a node: the message of a MatMul does not have them."""
        read = set(self._nodes[position].input) if 0 <= position < len(self._nodes) else set()
        return [d for t in self._model.graph.initializer if t.name in read for d in t.dims]

    def _larger(self, base: Assignment, groups: Sequence[Sequence[str]]) -> Iterator[Assignment]:
        """Yield an assignment with all sizes of some groups doubled, again and again."""
        for times in (1 << power for power in range(1, _DOUBLINGS)):
            sizes = {s: times * base.sizes[s] for symbols in groups for s in symbols}
            if not sizes or self._exceeds(base.resized(sizes)):
                return
            yield base.resized(sizes)

    # Messages

    def _progress_of(self, failure: RunError) -> tuple[int, bool, int]:
        """Return how far a run got: the node that failed, whether on elements, the axis it names."""
        axis = re.search(r"axis (\d+)", str(failure))
        on_elements = _NOTHING_LEFT.search(str(failure)) is None
        return self._positions.get(_label(failure), -1), on_elements, int(axis[1]) if axis else -1

    def _exceeds(self, assignment: Assignment) -> bool:
        """Tell whether an input with open dims has too many elements to be tried."""
        return any(_count(known, assignment) > self._limit for known in self._needed)

    def _too_large(self, known: GraphInput, assignment: Assignment) -> str:
        """Say that an input is too large to be generated; "" if it is not."""
        count = _count(known, assignment)
        if count <= self._most and is_countable(assignment.shape(known)):
            return ""
        how_many = f"{count:.0e} elements" if count else "no elements, but very large dims"
        return f"has {how_many}, too many to generate (at most {self._most:.0e})"

    def _none(self, failure: str) -> NoLegalSizesError:
        """Say why no legal sizes were found, and what to do."""
        reason = f" ({failure})" if failure else ""
        integers = [repr(i.name) for i in self._needed if i.element_type in INTEGERS]
        open_inputs = [i for i in self._needed if i.symbols]
        if open_inputs:
            symbols = list(dict.fromkeys(s for i in open_inputs for s in i.symbols))
            if any(map(_MADE_UP.fullmatch, symbols)):
                of = "input" if len(open_inputs) == 1 else "inputs"
                symbols = [f"{of} {', '.join(repr(i.name) for i in open_inputs)}"]
            what = f"no legal sizes were found for {', '.join(symbols)}"
        elif integers:  # which may be shapes, or indices
            what = f"no legal values were found for {', '.join(integers)}"
        else:
            what = "the original does not run on generated data"
        advice = _advice(open_inputs) if open_inputs else GIVE_DATA
        return NoLegalSizesError(f"{what}{reason}; {advice}")


def _accepts(operator: Operator, dims: Sequence[Dim]) -> bool:
    """Tell whether an operator accepts dims, some of which are unknown, and its output has elements."""
    try:
        return 0 not in operator.output_shape([d if isinstance(d, int) else None for d in dims])
    except OperatorError:
        return False


def _drawn_parameters(facts: NodeFacts, rng: np.random.Generator, number: int) -> dict[int, Array]:
    """Draw small legal values for the run-time parameters of a node, by input number."""
    try:
        call = read(facts)
    except OperatorError:
        return {}
    data = facts.inputs[0]
    for attempt in range(number, number + _DRAWS):
        dims: Sequence[Dim] = (None,) * call.sample_rank(attempt)
        if data is not None and data.shape is not None:
            dims = data.shape
        drawn = call.sample_parameters(dims, facts, rng, number)
        if drawn is not None and _accepts(drawn[0], dims):
            return drawn[1]
    return {}


def _key(assignment: Assignment) -> object:
    """Return what tells assignments apart."""
    values = ((name, value.tobytes()) for name, value in sorted(assignment.values.items()))
    return (*sorted(assignment.sizes.items()), *values, assignment.mode, assignment.number)


def _label(failure: RunError) -> str:
    """Return the label of the node that failed: in a body, of the innermost one."""
    names = _NODE.findall(str(failure))
    return names[-1] if names else failure.node


def _count(known: GraphInput, assignment: Assignment) -> float:
    """Return the elements of an input; a float, which has room for any product."""
    if known.name in assignment.values:
        return 0.0
    return float(np.prod([float(size) for size in assignment.shape(known)]))


def _with_rank(known: GraphInput, infos: Iterable[OperatorInfo]) -> GraphInput:
    """Give an input of unknown rank the rank that an operator requires, if one reads it."""
    for info in infos:
        reads = info.place == traversal.Place() and info.node.input[0] == known.name
        if known.dims is None and reads and info.call is not None:
            axes = range(info.call.sample_rank())
            return replace(known, dims=tuple(f"{known.name}[{axis}]" for axis in axes))
    return known


def _problem(known: GraphInput) -> str:
    """Say why no data can be made for an input; "" if it can."""
    if known.element_type not in onnx.TensorProto.DataType.values():
        return "is not a dense tensor of a known type"
    if len(known.dims or ()) > _MAX_RANK:
        return f"has {len(known.dims or ())} dims; numpy supports at most {_MAX_RANK}"
    if known.element_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        return "is complex, and onnxruntime has no complex tensors"
    return ""


def _advice(inputs: Sequence[GraphInput]) -> str:
    """Advise to give the shapes of inputs with open dims, or data."""
    options = []
    for known in inputs:
        sizes = [str(d) if isinstance(d, int) else "SIZE" for d in known.dims or ()]
        shape = "SIZE,SIZE,..." if known.dims is None else ",".join(sizes)
        options.append(f"--shape {shlex.quote(known.name)}={shape}")
    return f"set sizes with {' '.join(options)}, or {GIVE_DATA}"
