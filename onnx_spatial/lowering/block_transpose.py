"""SpaceToBatch and BatchToSpace as one Transpose between two Reshapes.

    SpaceToBatch: Pad -> Reshape [N, D1/b1, b1, .., rest] -> Transpose -> Reshape
    BatchToSpace: Reshape [b1, .., N/prod(b), D1, .., rest] -> Transpose -> Reshape -> Slice

Axes that the block leaves alone are not split, neighbours that stay together are one axis, so the
Transpose has the lowest rank that this form allows (2M + 2 at most). With unknown rank the dims
behind the blocked ones are merged into one and put back at run time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.dialects import BlockCall
from onnx_spatial.lowering.emit import INT64_MAX, Emitter, Size, Tensor, same
from onnx_spatial.lowering.padding import pad, passes
from onnx_spatial.lowering.request import Parameters, Request
from onnx_spatial.ops import SpaceToBatch


class BlockTranspose:
    """One Transpose of rank 2M + 2 at most."""

    name = "transpose"

    def refuse(self, request: Request) -> str | None:
        """Only SpaceToBatch and BatchToSpace."""
        return None if isinstance(request.call, BlockCall) else "not a block operator"

    def cost(self, request: Request) -> float:
        """One pass, what padding costs, and one for a crop."""
        call = request.call
        assert isinstance(call, BlockCall)
        axes = sum(
            1
            for pair in zip(
                call.begins.values or (1,) * call.blocked,
                call.ends.values or (1,) * call.blocked,
                strict=True,
            )
            if any(pair)
        )
        if call.kind is SpaceToBatch:
            return 1 + passes(axes, request.element_types, request.opset)
        return 1 + min(axes, 1)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it for a known rank, or wrap it for an unknown one."""
        parameters = Parameters.of(request, emit)
        if request.shape is not None:
            data = request.data(emit)
            return move(request, emit, data, parameters).value
        call, value = request.call, request.inputs[0]
        assert isinstance(call, BlockCall) and value is not None
        lead = call.blocked + 1
        shape = emit.shape_of(value)
        tail = emit.op(
            "Slice",
            shape,
            emit.ints([lead], "starts"),
            emit.ints([INT64_MAX], "ends"),
            emit.ints([0], "axes"),
        )
        merged = emit.op("ReduceProd", tail, keepdims=1)
        dims = (*emit.elements(shape, range(lead)), merged)
        flat = emit.op("Reshape", value, emit.vector(dims, "shape"), **_allow_zero(emit))
        moved = move(request, emit, emit.tensor(flat, dims), parameters)
        out = emit.vector([*moved.dims[:lead], tail], "shape")
        return emit.op("Reshape", moved.value, out, **_allow_zero(emit))


def _allow_zero(emit: Emitter) -> dict[str, int]:
    return {"allowzero": 1} if emit.opset >= 14 else {}


def move(
    request: Request,
    emit: Emitter,
    x: Tensor,
    parameters: Parameters,
    index_pad: npt.NDArray[np.generic] | None = None,
) -> Tensor:
    """Run the operator on `x`. With `index_pad`, x holds int64 row numbers padded with that value."""
    assert isinstance(request.call, BlockCall)
    if request.call.kind is SpaceToBatch:
        types = request.element_types if index_pad is None else frozenset({TensorProto.INT64})
        return _space_to_batch(emit, x, parameters, types, index_pad)
    return _batch_to_space(emit, x, parameters)


def _space_to_batch(
    emit: Emitter,
    x: Tensor,
    p: Parameters,
    element_types: frozenset[int],
    pad_value: npt.NDArray[np.generic] | None,
) -> Tensor:
    blocked = len(p.block)
    rest = x.rank - 1 - blocked
    around = [(0, 0), *zip(p.begins, p.ends, strict=True), *[(0, 0)] * rest]
    x = pad(emit, x, around, element_types, pad_value)
    cells = [emit.div(d, b) for d, b in zip(x.dims[1:], p.block, strict=False)]
    factors = [x.dims[0]]
    for cell, b in zip(cells, p.block, strict=True):
        factors += [cell, b]
    factors += x.dims[1 + blocked :]
    offsets = [2 + 2 * i for i in range(blocked)]
    kept = [1 + 2 * i for i in range(blocked)]
    perm = [*offsets, 0, *kept, *range(1 + 2 * blocked, len(factors))]
    out = [emit.product([*p.block, x.dims[0]]), *cells, *x.dims[1 + blocked :]]
    return permute(emit, x, factors, perm, out)


def _batch_to_space(emit: Emitter, x: Tensor, p: Parameters) -> Tensor:
    blocked = len(p.block)
    batch = emit.div(x.dims[0], emit.product(p.block))
    factors = [*p.block, batch, *x.dims[1:]]
    perm = [blocked]
    for i in range(blocked):
        perm += [blocked + 1 + i, i]
    perm += range(2 * blocked + 1, len(factors))
    grown = [emit.mul(d, b) for d, b in zip(x.dims[1:], p.block, strict=False)]
    x = permute(emit, x, factors, perm, [batch, *grown, *x.dims[1 + blocked :]])
    cropped = [i for i in range(blocked) if not (same(p.begins[i], 0) and same(p.ends[i], 0))]
    if not cropped:
        return x
    dims = list(x.dims)
    ends: list[Size] = []
    for i in cropped:
        end = p.ends[i]
        dims[1 + i] = emit.sub(emit.sub(grown[i], p.begins[i]), end)
        if isinstance(end, int) and not isinstance(grown[i], int):
            ends.append(-end if end else INT64_MAX)  # -0 would mean empty
        else:
            ends.append(emit.sub(grown[i], end))
    return emit.slice(x, [1 + i for i in cropped], [p.begins[i] for i in cropped], ends, dims)


def permute(
    emit: Emitter, x: Tensor, factors: Sequence[Size], perm: Sequence[int], out: Sequence[Size]
) -> Tensor:
    """Reshape to `factors`, Transpose by `perm`, Reshape to `out`, each only where it is needed."""
    kept = [i for i, f in enumerate(factors) if not same(f, 1)]
    order = [kept.index(p) for p in perm if p in kept]
    if order == sorted(order):
        return emit.reshape(x, out)
    if len(factors) == x.rank and all(map(same, factors, x.dims)):
        # No Reshape is needed in front, so a lower rank would cost one.
        return emit.reshape(emit.transpose(x, perm), out)
    groups: list[list[int]] = []  # axes that stay neighbours, in the order of the output
    for axis in order:
        if groups and groups[-1][-1] + 1 == axis and _mergeable(factors, kept, groups[-1], axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    inner = sorted(groups)
    dims = [emit.product([factors[kept[i]] for i in group]) for group in inner]
    x = emit.transpose(emit.reshape(x, dims), [inner.index(group) for group in groups])
    return emit.reshape(x, out)


def _mergeable(
    factors: Sequence[Size], kept: Sequence[int], group: Sequence[int], axis: int
) -> bool:
    """Merging dims that are only known at run time would cost a multiplication there."""
    return all(isinstance(factors[kept[i]], int) for i in (*group, axis))
