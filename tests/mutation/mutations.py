"""Wrong versions of a converted model, one small mistake each, by classes.

Every class finds all places of a model where that mistake can be made; the campaigns draw from them.
Whether a mutant behaves otherwise than the original is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from itertools import combinations

import numpy as np
import onnx
import structure
from editing import (
    Change,
    Holder,
    Spot,
    attribute,
    behind,
    constants,
    edited,
    feed_constant,
    feeding,
    insert,
    set_attribute,
    setting,
    spots,
    swapped,
)
from nets import spliced
from onnx import TensorProto, helper

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


@_edits
def permutation_swapped(model: onnx.ModelProto) -> Edits:
    for spot in spots(model):
        perm = attribute(spot.node, "perm") if spot.node.op_type == "Transpose" else None
        for i, j in combinations(range(len(perm or ())), 2):
            wrong = swapped(perm, i, j)
            yield spot, f"perm {wrong} for {list(perm)}", setting("perm", wrong)


def transposes_exchanged(model: onnx.ModelProto) -> Mutations:
    perms = {
        spot.number: list(perm)
        for spot in spots(model)
        if spot.node.op_type == "Transpose" and (perm := attribute(spot.node, "perm"))
    }
    for (first, a), (second, b) in combinations(perms.items(), 2):
        if a != b and len(a) == len(b):

            def make(first=first, a=a, second=second, b=b) -> onnx.ModelProto:
                once = edited(model, first, setting("perm", b))
                return edited(once, second, setting("perm", a))

            yield Mutation(f"perms {a} and {b} of nodes {first} and {second} exchanged", make)


@_edits
def attribute_lost(model: onnx.ModelProto) -> Edits:
    for spot in spots(model):
        for number, lost in enumerate(spot.node.attribute):

            def drop(holder: Holder, index: int, node: onnx.NodeProto, at=number) -> None:
                del node.attribute[at]

            if spot.node.op_type != "Constant":
                yield spot, f"without {lost.name}", drop


@_edits
def attribute_changed(model: onnx.ModelProto) -> Edits:
    """A number of an attribute is a little larger or smaller."""
    for spot in spots(model):
        for changed in () if spot.node.op_type == "Constant" else spot.node.attribute:
            value = attribute(spot.node, changed.name)
            numbers = value if isinstance(value, list) else [value]
            for at, old in enumerate(numbers):
                if not isinstance(old, int | float):
                    continue
                for new in (old * 1.1, old * 0.9) if isinstance(old, float) else (old + 1, old - 1):
                    wrong = [*numbers[:at], new, *numbers[at + 1 :]]
                    wrong = wrong if isinstance(value, list) else new
                    yield spot, f"{changed.name} {wrong} for {value}", setting(changed.name, wrong)


def _pads(model: onnx.ModelProto, change: Callable[[np.ndarray], Iterator[np.ndarray]]) -> Edits:
    """Pads of Conv and pools as attribute, of Pad as constant; [begins, ends]."""
    for spot in spots(model):
        given = attribute(spot.node, "pads")
        known = constants(spot.holder)
        if spot.node.op_type == "Pad":
            given = known.get((*spot.node.input, "")[1])
        if given is None or not len(given):
            continue
        old = np.asarray(given, np.int64).reshape(2, -1)
        for wrong in change(old.copy()):
            if (wrong == old).all() or (wrong < 0).any():
                continue

            def make(holder: Holder, index: int, node: onnx.NodeProto, w=wrong) -> None:
                if node.op_type == "Pad":
                    feed_constant(holder, index, 1, w.reshape(-1))
                else:
                    set_attribute(node, "pads", w.reshape(-1).tolist())

            yield spot, f"pads {wrong.tolist()} for {old.tolist()}", make


@_edits
def pads_off_by_one(model: onnx.ModelProto) -> Edits:
    def moved(old: np.ndarray) -> Iterator[np.ndarray]:
        for axis in range(old.shape[1]):
            for begin, end in ((1, -1), (-1, 1), (1, 0), (0, 1)):
                wrong = old.copy()
                wrong[:, axis] += (begin, end)
                yield wrong

    yield from _pads(model, moved)


@_edits
def pads_on_the_wrong_side(model: onnx.ModelProto) -> Edits:
    def turned(old: np.ndarray) -> Iterator[np.ndarray]:
        yield old[::-1].copy()
        for i, j in combinations(range(old.shape[1]), 2):
            yield old[:, swapped(range(old.shape[1]), i, j)]

    yield from _pads(model, turned)


@_edits
def crops(model: onnx.ModelProto) -> Edits:
    """Slices of data dropped, or moved by one."""
    data = _data(model)
    for spot in spots(model):
        if spot.node.op_type != "Slice" or spot.node.output[0] not in data:
            continue
        yield spot, "dropped", _left_out
        known = constants(spot.holder)
        for position, name, step in ((1, "starts", 1), (2, "ends", -1)):
            old = known.get(spot.node.input[position])
            for axis in range(0 if old is None else old.size):
                wrong = old.copy()
                wrong.reshape(-1)[axis] += step
                what = f"{name} {wrong.tolist()} for {old.tolist()}"
                yield spot, what, feeding(position, wrong)


@_edits
def kernel_positions(model: onnx.ModelProto) -> Edits:
    """Weights with their kernel axes exchanged or turned round; parts put together in another order."""
    data = _data(model)
    for spot in spots(model):
        node, known = spot.node, constants(spot.holder)
        second = known.get((*node.input, "", "")[1])
        if node.op_type == "Conv" and second is not None and second.ndim > 2:
            turned = {"turned round": np.flip(second, tuple(range(2, second.ndim)))}
            if second.ndim == 4 and second.shape[2] == second.shape[3]:
                turned["transposed"] = second.swapaxes(2, 3)
            for what, wrong in turned.items():
                if not np.array_equal(wrong, second):
                    yield spot, f"kernel {what}", feeding(1, wrong)
        if node.op_type == "Concat" and node.output[0] in data:
            for i in range(len(node.input) - 1):
                if node.input[i] != node.input[i + 1]:
                    change = _reading(swapped(node.input, i, i + 1))
                    yield spot, f"parts {i} and {i + 1} exchanged", change
        if node.op_type == "Gather" and second is not None and second.size > 1:
            flat = second.reshape(-1)
            for i in {0, flat.size // 2 - 1, flat.size - 2}:
                if flat[i] != flat[i + 1]:
                    wrong = np.array(swapped(flat, i, i + 1), flat.dtype).reshape(second.shape)
                    yield spot, f"indices {i} and {i + 1} exchanged", feeding(1, wrong)
        if node.op_type == "DepthToSpace":
            mode = "CRD" if attribute(node, "mode") in (None, b"DCR") else "DCR"
            yield spot, f"mode {mode}", setting("mode", mode)


@_edits
def rates(model: onnx.ModelProto) -> Edits:
    """Dilations ignored or off by one, with pads that keep the sizes."""
    for spot in spots(model):
        node = spot.node
        old = attribute(node, "dilations") if node.op_type == "Conv" else None
        weights = constants(spot.holder).get((*node.input, "", "")[1])
        if not old or weights is None:
            continue
        kernel = weights.shape[2:]
        pads = np.array(attribute(node, "pads") or [0] * 2 * len(kernel)).reshape(2, -1)
        tries = [[1] * len(old)]
        tries += [[*old[:i], d + s, *old[i + 1 :]] for i, d in enumerate(old) for s in (1, -1)]
        tries += [list(reversed(old))]
        for wrong in tries:
            if wrong == list(old) or min(wrong) < 1:
                continue
            less = [(o - w) * (k - 1) for o, w, k in zip(old, wrong, kernel, strict=True)]
            moved = pads - [[x // 2 for x in less], [x - x // 2 for x in less]]
            for new in (pads, moved):

                def make(h: Holder, i: int, node: onnx.NodeProto, w=wrong, p=new) -> None:
                    set_attribute(node, "dilations", w)
                    set_attribute(node, "pads", p.reshape(-1).tolist())

                if (new >= 0).all():
                    what = f"dilations {wrong} for {list(old)}, pads {new.tolist()}"
                    yield spot, what, make


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


@_edits
def one_weight(model: onnx.ModelProto) -> Edits:
    """One number of one constant of reals is another: by half the largest, by 1 %, by 0.1 %."""
    for spot in spots(model):
        known = constants(spot.holder)
        for position, name in enumerate(spot.node.input):
            old = known.get(name)
            if old is None or old.dtype.kind != "f" or not old.size:
                continue
            at = int(np.random.default_rng([spot.number, position]).integers(old.size))
            for amount, factor in (("half the largest", None), ("1 %", 1.01), ("0.1 %", 1.001)):
                wrong = old.copy()
                if factor is None:
                    wrong.reshape(-1)[at] += np.abs(old).max() / 2 or 1
                else:
                    wrong.reshape(-1)[at] *= factor
                what = f"weight {at} of {name!r} other by {amount}"
                yield spot, what, feeding(position, wrong)


def interface(model: onnx.ModelProto) -> Mutations:
    """An output renamed, dropped, in another place, of another type, or another value's."""
    outputs = [v.name for v in model.graph.output]

    def copied(change: Callable[[onnx.GraphProto], None]) -> onnx.ModelProto:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        change(copy.graph)
        return copy

    for number, name in enumerate(outputs):

        def rename(g: onnx.GraphProto, n=number, name=name) -> None:
            g.output[n].name = f"{name}_0"
            g.node.append(helper.make_node("Identity", [name], [f"{name}_0"]))

        def drop(g: onnx.GraphProto, n=number) -> None:
            del g.output[n]

        def retype(g: onnx.GraphProto, n=number, name=name) -> None:
            kind = g.output[n].type.tensor_type.elem_type
            other = F.DOUBLE if kind != F.DOUBLE else F.FLOAT
            g.output[n].type.tensor_type.elem_type = other
            at = next(i for i, node in enumerate(g.node) if name in node.output)
            behind(g, at, lambda s, t: [helper.make_node("Cast", [s], [t], to=other)])

        yield Mutation(f"output {name!r} renamed", partial(copied, rename))
        yield Mutation(f"output {name!r} dropped", partial(copied, drop))
        if model.graph.output[number].type.tensor_type.elem_type != F.STRING:
            yield Mutation(f"output {name!r} of another type", partial(copied, retype))

    def extra(g: onnx.GraphProto) -> None:
        name = next(o for node in g.node for o in node.output if o and o not in outputs)
        g.output.append(onnx.ValueInfoProto(name=name))

    if any(o not in outputs for node in model.graph.node for o in node.output):
        yield Mutation("one more output", partial(copied, extra))
    for i, j in combinations(range(len(outputs)), 2):

        def exchange(g: onnx.GraphProto, i=i, j=j) -> None:
            kept = swapped([v.SerializeToString() for v in g.output], i, j)
            del g.output[:]
            g.output.extend(map(onnx.ValueInfoProto.FromString, kept))

        yield Mutation(f"outputs {i} and {j} in another order", partial(copied, exchange))
    for number, value in enumerate(model.graph.input):

        def rename_input(g: onnx.GraphProto, n=number, name=value.name) -> None:
            g.input[n].name = f"{name}_0"
            for tensor in g.initializer:  # its default, if it has one
                if tensor.name == name:
                    tensor.name = f"{name}_0"
            insert(g, 0, [helper.make_node("Identity", [f"{name}_0"], [name])])

        def shorten(g: onnx.GraphProto, n=number) -> None:
            del g.input[n].type.tensor_type.shape.dim[-1:]

        def resize(g: onnx.GraphProto, n=number) -> None:
            last = g.input[n].type.tensor_type.shape.dim[-1]
            last.dim_value = last.dim_value + 1

        yield Mutation(f"input {value.name!r} renamed", partial(copied, rename_input))
        if value.type.tensor_type.shape.dim:
            yield Mutation(f"input {value.name!r} of a rank less", partial(copied, shorten))
            yield Mutation(f"input {value.name!r} of a size more", partial(copied, resize))
    for side in ("input", "output"):
        for number, value in enumerate(getattr(model.graph, side)):

            def declare(g: onnx.GraphProto, side=side, n=number) -> None:
                known = getattr(g, side)[n].type.tensor_type
                known.elem_type = F.DOUBLE if known.elem_type != F.DOUBLE else F.INT64

            what = f"{side} {value.name!r} declared of another type"
            yield Mutation(what, partial(copied, declare))


