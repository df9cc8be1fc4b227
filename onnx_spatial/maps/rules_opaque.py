"""The maps of operators without rules: unknown functions of all elements of their inputs.

    y = GridSample(x, g)      y[i] = f(x[a] for all a, g[b] for all b, i)

Equal functions of equal tensors are equal, and have equal dims: those that shape inference does not know
are symbols of the operator and its inputs. A node may fail where the original does not, unless the
original has it, too, with inputs of the same dims and the same integers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import onnx
from onnx import shape_inference

from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.elements import element, indices_of
from onnx_spatial.maps.expressions import Index, unknown
from onnx_spatial.maps.node import INTEGERS, NodeView
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.rules_fused import DOMAINS
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

_RANDOM = op_traits.having(Trait.RANDOM)

#: Operators over steps of time, and the rank of their data: it fails in a run if it is another one.
_RECURRENT, _RECURRENT_RANK = ("GRU", "LSTM", "RNN"), 3

#: Domains that nodes inside may have.
_OF_RUNTIME = [onnx.helper.make_opsetid(d, 1) for d in DOMAINS]

#: Operators that have a rule for some attributes only.
PARTLY_KNOWN = frozenset({"ConvTranspose", "Einsum", "MatMul", "Pad", "Resize"})


def opaque(case: Case, node: NodeView, proto: onnx.NodeProto, body: Hashable) -> list[Tensor]:
    """Return the maps of the outputs of a node.

    Args:
        case: the case.
        node: the node, with its inputs.
        proto: the same.
        body: what identifies the graphs inside of it; None if there are none.

    Raises:
        UndecidedError: its outputs have no known type or rank, or it may fail.
    """
    reason = f"operator {node.op_type} has no index map"
    has_body = any(a.type == onnx.AttributeProto.GRAPH for a in proto.attribute)
    refers = any(a.ref_attr_name for a in proto.attribute)
    if refers or node.op_type in _RANDOM or (has_body and body is None) or not case.splits:
        raise UndecidedError(reason)
    tensors = [node.optional(i) for i in range(node.count)]
    if node.op_type in _RECURRENT and node.legal and node.input(0).rank != _RECURRENT_RANK:
        raise IllegalError(f"{node.op_type}: the rank of its data is {node.input(0).rank}")
    operands: list[Polynomial] = []
    integers: list[Polynomial] = []
    for x in tensors:
        if x is None:
            continue
        indices = indices_of(case, x.dims)
        with case.within(sums=1):
            data = element(x, case, tuple(indices))
        operands += [data, *indices, *x.dims]
        integers += [data] if x.type in INTEGERS else []
    types, schema = _types(proto, node.opset, tensors, reason)
    defaults = {
        n: onnx.helper.get_attribute_value(a.default_value) for n, a in schema.attributes.items()
    }
    graphs = [a.name for a in proto.attribute if a.type == onnx.AttributeProto.GRAPH]
    stated = [n for n, v in node.attributes.items() if n in defaults and v == defaults[n]]
    kinds = repr([None if x is None else (x.rank, x.type) for x in tensors])
    details = (
        *node.details(*graphs, *stated),
        body if has_body else None,
        schema.since_version,
        kinds,
    )
    dims_read = tuple(d for x in tensors if x is not None for d in x.dims)
    call = (node.op_type, details, dims_read, tuple(integers))
    if node.legal:
        case.calls.add(call)
    elif call not in case.calls:
        raise UndecidedError(f"{node.op_type} may fail where the original does not")
    return [
        _output(case, node, (*details, place), operands, types.get(name))
        for place, name in enumerate(proto.output)
    ]


def _output(
    case: Case,
    node: NodeView,
    details: tuple[Hashable, ...],
    operands: Sequence[Polynomial],
    known: onnx.TypeProto | None,
) -> Tensor:
    """Return the map of an output of a known rank."""
    if known is None or not known.tensor_type.HasField("shape"):
        raise UndecidedError(f"{node.op_type}: the rank of an output is unknown")
    dims = []
    for axis, dim in enumerate(known.tensor_type.shape.dim):
        kind = ("dim", node.op_type, details, tuple(operands), axis)
        own = case.symbol(f"{node.op_type}.{axis}", kind=kind) if not dim.dim_value else None
        dims.append(Polynomial.of(dim.dim_value) if own is None else own)

    def at(index: Index) -> Polynomial:
        return unknown(node.op_type, details, (*operands, *index))

    return Tensor(case, dims, at, whole=False, type=known.tensor_type.elem_type)


def _types(
    proto: onnx.NodeProto, opset: int, tensors: Sequence[Tensor | None], reason: str
) -> tuple[dict[str, onnx.TypeProto], onnx.defs.OpSchema]:
    """Return the types of the outputs of a node, as shape inference knows them, and its schema.

    Raises:
        UndecidedError: the node does not fit its operator.
    """
    try:
        schema = onnx.defs.get_schema(proto.op_type, min(opset, onnx.defs.onnx_opset_version()))
        known, data = {}, {}
        for name, x in zip(proto.input, tensors, strict=True):
            if x is not None:
                dims = [d.constant for d in x.dims]
                known[name] = onnx.helper.make_tensor_type_proto(x.type, dims)
                if x.array is not None:
                    data[name] = onnx.numpy_helper.from_array(x.array, name)
        imports = [onnx.helper.make_opsetid("", opset), *_OF_RUNTIME]
        types = shape_inference.infer_node_outputs(
            schema, proto, known, data, opset_imports=imports
        )
    except (
        onnx.checker.ValidationError,  # a version of an operator that is deprecated
        onnx.defs.SchemaError,
        shape_inference.InferenceError,
        RuntimeError,
        TypeError,
    ) as error:
        raise UndecidedError(f"{reason} ({error})") from error
    if proto.op_type == "Loop":
        types = _of_loop(proto, types)
    return types, schema


def _of_loop(proto: onnx.NodeProto, types: dict[str, onnx.TypeProto]) -> dict[str, onnx.TypeProto]:
    """Return the types of the outputs of a Loop, with the ranks that its body declares."""
    (body,) = (a.g for a in proto.attribute if a.name == "body")
    carried = len(proto.input) - 2
    for place, (name, value) in enumerate(zip(proto.output, body.output[1:], strict=False)):
        known = value.type.tensor_type
        if known.HasField("shape"):
            dims = [None] * (len(known.shape.dim) + (place >= carried))
            types[name] = onnx.helper.make_tensor_type_proto(known.elem_type, dims)
    return types
