"""Describe what a converted model changes in a node: its operator, an attribute, a weight, an input."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io import external_data
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import (
    STRING,
    Array,
    constant_value,
    differing_bits,
    dtype_name,
    dtype_of,
    is_float,
)
from onnx_spatial.verification.checks.findings import NodeChange
from onnx_spatial.verification.compare.error_metrics import NOT_NUMBERS, errors
from onnx_spatial.verification.compare.outputs import RTOL
from onnx_spatial.verification.match.graphs import Graphs
from onnx_spatial.verification.pair import ModelPair

#: Bytes of a constant whose values are compared.
_MOST_BYTES = 2**28
#: Elements of a list that may be axes, sizes or pads; longer ones are tables.
_SHORT = 16
#: Characters of an attribute's value.
_LONGEST = 40


def describe(
    node: onnx.NodeProto,
    output: str,
    place: traversal.Place,
    models: ModelPair,
    graphs: tuple[Graphs, Graphs],
) -> NodeChange | None:
    """Compare a node with that of the converted model with the same output, one of its own.

    `graphs` are those of the original and of the converted model. None if there is no such node, or no
    difference.
    """
    counterpart = graphs[1].find(output, place)
    if not isinstance(counterpart, onnx.NodeProto):
        return None
    reordered = sorted(node.input) == sorted(counterpart.input)
    inputs = [] if reordered else list(_inputs(node, counterpart, place, graphs))
    if (node.domain, node.op_type) != (counterpart.domain, counterpart.op_type):
        return NodeChange(f"is {_operator(counterpart)}, not {_operator(node)}", not inputs)
    constants = list(_constants(node, counterpart, place, models, graphs))
    attributes = list(_attributes(node, counterpart, models))
    own = [
        *(f"reads another constant {name!r}: {change.text}" for name, change in constants),
        *(f"has {change.text}" for change in attributes),
        *(_order(node, counterpart) if reordered else ()),
    ]
    changes = own + inputs
    if not changes:
        return None
    more = f" (and {len(changes) - 1} more changes)" if len(changes) > 1 else ""
    is_data = len(changes) == len(constants) + len(attributes) and all(
        change.is_data for change in (*(c for _, c in constants), *attributes)
    )
    return NodeChange(f"{changes[0]}{more}", bool(own) and not inputs, is_data)


def _operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def _constants(
    node: onnx.NodeProto,
    counterpart: onnx.NodeProto,
    place: traversal.Place,
    models: ModelPair,
    graphs: tuple[Graphs, Graphs],
) -> Iterator[tuple[str, _Change]]:
    """Compare the initializers that both nodes read at the same position."""
    for old, new in zip(node.input, counterpart.input, strict=False):
        was, now = graphs[0].find(old, place), graphs[1].find(new, place)
        if not (isinstance(was, onnx.TensorProto) and isinstance(now, onnx.TensorProto)):
            continue
        if not _same(was, now, models) and (text := difference(was, now, models)):
            yield new, _Change(text, _is_other_data(was, now, models))


@dataclass(frozen=True)
class _Change:
    """How a constant or an attribute is changed; see `NodeChange`."""

    text: str
    is_data: bool = False


def _is_other_data(was: onnx.TensorProto, now: onnx.TensorProto, models: ModelPair) -> bool:
    """Tell whether two constants of one type and shape hold other reals or strings, and not by rounding.

    Integers may be sizes or positions, which can be written in several ways.
    """
    if (was.data_type, list(was.dims)) != (now.data_type, list(now.dims)):
        return False
    if was.data_type == STRING:
        return True
    if not is_float(dtype_of(was.data_type)) or max(was.ByteSize(), now.ByteSize()) > _MOST_BYTES:
        return False
    try:
        before = constant_value(was, models.original.folder)
        after = constant_value(now, models.converted.folder)
    except ModelFileError:
        return False
    apart, largest = errors(before, after)
    return bool((apart > RTOL.get(dtype_name(before), 0.0) * largest).any())


def _same(was: onnx.TensorProto, now: onnx.TensorProto, models: ModelPair) -> bool:
    return external_data.same(was, models.original.folder, now, models.converted.folder)


def difference(was: onnx.TensorProto, now: onnx.TensorProto, models: ModelPair) -> str | None:
    """Say how two constants differ; None if their values are the same."""
    if (was.data_type, list(was.dims)) != (now.data_type, list(now.dims)):
        return f"it is {_type(now)}, not {_type(was)}"
    if max(was.ByteSize(), now.ByteSize()) > _MOST_BYTES:
        return "its bytes differ"
    try:
        before = constant_value(was, models.original.folder)
        after = constant_value(now, models.converted.folder)
    except ModelFileError as error:
        return str(error)
    return _values(before, after)


def _values(before: Array, after: Array) -> str | None:
    differing = differing_bits(before, after)
    if not differing.any():
        return None
    count = f"{int(differing.sum())} of {before.size} elements differ"
    index = tuple(int(i) for i in np.argwhere(differing)[0]) if before.ndim else ()
    example = f"{show(index)} is {_number(after[index])}, not {_number(before[index])}"
    if before.dtype.kind in NOT_NUMBERS:
        return f"{count}; {example}"
    apart, largest = errors(before, after)
    amount = f", by at most {apart.max() / largest:.2g} of the largest value" if largest else ""
    return f"{count}{amount}; {example}"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def _type(tensor: onnx.TensorProto) -> str:
    name = shape_inference.type_name(tensor.data_type)
    return f"{name} {show(tuple(tensor.dims))}"


def _attributes(
    node: onnx.NodeProto, counterpart: onnx.NodeProto, models: ModelPair
) -> Iterator[_Change]:
    old, new = ({a.name: a for a in n.attribute} for n in (node, counterpart))
    for name in sorted({*old, *new}):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            yield _Change(f"{'no' if now is None else 'a new'} attribute {name!r}")
        elif was != now:
            tensors = was.HasField("t") and now.HasField("t")
            change = difference(was.t, now.t, models) if tensors else _pair(was, now)
            if change:
                is_table = any(
                    max(len(a.ints), len(a.floats), len(a.strings)) > _SHORT for a in (was, now)
                )
                is_data = _is_other_data(was.t, now.t, models) if tensors else is_table
                yield _Change(f"another {name!r}: {change}", is_data)


def _pair(was: onnx.AttributeProto, now: onnx.AttributeProto) -> str:
    """Show two values of an attribute that is no tensor."""
    kinds = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    if was.type in kinds or now.type in kinds:
        return "the graph in it differs"
    before, after = (_shown(attribute) for attribute in (was, now))
    return f"{after}, not {before}" if before != after else "its values differ"


def _shown(attribute: onnx.AttributeProto) -> str:
    if attribute.ref_attr_name:
        return f"attribute {attribute.ref_attr_name!r} of the function"
    if attribute.type in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
        return "a sparse tensor"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str | int | float):
        value = list(value) if attribute.type != onnx.AttributeProto.TENSOR else "a tensor"
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _order(node: onnx.NodeProto, counterpart: onnx.NodeProto) -> Iterator[str]:
    if list(node.input) != list(counterpart.input):
        yield f"reads its inputs in another order: {', '.join(counterpart.input)}"


def _inputs(
    node: onnx.NodeProto,
    counterpart: onnx.NodeProto,
    place: traversal.Place,
    graphs: tuple[Graphs, Graphs],
) -> Iterator[str]:
    """Compare the names of computed inputs."""
    old, new = list(node.input), list(counterpart.input)
    if len(old) != len(new):
        yield f"has {len(new)} inputs, not {len(old)}"
        return
    for a, b in zip(old, new, strict=True):
        producers = (graphs[0].find(a, place), graphs[1].find(b, place))
        if a != b and not all(isinstance(p, onnx.TensorProto) for p in producers):
            yield f"reads {b!r} in place of {a!r}"


def changed_initializers(models: ModelPair, replaced: Collection[int]) -> list[tuple[str, str]]:
    """Return name and one line for each initializer that both models have, with other values.

    Those that only `replaced` nodes of the original read are left out, and all of two models that have
    little more in common than such names.
    """
    lines: list[tuple[str, str]] = []
    equal = 0
    after = dict(traversal.graphs(models.converted.proto))
    readers = {
        (place, name): node
        for index, (place, _, node) in enumerate(traversal.nodes(models.original.proto))
        if index not in replaced
        for name in node.input
    }
    for place, graph in traversal.graphs(models.original.proto):
        stored = {t.name: t for t in getattr(after.get(place), "initializer", ())}
        for was in getattr(graph, "initializer", ()):
            now = stored.get(was.name)
            if now is None or (place, was.name) not in readers:
                continue
            change = None if _same(was, now, models) else difference(was, now, models)
            if change is None:
                equal += 1
            else:
                reader = readers[place, was.name]
                of = f"{reader.op_type} node {traversal.label(reader)!r} ({place})"
                line = f"initializer {was.name!r} of {of} was changed: {change}"
                lines.append((was.name, line))
    return lines if len(lines) <= max(1, equal) else []
