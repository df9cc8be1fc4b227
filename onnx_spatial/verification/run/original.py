"""Run an original model, which no runtime loads: its operators by their definitions in numpy.

In onnxruntime a Python operator says where each element of the output comes from, counted from 1, with 0
for padding; Gather fetches the elements, of any type:

    x -> Shape -> Call(., parameters) -> Reshape -> Gather -> y
    x -> Reshape [-1] -> Concat(zero, .) -----------^

Convolutions that onnxruntime refuses, auto_pad SAME with dilations, get their padding in the same way
and become VALID. Nothing here is shared with what converts models: a mistake there is none here.

Where onnxruntime-extensions is not available, and for types that Gather does not take, onnx's reference
evaluator runs the model (`evaluator`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.local_functions.marked import without_earlier_form
from onnx_spatial.errors import Code, OperatorError, UsageError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import insert_nodes
from onnx_spatial.model.inference import functions
from onnx_spatial.model.io import reader
from onnx_spatial.operators import Dim
from onnx_spatial.operators.shapes import show
from onnx_spatial.operators.spellings import InputFacts, NodeFacts, read
from onnx_spatial.operators.spellings.python_ops import DOMAIN, SITE, VERSION
from onnx_spatial.python_ops import registration
from onnx_spatial.python_ops.kernels import CALLS, KEY, PREPARED_TYPES
from onnx_spatial.verification.arrays import Array, dtype_of
from onnx_spatial.verification.run import data, same_padding
from onnx_spatial.verification.run.same_padding import RefusedConvolution
from onnx_spatial.verification.run.sessions import Report, RunError, Session, first_line, no_report

if TYPE_CHECKING:
    from onnx_spatial.verification.run.evaluator import Evaluator

#: Most positions in a window or block; each is one step of the kernel.
_MOST_POSITIONS = 2**16

#: Types that Gather and Concat take in onnxruntime; bfloat16 from that opset on.
_GATHERED = frozenset(
    {*PREPARED_TYPES, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.STRING}
)
_BFLOAT16_OPSET, _CAST_LIKE_OPSET = 13, 15


def evaluate(
    model: reader.Model | reader.Source,
    inputs: Mapping[str, Array],
    *,
    domains: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the outputs of a model by name; no runtime has to know its spatial operators.

    Args:
        model: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        inputs: data by input name.
        domains: operator domains of the user's own that hold spatial operators.

    Raises:
        UsageError: the inputs do not fit the model, or it does not run on them.
        ModelFileError: the model cannot be read.
    """
    source = model if isinstance(model, reader.Source) else reader.read(model)
    feeds = data.check_given(data.graph_inputs(source.proto), inputs)
    try:
        return open_original(source, domains).run(feeds)
    except RunError as error:
        raise UsageError(
            f"{source.name}: cannot be run on this data: {error}", code=Code.INPUT_DATA
        ) from None


def open_original(
    source: reader.Source,
    domains: Iterable[str] = (),
    *,
    values: Iterable[str] = (),
    optimise: bool = False,
    report: Report = no_report,
) -> Session | Evaluator:
    """Open a model with spatial operators, so that it can run.

    Args:
        source: the model, and where its external data lies.
        domains: operator domains of the user's own that hold spatial operators.
        values: inner values of the main graph that become outputs, too.
        optimise: with all of onnxruntime's optimisations, or without any.
        report: gets a line of progress before each load and run.

    Raises:
        RunError: it does not load.
    """
    before = without_earlier_form(source.proto, folder=source.folder)
    source, domains = reader.resolved(source.holding(before.model)), before.domains.union(domains)
    model = _inlined(source.proto)
    declared = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in values if n not in declared)
    infos = [info for info in analysis.find(model, domains, source.folder) if info.known_domain]
    for info in infos:
        if info.place.function is not None:
            raise RunError(f"{info.place} has spatial operators and cannot be inlined", "load")
    if not (registration.available() and all(map(_is_gathered, infos))):
        from onnx_spatial.verification.run.evaluator import Evaluator  # takes long to import

        return Evaluator(model, domains, source.folder, report)
    calls = _Calls(model)
    try:
        calls.replace(infos)
        session = Session(
            reader.serialize(model, source.name),
            optimise=optimise,
            folder=source.folder,
            report=report,
        )
    except BaseException:
        registration.withdraw(calls.keys)
        raise
    weakref.finalize(session, registration.withdraw, calls.keys)
    return session


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without local functions, and without declared shapes, which may be wrong."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        copy = functions.inline(copy)
    except Exception as error:  # of onnx's C++ code, without a type of its own
        raise RunError(f"its functions cannot be inlined: {first_line(error)}", "load") from None
    for _, graph in traversal.graphs(copy):
        del graph.value_info[:]
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return copy


