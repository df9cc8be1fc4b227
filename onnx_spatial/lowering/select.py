"""Pick the strategy that lowers an operator: the cheapest that refuses neither it nor the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core import cost_model, run_time_checks
from onnx_spatial.lowering.core.builder import TYPICAL_DIM, Emitter, Tensor
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.patches.planes import Planes
from onnx_spatial.lowering.patches.separable_gather import SeparableGather
from onnx_spatial.lowering.patches.taps import TapConcat, Taps
from onnx_spatial.lowering.permutation.gathered_rows import GatheredRows
from onnx_spatial.lowering.permutation.interleaved import Interleaved
from onnx_spatial.lowering.permutation.single_transpose import SingleTranspose
from onnx_spatial.lowering.permutation.space_to_depth import Depth
from onnx_spatial.lowering.permutation.staged_transposes import StagedTransposes
from onnx_spatial.lowering.reorg import Reorg
from onnx_spatial.lowering.row_gather import RowGather
from onnx_spatial.lowering.slices import Slices
from onnx_spatial.lowering.trivial import Copy, Empty

#: Every way that is known. A new one is a module of its own and a line here.
STRATEGIES: tuple[Strategy, ...] = (
    Copy(),
    Empty(),
    SingleTranspose(),
    StagedTransposes(),
    GatheredRows(),
    Interleaved(),
    Depth(),
    RowGather(),
    Slices(),
    SeparableGather(),
    Planes(),
    Taps(),
    TapConcat(),
    Reorg(),
)

_BY_NAME = {strategy.name: strategy for strategy in STRATEGIES}

#: Integers are computed with since opset 7, which is also the oldest that onnxruntime runs.
MIN_OPSET = 7

_COMPLEX = frozenset({TensorProto.COMPLEX64, TensorProto.COMPLEX128})
#: Element types that standard operators have held since opset 9; bfloat16 since 13.
_MOVABLE = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.DOUBLE,
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
        TensorProto.BOOL,
        TensorProto.STRING,
        TensorProto.BFLOAT16,
    }
)


@dataclass(frozen=True)
class Candidate:
    """One way to lower an operator.

    Attributes:
        strategy: its name.
        estimated_us: what it should take, in microseconds.
        measured_us: what it took on this machine; None if that was not measured.
    """

    strategy: str
    estimated_us: float
    measured_us: float | None = None


@dataclass(frozen=True)
class Lowered:
    """The nodes that stand for one operator, not yet in any graph.

    Attributes:
        strategy: name of the strategy.
        emitted: the nodes and constants.
        output: the value that is the operator's output.
        considered: what there was to choose from, the cheapest estimate first; empty where nothing
            was compared.
    """

    strategy: str
    emitted: Emitter
    output: ir.Value
    considered: tuple[Candidate, ...] = ()

    @property
    def cost(self) -> float:
        """Time of one run in microseconds: measured if it was, else estimated."""
        for candidate in self.considered:
            if candidate.strategy == self.strategy and candidate.measured_us is not None:
                return candidate.measured_us
        return self.emitted.cost


@dataclass(frozen=True)
class Ranking:
    """The strategies for one request.

    Attributes:
        fitting: those that can lower it, the cheapest first.
        reasons: why the others cannot, by name.
    """

    fitting: tuple[Candidate, ...]
    reasons: dict[str, str]


def lower(request: Request, *, strategy: str | None = None, max_rank: int | None = None) -> Lowered:
    """Write the operator in standard operators.

    Args:
        request: the operator.
        strategy: take this one instead of the cheapest.
        max_rank: no tensor may have more dims than this.

    Raises:
        ConversionError: nothing can; the message says why for each strategy that came near.
    """
    ranking = rank(request, max_rank=max_rank, strategy=strategy)
    if ranking.fitting:
        first = ranking.fitting[0].strategy
        return replace(_build(_BY_NAME[first], request, max_rank), considered=ranking.fitting)
    if old := [reason for reason in ranking.reasons.values() if "need opset" in reason]:
        raise ConversionError(
            f"the model's opset is {request.opset}: {old[0]} (fix its sizes with --static, or export "
            "the model again with a newer opset)"
        )
    reasons = [f"{name}: {reason}" for name, reason in ranking.reasons.items()]
    raise ConversionError("no lowering fits: " + "; ".join(reasons))


def candidates(request: Request, *, max_rank: int | None = None) -> list[Lowered]:
    """The operator in every way that is known, the cheapest by estimate first.

    Raises:
        ConversionError: standard operators cannot hold it at all.
    """
    fitting = rank(request, max_rank=max_rank).fitting
    return [_build(_BY_NAME[candidate.strategy], request, max_rank) for candidate in fitting]


def rank(request: Request, *, max_rank: int | None = None, strategy: str | None = None) -> Ranking:
    """Which strategies can lower an operator, and what each is estimated to take.

    Args:
        request: the operator.
        max_rank: no tensor may have more dims than this.
        strategy: look at this one only.

    Raises:
        ConversionError: standard operators cannot hold it at all.
    """
    if reason := unsupported(request):
        raise ConversionError(reason)
    key = (
        replace(request, inputs=()),
        tuple(v is None for v in request.inputs),
        max_rank,
        strategy,
    )
    if key not in _RANKINGS:
        if len(_RANKINGS) >= _MOST_RANKINGS:
            _RANKINGS.clear()
        _RANKINGS[key] = _ranked(request.apart(), max_rank, strategy)
    return _RANKINGS[key]


#: A large model asks the same of hundreds of nodes.
_RANKINGS: dict[object, Ranking] = {}
_MOST_RANKINGS = 4096


def _ranked(request: Request, max_rank: int | None, strategy: str | None) -> Ranking:
    reasons: dict[str, str] = {}
    fitting = []
    for candidate in STRATEGIES:
        if strategy not in (None, candidate.name):
            continue
        if not issubclass(request.call.kind, candidate.accepts):
            nouns = " or ".join(dict.fromkeys(kind.noun for kind in candidate.accepts))
            reasons[candidate.name] = f"not a {nouns} operator"
            continue
        refusal = candidate.refuse(request)
        if refusal is not None:
            reasons[candidate.name] = refusal
            continue
        try:
            emitted = _build(candidate, request, max_rank).emitted
        except ConversionError as error:
            reasons[candidate.name] = str(error)
            continue
        if max_rank is None or emitted.max_rank <= max_rank:
            fitting.append(Candidate(candidate.name, round(emitted.cost, 3)))
        else:
            reasons[candidate.name] = f"needs rank {emitted.max_rank}, the limit is {max_rank}"
    return Ranking(tuple(sorted(fitting, key=lambda each: each.estimated_us)), reasons)


def _build(candidate: Strategy, request: Request, max_rank: int | None) -> Lowered:
    emit = Emitter(request.opset, max_rank)
    if request.checked:
        request = run_time_checks.guarded(request, emit)
    if candidate.absorbs(request):
        output = candidate.build(request, emit)
    else:
        output = _between_transposes(candidate, request, emit)
    if emit.slices_by_gather and TensorProto.STRING in request.element_types:
        # onnxruntime's Gather takes only the first string of each row.
        raise ConversionError(
            "strings in slices that only the run knows, or with steps, need opset 10"
        )
    if all(node.outputs[0] is not output for node in emit.nodes):
        # An input or a constant is no node's output; the operator's name needs one.
        output = emit.op("Identity", output)
    emit.prune(output)
    return Lowered(candidate.name, emit, output)


def _between_transposes(candidate: Strategy, request: Request, emit: Emitter) -> ir.Value:
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
    request: Request, strategy: str | None, max_rank: int | None = None
) -> Lowered:
    """`lower` with the strategy where it applies, else with the cheapest that does.

    Raises:
        ConversionError: nothing can.
    """
    try:
        return lower(request, max_rank=max_rank, strategy=strategy)
    except ConversionError:
        if strategy is None:
            raise
        return lower(request, max_rank=max_rank)


def transpose_cost(dims: Sequence[int], perm: Sequence[int], itemsize: int) -> float:
    """Estimated time of a Transpose, in microseconds.

    Args:
        dims: of its input.
        perm: axis of the input for each axis of the output.
        itemsize: bytes of an element.
    """
    return cost_model.transpose(tuple(dims), tuple(perm), itemsize).nanoseconds / 1000


def unsupported(request: Request) -> str | None:
    """What standard operators cannot hold at all, whatever the strategy."""
    if request.opset < MIN_OPSET:
        return (
            f"the model's opset is {request.opset}; lowering needs {MIN_OPSET} or newer, and so does "
            "onnxruntime (export the model again with a newer opset)"
        )
    if request.element_types & _COMPLEX:
        names = " and ".join(
            TensorProto.DataType.Name(t).lower() for t in sorted(request.element_types & _COMPLEX)
        )
        return f"its data is {names}; onnxruntime has no complex tensors, so nothing could run it"
    if strange := request.element_types - _MOVABLE:
        known = TensorProto.DataType.values()
        names = ", ".join(
            sorted(TensorProto.DataType.Name(t) if t in known else str(t) for t in strange)
        )
        return f"element type {names} is not supported"
    if TensorProto.BFLOAT16 in request.element_types and request.opset < 13:
        return (
            f"the model's opset is {request.opset}; bfloat16 needs 13 or newer (export the model "
            "again with a newer opset)"
        )
    return None
