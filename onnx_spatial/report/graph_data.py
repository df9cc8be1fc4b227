"""Describe two graphs side by side as JSON, for the script of the HTML report that draws them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.report.graph_diff import GraphDiff, ModelDiff, Node

#: Letters of an attribute, and entries of a list, that are shown.
_LONGEST = 120
_ENTRIES = 16


def graph_document(diff: ModelDiff) -> dict[str, Any]:
    """Return the graphs and regions of a comparison as JSON.

    A node has its label (l), operator type (o), domain (d), status (s), partner (p), region (r), the
    values that it reads (i) and computes (u), and its attributes (a). What is as in the partner before
    is left out, and so is what is empty.
    """
    return {
        "regions": [[region.name, region.what] for region in diff.regions],
        "graphs": [_graph(graph) for graph in diff.graphs],
    }


def script_json(document: dict[str, Any]) -> str:
    """Serialize JSON for a script element: no name in it can close the element."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    # Protobuf admits no lone surrogates, but messages of errors may have some.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _graph(graph: GraphDiff) -> dict[str, Any]:
    types: dict[str, str] = {}
    for each in graph.graphs:
        types |= _types(each)
    return {
        "name": graph.name,
        "types": types,
        "inputs": [_names(each, "input") for each in graph.graphs],
        "outputs": [_names(each, "output") for each in graph.graphs],
        "before": [_node(node) for node in graph.before],
        "after": [_node(node, after=True) for node in graph.after],
    }


def _names(graph: traversal.GraphLike | None, field: str) -> list[str]:
    if graph is None:
        return []
    values = getattr(graph, field)
    names = list(values) if isinstance(graph, onnx.FunctionProto) else [v.name for v in values]
    if field == "input" and isinstance(graph, onnx.GraphProto):
        stored = {tensor.name for tensor in graph.initializer}
        names = [name for name in names if name not in stored]
    return names


def _node(node: Node, *, after: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = {"s": node.status, "p": node.partner, "r": node.region}
    if not (after and node.status == "same"):
        message = node.message
        result |= {"l": node.label, "o": message.op_type, "d": message.domain}
        result |= {
            "i": sorted(traversal.needs(message), key=_order(message)),
            "u": [*message.output],
        }
        result["a"] = [[a.name, _attribute(a)] for a in message.attribute]
    return {key: value for key, value in result.items() if value not in (None, "", [], "same")}


def _order(node: onnx.NodeProto) -> Any:
    """Return a key that sorts names as a node reads them; those that its graphs capture come last."""
    place = {name: index for index, name in enumerate(node.input)}
    return lambda name: (place.get(name, len(place)), name)


def _attribute(attribute: onnx.AttributeProto) -> str:
    kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
    if attribute.ref_attr_name:
        text = f"the function's {attribute.ref_attr_name}"
    elif kind in ("INT", "FLOAT"):
        text = f"{attribute.i if kind == 'INT' else attribute.f:g}"
    elif kind == "STRING":
        text = attribute.s[:_LONGEST].decode("utf-8", "replace")
    elif kind in ("INTS", "FLOATS"):
        values: Sequence[float] = attribute.ints if kind == "INTS" else attribute.floats
        shown = [f"{value:g}" for value in values[:_ENTRIES]]
        text = f"[{', '.join([*shown, *(['...'] if len(values) > _ENTRIES else [])])}]"
    elif kind == "TENSOR":
        text = f"tensor {_type(attribute.t.data_type, attribute.t.dims)}"
    else:
        text = kind.lower()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _types(graph: traversal.GraphLike | None) -> dict[str, str]:
    """Return the declared types of values: "float32 1x64x64x3"."""
    if graph is None:
        return {}
    values = list(graph.value_info)
    types = {}
    if isinstance(graph, onnx.GraphProto):
        values += [*graph.input, *graph.output]
        types = {tensor.name: _type(tensor.data_type, tensor.dims) for tensor in graph.initializer}
    for value in values:
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.elem_type:
            dims = [
                d.dim_param or (d.dim_value if d.HasField("dim_value") else "?")
                for d in tensor.shape.dim
            ]
            types[value.name] = _type(tensor.elem_type, dims if tensor.HasField("shape") else None)
    return types


def _type(element_type: int, dims: Sequence[object] | None) -> str:
    name = shape_inference.type_name(element_type)
    short = {"float": "float32", "double": "float64"}.get(name, name)
    if dims is None:
        return short
    return f"{short} {'x'.join(map(str, dims)) or 'scalar'}"
