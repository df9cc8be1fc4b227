"""Wrong versions of a converted model, one small mistake each, by classes.

Every class is a generator over all places of a model where that mistake can be made; the campaign draws
from them. Whether a mutant behaves otherwise than the original is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import onnx
import structure
from editing import (
    Holder,
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


def permutation_swapped(model: onnx.ModelProto) -> Mutations:
    for spot in spots(model):
        perm = attribute(spot.node, "perm") if spot.node.op_type == "Transpose" else None
        for i, j in combinations(range(len(perm or ())), 2):
            wrong = swapped(perm, i, j)
            yield Mutation(
                f"{_label(spot.node)}: perm {wrong} for {list(perm)}",
                lambda n=spot.number, w=wrong: edited(model, n, setting("perm", w)),
            )


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


def attribute_lost(model: onnx.ModelProto) -> Mutations:
    for spot in spots(model):
        if spot.node.op_type == "Constant":
            continue
        for number, lost in enumerate(spot.node.attribute):

            def drop(holder: Holder, index: int, node: onnx.NodeProto, at=number) -> None:
                del node.attribute[at]

            yield Mutation(
                f"{_label(spot.node)}: without {lost.name}",
                lambda n=spot.number, d=drop: edited(model, n, d),
            )


def _pads(
    model: onnx.ModelProto, change: Callable[[np.ndarray], Iterator[np.ndarray]]
) -> Mutations:
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

            yield Mutation(
                f"{_label(spot.node)}: pads {wrong.tolist()} for {old.tolist()}",
                lambda n=spot.number, m=make: edited(model, n, m),
            )


def pads_off_by_one(model: onnx.ModelProto) -> Mutations:
    def moved(old: np.ndarray) -> Iterator[np.ndarray]:
        for axis in range(old.shape[1]):
            for begin, end in ((1, -1), (-1, 1), (1, 0), (0, 1)):
                wrong = old.copy()
                wrong[:, axis] += (begin, end)
                yield wrong

    yield from _pads(model, moved)


def pads_on_the_wrong_side(model: onnx.ModelProto) -> Mutations:
    def turned(old: np.ndarray) -> Iterator[np.ndarray]:
        yield old[::-1].copy()
        if old.shape[1] > 1:
            for i, j in combinations(range(old.shape[1]), 2):
                yield old[:, swapped(range(old.shape[1]), i, j)]

    yield from _pads(model, turned)


def crops(model: onnx.ModelProto) -> Mutations:
    """Slices of data dropped, or moved by one."""
    data = _data(model)
    for spot in spots(model):
        if spot.node.op_type != "Slice" or spot.node.output[0] not in data:
            continue
        name = _label(spot.node)

        def drop(holder: Holder, index: int, node: onnx.NodeProto) -> None:
            node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))

        yield Mutation(f"{name}: dropped", lambda n=spot.number: edited(model, n, drop))
        known = constants(spot.holder)
        starts, ends = (known.get(spot.node.input[i]) for i in (1, 2))
        for position, old in ((1, starts), (2, ends)):
            for axis in range(0 if old is None else old.size):
                wrong = old.copy()
                wrong.reshape(-1)[axis] += 1 if position == 1 else -1
                yield Mutation(
                    f"{name}: {'starts' if position == 1 else 'ends'} {wrong.tolist()} for "
                    f"{old.tolist()}",
                    lambda n=spot.number, p=position, w=wrong: edited(model, n, feeding(p, w)),
                )


def kernel_positions(model: onnx.ModelProto) -> Mutations:
    """Weights with their kernel axes exchanged or turned round; parts put together in another order."""
    data = _data(model)
    for spot in spots(model):
        node, known = spot.node, constants(spot.holder)
        weights = known.get((*node.input, "", "")[1]) if node.op_type == "Conv" else None
        if weights is not None and weights.ndim > 2:
            turned = {"turned round": np.flip(weights, tuple(range(2, weights.ndim)))}
            if weights.ndim == 4 and weights.shape[2] == weights.shape[3]:
                turned["transposed"] = weights.swapaxes(2, 3)
            for what, wrong in turned.items():
                if not np.array_equal(wrong, weights):
                    yield Mutation(
                        f"{_label(node)}: kernel {what}",
                        lambda n=spot.number, w=wrong: edited(model, n, feeding(1, w)),
                    )
        if node.op_type == "Concat" and node.output[0] in data and len(node.input) > 1:
            for i in range(len(node.input) - 1):
                if node.input[i] == node.input[i + 1]:
                    continue
                wrong = swapped(node.input, i, i + 1)

                def reorder(holder: Holder, index: int, node: onnx.NodeProto, w=wrong) -> None:
                    node.input[:] = w

                yield Mutation(
                    f"{_label(node)}: parts {i} and {i + 1} exchanged",
                    lambda n=spot.number, m=reorder: edited(model, n, m),
                )
        indices = known.get((*node.input, "", "")[1]) if node.op_type == "Gather" else None
        if indices is not None and indices.size > 1:
            flat = indices.reshape(-1)
            for i in {0, flat.size // 2 - 1, flat.size - 2}:
                if flat[i] == flat[i + 1]:
                    continue
                wrong = np.array(swapped(flat, i, i + 1), indices.dtype).reshape(indices.shape)
                yield Mutation(
                    f"{_label(node)}: indices {i} and {i + 1} exchanged",
                    lambda n=spot.number, w=wrong: edited(model, n, feeding(1, w)),
                )
        if node.op_type in ("DepthToSpace", "SpaceToDepth"):
            mode = b"CRD" if attribute(node, "mode") in (None, b"DCR") else b"DCR"
            if node.op_type == "DepthToSpace":
                yield Mutation(
                    f"{_label(node)}: mode {mode.decode()}",
                    lambda n=spot.number, m=mode: edited(model, n, setting("mode", m)),
                )


def rates(model: onnx.ModelProto) -> Mutations:
    """Dilations ignored or off by one, with pads that keep the sizes; strides of Slices."""
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
                if (new < 0).any():
                    continue

                def make(h: Holder, i: int, node: onnx.NodeProto, w=wrong, p=new) -> None:
                    set_attribute(node, "dilations", w)
                    set_attribute(node, "pads", p.reshape(-1).tolist())

                yield Mutation(
                    f"{_label(node)}: dilations {wrong} for {list(old)}, pads {new.tolist()}",
                    lambda n=spot.number, m=make: edited(model, n, m),
                )


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


def dtype_paths(model: onnx.ModelProto) -> Mutations:
    """A value goes through another type, or through arithmetic, on its way."""
    types = _types(model)
    data = _data(model)
    for spot in spots(model):
        name = (*spot.node.output, "")[0]
        kind = types.get(name)
        if kind not in _PATHS or name not in data:
            continue
        for other in _PATHS[kind]:

            def cast(source: str, target: str, k=kind, o=other) -> list[onnx.NodeProto]:
                middle = f"{source}_cast"
                return [
                    helper.make_node("Cast", [source], [middle], to=o),
                    helper.make_node("Cast", [middle], [target], to=k),
                ]

            yield Mutation(
                f"{_label(spot.node)}: through {TensorProto.DataType.Name(other).lower()}",
                lambda n=spot.number, c=cast: edited(model, n, lambda h, i, node: behind(h, i, c)),
            )
        if kind in (F.FLOAT, F.DOUBLE, F.FLOAT16):
            for op_type, value in (("Add", 0.0), ("Mul", 1.0)):

                def compute(source: str, target: str, k=kind, o=op_type, v=value):
                    one = f"{source}_number"
                    tensor = helper.make_tensor(one, k, [], [v])
                    return [
                        helper.make_node("Constant", [], [one], value=tensor),
                        helper.make_node(o, [source, one], [target]),
                    ]

                yield Mutation(
                    f"{_label(spot.node)}: {op_type} {value}",
                    lambda n=spot.number, c=compute: edited(
                        model, n, lambda h, i, node: behind(h, i, c)
                    ),
                )


def one_weight(model: onnx.ModelProto) -> Mutations:
    """One number of one constant of reals is another: by half the largest, by 1 %, by 0.1 %."""
    for spot in spots(model):
        known = constants(spot.holder)
        for position, name in enumerate(spot.node.input):
            old = known.get(name)
            if old is None or old.dtype.kind != "f" or not old.size:
                continue
            rng = np.random.default_rng([spot.number, position])
            for amount in ("half the largest", "1 %", "0.1 %"):
                wrong = old.copy()
                at = int(rng.integers(old.size))
                if amount == "half the largest":
                    wrong.reshape(-1)[at] += np.abs(old).max() / 2 or 1
                else:
                    wrong.reshape(-1)[at] *= 1.01 if amount == "1 %" else 1.001
                yield Mutation(
                    f"{_label(spot.node)}: weight {at} of {name!r} other by {amount}",
                    lambda n=spot.number, p=position, w=wrong: edited(model, n, feeding(p, w)),
                )


def interface(model: onnx.ModelProto) -> Mutations:
    """An output renamed, dropped, in another place, of another type, or another value's."""
    graph = model.graph
    outputs = [v.name for v in graph.output]

    def copied(change: Callable[[onnx.GraphProto], None]) -> onnx.ModelProto:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        change(copy.graph)
        return copy

    for number, name in enumerate(outputs):

        def rename(g: onnx.GraphProto, n=number, name=name) -> None:
            g.output[n].name = f"{name}_0"
            g.node.append(helper.make_node("Identity", [name], [f"{name}_0"]))

        yield Mutation(f"output {name!r} renamed", lambda m=rename: copied(m))

        def drop(g: onnx.GraphProto, n=number) -> None:
            del g.output[n]

        yield Mutation(f"output {name!r} dropped", lambda m=drop: copied(m))

        def retype(g: onnx.GraphProto, n=number, name=name) -> None:
            kind = g.output[n].type.tensor_type.elem_type
            other = F.DOUBLE if kind != F.DOUBLE else F.FLOAT
            g.output[n].type.tensor_type.elem_type = other
            at = next(i for i, node in enumerate(g.node) if name in node.output)
            behind(g, at, lambda s, t: [helper.make_node("Cast", [s], [t], to=other)])

        if graph.output[number].type.tensor_type.elem_type not in (F.STRING,):
            yield Mutation(f"output {name!r} of another type", lambda m=retype: copied(m))

    def extra(g: onnx.GraphProto) -> None:
        name = next(o for node in g.node for o in node.output if o and o not in outputs)
        g.output.append(onnx.ValueInfoProto(name=name))

    if any(o not in outputs for node in graph.node for o in node.output):
        yield Mutation("one more output", lambda: copied(extra))
    for i, j in combinations(range(len(outputs)), 2):

        def exchange(g: onnx.GraphProto, i=i, j=j) -> None:
            first, second = (
                onnx.ValueInfoProto.FromString(g.output[k].SerializeToString()) for k in (i, j)
            )
            g.output[i].CopyFrom(second)
            g.output[j].CopyFrom(first)

        yield Mutation(f"outputs {i} and {j} in another order", lambda m=exchange: copied(m))
    for number, value in enumerate(graph.input):

        def rename_input(g: onnx.GraphProto, n=number, name=value.name) -> None:
            g.input[n].name = f"{name}_0"
            for tensor in g.initializer:  # its default, if it has one
                if tensor.name == name:
                    tensor.name = f"{name}_0"
            insert(g, 0, [helper.make_node("Identity", [f"{name}_0"], [name])])

        yield Mutation(f"input {value.name!r} renamed", lambda m=rename_input: copied(m))


