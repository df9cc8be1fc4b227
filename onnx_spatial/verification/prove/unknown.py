"""The maps of operators without rules: unknown functions of all elements of their inputs.

    y = GridSample(x, g)      y[i] = f(x[a] for all a, g[b] for all b, i)

Equal functions of equal tensors are equal, and have equal dims: those that shape inference does not know
are symbols of the operator and its inputs. A node may fail where the original does not, unless the
original has it, too, with inputs of the same dims and the same integers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import onnx
from onnx import shape_inference

from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.elements import element, indices_of
from onnx_spatial.maps.node import WHOLE, NodeView
from onnx_spatial.maps.polynomial import Index, Polynomial, unknown
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

_RANDOM = op_traits.having(Trait.RANDOM)
#: Operators over steps of time, and the rank of their data: they fail if it is another one.
_RECURRENT, _RECURRENT_RANK = ("GRU", "LSTM", "RNN"), 3
#: What nodes inside of graphs may be, beside ONNX's own operators.
_DOMAINS = ("com.microsoft", "com.microsoft.nchwc")


def unknown_function(
    case: Case, node: NodeView, proto: onnx.NodeProto, graphs: Hashable
) -> list[Tensor]:
    """Return the maps of the outputs of a node.

    Args:
        case: the case.
        node: the node, with its inputs.
        proto: the same.
        graphs: what identifies the graphs inside of it with all that they read; None if nothing does.

    Raises:
        UndecidedError: its outputs have no known type or rank, it draws random numbers, or it may fail.
    """
    graph_names = {a.name for a in proto.attribute if a.type == onnx.AttributeProto.GRAPH}
    refers = any(a.ref_attr_name for a in proto.attribute)
    node.check(case.splits and node.op_type not in _RANDOM and not refers, "there is no index map")
    node.check(not graph_names or graphs is not None, "its graphs have no index map")
    inputs = [node.optional(i) for i in range(node.count)]
    if node.legal and node.op_type in _RECURRENT and node.input(0).rank != _RECURRENT_RANK:
        raise IllegalError(f"{node.op_type}: the rank of its data is {node.input(0).rank}")
    operands: list[Polynomial] = []
    whole: list[Polynomial] = []
    for x in inputs:
        if x is not None:
            node.check(x.type != 0, "an input of unknown type has no index map")
            places = tuple(indices_of(case, x.dims))
            with case.within(sums=1):
                data = element(x, case, places)
            operands += [data, *places, *x.dims]
            whole += [data] if x.type in WHOLE else []
    schema, types = _outputs(proto, node, inputs)
    stated = [
        name
        for name, a in schema.attributes.items()
        if node.get(name, None) == onnx.helper.get_attribute_value(a.default_value)
    ]
    kinds = tuple(None if x is None else (x.rank, x.type) for x in inputs)
    details = (*node.details(*graph_names, *stated), graphs, schema.since_version, kinds)
    dims_read = tuple(d for x in inputs if x is not None for d in x.dims)
    call = (node.op_type, details, dims_read, tuple(whole))
    if node.legal:
        case.calls.add(call)
    node.check(call in case.calls, "it may fail where the original does not")
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
    ranked = known is not None and known.tensor_type.HasField("shape")
    node.check(ranked, "an output of unknown rank has no index map")
    assert known is not None
    dims = []
    for axis, dim in enumerate(known.tensor_type.shape.dim):
        kind = ("dim", node.op_type, details, tuple(operands), axis)
        is_known = dim.dim_value > 0
        name = f"{node.op_type}.{axis}"
        dims.append(Polynomial.of(dim.dim_value) if is_known else case.symbol(name, kind=kind))

    def at(index: Index) -> Polynomial:
        return unknown(node.op_type, details, (*operands, *index))

    return Tensor(case, dims, at, whole=False, type=known.tensor_type.elem_type)


def _outputs(
    proto: onnx.NodeProto, node: NodeView, inputs: Sequence[Tensor | None]
) -> tuple[onnx.defs.OpSchema, Mapping[str, onnx.TypeProto]]:
    """Return the schema of a node, and the types of its outputs, as shape inference knows them.

    Raises:
        UndecidedError: the node does not fit its operator.
    """
    opset = min(node.opset, onnx.defs.onnx_opset_version())
    known = {
        name: onnx.helper.make_tensor_type_proto(x.type, [d.constant for d in x.dims])
        for name, x in zip(proto.input, inputs, strict=True)
        if x is not None
    }
    imports = [onnx.helper.make_opsetid(d, 1) for d in _DOMAINS]
    imports.append(onnx.helper.make_opsetid("", opset))
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset)
        types = shape_inference.infer_node_outputs(schema, proto, known, opset_imports=imports)
    except (
        onnx.checker.ValidationError,  # a version of an operator that is deprecated
        onnx.defs.SchemaError,
        shape_inference.InferenceError,
        RuntimeError,
        TypeError,
    ) as error:
        raise UndecidedError(f"{node.op_type} has no index map ({error})") from error
    if proto.op_type == "Loop":  # of which the body declares ranks
        (body,) = (a.g for a in proto.attribute if a.name == "body")
        for place, (name, value) in enumerate(zip(proto.output, body.output[1:], strict=False)):
            declared = value.type.tensor_type
            if declared.HasField("shape"):
                dims = [None] * (len(declared.shape.dim) + (place >= len(proto.input) - 2))
                types[name] = onnx.helper.make_tensor_type_proto(declared.elem_type, dims)
    return schema, types