@_edits
def shape_arithmetic(model: onnx.ModelProto) -> Edits:
    """A whole number among those that sizes are made of is off by one."""
    for spot in spots(model):
        known = constants(spot.holder)
        for position, name in enumerate(spot.node.input):
            old = known.get(name)
            if old is None or old.dtype.kind != "i" or not 0 < old.size <= 16:
                continue
            for at in range(min(old.size, 4)):
                for step in (1, -1):
                    wrong = old.copy()
                    value = int(old.reshape(-1)[at])
                    # "To the end" is written as the largest number there is.
                    wrong.reshape(-1)[at] = step if abs(value) >= 2**31 - 1 else value + step
                    what = f"input {position} is {wrong.tolist()}, not {old.tolist()}"
                    yield spot, what, feeding(position, wrong)


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


@_edits
def readers_mixed_up(model: onnx.ModelProto) -> Edits:
    """A node reads another value of the same type, two operands are exchanged, or a node is left out."""
    types, data = _types(model), _data(model)
    earlier: list[str] = [v.name for v in model.graph.input]
    for spot in spots(model):
        node = spot.node
        if spot.holder is not model.graph:
            continue
        if node.input and node.input[0] in data:
            first = node.input[0]
            same = [n for n in earlier if n in data and types.get(n) == types.get(first)]
            for other in [n for n in same if n != first][-2:]:
                change = _reading([other, *node.input[1:]])
                yield spot, f"reads {other!r}, not {first!r}", change
            if len(node.output) == 1 and node.op_type not in ("Identity", "Constant"):
                yield spot, "left out", _left_out
        if node.op_type in ("Sub", "Div", "Less", "Where", "Mod") and len(node.input) > 1:
            last = len(node.input) - 1
            yield spot, "operands exchanged", _reading(swapped(node.input, last, last - 1))
        earlier += [o for o in node.output if o]


