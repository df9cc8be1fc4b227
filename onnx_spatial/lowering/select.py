"""Pick the cheapest lowering of an operator within the limits.

    request -> each of LOWERINGS that accepts the operator -> nodes, or why not -> the cheapest of them

Two lowerings stand here. What moves nothing is an Identity, and an empty tensor is zeros of its shape.
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
from onnx_spatial.lowering.request import Lowering, Request, checked_zero, guard_request
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


#: All lowerings, those with fewer and plainer nodes first: the first of equal estimates is taken.
#: Those with the same name are forms of one lowering.
LOWERINGS: tuple[Lowering, ...] = (
    Lowering("identity", (Operator,), copy),
    Lowering("empty", (Operator,), zeros),
    Lowering("transpose", _FACTORS, in_one, absorbs=_all_but(ReorgYolo)),
    Lowering("transpose", _FACTORS, partial(in_stages, gathers=False), absorbs=_all_but(ReorgYolo)),
    Lowering("gather", _FACTORS, partial(in_stages, gathers=True), absorbs=_all_but(ReorgYolo)),
    Lowering("space-to-depth", (*_BLOCKS, ExtractPatches), depth, absorbs=_all_but(ReorgYolo)),
    Lowering("row-gather", _ROWS, row_gather),
    Lowering("element-gather", _ROWS, element_gather),
    Lowering("slices", (*_BLOCKS, ExtractPatches), slices, absorbs=_all_but(ExtractPatches)),
    Lowering("planes", (ExtractPatches,), planes, absorbs=ends_in_a_layout),
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
        lowering: its name.
        estimated_us: estimated time, in microseconds.
    """

    lowering: str
    estimated_us: float


@dataclass(frozen=True)
class Lowered:
    """The nodes that replace one operator, not yet in any graph.

    Attributes:
        lowering: its name.
        emitted: the nodes and constants.
        output: the operator's output.
        considered: candidates, the cheapest estimate first; empty if none were compared.
        notes: why the preferred lowering was not taken, if another one was.
    """

    lowering: str
    emitted: Emitter
    output: ir.Value
    considered: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        """Estimated time of one run, in microseconds."""
        return self.emitted.cost


@dataclass(frozen=True)
class Ranking:
    """The lowerings for one request.

    Attributes:
        fitting: lowerings that are possible, the cheapest first as far as estimates can tell.
        best: the lowering of the first of them.
        nodes: number of its nodes.
        reasons: why the other lowerings cannot, by name.
        newer_opset: the first of these reasons that a newer opset would remove.
        ranks: the ranks of lowerings that exceed the limit.
    """

    fitting: tuple[Candidate, ...]
    best: Lowering | None
    nodes: int
    reasons: dict[str, str]
    newer_opset: str | None = None
    ranks: tuple[int, ...] = ()


def lower(
    request: Request,
    *,
    only: str | None = None,
    max_rank: int | None = None,
) -> Lowered:
    """Lower an operator to standard operators.

    Args:
        request: the operator.
        only: name of the lowering to take instead of the cheapest.
        max_rank: largest rank of a tensor.

    Raises:
        ConversionError: no lowering can; the message says why.
    """
    ranking = rank(request, max_rank=max_rank, only=only)
    if ranking.best is not None:
        return replace(_build(ranking.best, request, max_rank), considered=ranking.fitting)
    if ranking.newer_opset is not None:
        raise ConversionError(
            f"the model's opset is {request.opset}: {ranking.newer_opset} "
            "(fix its sizes with --static, or export the model again with a newer opset)",
            code=Code.OPSET_TOO_OLD,
        )
    if max_rank is not None and (needed := _needed_rank(request, ranking, max_rank, only)):
        raise ConversionError(
            f"no lowering fits: it needs tensors of rank {needed}, the limit is {max_rank} "
            f"(use --max-rank {needed} or more)",
            code=Code.NO_LOWERING,
        )
    names: dict[str, list[str]] = {}
    tried = {each.name for each in LOWERINGS if issubclass(request.call.kind, each.accepts)}
    for name in [n for n in ranking.reasons if n in tried] or ranking.reasons:
        names.setdefault(ranking.reasons[name], []).append(name)
    reasons = (f"{', '.join(each)}: {reason}" for reason, each in names.items())
    raise ConversionError(f"no lowering fits: {'; '.join(reasons)}", code=Code.NO_LOWERING)


def _needed_rank(
    request: Request,
    ranking: Ranking,
    max_rank: int,
    only: str | None,
) -> int | None:
    """Return the least limit of the rank with which a lowering fits; None if the rank is no reason."""
    for limit in range(max_rank + 1, max(ranking.ranks, default=0) + 1):
        if rank(request, max_rank=limit, only=only).fitting:
            return limit
    return None