def shape_arithmetic(model: onnx.ModelProto) -> Mutations:
    """A whole number among those that sizes are made of is off by one, or two are exchanged."""
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
                    yield Mutation(
                        f"{_label(spot.node)}: input {position} is {wrong.tolist()}, not "
                        f"{old.tolist()}",
                        lambda n=spot.number, p=position, w=wrong: edited(model, n, feeding(p, w)),
                    )


def sizes_baked_in(model: onnx.ModelProto, shapes: dict[str, np.ndarray]) -> Mutations:
    """What Shape gives at one size is taken for what it always gives."""
    for spot in spots(model):
        name = (*spot.node.output, "")[0]
        if spot.holder is not model.graph or name not in shapes:
            continue

        def bake(holder: Holder, index: int, node: onnx.NodeProto, v=shapes[name]) -> None:
            value = onnx.numpy_helper.from_array(v)
            node.CopyFrom(helper.make_node("Constant", [], node.output, value=value))

        yield Mutation(
            f"{_label(spot.node)}: always {shapes[name].tolist()}",
            lambda n=spot.number, m=bake: edited(model, n, m),
        )


def readers_mixed_up(model: onnx.ModelProto) -> Mutations:
    """A node reads another value of the same type, two operands are exchanged, or a node is left out."""
    types = _types(model)
    data = _data(model)
    earlier: list[str] = [v.name for v in model.graph.input]
    for spot in spots(model):
        node = spot.node
        if spot.holder is not model.graph:
            continue
        if node.input and node.input[0] in data:
            same = [
                n
                for n in earlier
                if n in data and types.get(n) == types.get(node.input[0]) and n != node.input[0]
            ]
            for other in same[-2:]:

                def reread(h: Holder, i: int, node: onnx.NodeProto, o=other) -> None:
                    node.input[0] = o

                yield Mutation(
                    f"{_label(node)}: reads {other!r}, not {node.input[0]!r}",
                    lambda n=spot.number, m=reread: edited(model, n, m),
                )
            if len(node.output) == 1 and node.op_type not in ("Identity", "Constant"):

                def skip(h: Holder, i: int, node: onnx.NodeProto) -> None:
                    node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))

                yield Mutation(
                    f"{_label(node)}: {node.op_type} left out",
                    lambda n=spot.number: edited(model, n, skip),
                )
        if node.op_type in ("Sub", "Div", "Less", "Where", "Mod") and len(node.input) > 1:

            def exchange(h: Holder, i: int, node: onnx.NodeProto) -> None:
                node.input[-1], node.input[-2] = node.input[-2], node.input[-1]

            yield Mutation(
                f"{_label(node)}: operands exchanged",
                lambda n=spot.number: edited(model, n, exchange),
            )
        earlier += [o for o in node.output if o]


