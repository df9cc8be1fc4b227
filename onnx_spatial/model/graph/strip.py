"""Copy a model without what a reader does not need, and without holding that twice in memory.

                    strip_weights           strip_types
    read by         inference, inliner      onnx_ir
    nodes           all, in order           all, in order
    attributes      all                     graphs only
    types           all                     none: initializers become inputs, too
    large tensors   type and shape only     none

onnx_ir cannot read map types, sparse tensors in attributes, or element types newer than itself, which a
model may hold far from the spatial operators. `model.graph.patch_proto` takes everything that
`strip_types` leaves out from the original message when it writes an edit back.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.imports import import_missing, used_domains
from onnx_spatial.model.io import external_data

#: Tensors up to this many elements keep their values: shapes have a few, tables of indices some more.
MAX_KEPT_ELEMENTS = 4096

_KINDS = onnx.AttributeProto
#: Kinds of attributes that hold graphs or weights.
_SPECIAL = frozenset({_KINDS.TENSOR, _KINDS.GRAPH, _KINDS.GRAPHS})


def strip_weights(model: onnx.ModelProto, folder: Path | None = None) -> onnx.ModelProto:
    """Copy a model without the values of its large tensors, which keep type and shape.

    Small external tensors are read from `folder`, if it is given. Opset imports that nodes use but
    the model does not declare are added, because shape inference stops at the first missing one.
    """
    copy = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    copier = _WithoutWeights(folder)
    copier.copy_graph(model.graph, copy.graph)
    if traversal.has_defaults(model):
        _drop_defaults(copy.graph)
    for function in model.functions:
        fields = {field.name: value for field, value in function.ListFields()}
        fields.pop("node", None)
        target = copy.functions.add(**fields)
        _copy_nodes(function.node, target, copier.copy_graph, copier.copy_attribute)
    opset = op_traits.assumed_opset(model.ir_version)
    import_missing(copy.opset_import, used_domains(copy.graph), opset)
    for function in copy.functions:
        import_missing(function.opset_import, used_domains(function), opset)
        import_missing(copy.opset_import, (o.domain for o in function.opset_import), opset)
    return copy


class _WithoutWeights:
    """Copies of graphs and attributes; small external tensors are read from `folder`."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def copy_graph(self, graph: onnx.GraphProto, copy: onnx.GraphProto) -> None:
        copy.name = graph.name
        copy.input.extend(graph.input)
        copy.output.extend(graph.output)
        copy.value_info.extend(graph.value_info)
        for tensor in graph.initializer:
            self._copy_tensor(tensor, copy.initializer.add())
        for sparse in graph.sparse_initializer:
            target = copy.sparse_initializer.add(dims=sparse.dims)
            self._copy_tensor(sparse.values, target.values)
            self._copy_tensor(sparse.indices, target.indices)
        _copy_nodes(graph.node, copy, self.copy_graph, self.copy_attribute)

    def copy_attribute(self, attribute: onnx.AttributeProto, copy: onnx.NodeProto) -> None:
        if attribute.type == _KINDS.TENSOR and attribute.HasField("t"):
            target = copy.attribute.add(name=attribute.name, type=attribute.type)
            self._copy_tensor(attribute.t, target.t)
        else:
            copy.attribute.append(attribute)

    def _copy_tensor(self, tensor: onnx.TensorProto, copy: onnx.TensorProto) -> None:
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        small = math.prod(tensor.dims) <= MAX_KEPT_ELEMENTS
        if small and not external:
            copy.CopyFrom(tensor)
            return
        copy.name, copy.data_type = tensor.name, tensor.data_type
        copy.dims.extend(tensor.dims)
        if not small:
            return
        try:
            copy.raw_data = external_data.read_content(tensor, self._folder).tobytes()
        except (OSError, ValueError, TypeError, KeyError, OverflowError):  # the values stay unknown
            copy.data_location = tensor.data_location


