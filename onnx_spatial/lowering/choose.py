"""Pick the strategy that lowers an operator: the cheapest that refuses neither it nor the limits."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.block_transpose import BlockTranspose
from onnx_spatial.lowering.emit import Emitter
from onnx_spatial.lowering.patch_gather import PatchGather
from onnx_spatial.lowering.patch_reshape import PatchReshape
from onnx_spatial.lowering.request import Request, Strategy
from onnx_spatial.lowering.row_gather import RowGather
from onnx_spatial.lowering.trivial import Copy, Empty

#: Every way that is known. A new one is a module of its own and a line here.
STRATEGIES: tuple[Strategy, ...] = (
    Copy(),
    Empty(),
    BlockTranspose(),
    PatchReshape(),
    PatchGather(),
    RowGather(),
)

#: Pad has taken its amounts as an input since opset 11; everything here is written that way.
MIN_OPSET = 11

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
class Lowered:
    """The nodes that stand for one operator, not yet in any graph."""

    strategy: str
    emitted: Emitter
    output: ir.Value


def lower(request: Request, *, strategy: str | None = None, max_rank: int | None = None) -> Lowered:
    """Write the operator in standard operators.

    Args:
        request: the operator.
        strategy: take this one instead of the cheapest.
        max_rank: no tensor may have more dims than this.

    Raises:
        ConversionError: nothing can; the message says why for each strategy that came near.
    """
    if reason := unsupported(request):
        raise ConversionError(reason)
    reasons: list[str] = []
    willing = []
    for candidate in STRATEGIES:
        if strategy is not None and candidate.name != strategy:
            continue
        refusal = candidate.refuse(request)
        if refusal is None:
            willing.append(candidate)
        else:
            reasons.append(f"{candidate.name}: {refusal}")
    for candidate in sorted(willing, key=lambda c: c.cost(request)):
        emit = Emitter(request.opset)
        try:
            output = candidate.build(request, emit)
        except ConversionError as error:
            reasons.append(f"{candidate.name}: {error}")
            continue
        if all(node.outputs[0] is not output for node in emit.nodes):
            # An input or a constant is no node's output; the operator's name needs one.
            output = emit.op("Identity", output)
        emit.prune(output)
        if max_rank is None or emit.max_rank <= max_rank:
            return Lowered(candidate.name, emit, output)
        reasons.append(f"{candidate.name}: needs rank {emit.max_rank}, the limit is {max_rank}")
    raise ConversionError("no lowering fits: " + "; ".join(reasons))


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


def unsupported(request: Request) -> str | None:
    """What standard operators cannot hold at all, whatever the strategy."""
    if request.opset < MIN_OPSET:
        return (
            f"the model's opset is {request.opset}; lowering needs {MIN_OPSET} or newer "
            "(raise it with onnx.version_converter)"
        )
    if request.element_types & _COMPLEX:
        return "complex tensors: onnxruntime has none, so the result could not be run"
    if strange := request.element_types - _MOVABLE:
        known = TensorProto.DataType.values()
        names = ", ".join(
            sorted(TensorProto.DataType.Name(t) if t in known else str(t) for t in strange)
        )
        return f"element type {names} is not supported"
    if TensorProto.BFLOAT16 in request.element_types and request.opset < 13:
        return f"the model's opset is {request.opset}; bfloat16 needs 13 or newer"
    return None
