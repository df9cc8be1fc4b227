"""A model that holds every field of onnx.proto, and what is left of it without what is touched.

The frame is written by hand: it has to be a model, with operators of ours in the main graph, in
branches and in functions. Whatever the frame leaves empty is found by reflection and filled, so
that the fields of a newer onnx come in by themselves.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import running
from building import TF
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper, parser

#: Of a field number that onnx.proto does not have: 5000, length-delimited, "beyond".
UNKNOWN = b"\xc2\xb8\x02\x06beyond"

#: The file that one tensor of the model lies in, and what is in it.
WEIGHTS = ("weights.bin", np.float32([1, 2]).tobytes())

#: Metadata key on every node that conversion writes.
ORIGIN = "onnx_spatial.origin"

#: Fields that stay empty, by full name, with the reason.
EXCEPTIONS: dict[str, str] = {}


# Reflection


def _repeated(kind: FieldDescriptor) -> bool:
    known = getattr(kind, "is_repeated", None)  # protobuf 4 has the label only
    return bool(kind.label == kind.LABEL_REPEATED if known is None else known)


def every_field() -> dict[str, FieldDescriptor]:
    """All fields of all messages that a model may hold, by full name."""
    found: dict[str, FieldDescriptor] = {}
    seen: set[str] = set()

    def visit(kind: Descriptor) -> None:
        if kind.full_name in seen:
            return
        seen.add(kind.full_name)
        for each in kind.fields:
            found[each.full_name] = each
            if each.message_type is not None:
                visit(each.message_type)

    visit(onnx.ModelProto.DESCRIPTOR)
    return found


def messages(message: Message) -> Iterator[Message]:
    """A message and all messages in it."""
    yield message
    for kind, value in message.ListFields():
        if kind.message_type is not None:
            for inner in value if _repeated(kind) else [value]:
                yield from messages(inner)


def populated(message: Message) -> set[str]:
    """Full names of the fields that are set somewhere in a message."""
    return {kind.full_name for each in messages(message) for kind, _ in each.ListFields()}


def _fill(message: Message, kind: FieldDescriptor) -> None:
    """Give a field some value of its type."""
    if kind.message_type is not None:
        target = getattr(message, kind.name)
        inner = target.add() if _repeated(kind) else target
        inner.SetInParent()
        for each in kind.message_type.fields:
            if each.message_type is None:
                _fill(inner, each)
        return
    numbers = (kind.CPPTYPE_DOUBLE, kind.CPPTYPE_FLOAT)
    if kind.cpp_type == kind.CPPTYPE_STRING:
        value: object = "filled" if kind.type == kind.TYPE_STRING else b"filled"
    elif kind.cpp_type == kind.CPPTYPE_ENUM:
        value = kind.enum_type.values[-1].number
    else:
        value = 1.5 if kind.cpp_type in numbers else 7
    if _repeated(kind):
        getattr(message, kind.name).extend([value, value])
    else:
        setattr(message, kind.name, value)


def complete(model: onnx.ModelProto) -> None:
    """Fill what is populated nowhere, each field in the last message that has it."""
    for _ in range(8):  # a new message brings new fields
        missing = every_field().keys() - populated(model) - EXCEPTIONS.keys()
        if not missing:
            return
        holders = {message.DESCRIPTOR.full_name: message for message in messages(model)}
        for name in sorted(missing):
            kind = every_field()[name]
            holder = holders.get(kind.containing_type.full_name)
            oneof = kind.containing_oneof
            if holder is not None and oneof is not None and holder.WhichOneof(oneof.name):
                holder = _second(model, kind.containing_type.full_name)
            if holder is not None:
                _fill(holder, kind)


def _second(model: onnx.ModelProto, wanted: str) -> Message:
    """A copy, in the same list, of the last message of a type: a oneof has room for one field."""
    lists = [
        value
        for message in messages(model)
        for kind, value in message.ListFields()
        if kind.message_type is not None and _repeated(kind)
    ]
    for candidates in reversed(lists):
        if any(each.DESCRIPTOR.full_name == wanted for each in messages(candidates[-1])):
            candidates.add().CopyFrom(candidates[-2])
            found = [m for m in messages(candidates[-1]) if m.DESCRIPTOR.full_name == wanted]
            return found[-1]
    raise AssertionError(f"{wanted} is in no list")


# The frame

MAIN = """main (float[N,4,4,1] x, bool flag, float[1] w) => (float[?,?,?,?] z) <float[1] w = {3},
    int32[2,2] none = {0, 0, 0, 0}, double[2] never_read = {5, 6}, int64[2] block = {2, 2}> {
    [scale] a = Mul(x, w)
    [main_site] y = SITE(a, block, none)
    [choice] u = If (flag) <
        then_branch = then () => (then_z) <float[1] then_w = {2}> {
            [then_mul] then_a = Mul(y, then_w) [then_site] then_z = SITE(then_a, block, none) },
        else_branch = els () => (els_z) <float[1] els_w = {2}> {
            [els_mul] els_a = Mul(y, els_w) [els_neg] els_z = Neg(els_a) }>
    [call] v = local.blocks <required = 1> (u)
    [last] z = Neg(v)
}"""
FUNCTION = """<domain: "local", opset_import: ["" : OPSET, "odd" : 3, "TF" : 1]>
blocks <required, alpha: float = 0.5> (data) => (result) {
    [block] block = Constant <value = int64[2] {1, 1}> ()
    [none] none = Constant <value = int32[2,2] {0, 0, 0, 0}> ()
    [leaky] scaled = LeakyRelu <alpha: float = @alpha> (data)
    [function_site] result = SITE(scaled, block, none)
    [odd] odd = odd.Odd(data)
}"""


def _tensors() -> Iterator[TensorProto]:
    """One for each element type and way to store it; the last ones are out of the ordinary."""
    for name, number in TensorProto.DataType.items():
        values = [b"one", b"\xff no text"] if number == TensorProto.STRING else [1, 1]
        tensor = TensorProto(data_type=number)
        if number:
            tensor = helper.make_tensor(f"typed {name.lower()}", number, [2], values)
        tensor.doc_string = "" if number % 2 else name
        tensor.metadata_props.add(key="tensor", value=name)
        yield tensor
    yield numpy_helper.from_array(np.arange(3, dtype=np.int16), "raw")
    segment = TensorProto(name="a segment", data_type=TensorProto.INT32, dims=[4])
    segment.segment.begin, segment.segment.end = 0, 2
    yield segment
    elsewhere = TensorProto(name="elsewhere", data_type=TensorProto.FLOAT, dims=[2])
    elsewhere.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "8")):
        elsewhere.external_data.add(key=key, value=value)
    yield elsewhere


def _everything() -> onnx.NodeProto:
    """A node of somebody else's with odd attributes; those of other kinds come by reflection."""
    node = helper.make_node("Everything", ["x", "", "w"], ["every", ""], "every", domain="odd")
    node.overload = "an overload"
    kinds = onnx.AttributeProto
    node.attribute.add(name="zero", type=kinds.FLOAT, doc_string="zero").f = 0.0
    node.attribute.add(name="no text", type=kinds.STRING).s = b"\xff\xfe no text"
    node.attribute.add(name="tensors", type=kinds.TENSORS).tensors.extend(_tensors())
    shaped = helper.make_tensor_type_proto(TensorProto.FLOAT, [1, "N", None, 0])
    shaped.tensor_type.shape.dim[1].denotation = ""
    held = helper.make_optional_type_proto(helper.make_sequence_type_proto(shaped))
    node.attribute.add(name="types", type=kinds.TYPE_PROTOS).type_protos.extend([shaped, held])
    empty = node.attribute.add(name="explicitly empty", type=kinds.INTS)
    empty.ref_attr_name, empty.doc_string = "", ""
    return node


