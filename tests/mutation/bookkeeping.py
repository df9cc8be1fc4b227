"""Right conversions with other names, another order of nodes, and nodes without effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import bases
import editing
import nets
import numpy as np
import onnx
from bases import Equivalent, equivalent
from nets import Rng
from onnx import TensorProto, helper

import onnx_spatial


@dataclass(frozen=True)
class Value:
    """A computed value of reals in the main graph.

    Attributes:
        number: of the node that gives it.
        name, rank, element_type: its.
    """

    number: int
    name: str
    rank: int
    element_type: int


def real_values(model: onnx.ModelProto) -> list[Value]:
    """List the values of reals that follow from data, of rank 3 or more."""
    graph = onnx.shape_inference.infer_shapes(bases.copied(model), data_prop=True).graph
    known = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.output, *graph.input)}
    made = {v.name for v in model.graph.input}
    found = []
    for spot in editing.spots(model):
        if spot.holder is not model.graph or not made.intersection(spot.node.input):
            continue
        if spot.node.op_type in ("Shape", "Size"):
            continue
        made.update(spot.node.output)
        kind = known.get(spot.node.output[0])
        if kind is None or not kind.HasField("shape") or len(kind.shape.dim) < 3:
            continue
        if kind.elem_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            rank, name = len(kind.shape.dim), spot.node.output[0]
            found.append(Value(spot.number, name, rank, kind.elem_type))
    return found


def _inner(model: onnx.ModelProto) -> list[str]:
    """Names of values that are computed in the main graph and are not its outputs."""
    kept = {v.name for v in (*model.graph.output, *model.graph.input)}
    return [o for n in model.graph.node for o in n.output if o and o not in kept]


def _renumbered(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    names = _inner(model)
    nets.renamed(model, {n: f"v{i}" for i, n in enumerate(names)})
    for i, node in enumerate(model.graph.node):
        node.name = f"n{i}"
    return "values and nodes renumbered"


def _exchanged(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    """Names of the original mean other values: as where two tools count on their own."""
    names = _inner(model)
    known = [n for n in _inner(original) if n not in {v.name for v in model.graph.output}]
    rng.shuffle(known)
    taken = dict(zip(rng.sample(names, min(len(names), len(known))), known, strict=False))
    spare = {n: f"{n}_other" for n in names if n not in taken and n in known}
    nets.renamed(model, taken | spare)
    return "names of the original mean other values"


def _one_later(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    """Counters are one further: v1 is called v2."""
    names = _inner(model)
    start = rng.randrange(len(names))
    nets.renamed(
        model, dict(zip(names[start:-1], names[start + 1 :], strict=True)) | {names[-1]: "last"}
    )
    return f"counters one further from {start} on"


def _two_swapped(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    a, b = rng.sample(_inner(model), 2)
    nets.renamed(model, {a: b, b: a})
    return f"{a!r} and {b!r} swapped"


def _result_name(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    """The name of a result means the value before or behind it, as of tf2onnx and onnxsim."""
    own = set(_inner(model))
    known = own.intersection(_inner(original))
    nodes = [n for n in model.graph.node if known.intersection(n.output[:1])]
    rng.shuffle(nodes)
    for node in nodes:
        name = node.output[0]
        near = [n for n in node.input if n in own]
        near += [n.output[0] for n in model.graph.node if name in n.input and n.output[0] in own]
        if near:
            other = rng.choice(near)
            nets.renamed(model, {name: f"{name}_own", other: name})
            return f"{other!r} is called {name!r}"
    return _two_swapped(model, rng, original)


def _to_initializers(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    kept, moved = [], 0
    for node in model.graph.node:
        value = node.attribute[0] if node.op_type == "Constant" and node.attribute else None
        if value is not None and value.name == "value":
            tensor = onnx.TensorProto.FromString(value.t.SerializeToString())
            tensor.name = node.output[0]
            model.graph.initializer.append(tensor)
            moved += 1
        else:
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return f"{moved} Constants become initializers"


def _to_constants(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    inputs = {v.name for v in model.graph.input}
    moved = [t for t in model.graph.initializer if t.name not in inputs]
    kept = [t for t in model.graph.initializer if t.name in inputs]
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in moved]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    for node in nodes:
        model.graph.node.insert(0, node)
    return f"{len(moved)} initializers become Constants"


def _reordered(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    waiting = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    ready = {t.name for t in model.graph.initializer} | {v.name for v in model.graph.input} | {""}
    ready |= {t.values.name for t in model.graph.sparse_initializer}
    ordered = []
    while waiting:
        free = [i for i, n in enumerate(waiting) if all(r in ready for r in _read(n))]
        node = waiting.pop(rng.choice(free))
        ordered.append(node)
        ready.update(node.output)
    del model.graph.node[:]
    model.graph.node.extend(ordered)
    return "another order"


def _read(node: onnx.NodeProto) -> list[str]:
    found = list(node.input)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            own = {v.name for v in (*body.input, *body.initializer)}
            own |= {o for n in body.node for o in n.output}
            found += [r for n in body.node for r in _read(n) if r not in own]
            found += [v.name for v in body.output if v.name not in own]
    return found


def _put_behind(
    model: onnx.ModelProto,
    rng: Random,
    make: Callable[[str, str], list[onnx.NodeProto]],
    places: list[Value],
) -> str | None:
    """Put nodes behind one of the values."""
    if not places:
        return None
    value = rng.choice(places)
    model.CopyFrom(editing.edited(model, value.number, lambda h, i, n: editing.behind(h, i, make)))
    return f"behind {value.name!r}"


def _identities(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    def make(source: str, target: str) -> list[onnx.NodeProto]:
        return [helper.make_node("Identity", [source], [target])]

    values = real_values(model)
    chosen = rng.sample(values, min(3, len(values)))
    for value in sorted(chosen, key=lambda v: -v.number):  # so that positions stay
        _put_behind(model, rng, make, [value])
    return f"Identity behind {', '.join(v.name for v in chosen)}"


def _cast_pairs(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str | None:
    def make(source: str, target: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Cast", [source], [f"{source}_wide"], to=TensorProto.DOUBLE),
            helper.make_node("Cast", [f"{source}_wide"], [target], to=TensorProto.FLOAT),
        ]

    reals = [v for v in real_values(model) if v.element_type == TensorProto.FLOAT]
    done = _put_behind(model, rng, make, reals)
    return done and f"Casts {done}"


def _transpose_pairs(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str | None:
    values = real_values(model)
    ranks = {v.name: v.rank for v in values}

    def make(source: str, target: str) -> list[onnx.NodeProto]:
        perm = rng.sample(range(ranks[target]), ranks[target])
        back = [int(i) for i in np.argsort(perm)]
        return [
            helper.make_node("Transpose", [source], [f"{source}_turned"], perm=perm),
            helper.make_node("Transpose", [f"{source}_turned"], [target], perm=back),
        ]

    done = _put_behind(model, rng, make, values)
    return done and f"Transposes {done}"


def _bare(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    """Names of nodes, docs, shapes of values and metadata are gone."""
    for node in model.graph.node:
        node.name = node.doc_string = ""
        del node.metadata_props[:]
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.graph.value_info[:]
    model.doc_string = model.graph.doc_string = ""
    model.graph.name, model.producer_name = "other", "other"
    return "bare"


def _shared_weights(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> str:
    """Initializers are copied for each reader, with other names."""
    stored = {t.name: t for t in model.graph.initializer}
    copies = []
    for i, node in enumerate(model.graph.node):
        for at, name in enumerate(node.input):
            if name in stored:
                tensor = onnx.TensorProto.FromString(stored[name].SerializeToString())
                tensor.name = f"{name}_of_{i}"
                node.input[at] = tensor.name
                copies.append(tensor)
    model.graph.initializer.extend(t for n, t in {c.name: c for c in copies}.items())
    return "a copy of each constant for each reader"


_BOOKKEEPING = {
    "names renumbered": _renumbered,
    "names exchanged": _exchanged,
    "counters one further": _one_later,
    "names swapped": _two_swapped,
    "name of a result elsewhere": _result_name,
    "Constants to initializers": _to_initializers,
    "initializers to Constants": _to_constants,
    "another order": _reordered,
    "Identity inserted": _identities,
    "Casts inserted": _cast_pairs,
    "Transposes inserted": _transpose_pairs,
    "bare": _bare,
    "constants copied": _shared_weights,
}


def _kept(kind: str) -> Callable[[Rng, int], Equivalent | None]:
    """Draw a rewriting of a converted net that changes no value."""

    def draw(rng: Rng, number: int) -> Equivalent | None:
        pool = sorted(bases.everything())
        key, fuse = pool[number % len(pool)], number // len(pool) % 2 == 0
        base = bases.everything()[key]
        random = Random(int(rng.integers(1 << 30)))
        model = bases.copied(onnx_spatial.convert(base.model, verify=False, fuse=fuse).model)
        what = _BOOKKEEPING[kind](model, random, base.model)
        if what is None:
            return None
        return equivalent(base, f"{key}{'' if fuse else ' not fused'}: {what}", model)

    return draw


CLASSES = {kind: _kept(kind) for kind in _BOOKKEEPING}