#: Operators with the same number of operands as others.
_OTHERS = {
    **{"Relu": "Tanh", "Sigmoid": "HardSigmoid", "Tanh": "Sigmoid", "Neg": "Abs", "Foo": "Bar"},
    **{"Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Max": "Min", "Min": "Max"},
    **{"MaxPool": "AveragePool", "AveragePool": "MaxPool", "ReduceMean": "ReduceMax"},
}
_FUNCTION = '<domain: "{}", opset_import: ["" : 17]> {} ({}) => (o) {{ o = Neg (v0) }}'


@_edits
def operators_and_operands(model: onnx.ModelProto) -> Edits:
    """A node has another operator; its operands are exchanged, or the last one is left out."""
    for spot in spots(model):
        given, other = list(spot.node.input), _OTHERS.get(spot.node.op_type)
        if other is not None:
            yield spot, f"{other}, not {spot.node.op_type}", _another(other)
        if len(given) > 1 and given[0] != given[1]:
            yield spot, "first operands exchanged", _reading(swapped(given, 0, 1))
            yield spot, "without its last operand", _reading(given[:-1])


def _one_result_more(holder: Holder, index: int, node: onnx.NodeProto) -> None:
    node.output.append(f"{node.output[0]}_more")


@_edits
def impossible_nodes(model: onnx.ModelProto) -> Edits:
    """A node has an operand, a result or an attribute too many, or reads a value that is not there."""
    for spot in spots(model):
        first, *others = (*spot.node.input, "")
        if first:
            yield spot, "one operand more", _reading([*spot.node.input, first])
            yield spot, "reads a value that is not there", _reading(["absent", *others[:-1]])
        if not spot.node.domain and spot.node.output:
            yield spot, "an unknown attribute", setting("unknown", 1)
            yield spot, "one result more", _one_result_more