def _value(name: str, dims: object) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def _described(model: onnx.ModelProto) -> None:
    """Give every message with room for them a doc string, some empty, and metadata."""
    held = (m for m in messages(model) if not isinstance(m, TensorProto))  # these have them
    for number, message in enumerate(held):
        fields = message.DESCRIPTOR.fields_by_name
        if "doc_string" in fields:
            message.doc_string = f"about {number}" if number % 3 else ""
        if "metadata_props" in fields and number % 2:
            message.metadata_props.add(key=f"key {number}", value=f"value {number}" * (number % 4))


def build(*, odd: bool = True, sites: bool = True, ir_version: int = 10) -> onnx.ModelProto:
    """The model.

    Args:
        odd: with everything that no runtime loads; without, onnxruntime runs what is left of it
            once our operators are converted.
        sites: with our operators; without there is nothing to do.
        ir_version: below 4 the initializers are inputs too, and there are no functions.
    """
    text, functions = MAIN, [FUNCTION, FUNCTION] if odd else [FUNCTION]
    if odd or not sites:
        functions[0] = functions[0].replace("SITE(scaled, block, none)", "Neg(scaled)")
        functions[0] = functions[0].replace(', "TF" : 1', "")
    if not odd:
        functions[0] = functions[0].replace("[odd] odd = odd.Odd(data)", "")
    if ir_version < 8:
        functions = []
        text = re.sub(r"\[call\].*\n", "", text).replace("Neg(v)", "Neg(u)")
    if ir_version < 4:
        text = re.sub(r"<float\[1\] (then|els)_w = \{2\}>", "", text)
        text = re.sub(r"(then|els)_w", "w", text)
    text = "\n".join([text, *functions])
    if not sites:
        text = re.sub(r"SITE\((\w+), block, none\)", r"Neg(\1)", text).replace(', "TF" : 1', "")
    text = (
        text.replace("SITE", "TF.SpaceToBatchND")
        .replace("TF", TF)
        .replace("OPSET", str(running.newest_opset()))
    )
    ours = f', "{TF}" : 1' if sites else ""
    imports = f'"" : {running.newest_opset()}{ours}, "local" : 1, "odd" : 3'
    model = parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{imports}]> {text}")
    graph = model.graph
    if ir_version < 4:
        graph.input.extend(
            helper.make_tensor_value_info(t.name, t.data_type, t.dims)
            for t in graph.initializer[1:]
        )
    graph.value_info.extend([_value("a", ["N", 4, 4, 1]), _value("y", [7, 7, 7, 7])])
    graph.value_info.append(_value("of nothing", [1]))
    branch = graph.node[2].attribute[0].g
    branch.value_info.append(_value("then_a", [4, None, None, "C"]))
    branch.output[0].doc_string = ""
    graph.quantization_annotation.add(tensor_name="a").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="w"
    )
    model.producer_name, model.producer_version = "a producer", "1.2.3"
    model.domain, model.model_version = "a.domain", 0
    for function in model.functions:
        function.value_info.append(_value("scaled", [None, None, None, None]))
    if odd:
        model.functions[1].overload = "second"
        graph.node[3].overload = "second"
        graph.node.append(_everything())
        values = numpy_helper.from_array(np.float32([1, 2]), "sparse")
        places = numpy_helper.from_array(np.int64([0, 3]), "sparse at")
        graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [5]))
        training = model.training_info.add()
        training.initialization.CopyFrom(helper.make_graph([], "initialization", [], []))
        training.algorithm.CopyFrom(graph.node[2].attribute[1].g)
        training.initialization_binding.add(key="w", value="w0")
        training.update_binding.add(key="w", value="w1")
        graph.node[-1].attribute.add(name="carrier", type=4).t.CopyFrom(
            TensorProto(name="carrier", data_type=TensorProto.FLOAT, dims=[0])
        )
        complete(model)
    _described(model)
    for message in list(messages(model)):
        message.MergeFromString(UNKNOWN)
    return model