def channel_order(model: onnx.ModelProto, original: onnx.ModelProto) -> Mutations:
    """Patches with the input channel major and the position minor, as in torch."""
    for site in structure.nodes(original):
        if not site.op_type.startswith("Extract"):
            continue
        found = _windows(site)
        if found is None:
            continue
        kernel, first = found
        positions, rank = int(np.prod(kernel)), len(kernel) + 3
        axis = 1 if first else rank - 2

        def order(
            source: str, target: str, k=positions, axis=axis, rank=rank
        ) -> list[onnx.NodeProto]:
            shape, lead, tail, split, wide, turned = (f"{source}_{w}" for w in "sltpwx")
            return [
                helper.make_node("Shape", [source], [shape]),
                helper.make_node("Shape", [source], [tail], start=axis + 1),
                _constant(lead, np.array([0] * axis + [k, -1], np.int64)),
                helper.make_node("Concat", [lead, tail], [split], axis=0),
                helper.make_node("Reshape", [source, split], [wide]),
                helper.make_node(
                    "Transpose", [wide], [turned], perm=swapped(range(rank), axis, axis + 1)
                ),
                helper.make_node("Reshape", [turned, shape], [target]),
            ]

        if positions > 1:
            yield from _behind_value(
                model, site.output[0], order, f"{_label(site)}: channels in torch's order"
            )