def functions_added(model: onnx.ModelProto) -> Mutations:
    """A local function takes the place of an operator of another domain than ONNX's."""
    known = {(f.domain, f.name) for f in model.functions}
    sites = {(s.node.domain, s.node.op_type): len(s.node.input) for s in spots(model)}
    for (domain, name), count in sites.items():
        if not domain or (domain, name) in known:
            continue
        names = ", ".join(f"v{number}" for number in range(count))

        def make(text: str = _FUNCTION.format(domain, name, names)) -> onnx.ModelProto:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            copy.functions.append(onnx.parser.parse_function(text))
            return copy

        yield Mutation(f"a function {name}", make)


def major_and_minor(model: onnx.ModelProto, original: onnx.ModelProto) -> Mutations:
    """Patches with the channel as the major part, as in torch; batches with the image as that."""
    known = constants(original.graph)
    for site in structure.nodes(original):
        if site.op_type.startswith("Extract"):
            count, axis, value = *_window(site), site.output[0]
            parts = f"#{count}, #-1"
        elif site.op_type in ("SpaceToBatchND", "BatchToSpaceND", "SpaceToBatch", "BatchToSpace"):
            size, into = attribute(site, "block_size"), site.op_type.startswith("Space")
            stored = known.get((*site.input, "", "")[1], ())
            block = [size, size] if size else attribute(site, "block_shape") or stored
            count, axis, value = int(np.prod(block)), 0, (site.output if into else site.input)[0]
            parts = f"#{count}, #-1" if into else f"#-1, #{count}"
        else:
            continue
        rest = "rest = Identity (#1)"
        if axis >= 0:
            rest = f"b = Flatten <axis = {axis + 1}> (s); c = Shape (b); rest = Slice (c, #1, #2)"
        text = (
            f"a = Flatten <axis = {axis}> (s); l = Shape (a); lead = Slice (l, #0, #1); {rest}; "
            f"p = Concat <axis = 0> (lead, {parts}, rest); w = Reshape (s, p); q = Shape (s); "
            "x = Transpose <perm = [0, 2, 1, 3]> (w); t = Reshape (x, q)"
        )
        for spot in spots(model) if count > 1 else ():
            if value and list(spot.node.output[:1]) == [value]:
                change = _putting(spliced(text))
                yield Mutation(
                    f"{_label(site)}: {parts}", partial(edited, model, spot.number, change)
                )


