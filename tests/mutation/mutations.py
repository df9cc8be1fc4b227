"""Wrong versions of a converted model, one small mistake each, drawn at random.

    numbers of a node  =  its attributes and the constants that it reads
    mistake            =  other numbers, other operands, another operator

Whether a mutant behaves otherwise than the original is not known here.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import parsing
import structure
from onnx import TensorProto, helper, numpy_helper

#: A graph or a function: what holds nodes.
Holder = onnx.GraphProto | onnx.FunctionProto


@dataclass(frozen=True)
class Spot:
    """A node of a model, found again in its copies by position."""

    number: int
    node: onnx.NodeProto
    holder: Holder


def spots(model: onnx.ModelProto) -> list[Spot]:
    """Every node, those in subgraphs and functions included."""
    held: list[tuple[Holder, onnx.NodeProto]] = list(_held(model.graph))
    for function in model.functions:
        held += _held(function)
    return [Spot(number, node, holder) for number, (holder, node) in enumerate(held)]


def _held(holder: Holder) -> Iterator[tuple[Holder, onnx.NodeProto]]:
    for node in holder.node:
        yield holder, node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _held(graph)


def edited(
    model: onnx.ModelProto, number: int, change: Callable[[Holder, int, onnx.NodeProto], None]
) -> onnx.ModelProto:
    """A copy in which `change` was made to one node; it is given its holder and index there."""
    copy = copied(model)
    spot = spots(copy)[number]
    index = next(i for i, node in enumerate(spot.holder.node) if node is spot.node)
    change(spot.holder, index, spot.node)
    return copy


def constants(holder: Holder) -> dict[str, np.ndarray]:
    """The arrays that a graph stores, by name."""
    found = {}
    for tensor in getattr(holder, "initializer", ()):
        found[tensor.name] = numpy_helper.to_array(tensor)
    for node in holder.node:
        if (
            node.op_type == "Constant"
            and len(node.attribute) == 1
            and node.attribute[0].name == "value"
        ):
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def feed_constant(holder: Holder, index: int, position: int, value: np.ndarray) -> None:
    """Let input `position` of node `index` be a constant of its own."""
    name = f"mutant_{index}_{position}"
    tensor = numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
    holder.node[index].input[position] = name
    insert(holder, index, [helper.make_node("Constant", [], [name], value=tensor)])


Change = Callable[[Holder, int, onnx.NodeProto], None]


def setting(name: str, value: Any) -> Change:
    """Give an attribute another value."""
    return lambda holder, index, node: set_attribute(node, name, value)


def feeding(position: int, value: np.ndarray) -> Change:
    """Let an input be a constant of its own."""
    return lambda holder, index, node: feed_constant(holder, index, position, value)


def insert(holder: Holder, index: int, nodes: Sequence[onnx.NodeProto]) -> None:
    """Put nodes in front of node `index`."""
    for offset, node in enumerate(nodes):
        holder.node.insert(index + offset, node)


def behind(
    holder: Holder, index: int, make: Callable[[str, str], Sequence[onnx.NodeProto]]
) -> None:
    """Put nodes between a node and all who read its first output; `make` is given both names."""
    node = holder.node[index]
    target, source = node.output[0], f"{node.output[0]}_mutant"
    node.output[0] = source
    insert(holder, index + 1, make(source, target))


def attribute(node: onnx.NodeProto, name: str) -> Any:
    """Value of an attribute; None if there is none, or a caller of the function around it has it."""
    found = (a for a in node.attribute if a.name == name and not a.ref_attr_name)
    return next(map(helper.get_attribute_value, found), None)


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give an attribute another value."""
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def spliced(text: str, real: type = np.float32) -> Callable[[str, str], list[onnx.NodeProto]]:
    """Make nodes of text that compute `t` of `s`, for values of other names."""

    def make(source: str, target: str) -> list[onnx.NodeProto]:
        nodes, stored = parsing.nodes(text, real)
        held = [helper.make_node("Constant", [], [n], value=t) for n, t in stored.items()]
        names = {n: f"{source}_{n}" for node in (*held, *nodes) for n in node.output}
        names |= {"s": source, "t": target}
        for node in (*held, *nodes):
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
        return [*held, *nodes]

    return make


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model as another message."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


