"""Pick the cheapest strategy that can lower an operator within the limits.

    request -> each of STRATEGIES that accepts the operator -> nodes, or why not -> the cheapest of them

Two strategies stand here. What moves nothing is an Identity, and an empty tensor is zeros of its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering import cost_model
from onnx_spatial.lowering.emitter import TYPICAL_DIM, Emitter, Tensor, filled
from onnx_spatial.lowering.nodes import NewerOpsetError
from onnx_spatial.lowering.permutation import in_one, in_stages
from onnx_spatial.lowering.request import Request, Strategy, checked_zero, guard_request
from onnx_spatial.lowering.row_gather import element_gather, row_gather
from onnx_spatial.lowering.slices import depth, ends_in_a_layout, planes, slices
from onnx_spatial.operators import (
    BatchToSpace,
    ExtractPatches,
    Operator,
    Rearrange,
    ReorgYolo,
    SpaceToBatch,
)


def copy(request: Request, emit: Emitter) -> ir.Value:
    """Emit an Identity, so that the output keeps its name.

    For blocks of 1 without padding, windows of 1 with stride 1, and the like.
    """
    operator = request.call.operator
    known = request.shape is not None and request.ranked
    if not known or operator is None or not operator.is_identity:
        raise ConversionError("the operator moves data")
    return emit.op("Identity", request.inputs[0])


def zeros(request: Request, emit: Emitter) -> ir.Value:
    """Emit zeros of the output's shape where input or output hold no elements.

    An empty tensor that is padded holds nothing else. Before opset 14 Reshape does not serve: a 0 in its
    shape copies a dim.
    """
    if request.shape is None or len(request.element_types) > 1:
        raise ConversionError("the shape is unknown, or the element type is")
    if 0 not in request.shape and 0 not in request.call.output_shape(request.shape):
        raise ConversionError("the tensor is not known to be empty")
    x = request.data(emit)
    dims = request.call.output_dims(emit, x.dims, *request.parameters(emit))
    dims[0] = emit.add(dims[0], checked_zero(request, emit))
    emit.tensor(request.inputs[0], dims)  # type: ignore[arg-type]
    return filled(emit, dims, min(request.element_types, default=1))


_BLOCKS = (SpaceToBatch, BatchToSpace)
_ROWS = (*_BLOCKS, ExtractPatches, ReorgYolo)
_FACTORS = (*_ROWS, Rearrange)


def _all_but(kind: type[Operator]) -> Callable[[Request], bool]:
    """Return what tells whether a request is for another operator."""
    return lambda request: request.call.kind is not kind


#: All strategies, those with fewer and plainer nodes first: the first of equal estimates is taken.
#: Those with the same name are forms of one lowering.
STRATEGIES: tuple[Strategy, ...] = (
    Strategy("identity", (Operator,), copy),
    Strategy("empty", (Operator,), zeros),
    Strategy("transpose", _FACTORS, in_one, absorbs=_all_but(ReorgYolo)),
    Strategy("transpose", _FACTORS, partial(in_stages, gathers=False), absorbs=_all_but(ReorgYolo)),
    Strategy("gather", _FACTORS, partial(in_stages, gathers=True), absorbs=_all_but(ReorgYolo)),
    Strategy("space-to-depth", (*_BLOCKS, ExtractPatches), depth, absorbs=_all_but(ReorgYolo)),
    Strategy("row-gather", _ROWS, row_gather),
    Strategy("element-gather", _ROWS, element_gather),
    Strategy("slices", (*_BLOCKS, ExtractPatches), slices, absorbs=_all_but(ExtractPatches)),
    Strategy("planes", (ExtractPatches,), planes, absorbs=ends_in_a_layout),
)

#: Microseconds that a choice does not depend on, and a factor if parameters are computed in the run.
_NEGLIGIBLE, _UNSURE = 0.1, 1.2

#: The oldest opset with integer arithmetic, and the oldest that onnxruntime runs.
MIN_OPSET = 7

_COMPLEX = frozenset({TensorProto.COMPLEX64, TensorProto.COMPLEX128})
#: Element types of standard operators since opset 9; bfloat16 since 13.
_MOVABLE = frozenset({*range(TensorProto.FLOAT, TensorProto.COMPLEX64), TensorProto.BFLOAT16})


@dataclass(frozen=True)
class Candidate:
    """A lowering of an operator.

    Attributes:
        lowering: name of the strategy.
        estimated_us: estimated time, in microseconds.
    """

    lowering: str
    estimated_us: float


@dataclass(frozen=True)
class Lowered:
    """The nodes that replace one operator, not yet in any graph.

    Attributes:
        strategy: name of the strategy.
        emitted: the nodes and constants.
        output: the operator's output.
        considered: candidates, the cheapest estimate first; empty if none were compared.
    """

    strategy: str
    emitted: Emitter
    output: ir.Value
    considered: tuple[Candidate, ...] = ()

    @property
    def cost(self) -> float:
        """Estimated time of one run, in microseconds."""
        return self.emitted.cost


@dataclass(frozen=True)
class Ranking:
    """The strategies for one request.

    Attributes:
        fitting: lowerings that are possible, the cheapest first.
        best: the strategy of the first of them.
        nodes: number of its nodes.
        reasons: why the other strategies cannot, by name.
        newer_opset: the first of these reasons that a newer opset would remove.
        ranks: the ranks of strategies that exceed the limit.
    """

    fitting: tuple[Candidate, ...]
    best: Strategy | None
    nodes: int
    reasons: dict[str, str]
    newer_opset: str | None = None
    ranks: tuple[int, ...] = ()


def lower(
    request: Request,
    *,
    strategy: str | None = None,
    max_rank: int | None = None,
) -> Lowered:
    """Lower an operator to standard operators.

    Args:
        request: the operator.
        strategy: name of the strategy to use instead of the cheapest.
        max_rank: largest rank of a tensor.

    Raises:
        ConversionError: no strategy can; the message says why.
    """
    ranking = rank(request, max_rank=max_rank, strategy=strategy)
    if ranking.best is not None:
        return replace(
            _build_candidate(ranking.best, request, max_rank), considered=ranking.fitting
        )
    if ranking.newer_opset is not None:
        raise ConversionError(
            f"the model's opset is {request.opset}: {ranking.newer_opset} "
            "(fix its sizes with --static, or export the model again with a newer opset)",
            code=Code.OPSET_TOO_OLD,
        )
    if max_rank is not None and (needed := _needed_rank(request, ranking, max_rank, strategy)):
        raise ConversionError(
            f"no lowering fits: it needs tensors of rank {needed}, the limit is {max_rank} "
            f"(use --max-rank {needed} or more)",
            code=Code.NO_LOWERING,
        )
    names: dict[str, list[str]] = {}
    tried = {each.name for each in STRATEGIES if issubclass(request.call.kind, each.accepts)}
    for name in [n for n in ranking.reasons if n in tried] or ranking.reasons:
        names.setdefault(ranking.reasons[name], []).append(name)
    reasons = (f"{', '.join(each)}: {reason}" for reason, each in names.items())
    raise ConversionError(f"no lowering fits: {'; '.join(reasons)}", code=Code.NO_LOWERING)


def _needed_rank(
    request: Request,
    ranking: Ranking,
    max_rank: int,
    strategy: str | None,
) -> int | None:
    """Return the least limit of the rank with which a strategy fits; None if the rank is no reason."""
    for limit in range(max_rank + 1, max(ranking.ranks, default=0) + 1):
        if rank(request, max_rank=limit, strategy=strategy).fitting:
            return limit
    return None


def rank(
    request: Request,
    *,
    max_rank: int | None = None,
    strategy: str | None = None,
) -> Ranking:
    """Rank the strategies that can lower an operator by estimated time.

    Args:
        request: the operator.
        max_rank: largest rank of a tensor.
        strategy: name of the only strategy to consider.

    Raises:
        ConversionError: standard operators cannot express it at all.
    """
    check_supported(request)
    present = tuple(value is not None for value in request.inputs)
    return _rank_present(replace(request, inputs=()), present, max_rank, strategy)


@lru_cache(maxsize=4096)
def _rank_present(
    request: Request, present: tuple[bool, ...], max_rank: int | None, strategy: str | None
) -> Ranking:
    """Rank the strategies for a request without inputs, `present` of which it has.

    Cached: a large model has hundreds of nodes with equal requests.
    """
    request = request.with_inputs(present)
    reasons: dict[str, str] = {}
    newer_opset = None
    priced: list[tuple[float, Strategy, int]] = []
    ranks = []
    for candidate in STRATEGIES:
        if strategy not in (None, candidate.name):
            continue
        if not issubclass(request.call.kind, candidate.accepts):
            nouns = " or ".join(dict.fromkeys(kind.noun for kind in candidate.accepts))
            reasons[candidate.name] = f"not a {nouns} operator"
            continue
        try:
            emitted = _build_candidate(candidate, request, max_rank).emitted
        except ConversionError as error:
            reasons.setdefault(candidate.name, str(error))
            if newer_opset is None and isinstance(error, NewerOpsetError):
                newer_opset = str(error)
            continue
        if max_rank is not None and emitted.max_rank > max_rank:
            reason = f"needs rank {emitted.max_rank}, the limit is {max_rank}"
            reasons.setdefault(candidate.name, reason)
            ranks.append(emitted.max_rank)
        else:
            priced.append((round(emitted.cost, 3), candidate, len(emitted.nodes)))
    least = min((price for price, _, _ in priced), default=0.0)
    computed = any(present[1:])
    limit = max(least + _NEGLIGIBLE, least * _UNSURE if computed else 0.0)
    # Among equals the first: it is the plainer one, and the easier to prove. A Gather has a table of
    # indices, which is computed where parameters are.
    priced.sort(key=lambda each: each[0] if each[0] > limit else 0.0)
    fitting: dict[str, Candidate] = {}
    for price, candidate, _ in priced:
        reasons.pop(candidate.name, None)
        fitting.setdefault(candidate.name, Candidate(candidate.name, price))
    _, best, nodes = priced[0] if priced else (0.0, None, 0)
    return Ranking(tuple(fitting.values()), best, nodes, reasons, newer_opset, tuple(ranks))


def _build_candidate(candidate: Strategy, request: Request, max_rank: int | None) -> Lowered:
    emit = Emitter(request.opset, max_rank, defers=True)
    if request.checked:
        request = guard_request(request, emit)
    if candidate.absorbs(request):
        output = candidate.build(request, emit)
    else:
        output = _build_between_transposes(candidate, request, emit)
    if emit.slices_by_gather and TensorProto.STRING in request.element_types:
        # onnxruntime's Gather takes only the first string of each row.
        raise NewerOpsetError("slices of strings with computed bounds or with steps", 10)
    if all(node.outputs[0] is not output for node in emit.nodes):
        # The output is an input or a constant; it needs a node to have a name of its own.
        output = emit.op("Identity", output)
    emit.prune(output)
    emit.write_sizes()
    return Lowered(candidate.name, emit, output)


def _build_between_transposes(candidate: Strategy, request: Request, emit: Emitter) -> ir.Value:
    plain = replace(request, after=None)
    if request.before is not None:
        data = request.data(emit).value
        plain = replace(plain, inputs=(data, *request.inputs[1:]), before=None, ranked=True)
    output = candidate.build(plain, emit)
    if request.after is None:
        return output
    shape = request.shape or (None,) * len(request.after)
    dims = [d if isinstance(d, int) else TYPICAL_DIM for d in request.call.output_shape(shape)]
    return emit.transpose(Tensor(output, tuple(dims), request.itemsize), request.after).value


def lower_preferring(
    request: Request,
    strategy: str | None,
    max_rank: int | None = None,
) -> Lowered:
    """Lower with the given strategy if it can, else with the cheapest.

    Raises:
        ConversionError: no strategy can.
    """
    try:
        return lower(request, max_rank=max_rank, strategy=strategy)
    except ConversionError:
        if strategy is None:
            raise
        return lower(request, max_rank=max_rank)


def transpose_cost(dims: Sequence[int], perm: Sequence[int], itemsize: int) -> float:
    """Return the estimated time of a Transpose, in microseconds.

    Args:
        dims: of its input.
        perm: axis of the input for each axis of the output.
        itemsize: bytes of an element.
    """
    return cost_model.transpose(tuple(dims), tuple(perm), itemsize).nanoseconds / 1000


def check_supported(request: Request) -> None:
    """Check that some standard operators can express a request.

    Raises:
        ConversionError: none can.
    """
    if request.opset < MIN_OPSET:
        raise ConversionError(
            f"the model's opset is {request.opset}; lowering needs {MIN_OPSET} or newer, and so does "
            "onnxruntime (export the model again with a newer opset)",
            code=Code.OPSET_TOO_OLD,
        )
    if request.element_types & _COMPLEX:
        names = " and ".join(
            TensorProto.DataType.Name(t).lower() for t in sorted(request.element_types & _COMPLEX)
        )
        raise ConversionError(
            f"its data is {names}; onnxruntime has no complex tensors, so nothing could run it",
            code=Code.ELEMENT_TYPE,
        )
    if strange := request.element_types - _MOVABLE:
        known = TensorProto.DataType.values()
        names = ", ".join(
            sorted(TensorProto.DataType.Name(t) if t in known else str(t) for t in strange)
        )
        raise ConversionError(f"element type {names} is not supported", code=Code.ELEMENT_TYPE)
    if TensorProto.BFLOAT16 in request.element_types and request.opset < 13:
        raise ConversionError(
            f"the model's opset is {request.opset}; bfloat16 needs 13 or newer (export the model "
            "again with a newer opset)",
            code=Code.OPSET_TOO_OLD,
        )
