"""Run an original model, which no runtime loads: its operators by their definitions in numpy.

In onnxruntime a Python operator says where each element of the output comes from, counted from 1, with 0
for padding; Gather fetches the elements, of any type:

    x -> Shape -> Call(., parameters) -> Reshape -> Gather -> y
    x -> Reshape [-1] -> Concat(zero, .) -----------^

The code that replaces operators in converted models is not used: a mistake there is none here. Only
convolutions that onnxruntime refuses, auto_pad SAME with dilations, get the pads that conversion gives
them. That these are right is proven from the files.

Where onnxruntime-extensions is not available, and for types that Gather does not take, onnx's reference
evaluator runs the model (`evaluator`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion import same_padding
from onnx_spatial.conversion.marked_functions import without_earlier_form
from onnx_spatial.errors import Code, OperatorError, UsageError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import insert_nodes
from onnx_spatial.model.inference import functions
from onnx_spatial.model.io import reader
from onnx_spatial.operators.shapes import show
from onnx_spatial.operators.spellings import InputFacts, read
from onnx_spatial.operators.spellings.python_ops import DOMAIN, SITE, VERSION
from onnx_spatial.python_ops import registration
from onnx_spatial.python_ops.kernels import CALLS, KEY, PREPARED_TYPES
from onnx_spatial.verification.arrays import Array, dtype_of
from onnx_spatial.verification.run.data import check_user_data, graph_inputs
from onnx_spatial.verification.run.sessions import RunError, Session, first_line

if TYPE_CHECKING:
    from onnx_spatial.verification.run.evaluator import Evaluator

#: Most elements of the output of an operator: a block of 10^9 must not exhaust the memory. A string
#: takes some 60 bytes.
_MOST_ELEMENTS, _MOST_STRINGS = 2**27, 2**22
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
    feeds = check_user_data(graph_inputs(source.proto), inputs)
    try:
        return Original(source, domains).open().run(feeds)
    except RunError as error:
        raise UsageError(
            f"{source.name}: cannot be run on this data: {error}", code=Code.INPUT_DATA
        ) from None


class Original:
    """A model with spatial operators that onnxruntime loads, with optimisations on or off.

    Args:
        source: the model, and where its external data lies.
        domains: operator domains of the user's own that hold spatial operators.
        infos: its spatial operators, if they are known already; else they are looked for.
        values: inner values of the main graph that become outputs, too.

    Raises:
        RunError: it cannot be made a model that loads.
    """

    def __init__(
        self,
        source: reader.Source,
        domains: Iterable[str] = (),
        *,
        infos: Sequence[OperatorInfo] = (),
        values: Iterable[str] = (),
    ) -> None:
        before = without_earlier_form(source.proto, folder=source.folder)
        source = reader.resolved(source.holding(before.model))
        self._domains, self._folder = before.domains.union(domains), source.folder
        model = _with_explicit_pads(_inline_functions(source.proto), source.folder)
        declared = {value.name for value in model.graph.output}
        model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in values if n not in declared)
        nodes = [node for _, _, node in traversal.nodes(model)]
        if infos and len(nodes) == traversal.number_of_nodes(source.proto):
            infos = [replace(info, node=nodes[info.index]) for info in infos]
        else:  # positions of nodes are others where functions are inlined
            infos = analysis.find(model, self._domains, source.folder)
        infos = [info for info in infos if info.known_domain]
        for info in infos:
            if info.place.function is not None:
                raise RunError(f"{info.place} has spatial operators and cannot be inlined", "load")
        self._model, self._bytes = model, b""
        if registration.available() and all(map(_is_gathered, infos)):
            called = _replace_operators(model, infos)
            self._bytes = reader.serialize(model, source.name)
            registration.provide_functions(called)
            weakref.finalize(self, registration.withdraw_functions, [*called])

    def open(self, *, optimise: bool = False) -> Session | Evaluator:
        """Open a session, or onnx's evaluator where that is not possible.

        Raises:
            RunError: it does not load.
        """
        if not self._bytes:
            from onnx_spatial.verification.run.evaluator import Evaluator  # takes long to import

            return Evaluator(self._model, self._domains, self._folder)
        return Session(self._bytes, optimise=optimise, folder=self._folder, keeps=self)


def _inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without local functions, and without declared shapes, which may be wrong."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        copy = functions.inline(copy)
    except Exception as error:  # of onnx's C++ code, without a type of its own
        raise RunError(f"its functions cannot be inlined: {first_line(error)}", "load") from None
    for _, graph in traversal.graphs(copy):
        del graph.value_info[:]
    for _, _, node in traversal.nodes(copy):
        node.name = traversal.label(node)  # for messages
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return copy


def _with_explicit_pads(model: onnx.ModelProto, folder: Path | None) -> onnx.ModelProto:
    """Return the model with explicit pads of the convolutions that onnxruntime refuses.

    Raises:
        RunError: the pads of one cannot be computed.
    """
    if not same_padding.find(model, folder):
        return model
    opset = op_traits.opset_of(model.opset_import) or 0
    result = same_padding.add_explicit_pads(model, opset, folder)
    for each in result.operator_at.values():
        if not each.converted:
            raise RunError(f"{each.op_type} {each.node!r}: {each.reason}", "load", each.node)
    return model if result.model is None else result.model


def _is_gathered(info: OperatorInfo) -> bool:
    """Return whether onnxruntime moves elements of all types that the data may have."""
    has_bfloat16 = (info.opset or 0) >= _BFLOAT16_OPSET
    return info.element_types <= _GATHERED - (set() if has_bfloat16 else {TensorProto.BFLOAT16})


def _replace_operators(
    model: onnx.ModelProto, infos: Sequence[OperatorInfo]
) -> dict[int, Callable[..., Array]]:
    """Replace spatial operators in place; return the functions that are called for them, by number."""
    opset = op_traits.opset_of(model.opset_import) or 0
    called: dict[int, Callable[..., Array]] = {}
    inserted: dict[int, insert_nodes.Inserted] = {}
    for info in infos:
        present = [index for index, name in enumerate(info.node.input) if name]
        site = f"{info.node.op_type} {traversal.label(info.node)!r} in {info.place}"
        reason = ""
        if present[:1] != [0]:
            reason = "the data input is missing"
        elif len(present) not in CALLS:
            reason = "has too many inputs"
        elif any(traversal.subgraphs(info.node)):
            reason = "has a graph as an attribute"
        if reason:
            raise RunError(f"{site}: {reason}", "load")
        function = _positions_function(info, present[1:])
        called[id(function)] = function
        inputs = [info.node.input[i] for i in present]
        nodes = _fetching_nodes(info, inputs, opset, {SITE: site, KEY: id(function)})
        inserted[info.index] = insert_nodes.Inserted(nodes, ())
    insert_nodes.in_front(model, inserted)
    if inserted and not any(o.domain == DOMAIN for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, VERSION))
    return called


def _fetching_nodes(
    info: OperatorInfo, inputs: Sequence[str], opset: int, attributes: Mapping[str, Any]
) -> list[onnx.NodeProto]:
    """Return nodes that fetch elements from where a call says; the operator becomes an Identity.

    The first Reshape changes nothing. It tells onnxruntime the sizes that are known, and fails where
    the call has failed (`python_ops.kernels`), unless it makes no elements.
    """
    nodes: list[onnx.NodeProto] = []

    def add_node(op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        name = f"onnx_spatial.run/{info.index}/{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [name], name, domain=domain, **attributes))
        return name

    def add_constant(array: Array) -> str:
        return add_node("Constant", value=numpy_helper.from_array(array))

    x, *parameters = inputs
    shape = add_node("Shape", x)
    integers = [add_node("Cast", name, to=int(TensorProto.INT64)) for name in parameters]
    call = add_node(CALLS[len(inputs)], shape, *integers, domain=DOMAIN, **attributes)
    dims = info.output_shape
    sizes = [d if isinstance(d, int) else 0 for d in dims or ()]
    if info.facts.inputs[0] is None or dims is None:
        same = add_node("Sub", shape, shape)
    elif 0 in dims or math.prod(filter(None, sizes)) > _MOST_ELEMENTS:
        same = add_constant(np.zeros(len(sizes), np.int64))
    else:
        same = add_constant(np.array(sizes, np.int64))
    positions = add_node("Reshape", call, same)
    if not info.element_types and opset >= _CAST_LIKE_OPSET:
        zero = add_node("CastLike", add_constant(np.zeros(1, np.int64)), x)
    elif TensorProto.STRING in info.element_types:
        zero = add_constant(np.full(1, "", object))
    else:
        element_type = min(info.element_types, default=TensorProto.FLOAT)
        zero = add_constant(np.zeros(1, dtype_of(element_type)))
    flat = add_node("Reshape", x, add_constant(np.array([-1])))
    y = add_node("Gather", add_node("Concat", zero, flat, axis=0), positions, axis=0)
    outputs = list(filter(None, info.node.output[:1])) or [f"{y}/unread"]
    info.node.CopyFrom(helper.make_node("Identity", [y], outputs, info.node.name))
    return nodes


def _check_elements(shape: Sequence[Any], most: int = _MOST_ELEMENTS) -> None:
    """Refuse an output that is too large to be computed.

    Raises:
        OperatorError: it is.
    """
    if math.prod(shape) > most:
        raise OperatorError(f"its output {show(shape)} is too large to be compared")


def _positions_function(info: OperatorInfo, numbers: Sequence[int]) -> Callable[..., Array]:
    """Return the function from the shape of the data, and parameters, to positions in the data.

    Args:
        info: what is known of the operator before a run.
        numbers: of the inputs that are parameters.
    """
    facts = info.facts
    most = _MOST_STRINGS if TensorProto.STRING in info.element_types else _MOST_ELEMENTS

    def positions(shape: Array, *parameters: Array) -> Array:
        arrays: list[Array | None] = [None] * len(facts.inputs)
        sizes = shape.tolist()
        _check_elements(sizes)
        arrays[0] = x = np.arange(1, math.prod(sizes) + 1).reshape(sizes)
        for number, parameter in zip(numbers, parameters, strict=True):
            known = facts.inputs[number]
            dtype = known.dtype if known is not None and known.dtype else "int64"
            arrays[number] = parameter.astype(dtype)
        inputs = [None if array is None else InputFacts.of(array) for array in arrays]
        call = read(replace(facts, inputs=tuple(inputs)))
        operator = call.bind(arrays)
        _check_elements(operator.output_shape(x.shape), most)
        if math.prod(operator.positions) > _MOST_POSITIONS:
            raise OperatorError(
                f"{operator.positions_of} of {show(operator.positions)} are too large to be compared"
            )
        return operator(x)

    return positions