F = TensorProto
#: A mistake at a node: in words, and the change. None: the node has no place for it.
Mistake = tuple[str, Change] | None


def _reading(names: list[str]) -> Change:
    """Let a node read other values."""

    def change(holder: Holder, index: int, node: onnx.NodeProto) -> None:
        node.input[:] = names

    return change


def _becoming(make: Callable[[onnx.NodeProto], onnx.NodeProto]) -> Change:
    return lambda holder, index, node: node.CopyFrom(make(node))


def _left_out(node: onnx.NodeProto) -> onnx.NodeProto:
    return helper.make_node("Identity", node.input[:1], node.output)


def _putting(make: Callable[[str, str], list[onnx.NodeProto]]) -> Change:
    """Put nodes behind a node."""
    return lambda holder, index, node: behind(holder, index, make)


class Breaker:
    """Makes mistakes in a model.

    Args:
        model: it stays as it is.
        shapes: what its Shapes give at one size, by name.
    """

    def __init__(
        self, model: onnx.ModelProto, shapes: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> None:
        self.model, self.shapes, self.spots = model, shapes, spots(model)
        self.types, self.data = _types(model), _data(model)
        self.stored = {id(spot.holder): constants(spot.holder) for spot in self.spots}

    def draw(
        self, rng: Random, kind: str, of: Callable[[onnx.NodeProto], bool] = lambda _: True
    ) -> tuple[str, onnx.ModelProto] | None:
        """Make a mistake of a kind at some node, if it has a place for it; say which."""
        spot = rng.choice([spot for spot in self.spots if of(spot.node)])
        found = KINDS[kind](self, rng, spot)
        if found is None:
            return None
        label = f"{spot.node.op_type} {spot.node.name or (*spot.node.output, '')[0]!r}"
        return f"{label}: {found[0]}", edited(self.model, spot.number, found[1])


# ---------------------------------------------------------------- numbers


#: Numbers that a node is given: what they are, and how to give it others.
Numbers = tuple[str, np.ndarray, Callable[[np.ndarray], Change]]


def _numbers(node: onnx.NodeProto, known: dict[str, np.ndarray]) -> Iterator[Numbers]:
    """Those of attributes, and of the constants that a node reads."""
    for given in node.attribute if node.op_type != "Constant" else ():
        name, value = given.name, attribute(node, given.name)
        if name == "parameters" and isinstance(value, bytes):  # of an operator of this package
            fields = json.loads(value)
            for field in [f for f in ("kernel", "strides", "rates", "block") if f in fields]:
                yield field, np.array(fields[field]), partial(_put_field, fields, field)
        elif np.array(value).dtype.kind in "if" and np.size(value):
            yield name, np.array(value), lambda a, n=name: setting(n, a.tolist())
    for position, name in enumerate(node.input):
        old = known.get(name)
        if old is not None and old.size and old.dtype.kind in "iuf":
            yield f"input {position}", old, partial(feeding, position)


def _put_field(fields: dict[str, object], field: str, array: np.ndarray) -> Change:
    return setting("parameters", json.dumps({**fields, field: array.tolist()}))


def _other(rng: Random, array: np.ndarray) -> np.ndarray:
    """One is other by 1, a real by 50 to 0.1 %; or two change places, or by 1; or all are turned."""
    flat = array.reshape(-1).copy()
    i, j = rng.randrange(flat.size), rng.randrange(flat.size)
    way = rng.choice(("number", "number", "moved", "exchanged", "turned"))
    if way == "turned" and array.ndim:
        turned = [np.flip(array, 0), np.roll(array, array.size // 2), np.ones_like(array)]
        if array.ndim > 1 and array.shape[-1] == array.shape[-2]:
            turned += [array.swapaxes(-1, -2)] * 2
        return rng.choice(turned).copy()
    if way == "exchanged":
        flat[[i, j]] = flat[[j, i]]
    elif array.dtype.kind == "f":
        flat[i] = flat[i] * rng.choice((1.5, 1.1, 1.01, 1.001)) or np.abs(flat).max() / 2 or 1
    else:
        steps = ((i, 1), (j, -1)) if way == "moved" else ((i, rng.choice((1, -1))),)
        for place, step in steps:
            old = int(flat[place])
            # "To the end" is written as the largest number there is.
            wrong = step if abs(old) >= 2**31 - 1 else old + step
            flat[place] = np.array(wrong).astype(array.dtype)
    return flat.reshape(array.shape)


def numbers(known: Breaker, rng: Random, spot: Spot) -> Mistake:
    """Other numbers."""
    found = [*_numbers(spot.node, known.stored[id(spot.holder)])]
    if not found:
        return None
    what, array, put = rng.choice(found)
    wrong = _other(rng, array)
    if np.array_equal(wrong, array):
        return None
    told = f"{wrong.tolist()}, not {array.tolist()}" if array.size <= 16 else "other"
    return f"{what} is {told}", put(wrong)


#: Texts of attributes that have a counterpart.
_TEXTS = {b"SAME": b"VALID", b"same_upper": b"same_lower", b"DCR": b"CRD"}
_TEXTS |= {other: text for text, other in _TEXTS.items()} | {b"valid": b"same_upper"}


def attributes(known: Breaker, rng: Random, spot: Spot) -> Mistake:
    """An attribute is lost, or its text is another."""
    if spot.node.op_type == "Constant" or not spot.node.attribute:
        return None
    given = rng.choice(spot.node.attribute)
    value = attribute(spot.node, given.name)
    if isinstance(value, bytes) and value in _TEXTS:
        return f"{given.name} is {_TEXTS[value].decode()}", setting(given.name, _TEXTS[value])

    def lose(holder: Holder, index: int, node: onnx.NodeProto) -> None:
        node.attribute.remove(next(a for a in node.attribute if a.name == given.name))

    return f"without {given.name}", lose


# ---------------------------------------------------------------- values and operators


#: By what a value may be cast to and back on a wrong path.
_PATHS = {
    F.FLOAT: (F.FLOAT16, F.BFLOAT16, F.DOUBLE, F.INT32),
    F.DOUBLE: (F.FLOAT,),
    F.FLOAT16: (F.FLOAT, F.BFLOAT16),
    F.INT32: (F.FLOAT, F.INT64),
    F.INT64: (F.INT32, F.DOUBLE),
    F.UINT8: (F.INT8, F.FLOAT16, F.BOOL),
    F.BOOL: (F.FLOAT,),
}
#: What a real may go through on a wrong path, from `s` to `t`: what usual data does not show, too.
_DAMAGES = (
    "t = Add (s, $0)",
    "t = Mul (s, $1)",
    "t = Min (s, $6)",
    "t = Max (s, $-300)",
    "i = IsNaN (s); t = Where (i, $0, s)",
    "t = Slice (s, #0, #16, #1)",
)


def dtype_path(known: Breaker, rng: Random, spot: Spot) -> Mistake:
    """A value goes through another type, or through arithmetic, on its way."""
    name = (*spot.node.output, "")[0]
    kind = known.types.get(name)
    if kind not in _PATHS or name not in known.data:
        return None
    real = helper.tensor_dtype_to_np_dtype(kind)
    if real.kind == "f" and rng.random() < 0.5:
        text = rng.choice(_DAMAGES)
        return text, _putting(spliced(text, real.type))
    other = rng.choice(_PATHS[kind])
    casts = f"m = Cast <to = {other}> (s); t = Cast <to = {kind}> (m)"
    return f"through {TensorProto.DataType.Name(other).lower()}", _putting(spliced(casts))


#: Operators with the same number of operands as others.
_OTHERS = {
    **{"Relu": "Tanh", "Sigmoid": "HardSigmoid", "Tanh": "Sigmoid", "Neg": "Abs", "Foo": "Bar"},
    **{"Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Max": "Min", "Min": "Max"},
    **{"MaxPool": "AveragePool", "AveragePool": "MaxPool", "ReduceMean": "ReduceMax"},
}


def operands(known: Breaker, rng: Random, spot: Spot) -> Mistake:
    """A node is another operator or left out, or reads another value of its type; its operands are
    exchanged, or the last one is left out.
    """
    node, (first, *others) = spot.node, (*spot.node.input, "")
    others, found = others[:-1], []
    if node.op_type in _OTHERS:
        other = _OTHERS[node.op_type]
        found.append((f"{other}, not {node.op_type}", _typed(other)))
    if len({*node.input}) > 1:
        *kept, last = others
        before = [first, *kept]
        exchanged = [*before[:-1], last, before[-1]]
        found.append(("last operands exchanged", _reading(exchanged)))
        found.append(("first operands exchanged", _reading([others[0], first, *others[1:]])))
        found.append(("without its last operand", _reading(before)))
    if spot.holder is known.model.graph and first in known.data:
        earlier = {o for s in known.spots[: spot.number] for o in s.node.output if o}
        earlier |= {v.name for v in known.model.graph.input}
        same = [n for n in earlier & known.data if known.types.get(n) == known.types.get(first)]
        for name in sorted({*same} - {first})[-2:]:
            found.append((f"reads {name!r}, not {first!r}", _reading([name, *others])))
        if len(node.output) == 1 and node.op_type not in ("Identity", "Constant"):
            found.append(("left out", _becoming(_left_out)))
    return rng.choice(found) if found else None


def _typed(op_type: str) -> Change:
    def change(holder: Holder, index: int, node: onnx.NodeProto) -> None:
        node.op_type = op_type

    return change


def size_baked_in(known: Breaker, rng: Random, spot: Spot) -> Mistake:
    """What Shape gives at one size is taken for what it always gives."""
    value = known.shapes.get((*spot.node.output, "")[0])
    if spot.holder is not known.model.graph or value is None:
        return None
    tensor = numpy_helper.from_array(value)
    constant = helper.make_node("Constant", [], spot.node.output, value=tensor)
    return f"always {value.tolist()}", _becoming(lambda node: constant)


# ---------------------------------------------------------------- what is known of a model


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Element types by name, as far as onnx infers them."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:  # whatever it says: then those classes have fewer places
        inferred = model
    graph = inferred.graph
    found = {t.name: t.data_type for t in graph.initializer}
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type:
            found[info.name] = info.type.tensor_type.elem_type
    return found


def _data(model: onnx.ModelProto) -> set[str]:
    """Names whose values follow from the inputs of the model, not only from their shapes."""
    found = {v.name for v in model.graph.input}
    for function in model.functions:
        found.update(function.input)
    for spot in spots(model):
        for attr in spot.node.attribute:
            found.update(v.name for v in attr.g.input)
        if spot.node.op_type not in ("Shape", "Size") and found.intersection(spot.node.input):
            found.update(o for o in spot.node.output if o)
    return found


def is_site(node: onnx.NodeProto) -> bool:
    leftover = node.op_type in ("SpaceToDepth", "DepthToSpace") and len(node.input) == 3
    return leftover or node.op_type in (*structure.SPATIAL, "ExtractPatches")


#: Kinds of mistakes.
KINDS: dict[str, Callable[[Breaker, Random, Spot], Mistake]] = {
    "another number": numbers,
    "attributes changed": attributes,
    "wrong dtype path": dtype_path,
    "operators and operands": operands,
    "size baked in": size_baked_in,
}
