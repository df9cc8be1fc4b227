"""Which axes an operator looks along: it commutes with what happens along all others.

    op(SpaceToBatch u) = SpaceToBatch(op u)     no axis of op is split       `dilated_conv.operators`
    op(Transpose t) = Transpose(op' t)          op' names the new places     `layouts.commuting`

operators                                  look along
single elements, of one input or several   no axis: the traits UNARY and BROADCASTS
Transpose, Squeeze, Unsqueeze, Reshape     no axis: they change the layout (`change_of`)
`NAMED`                                    the axes that an attribute or an input names (`axes_of`)
BatchNormalization                         axis 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_spatial.fusion.graph_view import NodeView
from onnx_spatial.fusion.layout import Layout
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: Operators that only change the order of the axes, or add and remove axes of size 1.
CHANGES = frozenset({"Transpose", "Squeeze", "Unsqueeze", "Reshape"})
QUANTIZING = frozenset({"DequantizeLinear", "QuantizeLinear"})
#: Operators that, before opset 13, look along all axes from `axis` on.
FLATTENING = frozenset({"Hardmax", "LogSoftmax", "Softmax"})


@dataclass(frozen=True)
class Name:
    """Where an operator names the axes that it looks along.

    Attributes:
        attribute: its name.
        default: the axis without the attribute; None if it must be there.
        input: the index of the input that replaces the attribute in newer opsets; None if none does.
    """

    attribute: str
    default: int | None = None
    input: int | None = None


NAMED: Mapping[str, Name] = {
    **dict.fromkeys(op_traits.having(Trait.REDUCES), Name("axes", input=1)),
    **dict.fromkeys(("ArgMax", "ArgMin", "Concat", "Split"), Name("axis", 0)),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "LpNormalization", "Softmax"), Name("axis", -1)),
    **dict.fromkeys(QUANTIZING, Name("axis", 1)),
    "Slice": Name("axes", input=3),
}


@dataclass(frozen=True)
class Axes:
    """The axes that a node looks along, and what names them.

    Attributes:
        axes: none of them negative.
        name: the attribute, or the index of the input; None if the operator has no choice.
    """

    axes: tuple[int, ...]
    name: str | int | None = None


def axes_of(node: NodeView, rank: int) -> Axes | Reason:
    """Return the axes that a node of `NAMED`, or a BatchNormalization, looks along, or why not."""
    op_type = node.op_type
    if op_type == "BatchNormalization":
        is_training = node.integer("training_mode", 0) != 0 or node.integer("spatial", 1) != 1
        return f"{op_type} is in training mode" if is_training else Axes((1,))
    name = NAMED[op_type]
    if name.attribute == "axes":
        axes = node.axes(name.input or 0)
        if not axes:
            return f"the axes of {op_type} are unknown, or all"
        held = name.attribute if name.attribute in node.attributes else name.input
        return Axes(tuple(axis % rank for axis in axes), held)
    axis = node.integer(name.attribute, -1 if name.default is None else name.default)
    if axis is None:
        return f"the axis of {op_type} is unknown"
    if op_type in QUANTIZING:
        scale = node.dims(1)
        if scale is None or len(scale) > 1 or node.integer("block_size", 0) != 0:
            return f"{op_type} is neither per tensor nor per channel"
        if not scale or scale[0].constant == 1 or node.opset < 13:
            return Axes(())
    if op_type in FLATTENING and node.opset < 13:
        is_last = node.integer("axis", 1) in (-1, rank - 1)
        return Axes((rank - 1,)) if is_last else f"{op_type} looks along several axes"
    return Axes((axis % rank,), name.attribute)


def change_of(node: NodeView, rank: int) -> Layout | Reason:
    """Return the change of layout that a node of `CHANGES` makes of a value, or why it is none."""
    if node.op_type == "Transpose":
        perm = node.integers("perm", tuple(reversed(range(rank))))
        if perm is None or sorted(perm) != list(range(rank)):
            return "the permutation of Transpose is unknown"
        return Layout(rank, perm)
    if node.op_type == "Reshape":
        return _change_of_reshape(node, rank)
    axes = node.axes(1)
    if axes is None or not (axes or node.op_type == "Unsqueeze"):
        return f"the axes of {node.op_type} are unknown"
    if node.op_type == "Squeeze":
        removed = {axis % rank for axis in axes}
        return Layout(rank, tuple(axis for axis in range(rank) if axis not in removed))
    places = range(rank + len(axes))
    added = {axis % len(places) for axis in axes} if axes else set()
    if len(added) != len(axes):
        return "the axes of Unsqueeze are not different"
    old = iter(range(rank))
    return Layout(rank, tuple(None if place in added else next(old) for place in places))


def _change_of_reshape(node: NodeView, rank: int) -> Layout | Reason:
    """Return the change that a Reshape makes which only adds and removes axes of size 1.

        [n, h, w, 1] -> [n, 1, h, w]        size 1 goes, size 1 comes; n, h and w keep their order

    Sizes are compared as polynomials: what is not provably the same counts as different. A size of -1
    is that of the one axis that has no other place.
    """
    dims, target = node.dims(0), node.entries(1) if node.opset >= 5 else None
    if dims is None or target is None:
        return "the shape that Reshape gives is unknown"
    if node.integer("allowzero", 0) == 0:
        target = tuple(
            dims[i] if t.constant == 0 and i < len(dims) else t for i, t in enumerate(target)
        )
    large = [axis for axis, size in enumerate(dims) if size.constant != 1]
    slots = [place for place, size in enumerate(target) if size.constant != 1]
    if len(slots) == len(large) + 1:  # -1 is inferred to be 1
        slots = [place for place in slots if target[place].constant != -1]
    pairs = dict(zip(slots, large, strict=False))
    if len(slots) != len(large) or any(
        target[place] != dims[axis] and target[place].constant != -1
        for place, axis in pairs.items()
    ):
        is_known = all(size.constant is not None for size in (*dims, *target))
        return f"Reshape splits or joins axes{'' if is_known else ', or may do so'}"
    return Layout(rank, tuple(map(pairs.get, range(len(target))))).paired