def _window(site: onnx.NodeProto) -> tuple[int, int]:
    """Number of elements of a window, 0 if a caller has it, and the axis of the channels."""
    if (prepared := attribute(site, "parameters")) is not None:
        given = json.loads(prepared)
        return int(np.prod(given["kernel"])), 1 if given["layout"] == "channels_first" else -1
    if (sizes := attribute(site, "sizes")) is not None:
        return int(np.prod(sizes)), 1
    return int(np.prod(attribute(site, "ksizes") or 0)), -1


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


#: Attributes that say what an operator does.
_PARAMETERS = (
    "rates ksizes sizes padding auto_pad block_shape paddings crops "
    "pads_begin pads_end crops_begin crops_end parameters"
).split()


@_edits
def misread(original: onnx.ModelProto) -> Edits:
    """Originals with other parameters; what they are converted to is a wrong conversion."""
    types = _types(original)
    for spot in spots(original):
        node = spot.node
        leftover = node.op_type in ("SpaceToDepth", "DepthToSpace") and len(node.input) == 3
        if not leftover and node.op_type not in (*structure.SPATIAL, "ExtractPatches"):
            continue
        for key in _PARAMETERS:
            for wrong in _other_values(key, attribute(node, key)):
                yield spot, f"{key} {wrong}", setting(key, wrong)
        known = constants(spot.holder)
        for position, value in enumerate(node.input):
            old = known.get(value)
            for wrong in _other_arrays(old) if position and old is not None else ():
                what = f"input {position} is {wrong.tolist()}, not {old.tolist()}"
                yield spot, what, feeding(position, wrong)
        if len(node.input) == 3 and node.input[2] not in known:
            rows = known.get(node.input[1], np.zeros(2)).size
            for step in ((1, -1), (-1, 1)):

                def move(h: Holder, at: int, node: onnx.NodeProto, rows=rows, step=step) -> None:
                    old = node.input[2]
                    dtype = helper.tensor_dtype_to_np_dtype(types.get(old, F.INT32))
                    steps = np.zeros((rows, 2), dtype)
                    steps[-1] = step
                    made = [_constant(f"{old}_step", steps)]
                    made += [helper.make_node("Add", [old, f"{old}_step"], [f"{old}_moved"])]
                    node.input[2] = f"{old}_moved"
                    insert(h, at, made)

                yield spot, f"pads or crops moved by {step}", move


