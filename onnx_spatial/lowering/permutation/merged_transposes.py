"""Price Transposes that onnxruntime merges when it loads a model.

It merges two of them, mostly to a slow one, also beyond a Reshape of known sizes that only splits axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Tensor
from onnx_spatial.lowering.core.padding import is_zero
from onnx_spatial.lowering.permutation import stage_plan
from onnx_spatial.lowering.permutation.factored_axes import Order, Rearrangement
from onnx_spatial.lowering.permutation.stage_plan import Stage


def price(emit: Emitter, r: Rearrangement, x: Tensor, plan: Sequence[Stage]) -> None:
    """Price what onnxruntime makes of two Transposes: in the plan, or one of it and a neighbour."""
    if not plan or not all(isinstance(size, int) and size for size in r.sizes):
        return
    size = emit.elements_in(x.dims)
    merged_work = cost_model.elementwise(size, size * x.itemsize)
    first, last = plan[0], plan[-1]
    before = [set(axis) for axis in r.inputs]
    split = all(_inside(group, before) for group in stage_plan.groups(first.after, first.before))
    if r.near[0] and first.kind == "transpose" and split and all(map(is_zero, r.pads)):
        emit.risk(merged_work)
    axes = [tuple(f for f in axis if f in last.after) for axis in r.outputs]
    split = all(_inside(axis, _written(last)) for axis in axes)
    for stage, follower in pairwise(plan):
        if stage.kind == follower.kind == "transpose":
            read = stage_plan.groups(follower.after, follower.before)
            # A Transpose in front of a Reshape that only splits axes moves behind it.
            readings = [read, axes] if follower is last and split else [read]
            if any(all(_inside(g, _written(stage)) for g in groups) for groups in readings):
                emit.risk(merged_work)
    if r.near[1] and last.kind == "transpose" and split and all(map(is_zero, r.crops)):
        emit.risk(merged_work)


def _written(stage: Stage) -> list[set[int]]:
    """Return the factors of each axis that a Transpose of the fewest axes writes."""
    return [set(group) for group in stage_plan.groups(stage.before, stage.after)]


def _inside(factors: Order, groups: Iterable[set[int]]) -> bool:
    return not factors or any(group.issuperset(factors) for group in groups)
