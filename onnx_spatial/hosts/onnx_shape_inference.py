"""Infer symbolic shapes of original models with the package onnx-shape-inference.

    >>> onnx_spatial.hosts.onnx_shape_inference.register()
    >>> onnx_shape_inference.infer_symbolic_shapes(onnx_ir.load("original.onnx"))

Sizes are expressions of the names in the model: blocks of 2 make `floor(H/2)` of `H`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

from onnx_spatial.analysis import attributes, dtype_name
from onnx_spatial.errors import OperatorError
from onnx_spatial.operators.spellings import (
    DOMAINS,
    LEFTOVER_OP_TYPES,
    Call,
    InputFacts,
    NodeFacts,
    Vector,
    op_types,
    read,
    recognise,
)

try:
    from onnx_shape_inference import ShapeInferenceContext, registry
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}; install it with: pip install onnx-shape-inference"
    ) from None

__all__ = ["register"]

#: A size, or an expression of symbolic ones.
Size = int | ir.SymbolicDim

_registered: set[str] = set()


def register(domains: Iterable[str] = ()) -> None:
    """Add the spatial operators to the registry of onnx-shape-inference, for this process.

    Covers every spelling in the domains that converters use. May be called again.

    Args:
        domains: further operator domains.
    """
    registry.collect()
    wanted = {"" if domain == "ai.onnx" else domain for domain in (*DOMAINS, *domains)}
    for domain in sorted(wanted - _registered):
        _registered.add(domain)
        for op_type in sorted(op_types(domain)):
            registry.register(domain, op_type)(_infer)
    for op_type in sorted(LEFTOVER_OP_TYPES):
        for version in registry.version_boundaries("", op_type):
            standard = registry.get("", op_type, version)
            if getattr(standard, "func", None) is not _infer_leftover:
                registry.register("", op_type, version)(partial(_infer_leftover, standard))


def _infer_leftover(standard: Any, context: ShapeInferenceContext, node: ir.Node) -> None:
    """Infer tf2onnx's `SpaceToDepth` and `DepthToSpace` with three inputs, else ONNX's operator."""
    spatial = recognise(node.op_type, node.domain, len(node.inputs))
    (_infer if spatial else standard)(context, node)


def _infer(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Infer element type and shape of the output, or record the rule that the node breaks."""
    inputs = tuple(_facts(context, value, index) for index, value in enumerate(node.inputs))
    facts = NodeFacts(node.op_type, node.domain, inputs, attributes(ir.serde.serialize_node(node)))
    shape = None
    try:
        shape = _output_shape(context, node, read(facts))
    except OperatorError as error:
        if all(_is_known(each) for each in inputs[1:]):
            context.record_error(node, str(error))
    if inputs and (data := node.inputs[0]) is not None:
        context.set_shape_and_dtype(node.outputs[0], shape, data.dtype)


def _facts(context: ShapeInferenceContext, value: ir.Value | None, index: int) -> InputFacts | None:
    """Return what is known of an input; of the data only type and shape."""
    if value is None:
        return None
    # A run may override an initializer that is also an input of the graph.
    fixed = index and not value.is_graph_input()
    constant = ir.convenience.get_const_tensor(value) if fixed else None
    if constant is not None:
        return InputFacts.of(constant.numpy())
    dtype = None if value.dtype is None else dtype_name(value.dtype)
    if value.shape is None:
        return InputFacts(dtype)
    return InputFacts(dtype, tuple(d if isinstance(d, int) else d.value for d in value.shape))


def _is_known(facts: InputFacts | None) -> bool:
    """Tell whether a parameter has a known shape, without which the node may break no rule."""
    if facts is None:
        return True
    return facts.shape is not None and all(isinstance(dim, int) for dim in facts.shape)


def _output_shape(context: ShapeInferenceContext, node: ir.Node, call: Call) -> ir.Shape | None:
    data = node.inputs[0]
    assert data is not None
    dims: list[Size]
    if data.shape is not None:
        dims = [*data.shape]
    elif call.rank is not None:
        dims = [context.new_symbolic_dim() for _ in range(call.rank)]
    else:
        return None
    vectors = [_integers(context, node, parameter.vector) for parameter in call.parameters]
    parameters = [vector for vector in vectors if vector is not None]
    if len(parameters) == len(vectors):
        return ir.Shape(call.output_dims(_Expressions(), dims, *parameters))
    known = call.output_shape([d if isinstance(d, int) else d.value for d in dims])
    return ir.Shape([context.new_symbolic_dim() if d is None else d for d in known])


def _integers(
    context: ShapeInferenceContext, node: ir.Node, vector: Vector
) -> Sequence[Size] | None:
    """Return the integers of a parameter, some of which may be expressions; None if unknown."""
    if vector.values is not None:
        return vector.values
    value = node.inputs[vector.input or 0]
    if value is None or value.is_graph_input():
        return None
    known = context.get_symbolic_value(value)
    return None if known is None else known[vector.start :: vector.step][: vector.length]


class _Expressions:
    """Arithmetic on integers and symbolic dims, see `operators.Arithmetic`."""

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def sub(self, a: Any, b: Any) -> Any:
        return a - b

    def mul(self, a: Any, b: Any) -> Any:
        return a * b

    def div(self, a: Any, b: Any) -> Any:
        return a // b

    def max(self, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return ir.SymbolicDim(f"max({_text(a)}, {_text(b)})")

    def product(self, sizes: Sequence[Any]) -> Any:
        return math.prod(sizes)


def _text(size: Size) -> str:
    return str(size) if isinstance(size, int) else str(size.value)