def strip_types(model: onnx.ModelProto, main: Sequence[int] | None = None) -> onnx.ModelProto:
    """Copy the nodes of a model in the same order, with values that have no types.

    Nodes keep names, documentation and graphs, and lose other attributes. Initializers become inputs
    of their graphs. With `main`, only the nodes at these positions of the main graph are copied.
    """
    copy = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    if main is None:
        _copy_names(model.graph, copy.graph)
    else:
        nodes = [model.graph.node[index] for index in main]
        _copy_nodes(nodes, copy.graph, _copy_names)
        computed = {name for node in nodes for name in node.output}
        for name in dict.fromkeys(name for node in nodes for name in traversal.needs(node)):
            if name not in computed:
                copy.graph.input.add(name=name)
    for function in model.functions:
        target = copy.functions.add(
            domain=function.domain,
            name=function.name,
            overload=function.overload,
            opset_import=function.opset_import,
            input=function.input,
            output=function.output,
        )
        _copy_nodes(function.node, target, _copy_names)
    return copy


def _copy_names(graph: onnx.GraphProto, copy: onnx.GraphProto) -> None:
    """Copy a graph without types and tensors."""
    copy.name = graph.name
    stored = sorted(traversal.stored_names(graph), key=str)  # bytes are invalid UTF-8
    for name in dict.fromkeys([*traversal.value_names(graph.input), *stored]):
        copy.input.add(name=name)
    for value in graph.output:
        copy.output.add(name=value.name)
    _copy_nodes(graph.node, copy, _copy_names)


def check_text(nodes: Sequence[onnx.NodeProto]) -> None:
    """Check the names of nodes and of their operators.

    Raises:
        UnicodeDecodeError: one is not UTF-8 text.
    """
    for field in ("name", "op_type", "domain", "overload"):
        for text in {*map(attrgetter(field), nodes)}:
            if isinstance(text, bytes):  # protobuf's form of it
                text.decode()


def _copy_nodes(
    nodes: Iterable[onnx.NodeProto],
    copy: traversal.GraphLike,
    copy_graph: Callable[[onnx.GraphProto, onnx.GraphProto], None],
    copy_attribute: Callable[[onnx.AttributeProto, onnx.NodeProto], None] | None = None,
) -> None:
    """Copy nodes of a graph, whose names are text (see `check_text`).

    `copy_graph(inner, empty)` copies the graphs in attributes, `copy_attribute(attribute, copy)` adds
    another attribute to the copy of its node; None leaves these out.
    """
    special = frozenset(_KINDS.AttributeType.values()) if copy_attribute is None else _SPECIAL

    def is_plain(node: onnx.NodeProto) -> bool:
        return not node.attribute or not any(a.type in special for a in node.attribute)

    for plain, run in itertools.groupby(nodes, is_plain):
        if plain:  # most nodes of a large model; protobuf copies them alone
            copy.node.extend(run)
            continue
        for node in run:
            target = copy.node.add(
                op_type=node.op_type, domain=node.domain, name=node.name, overload=node.overload
            )
            target.input.extend(node.input)
            target.output.extend(node.output)
            if copy_attribute is None:  # nobody but edits needs the documentation of nodes
                if node.HasField("doc_string"):
                    target.doc_string = node.doc_string
                target.metadata_props.extend(node.metadata_props)
            for attribute in node.attribute:
                graphs = attribute.type in (_KINDS.GRAPH, _KINDS.GRAPHS)
                if graphs and not attribute.ref_attr_name:
                    new = target.attribute.add(name=attribute.name, type=attribute.type)
                    if attribute.type == _KINDS.GRAPH:
                        copy_graph(attribute.g, new.g)
                    for inner in attribute.graphs:
                        copy_graph(inner, new.graphs.add())
                elif copy_attribute is not None:
                    copy_attribute(attribute, target)


def _drop_defaults(graph: onnx.GraphProto) -> None:
    """Remove the defaults of inputs: callers may override them, but shape inference uses them."""
    inputs = set(traversal.value_names(graph.input))
    fixed = [t for t in graph.initializer if t.name not in inputs]
    del graph.initializer[:]
    graph.initializer.extend(fixed)
