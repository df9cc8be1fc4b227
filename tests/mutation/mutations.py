"""Wrong versions of a converted model, one small mistake each, by classes.

    numbers of a node  =  its attributes and the constants that it reads
    mistake            =  other numbers, other operands, another operator

Every class finds all places of a model where that mistake can be made; the campaigns draw from them.
Whether a mutant behaves otherwise than the original is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from itertools import combinations
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


def swapped(values: Sequence[Any], i: int, j: int) -> list[Any]:
    """A list with two entries exchanged."""
    result = list(values)
    result[i], result[j] = result[j], result[i]
    return result


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


def renamed(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Rename values of the main graph, in bodies too."""

    def inside(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
        for node in graph.node:
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    made = {v.name for v in (*body.input, *body.initializer)}
                    made |= {o for n in body.node for o in n.output}
                    inside(body, {k: v for k, v in names.items() if k not in made})
                    for value in body.output:
                        if value.name not in made:
                            value.name = names.get(value.name, value.name)
        for tensor in graph.initializer:
            tensor.name = names.get(tensor.name, tensor.name)

    inside(model.graph, names)
    del model.graph.value_info[:]


F = TensorProto


@dataclass(frozen=True)
class Mutation:
    """A mistake that can be made.

    Attributes:
        what: it, in words.
        make: makes the mutant.
    """

    what: str
    make: Callable[[], onnx.ModelProto]


Mutations = Iterator[Mutation]
#: Nodes to change: the mistake in words, and the change.
Edits = Iterator[tuple[Spot, str, Change]]


def _edits(find: Callable[[onnx.ModelProto], Edits]) -> Callable[[onnx.ModelProto], Mutations]:
    """Make mutations of changes of single nodes."""

    @wraps(find)
    def make(model: onnx.ModelProto) -> Mutations:
        for spot, what, change in find(model):
            what = f"{_label(spot.node)}: {what}"
            yield Mutation(what, partial(edited, model, spot.number, change))

    return make


def _reading(names: list[str]) -> Change:
    """Let a node read other values."""

    def change(holder: Holder, index: int, node: onnx.NodeProto) -> None:
        node.input[:] = names

    return change


def _left_out(holder: Holder, index: int, node: onnx.NodeProto) -> None:
    node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))


def _putting(make: Callable[[str, str], list[onnx.NodeProto]]) -> Change:
    """Put nodes behind a node."""
    return lambda holder, index, node: behind(holder, index, make)


def _another(op_type: str) -> Change:
    def change(holder: Holder, index: int, node: onnx.NodeProto) -> None:
        node.op_type = op_type

    return change


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


def _changed(array: np.ndarray, *places: tuple[int, object]) -> np.ndarray:
    wrong = array.copy()
    for at, value in places:
        wrong.reshape(-1)[at] = np.array(value).astype(array.dtype)
    return wrong