def _site(place: traversal.Place, node: onnx.NodeProto) -> str:
    return f"{node.op_type} {traversal.label(node)!r} in {place}"


# onnxruntime


def _is_gathered(info: OperatorInfo) -> bool:
    """Return whether onnxruntime moves elements of all types that the data may have."""
    has_bfloat16 = (info.opset or 0) >= _BFLOAT16_OPSET
    return info.element_types <= _GATHERED - (set() if has_bfloat16 else {TensorProto.BFLOAT16})


class _Calls:
    """Calls of Python functions in the place of nodes that onnxruntime does not run.

    Attributes:
        keys: the numbers by which nodes find their functions.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._opset = op_traits.opset_of(model.opset_import) or 0
        self.keys: list[int] = []

    def replace(self, infos: Sequence[OperatorInfo]) -> None:
        """Replace spatial operators and refused convolutions, in place."""
        inserted = {info.index: self._operator(info) for info in infos}
        inserted |= {each.index: self._convolution(each) for each in same_padding.find(self._model)}
        insert_nodes.in_front(
            self._model, {i: insert_nodes.Inserted(nodes, ()) for i, nodes in inserted.items()}
        )
        if inserted and not any(o.domain == DOMAIN for o in self._model.opset_import):
            self._model.opset_import.append(helper.make_opsetid(DOMAIN, VERSION))

    def _operator(self, info: OperatorInfo) -> _Nodes:
        """Write a spatial operator; its node becomes an Identity behind the new nodes."""
        node, nodes = info.node, _Nodes(info.index)
        given = [index for index, name in enumerate(node.input) if name]
        if given[:1] != [0]:
            raise RunError(f"{_site(info.place, node)}: the data input is missing", "load")
        x, *parameters = (node.input[index] for index in given)
        integers = [nodes.op("Cast", name, to=int(TensorProto.INT64)) for name in parameters]
        known = info.facts.inputs[0]
        dims = info.output_shape if known is not None and known.ranked else None
        types = info.element_types
        zero = nodes.zero(x, min(types) if len(types) == 1 else None, self._opset)
        function = _positions(info.facts, given[1:])
        call = self._call(nodes, _site(info.place, node), function, nodes.op("Shape", x), *integers)
        result = nodes.moved(x, zero, call, dims)
        name, outputs = node.name, list(filter(None, node.output[:1])) or [nodes.unused()]
        node.CopyFrom(helper.make_node("Identity", [result], outputs, name))
        return nodes

    def _convolution(self, refused: RefusedConvolution) -> _Nodes:
        """Write the padding of a convolution."""
        node, nodes = refused.node, _Nodes(refused.index)
        attributes, x = analysis.attributes(node), node.input[0]
        dilations: Any = attributes["dilations"]

        def positions(shape: Array, weight: Array) -> Array:
            return same_padding.padded(_counted(shape), weight.tolist()[2:], attributes)

        if refused.zero_point:
            zero = nodes.op("Reshape", refused.zero_point, nodes.constant(np.array([1])))
        else:
            zero = nodes.zero(x, self._stored_type(refused.weight), self._opset)
        shapes = [nodes.op("Shape", name) for name in (x, refused.weight)]
        call = self._call(nodes, _site(refused.place, node), positions, *shapes)
        refused.become_valid(nodes.moved(x, zero, call, (None, None, *[None] * len(dilations))))
        return nodes

    def _call(
        self, nodes: _Nodes, site: str, function: Callable[..., Array], *integers: str
    ) -> str:
        """Write a call of a function of the shape of data and other integers."""
        if len(integers) not in CALLS:
            raise RunError(f"{site}: has {len(integers)} inputs", "load")
        self.keys.append(registration.provide(function))
        attributes = {SITE: site, KEY: self.keys[-1]}
        return nodes.op(CALLS[len(integers)], *integers, domain=DOMAIN, **attributes)

    def _stored_type(self, name: str) -> int | None:
        """Return the element type of an initializer; None for other names."""
        graphs = (g for _, g in traversal.graphs(self._model) if isinstance(g, onnx.GraphProto))
        stored = (tensor for graph in graphs for tensor in graph.initializer)
        return next((tensor.data_type for tensor in stored if tensor.name == name), None)


class _Nodes(list[onnx.NodeProto]):
    """New nodes in front of the node at a position, in order."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._prefix = f"onnx_spatial.run/{index}/"

    def op(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = self.unused()
        self.append(helper.make_node(op_type, inputs, [name], name, domain=domain, **attributes))
        return name

    def unused(self) -> str:
        """Return a new name."""
        return f"{self._prefix}{len(self)}"

    def constant(self, array: Array) -> str:
        """Add a constant and return its name."""
        return self.op("Constant", value=numpy_helper.from_array(array))

    def zero(self, x: str, element_type: int | None, opset: int) -> str:
        """Add a vector of one zero of the type of the data, which is perhaps unknown."""
        if element_type is None and opset >= _CAST_LIKE_OPSET:
            return self.op("CastLike", self.constant(np.zeros(1, np.int64)), x)
        if element_type == TensorProto.STRING:
            return self.constant(np.full(1, "", object))
        return self.constant(np.zeros(1, dtype_of(element_type or TensorProto.FLOAT)))

    def moved(self, x: str, zero: str, call: str, dims: Sequence[Dim] | None) -> str:
        """Add the nodes that fetch the elements at the positions from a call.

        The first Reshape changes nothing. It tells onnxruntime the sizes that are known, and fails where
        the call has failed (`python_ops.failures`), unless it makes no elements.
        """
        if dims is None:
            shape = self.op("Shape", x)
            same = self.op("Sub", shape, shape)
        else:
            sizes = [d if isinstance(d, int) else 0 for d in dims]
            same = self.constant(np.array([0] * len(sizes) if 0 in dims else sizes, np.int64))
        positions = self.op("Reshape", call, same)
        flat = self.op("Reshape", x, self.constant(np.array([-1])))
        return self.op("Gather", self.op("Concat", zero, flat, axis=0), positions, axis=0)


def _counted(shape: Array) -> Array:
    """Return 1, 2, 3, .. in a shape."""
    sizes = shape.tolist()
    same_padding.check_elements(sizes)
    return np.arange(1, math.prod(sizes) + 1).reshape(sizes)


def _positions(facts: NodeFacts, given: Sequence[int]) -> Callable[..., Array]:
    """Return the function from the shape of the data, and parameters, to positions in the data.

    Args:
        facts: what is known of the node before a run.
        given: numbers of the inputs that are parameters.
    """

    def positions(shape: Array, *parameters: Array) -> Array:
        arrays: list[Array | None] = [None] * len(facts.inputs)
        arrays[0] = x = _counted(shape)
        for number, parameter in zip(given, parameters, strict=True):
            known = facts.inputs[number]
            dtype = known.dtype if known is not None and known.dtype else "int64"
            arrays[number] = parameter.astype(dtype)
        inputs = [None if array is None else InputFacts.of(array) for array in arrays]
        call = read(replace(facts, inputs=tuple(inputs)))
        operator = call.bind(arrays)
        same_padding.check_elements(operator.output_shape(x.shape))
        if math.prod(operator.positions) > _MOST_POSITIONS:
            raise OperatorError(
                f"{operator.positions_of} of {show(operator.positions)} are too large to be compared"
            )
        return operator(x)

    return positions