# What a conversion touches


def untouched(model: onnx.ModelProto, touched: Mapping[str, Collection[str]]) -> bytes:
    """The bytes of a model without what `Conversion.touched` names: equal before and after.

    Of values whose declared type changed only the type is left out.
    """
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    nodes = {*touched["nodes_replaced"], *touched["nodes_removed"], *touched["nodes_added"]}
    domains = touched["opset_imports_removed"]
    tensors = {*touched["initializers_removed"], *touched["initializers_added"]}
    for graph in list(messages(copy)):
        kind = graph.DESCRIPTOR.name
        if kind in ("GraphProto", "FunctionProto"):
            _keep(graph.node, lambda node: node.name not in nodes)
            for info in [*graph.value_info, *(graph.output if kind == "GraphProto" else ())]:
                if info.name in touched["value_info_changed"]:
                    info.ClearField("type")
            _keep(graph.value_info, lambda info: info != onnx.ValueInfoProto(name=info.name))
        if kind == "GraphProto":
            _keep(graph.initializer, lambda tensor: tensor.name not in tensors)
        if kind in ("ModelProto", "FunctionProto"):
            _keep(graph.opset_import, lambda opset: opset.domain not in domains)
    return bytes(copy.SerializeToString(deterministic=True))


def _keep(held: Any, is_kept: Callable[[Any], bool]) -> None:
    for index in reversed(range(len(held))):
        if not is_kept(held[index]):
            del held[index]


def differing(before: onnx.ModelProto, after: onnx.ModelProto) -> dict[str, set[str]]:
    """What two models hold under other names, or declare otherwise, by the words of `touched`."""
    (nodes, tensors, infos), (new_nodes, new_tensors, new_infos) = map(_names, (before, after))
    domains, new_domains = ({o.domain for o in each.opset_import} for each in (before, after))
    return {
        "nodes gone": {name for _, name in nodes - new_nodes},
        "nodes_added": {name for _, name in new_nodes - nodes},
        "initializers_removed": tensors - new_tensors,
        "initializers_added": new_tensors - tensors,
        "value_info_changed": {name for name, _ in infos ^ new_infos},
        "opset_imports_removed": domains - new_domains,
    }


def _names(model: onnx.ModelProto) -> tuple[set[tuple[int, str]], set[str], set[tuple[str, bytes]]]:
    """Of nodes with the number of their graph, of initializers, of values with their types."""
    nodes, tensors, infos = set(), set(), set()
    for number, graph in enumerate(m for m in messages(model) if hasattr(m, "node")):
        nodes |= {(number, node.name) for node in graph.node}
        values = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            tensors |= {tensor.name for tensor in graph.initializer}
            values += graph.output
        infos |= {(v.name, v.type.SerializeToString()) for v in values}
    return nodes, tensors, infos