def _places(array: np.ndarray) -> list[int]:
    """All places of a few numbers, some of many."""
    count = array.size
    return [*range(count)] if count <= 8 else [0, count // 2 - 1, count // 3, count - 2]


def _other(array: np.ndarray) -> Iterator[np.ndarray]:
    """One number is other by 1; a real by half the largest, 10 %, 1 % or 0.1 %."""
    for at in _places(array):
        old = array.reshape(-1)[at]
        if array.dtype.kind == "f":
            half = old + (np.abs(array).max() / 2 or 1)
            yield from (
                _changed(array, (at, v)) for v in (half, old * 1.1, old * 1.01, old * 1.001)
            )
        else:
            old = int(old)
            # "To the end" is written as the largest number there is.
            far = abs(old) >= 2**31 - 1
            yield from (_changed(array, (at, step if far else old + step)) for step in (1, -1))


def _moved(array: np.ndarray) -> Iterator[np.ndarray]:
    """One whole number is larger by 1, one smaller: as pads that move data and keep sizes."""
    if array.dtype.kind == "i" and 1 < array.size <= 16:
        up, down = array.reshape(-1) + 1, array.reshape(-1) - 1
        for i, j in combinations(range(array.size), 2):
            if j - i in (1, array.size // 2):
                yield _changed(array, (i, up[i]), (j, down[j]))
                yield _changed(array, (i, down[i]), (j, up[j]))


def _exchanged(array: np.ndarray) -> Iterator[np.ndarray]:
    """Two numbers are exchanged."""
    flat = array.reshape(-1)
    small = combinations(range(array.size), 2)
    for i, j in small if array.size <= 6 else ((i, i + 1) for i in _places(array)[:-1]):
        if flat[i] != flat[j]:
            yield _changed(array, (i, flat[j]), (j, flat[i]))


def _turned(array: np.ndarray) -> Iterator[np.ndarray]:
    """Axes are turned round, exchanged, or all numbers are 1 or 0."""
    yield array[::-1].copy() if array.ndim < 3 else np.flip(array, (*range(2, array.ndim),))
    if array.ndim in (2, 4) and array.shape[-1] == array.shape[-2]:
        yield array.swapaxes(-1, -2)
    if array.ndim == 1 and array.size % 2 == 0:
        yield np.roll(array, array.size // 2)
    if array.dtype.kind == "i" and array.size <= 16:
        yield from (np.ones_like(array), np.zeros_like(array))


def _varied(
    vary: Callable[[np.ndarray], Iterator[np.ndarray]], of: Callable[[onnx.NodeProto], bool]
) -> Callable[[onnx.ModelProto], Mutations]:
    """Find all numbers of some nodes, and give them others."""

    @_edits
    def find(model: onnx.ModelProto) -> Edits:
        known: dict[int, dict[str, np.ndarray]] = {}
        for spot in spots(model):
            if not of(spot.node):
                continue
            if id(spot.holder) not in known:
                known[id(spot.holder)] = constants(spot.holder)
            for what, array, put in _numbers(spot.node, known[id(spot.holder)]):
                for wrong in vary(array) if array.ndim else _other(array):
                    if not np.array_equal(wrong, array):
                        told = f"{wrong.tolist()}, not {array.tolist()}"
                        yield spot, f"{what} is {told if array.size <= 16 else 'other'}", put(wrong)

    return find


VARIATIONS = {
    "another number": _other,
    "numbers moved": _moved,
    "numbers exchanged": _exchanged,
    "numbers turned round": _turned,
}


#: Texts of attributes that have a counterpart.
_TEXTS = {b"SAME": b"VALID", b"same_upper": b"same_lower", b"DCR": b"CRD"}
_TEXTS |= {other: text for text, other in _TEXTS.items()} | {b"valid": b"same_upper"}


def _dropping(number: int) -> Change:
    def change(holder: Holder, index: int, node: onnx.NodeProto) -> None:
        del node.attribute[number]

    return change


@_edits
def attributes_changed(model: onnx.ModelProto) -> Edits:
    """An attribute is lost, or its text is another."""
    for spot in spots(model):
        for number, given in enumerate(spot.node.attribute):
            value = attribute(spot.node, given.name)
            if isinstance(value, bytes) and value in _TEXTS:
                other = _TEXTS[value]
                yield spot, f"{given.name} is {other.decode()}", setting(given.name, other)
            if spot.node.op_type != "Constant":
                yield spot, f"without {given.name}", _dropping(number)


def _dilated(rates: list[int], pads: np.ndarray) -> Change:
    def change(holder: Holder, index: int, node: onnx.NodeProto) -> None:
        set_attribute(node, "dilations", rates)
        set_attribute(node, "pads", pads.reshape(-1).tolist())

    return change


@_edits
def rates(model: onnx.ModelProto) -> Edits:
    """Dilations ignored or off by one, with pads that keep the sizes."""
    for spot in spots(model):
        old = attribute(spot.node, "dilations") if spot.node.op_type == "Conv" else None
        weights = constants(spot.holder).get((*spot.node.input, "", "")[1])
        if not old or weights is None:
            continue
        kernel, pads = weights.shape[2:], attribute(spot.node, "pads") or [0] * 2 * len(old)
        for wrong in ([1] * len(old), [d + 1 for d in old], [d - 1 for d in old], old[::-1]):
            if wrong == list(old) or min(wrong) < 1:
                continue
            less = [(o - w) * (k - 1) for o, w, k in zip(old, wrong, kernel, strict=True)]
            halves = [[x // 2 for x in less], [x - x // 2 for x in less]]
            for new in (np.reshape(pads, (2, -1)), np.reshape(pads, (2, -1)) - halves):
                if (new >= 0).all():
                    what = f"dilations {wrong} for {list(old)}, pads {new.tolist()}"
                    yield spot, what, _dilated(wrong, new)


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


@_edits
def dtype_paths(model: onnx.ModelProto) -> Edits:
    """A value goes through another type, or through arithmetic, on its way."""
    types, data = _types(model), _data(model)

    for spot in spots(model):
        name = (*spot.node.output, "")[0]
        kind = types.get(name)
        if kind not in _PATHS or name not in data:
            continue
        for other in _PATHS[kind]:
            what = f"through {TensorProto.DataType.Name(other).lower()}"
            casts = f"m = Cast <to = {other}> (s); t = Cast <to = {kind}> (m)"
            yield spot, what, _putting(spliced(casts))
        real = helper.tensor_dtype_to_np_dtype(kind)
        for text in _DAMAGES if real.kind == "f" else ():
            yield spot, text, _putting(spliced(text, real.type))


#: Operators with the same number of operands as others.
_OTHERS = {
    **{"Relu": "Tanh", "Sigmoid": "HardSigmoid", "Tanh": "Sigmoid", "Neg": "Abs", "Foo": "Bar"},
    **{"Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Max": "Min", "Min": "Max"},
    **{"MaxPool": "AveragePool", "AveragePool": "MaxPool", "ReduceMean": "ReduceMax"},
}


@_edits
def operators_and_operands(model: onnx.ModelProto) -> Edits:
    """A node is another operator or left out, or reads another value of its type; its operands are
    exchanged, or the last one is left out.
    """
    types, data = _types(model), _data(model)
    earlier: list[str] = [v.name for v in model.graph.input]
    for spot in spots(model):
        node, (first, *others) = spot.node, (*spot.node.input, "")
        if node.op_type in _OTHERS:
            other = _OTHERS[node.op_type]
            yield spot, f"{other}, not {node.op_type}", _another(other)
        if len(node.input) > 1 and len({*node.input}) > 1:
            last = len(node.input) - 1
            yield spot, "last operands exchanged", _reading(swapped(node.input, last, last - 1))
            yield spot, "first operands exchanged", _reading(swapped(node.input, 0, 1))
            yield spot, "without its last operand", _reading([first, *others[:-2]])
        if spot.holder is model.graph and first in data:
            same = [n for n in earlier if n in data and types.get(n) == types.get(first)]
            for name in [n for n in same if n != first][-2:]:
                yield spot, f"reads {name!r}, not {first!r}", _reading([name, *others[:-1]])
            if len(node.output) == 1 and node.op_type not in ("Identity", "Constant"):
                yield spot, "left out", _left_out
        earlier += [o for o in node.output if o]


def sizes_baked_in(model: onnx.ModelProto, shapes: dict[str, np.ndarray]) -> Mutations:
    """What Shape gives at one size is taken for what it always gives."""
    for spot in spots(model):
        name = (*spot.node.output, "")[0]
        if spot.holder is not model.graph or name not in shapes:
            continue

        def bake(holder: Holder, index: int, node: onnx.NodeProto, v=shapes[name]) -> None:
            node.CopyFrom(_constant(node.output[0], v))

        what = f"{_label(spot.node)}: always {shapes[name].tolist()}"
        yield Mutation(what, partial(edited, model, spot.number, bake))


# ---------------------------------------------------------------- other conversions


def _constant(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value))


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


def _label(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name or (*node.output, '')[0]!r}"


def _is_site(node: onnx.NodeProto) -> bool:
    leftover = node.op_type in ("SpaceToDepth", "DepthToSpace") and len(node.input) == 3
    return leftover or node.op_type in (*structure.SPATIAL, "ExtractPatches")


def misread(original: onnx.ModelProto) -> Mutations:
    """Originals with other parameters; what they are converted to is a wrong conversion."""
    for vary in VARIATIONS.values():
        yield from _varied(vary, _is_site)(original)
    yield from (m for m in attributes_changed(original) if ": without" not in m.what)


#: Classes of mistakes that a conversion alone shows the places of.
CLASSES: dict[str, Callable[[onnx.ModelProto], Mutations]] = {
    **{kind: _varied(vary, lambda node: True) for kind, vary in VARIATIONS.items()},
    "attributes changed": attributes_changed,
    "rates ignored": rates,
    "wrong dtype path": dtype_paths,
    "operators and operands": operators_and_operands,
}