def _windows(site: onnx.NodeProto) -> tuple[list[int], bool] | None:
    """(kernel, whether channels come first) of a patch operator; None if a caller has them."""
    if (prepared := attribute(site, "parameters")) is not None:
        given = json.loads(prepared)
        return given["kernel"], given["layout"] == "channels_first"
    if (sizes := attribute(site, "sizes")) is not None:
        return sizes, True
    ksizes = attribute(site, "ksizes")
    return None if ksizes is None else (ksizes[1:-1], False)


def batch_order(model: onnx.ModelProto, original: onnx.ModelProto) -> Mutations:
    """The image is the major part of the batch index, and the offset in the block the minor one."""
    known = constants(original.graph)
    for site in structure.nodes(original):
        if site.op_type not in ("SpaceToBatchND", "BatchToSpaceND", "SpaceToBatch", "BatchToSpace"):
            continue
        size = attribute(site, "block_size")
        block = attribute(site, "block_shape")
        if size is not None:
            block = [size, size]
        elif block is None:
            stored = known.get(site.input[1]) if len(site.input) > 1 else None
            block = None if stored is None else stored.tolist()
        if block is None:
            continue
        count = int(np.prod(block))
        into = site.op_type.startswith("Space")

        def order(source: str, target: str, b=count, into=into) -> list[onnx.NodeProto]:
            s, flat, bn, c, d, split, turned = (f"{source}_{w}" for w in "sfbcdpt")
            shape = [b, -1, 0] if into else [-1, b, 0]
            return [
                helper.make_node("Shape", [source], [s]),
                helper.make_node("Flatten", [source], [flat], axis=1),  # [N, rest]
                helper.make_node("Shape", [flat], [c], start=1, end=2),  # [rest]
                _constant(bn, np.array(shape[:2], np.int64)),
                helper.make_node("Concat", [bn, c], [d], axis=0),
                helper.make_node("Reshape", [flat, d], [split]),
                helper.make_node("Transpose", [split], [turned], perm=[1, 0, 2]),
                helper.make_node("Reshape", [turned, s], [target]),
            ]

        if count > 1:
            value = site.output[0] if into else site.input[0]
            yield from _behind_value(
                model, value, order, f"{_label(site)}: image major, offset minor"
            )


