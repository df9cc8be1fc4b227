"""Damage to the messages of a model: what broken exporters and scripts over protobuf write.

Each function changes one thing, in the main graph, a subgraph or a function. The file is then sound
protobuf, and what is wrong with it is for us to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import onnx
from building import OPENVINO, TF
from onnx import AttributeProto, TensorProto, helper, numpy_helper

NUMBERS = (0, 1, 2, 3, -1, -(2**31), 2**31, 2**31 - 1, 10**9, 2**40, 2**62, 2**63 - 1, -(2**63))
DOMAINS = ("", "ai.onnx", TF, OPENVINO, "ai.onnx.contrib", "com.microsoft", "loc", "nobody.knows")
OPERATORS = (
    "SpaceToBatchND BatchToSpaceND SpaceToBatch BatchToSpace ExtractImagePatches "
    "ExtractVolumePatches SpaceToDepth DepthToSpace Identity Loop If Scan Reshape Constant Pad Conv "
    "Cast Div Mod Tile Expand Range ConstantOfShape Resize Gather Concat inner"
).split()


def graphs(model: onnx.ModelProto) -> Iterator[Any]:
    """Every graph and function, the nested ones included."""
    waiting: list[Any] = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else []
                waiting += attribute.graphs


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for graph in graphs(model) for node in graph.node]


def tensors(model: onnx.ModelProto) -> list[TensorProto]:
    found = [t for g in graphs(model) for t in getattr(g, "initializer", ())]
    for node in nodes(model):
        found += [a.t for a in node.attribute if a.HasField("t")]
    return found


def infos(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    found = []
    for graph in graphs(model):
        if isinstance(graph, onnx.GraphProto):
            found += [*graph.input, *graph.output, *graph.value_info]
    return found


def names(model: onnx.ModelProto) -> list[str]:
    found = [name for node in nodes(model) for name in (*node.input, *node.output)]
    return [*found, *(t.name for t in tensors(model)), *(v.name for v in infos(model)), "", "new"]


def attributes(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, AttributeProto]]:
    return [(node, a) for node in nodes(model) for a in node.attribute]


def name_of_a_value(rng: Random, model: onnx.ModelProto) -> None:
    """Rewired, swapped, emptied, added or dropped."""
    node = rng.choice(nodes(model))
    side = rng.choice((node.input, node.output))
    if not side or rng.random() < 0.1:
        side.append(rng.choice(names(model)))
    elif rng.random() < 0.1:
        del side[rng.randrange(len(side))]
    else:
        side[rng.randrange(len(side))] = rng.choice(names(model))


def name_of_a_declaration(rng: Random, model: onnx.ModelProto) -> None:
    rng.choice([*infos(model), *tensors(model)]).name = rng.choice(names(model))


def odd_name(rng: Random, model: onnx.ModelProto) -> None:
    """A name with line breaks, quotes or a megabyte, everywhere that it is used."""
    old = rng.choice(names(model))
    new = rng.choice(("a\nb\n\nc", "\x1b[31m\x00", "'\"{}%s\\", "é" * 100_000, "../../x", "[bold]"))
    for node in nodes(model):
        for side in (node.input, node.output):
            side[:] = [new if name == old else name for name in side]
        if rng.random() < 0.3:
            node.name = new
    for holder in (*infos(model), *tensors(model)):
        holder.name = new if holder.name == old else holder.name


def dims_of_a_tensor(rng: Random, model: onnx.ModelProto) -> None:
    tensor = rng.choice(tensors(model))
    if tensor.dims and rng.random() < 0.7:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    elif tensor.dims and rng.random() < 0.3:
        del tensor.dims[:]
    else:
        tensor.dims.append(rng.choice(NUMBERS))


def dims_of_a_value(rng: Random, model: onnx.ModelProto) -> None:
    kind = rng.choice(infos(model)).type
    shape = kind.tensor_type.shape
    if not shape.dim or rng.random() < 0.15:
        shape.dim.add(dim_value=rng.choice(NUMBERS))
    elif rng.random() < 0.15:
        rng.choice((lambda: kind.tensor_type.ClearField("shape"), lambda: shape.dim.pop()))()
    else:
        dim = rng.choice(shape.dim)
        if rng.random() < 0.7:
            dim.dim_value = rng.choice((*NUMBERS, 4, 6, 8))
        else:
            dim.dim_param = rng.choice(("N", "H", "a b", "", "-1", "H*2", "2"))


def type_of_a_value(rng: Random, model: onnx.ModelProto) -> None:
    info = rng.choice(infos(model))
    if rng.random() < 0.7:
        info.type.tensor_type.elem_type = rng.choice((*range(26), 99, -1))
        return
    kind = onnx.TypeProto()
    kind.CopyFrom(info.type)
    made = rng.choice(
        (
            onnx.TypeProto(),
            helper.make_sequence_type_proto(kind),
            helper.make_optional_type_proto(kind),
            helper.make_sparse_tensor_type_proto(1, [4]),
        )
    )
    info.type.CopyFrom(made)


def type_of_a_tensor(rng: Random, model: onnx.ModelProto) -> None:
    rng.choice(tensors(model)).data_type = rng.choice((*range(26), 99, -1))


def data_of_a_tensor(rng: Random, model: onnx.ModelProto) -> None:
    tensor = rng.choice(tensors(model))
    raw = tensor.raw_data
    more = raw + rng.randbytes(rng.choice((1, 4, 8)))
    tensor.raw_data = rng.choice((raw[:-1], raw[:-8], b"", raw * 2, more, rng.randbytes(len(raw))))
    if rng.random() < 0.3:
        tensor.int64_data.extend([rng.choice(NUMBERS)] * rng.randint(1, 5))


def external_data(rng: Random, model: onnx.ModelProto) -> None:
    tensor = rng.choice(tensors(model))
    if not tensor.external_data:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")
        if rng.random() < 0.5:
            tensor.ClearField("raw_data")
    values = (
        "",
        "0",
        "-1",
        "1",
        "64",
        "model.onnx",
        "../x",
        "/etc/passwd",
        "sub",
        "nan",
        str(2**70),
    )
    keys = ("location", "offset", "length", "checksum", "")
    if rng.random() < 0.5:
        tensor.external_data.add(key=rng.choice(keys), value=rng.choice(values))
    else:
        rng.choice(tensor.external_data).value = rng.choice(values)


def parameter(rng: Random, model: onnx.ModelProto) -> None:
    """Block shapes, pads, kernels and sizes, made extreme."""
    small = [
        t
        for t in tensors(model)
        if t.data_type in (TensorProto.INT32, TensorProto.INT64)
        and t.data_location != TensorProto.EXTERNAL
        and 0 < np.prod([float(d) for d in t.dims]) <= 16
    ]
    try:
        tensor = rng.choice(small)
        values = numpy_helper.to_array(tensor).astype(object)
    except (IndexError, ValueError, TypeError):
        return
    places = list(np.ndindex(values.shape))
    for place in rng.sample(places, rng.randint(1, len(places))):
        values[place] = rng.choice((*NUMBERS, 1, 2, 3, 5, 100))
    dtype = np.int64 if tensor.data_type == TensorProto.INT64 else np.int32
    wrapped = [(int(v) + 2**63) % 2**64 - 2**63 for v in values.ravel()]
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(np.array(wrapped).astype(dtype).reshape(values.shape)))
    tensor.name = name


def value_of_an_attribute(rng: Random, model: onnx.ModelProto) -> None:
    _, attribute = rng.choice(attributes(model))
    if attribute.ints and rng.random() < 0.8:
        where = rng.randrange(len(attribute.ints))
        if rng.random() < 0.7:
            attribute.ints[where] = rng.choice(NUMBERS)
        else:
            rng.choice((lambda: attribute.ints.append(2), lambda: attribute.ints.pop(where)))()
    elif attribute.HasField("s"):
        attribute.s = rng.choice((b"", b"SAME", b"VALID", b"same_lower", b"\xff\xfe", b"EXPLICIT"))
    elif attribute.HasField("f"):
        attribute.f = rng.choice((0.0, float("nan"), float("inf"), 1e38))
    else:
        attribute.i = rng.choice(NUMBERS)


def kind_of_an_attribute(rng: Random, model: onnx.ModelProto) -> None:
    _, attribute = rng.choice(attributes(model))
    if rng.random() < 0.5:
        attribute.type = rng.randrange(16)
        return
    name = attribute.name
    values: tuple[Any, ...] = (1, 1.5, "text", [1, 2], [1.5], ["a"], TensorProto(data_type=1))
    attribute.CopyFrom(helper.make_attribute(name, rng.choice(values)))


def attribute_list(rng: Random, model: onnx.ModelProto) -> None:
    node, attribute = rng.choice(attributes(model))
    what = rng.choice(("remove", "double", "rename", "refer", "add"))
    if what == "remove":
        node.attribute.remove(attribute)
    elif what == "double":
        node.attribute.add().CopyFrom(attribute)
    elif what == "rename":
        attribute.name = rng.choice(("", "ksizes", "sizes", "body", "axis", "block_shape", "to"))
    elif what == "refer":
        attribute.ref_attr_name = rng.choice(("size", "nothing"))
    else:
        name = rng.choice(("block_size", "blocksize", "padding", "auto_pad", "perm", "domain"))
        node.attribute.append(helper.make_attribute(name, rng.choice((0, 2, "SAME", [1, 2]))))


def order_of_nodes(rng: Random, model: onnx.ModelProto) -> None:
    """Dropped, doubled, moved, or copied into another graph."""
    graph = rng.choice([g for g in graphs(model) if len(g.node)])
    what = rng.choice(("drop", "double", "shuffle", "reverse", "graft"))
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    if what == "drop":
        del copies[rng.randrange(len(copies))]
    elif what == "double":
        copies.insert(rng.randrange(len(copies) + 1), rng.choice(copies))
    elif what == "shuffle":
        rng.shuffle(copies)
    elif what == "reverse":
        copies.reverse()
    else:
        copies.append(onnx.NodeProto.FromString(rng.choice(nodes(model)).SerializeToString()))
    del graph.node[:]
    graph.node.extend(copies)


def operator(rng: Random, model: onnx.ModelProto) -> None:
    node = rng.choice(nodes(model))
    if rng.random() < 0.5:
        node.op_type = rng.choice(OPERATORS)
    if rng.random() < 0.6:
        node.domain = rng.choice(DOMAINS)
    if rng.random() < 0.1:
        node.overload = rng.choice(("same", "other"))


def declarations(rng: Random, model: onnx.ModelProto) -> None:
    """Inputs, outputs, initializers and value_info: dropped, doubled, or one made of another."""
    graph = rng.choice([g for g in graphs(model) if isinstance(g, onnx.GraphProto)])
    fields = [graph.input, graph.output, graph.initializer, graph.value_info]
    field = rng.choice([f for f in fields if len(f)] or [graph.input])
    if field and rng.random() < 0.4:
        del field[rng.randrange(len(field))]
    elif field and rng.random() < 0.5:
        field.add().CopyFrom(rng.choice(field))
    else:
        dims = [rng.choice((*NUMBERS, "N", None)) for _ in range(rng.randint(0, 5))]
        made = helper.make_tensor_value_info(rng.choice(names(model)), rng.randrange(1, 17), dims)
        rng.choice(fields[:2] + fields[3:]).append(made)


def versions(rng: Random, model: onnx.ModelProto) -> None:
    if rng.random() < 0.3:
        model.ir_version = rng.choice((0, 1, 3, 4, 7, 8, 10, 13, 99, -1, 2**62))
        return
    holder = rng.choice((model, *model.functions))
    imports = holder.opset_import
    what = rng.choice(("version", "version", "domain", "drop", "double"))
    if not imports or what == "double":
        imports.add(domain=rng.choice(DOMAINS), version=rng.choice((*NUMBERS, 11, 13, 18)))
    elif what == "version":
        rng.choice(imports).version = rng.choice(
            (0, 1, 5, 9, 10, 11, 12, 13, 18, 21, 99, -1, 2**62)
        )
    elif what == "domain":
        rng.choice(imports).domain = rng.choice(DOMAINS)
    else:
        del imports[rng.randrange(len(imports))]


def subgraphs(rng: Random, model: onnx.ModelProto) -> None:
    """Two bodies change places, or one loses its inputs or outputs."""
    bodies = [a.g for _, a in attributes(model) if a.HasField("g")]
    one, other = rng.choice(bodies), rng.choice(bodies)
    kept = onnx.GraphProto.FromString(one.SerializeToString())
    what = rng.choice(("swap", "into itself", "inputs", "outputs"))
    if what == "swap":
        moved = other.SerializeToString()
        other.CopyFrom(kept)
        one.CopyFrom(onnx.GraphProto.FromString(moved))
    elif what == "into itself":
        node = rng.choice(list(one.node) or [one.node.add()])
        node.attribute.append(helper.make_attribute("body", kept))
    else:
        side = one.input if what == "inputs" else one.output
        if side and rng.random() < 0.5:
            side.pop()
        else:
            side.add(name=rng.choice(names(model)))


def functions(rng: Random, model: onnx.ModelProto) -> None:
    function = rng.choice(model.functions)
    what = rng.choice(
        ("rename", "domain", "input", "output", "attribute", "drop", "ring", "double")
    )
    if what == "rename":
        function.name = rng.choice(
            [f.name for f in model.functions] + ["SpaceToBatchND", "Neg", ""]
        )
    elif what == "domain":
        function.domain = rng.choice(DOMAINS)
    elif what == "input":
        function.input.append(rng.choice(names(model)))
    elif what == "output":
        function.output[:] = [rng.choice(names(model)) for _ in function.output]
    elif what == "attribute":
        function.attribute.append(rng.choice(("size", "block_shape")))
    elif what == "drop":
        model.functions.remove(function)
    elif what == "double":
        model.functions.add().CopyFrom(function)
    else:
        node = rng.choice(function.node)
        node.domain, node.op_type = function.domain, rng.choice(model.functions).name


def trips_of_a_loop(rng: Random, model: onnx.ModelProto) -> None:
    """A count or a condition that a Loop has no business to have."""
    node = rng.choice([n for n in nodes(model) if n.op_type in ("Loop", "Scan")])
    value = np.array(rng.choice(NUMBERS), np.int64)
    model.graph.initializer.append(numpy_helper.from_array(value, "many"))
    node.input[0] = rng.choice(("many", "many", ""))


ALL: tuple[Callable[[Random, onnx.ModelProto], None], ...] = (
    name_of_a_value,
    name_of_a_value,
    name_of_a_declaration,
    odd_name,
    dims_of_a_tensor,
    dims_of_a_value,
    dims_of_a_value,
    type_of_a_value,
    type_of_a_tensor,
    data_of_a_tensor,
    external_data,
    parameter,
    parameter,
    parameter,
    value_of_an_attribute,
    value_of_an_attribute,
    kind_of_an_attribute,
    attribute_list,
    order_of_nodes,
    operator,
    declarations,
    versions,
    subgraphs,
    functions,
    trips_of_a_loop,
)


def of_messages(rng: Random, data: bytes) -> tuple[str, bytes]:
    """A model with one to three things in it changed, and which."""
    model = onnx.ModelProto.FromString(data)
    done: list[str] = []
    wanted = rng.choice((1, 1, 1, 2, 3))
    while len(done) < wanted:
        mutate = rng.choice(ALL)
        try:
            mutate(rng, model)
        except (IndexError, ValueError, AttributeError):  # there is nothing of the kind in it
            done += [] if rng.random() < 0.9 else [""]
            continue
        done.append(mutate.__name__)
    return "+".join(done), bytes(model.SerializeToString())