_OTHER_TEXTS = {
    b"SAME": b"VALID",
    b"VALID": b"SAME",
    b"same_upper": b"same_lower",
    b"same_lower": b"same_upper",
    b"valid": b"same_upper",
}


def _other_values(key: str, old: object) -> Iterator[object]:
    if key == "parameters" and old is not None:
        given = json.loads(old)
        for field in [f for f in ("kernel", "strides", "rates") if f in given]:
            for wrong in _other_values(field, given[field]):
                yield json.dumps({**given, field: wrong})
    elif isinstance(old, bytes):
        yield _OTHER_TEXTS[old]
    elif isinstance(old, list):
        if key == "rates" and set(old) != {1}:
            yield [1] * len(old)
        elif key == "rates":
            yield [*old[:-2], 2, *old[-1:]] if len(old) > 2 else [2, *old[1:]]
        for i, j in combinations(range(len(old)), 2):
            if old[i] != old[j]:
                yield swapped(old, i, j)


def _other_arrays(old: np.ndarray) -> Iterator[np.ndarray]:
    flat = old.reshape(-1)
    for i in range(flat.size - 1):
        if flat[i] != flat[i + 1]:
            yield np.array(swapped(flat, i, i + 1), old.dtype).reshape(old.shape)
    for i in range(0, flat.size - 1 if old.ndim == 2 else 0, 2):
        for step in (1, -1):
            wrong = old.copy()
            wrong.reshape(-1)[i : i + 2] += np.array([step, -step], old.dtype)
            if (wrong >= 0).all():
                yield wrong


#: Classes of mistakes that a conversion alone shows the places of.
CLASSES: dict[str, Callable[[onnx.ModelProto], Mutations]] = {
    "permutation swapped": permutation_swapped,
    "Transposes exchanged": transposes_exchanged,
    "attribute lost": attribute_lost,
    "attribute changed": attribute_changed,
    "pads off by one": pads_off_by_one,
    "pads on the wrong side": pads_on_the_wrong_side,
    "crops dropped or off by one": crops,
    "kernel positions": kernel_positions,
    "rates ignored": rates,
    "wrong dtype path": dtype_paths,
    "one weight": one_weight,
    "inputs and outputs": interface,
    "shape arithmetic": shape_arithmetic,
    "readers mixed up": readers_mixed_up,
    "operators and operands": operators_and_operands,
    "impossible nodes": impossible_nodes,
    "functions added": functions_added,
}