def _constant(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value))


def _behind_value(
    model: onnx.ModelProto,
    value: str,
    make: Callable[[str, str], list[onnx.NodeProto]],
    what: str,
) -> Mutations:
    for spot in spots(model):
        if value and list(spot.node.output[:1]) == [value]:
            yield Mutation(
                what,
                lambda n=spot.number: edited(model, n, lambda h, i, node: behind(h, i, make)),
            )


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


def misread(original: onnx.ModelProto) -> Mutations:
    """Originals with other parameters; what they are converted to is a wrong conversion."""
    for spot in spots(original):
        node = spot.node
        leftover = node.op_type in ("SpaceToDepth", "DepthToSpace") and len(node.input) == 3
        if not leftover and node.op_type not in (*structure.SPATIAL, "ExtractPatches"):
            continue
        name = _label(node)
        for key in _PARAMETERS:
            for wrong in _other_values(key, attribute(node, key)):
                yield Mutation(
                    f"{name}: {key} {wrong}",
                    lambda n=spot.number, k=key, w=wrong: edited(original, n, setting(k, w)),
                )
        known = constants(spot.holder)
        for position, value in enumerate(node.input):
            old = known.get(value)
            if not position or old is None:
                continue
            for wrong in _other_arrays(old):
                yield Mutation(
                    f"{name}: input {position} is {wrong.tolist()}, not {old.tolist()}",
                    lambda n=spot.number, p=position, w=wrong: edited(original, n, feeding(p, w)),
                )
        if len(node.input) == 3 and node.input[2] not in known:
            for i in range(2):

                def move(h: Holder, index: int, node: onnx.NodeProto, i=i, known=known) -> None:
                    old = node.input[2]
                    kind = _types(original).get(old, F.INT32)
                    node.input[2] = f"{old}_mutant"
                    rows = known.get(node.input[1], np.zeros(2)).size
                    step = np.zeros((rows, 2), helper.tensor_dtype_to_np_dtype(kind))
                    step[-1] = (1, -1) if i else (-1, 1)
                    made = [_constant(f"{old}_step", step)]
                    made.append(helper.make_node("Add", [old, f"{old}_step"], [node.input[2]]))
                    insert(h, index, made)

                yield Mutation(
                    f"{name}: pads or crops moved by {1 if i else -1}",
                    lambda n=spot.number, m=move: edited(original, n, m),
                )


def _other_values(key: str, old: object) -> Iterator[object]:
    if key == "parameters" and old is not None:
        given = json.loads(old)
        for field in [f for f in ("kernel", "strides", "rates") if f in given]:
            for wrong in _other_values(field, given[field]):
                yield json.dumps({**given, field: wrong})
    elif isinstance(old, bytes):
        texts = {
            b"SAME": b"VALID",
            b"VALID": b"SAME",
            b"same_upper": b"same_lower",
            b"same_lower": b"same_upper",
            b"valid": b"same_upper",
        }
        yield texts[old]
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