def rank(
    request: Request,
    *,
    max_rank: int | None = None,
    only: str | None = None,
) -> Ranking:
    """Rank the lowerings that can lower an operator by estimated time.

    Args:
        request: the operator.
        max_rank: largest rank of a tensor.
        only: name of the only lowering to consider.

    Raises:
        ConversionError: standard operators cannot express it at all.
    """
    check_supported(request)
    present = tuple(value is not None for value in request.inputs)
    return _rank_present(replace(request, inputs=()), present, max_rank, only)


@lru_cache(maxsize=4096)
def _rank_present(
    request: Request, present: tuple[bool, ...], max_rank: int | None, only: str | None
) -> Ranking:
    """Rank the lowerings for a request without inputs, `present` of which it has.

    Cached: a large model has hundreds of nodes with equal requests.
    """
    request = request.with_inputs(present)
    reasons: dict[str, str] = {}
    newer_opset = None
    priced: list[tuple[float, Lowering, int]] = []
    ranks = []
    for lowering in LOWERINGS:
        if only not in (None, lowering.name):
            continue
        if not issubclass(request.call.kind, lowering.accepts):
            nouns = " or ".join(dict.fromkeys(kind.noun for kind in lowering.accepts))
            reasons[lowering.name] = f"not a {nouns} operator"
            continue
        try:
            emitted = _build(lowering, request, max_rank).emitted
        except ConversionError as error:
            reasons.setdefault(lowering.name, str(error))
            if newer_opset is None and isinstance(error, NewerOpsetError):
                newer_opset = str(error)
            continue
        if max_rank is not None and emitted.max_rank > max_rank:
            reason = f"needs rank {emitted.max_rank}, the limit is {max_rank}"
            reasons.setdefault(lowering.name, reason)
            ranks.append(emitted.max_rank)
        else:
            priced.append((round(emitted.cost, 3), lowering, len(emitted.nodes)))
    least = min((price for price, _, _ in priced), default=0.0)
    computed = any(present[1:])
    limit = max(least + _NEGLIGIBLE, least * _UNSURE if computed else 0.0)
    # Prices up to the limit count as equal. Of equals the first of LOWERINGS is taken, which is plainer
    # and easier to prove. The limit is wider where parameters are computed: so are indices of a Gather.
    priced.sort(key=lambda each: each[0] if each[0] > limit else 0.0)
    fitting: dict[str, Candidate] = {}
    for price, lowering, _ in priced:
        reasons.pop(lowering.name, None)
        fitting.setdefault(lowering.name, Candidate(lowering.name, price))
    _, best, nodes = priced[0] if priced else (0.0, None, 0)
    return Ranking(tuple(fitting.values()), best, nodes, reasons, newer_opset, tuple(ranks))


def _build(lowering: Lowering, request: Request, max_rank: int | None) -> Lowered:
    emit = Emitter(request.opset, max_rank, defers=True)
    if request.checked:
        request = guard_request(request, emit)
    if lowering.absorbs(request):
        output = lowering.build(request, emit)
    else:
        output = _build_between_transposes(lowering, request, emit)
    if emit.slices_by_gather and TensorProto.STRING in request.element_types:
        # onnxruntime's Gather takes only the first string of each row.
        raise NewerOpsetError("slices of strings with computed bounds or with steps", 10)
    if all(node.outputs[0] is not output for node in emit.nodes):
        # The output is an input or a constant; it needs a node to have a name of its own.
        output = emit.op("Identity", output)
    emit.prune(output)
    emit.write_sizes()
    return Lowered(lowering.name, emit, output)


def _build_between_transposes(lowering: Lowering, request: Request, emit: Emitter) -> ir.Value:
    plain = replace(request, after=None)
    if request.before is not None:
        data = request.data(emit).value
        plain = replace(plain, inputs=(data, *request.inputs[1:]), before=None, ranked=True)
    output = lowering.build(plain, emit)
    if request.after is None:
        return output
    shape = request.shape or (None,) * len(request.after)
    dims = [d if isinstance(d, int) else TYPICAL_DIM for d in request.call.output_shape(shape)]
    return emit.transpose(Tensor(output, tuple(dims), request.itemsize), request.after).value


def lower_preferring(
    request: Request,
    preferred: str | None,
    max_rank: int | None = None,
) -> Lowered:
    """Lower with the preferred lowering if it can, else with the cheapest.

    Raises:
        ConversionError: no lowering can.
    """
    try:
        return lower(request, only=preferred, max_rank=max_rank)
    except ConversionError:
        if preferred is None:
            raise
    lowered = lower(request, max_rank=max_rank)
    reason = rank(request, max_rank=max_rank, only=preferred).reasons[preferred]
    return replace(lowered, notes=(f"not lowered by {preferred}: {reason}",))


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
