"""Collect the numbers of a model at which its nodes may change what they do.

x -> Clip 0 .. 6                  0, 6
x -> QuantizeLinear 0.1, 128      .., -0.05, 0.05, 0.15, .. : halfway between two steps
x -> HardSigmoid 0.2, 0.5         -2.5, 2.5: the ends of its slope
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import onnx

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import constant_value

#: Elements of a constant that is a limit or a table and no weight.
_FEW_ELEMENTS = 16
#: Numbers of a model, and those of which differences and quotients are taken.
_MOST, _MOST_PAIRED = 128, 10
#: Larger ones are no limits, and may overflow.
_LARGEST = 2.0**64
#: Sums before a scale at which results are rounded or limited.
_ENDS = (0.0, 0.5, 1.0, 1.5, 2.5, -128.0, 127.0, 127.5, 255.0, 255.5)

#: Integer operators that end the process where they divide by zero, and operators that trust integers.
DIVIDES = frozenset({"Div", "Mod"})
_TRUSTS = frozenset(
    "AffineGrid CenterCropPad Col2Im DFT MaxRoiPool MaxUnpool MelWeightMatrix RoiAlign STFT".split()
)

_Number = float | str


def numbers_of(models: Iterable[onnx.ModelProto]) -> tuple[_Number, ...]:
    """Return the small constants and real attributes of models, and numbers that follow from them."""
    found: dict[_Number, None] = {}
    derived: dict[_Number, None] = {}
    for model in models:
        opset = op_traits.opset_of(model.opset_import) or 1
        stored = {t.name: tuple(_values(t)) for t in traversal.tensors(model) if t.name}
        for _, _, node in traversal.nodes(model):
            attributes = tuple(_attributes(node, opset))
            if node.op_type == "Constant":
                stored[node.output[0]] = attributes
            read = [*itertools.chain(*(stored.get(n, ()) for n in node.input)), *attributes]
            found.update(dict.fromkeys(read))
            derived.update(dict.fromkeys(_ends([n for n in read if not isinstance(n, str)])))
    reals = [n for n in found if not isinstance(n, str)]
    for a, b in itertools.permutations(reals[:_MOST_PAIRED], 2):
        derived.update(dict.fromkeys((a - b, a / b if b else a)))
    halves = (a * half for a in reals for half in (0.5, 1.5, 2.5))
    numbers = (n for n in (*found, *halves, *derived) if isinstance(n, str) or abs(n) < _LARGEST)
    return tuple(itertools.islice(dict.fromkeys(numbers), _MOST))


def computed_with(model: onnx.ModelProto, name: str) -> list[_Number] | None:
    """Return the constants with which nodes compare, limit or combine an input, element by element.

    None if no node computes with the input so.
    """
    stored = {t.name: tuple(_values(t)) for t in traversal.tensors(model) if t.name}
    same = {name}
    numbers: dict[_Number, None] = {}
    computes = False
    for node in traversal.in_order(model.graph):
        if node.op_type == "Constant":
            stored[node.output[0]] = tuple(_attributes(node, 1))
        traits = op_traits.of(node).traits
        read = {i for i, n in enumerate(node.input) if n in same}
        moves = op_traits.moved_inputs(node)
        if read and (Trait.UNARY in traits or Trait.BROADCASTS in traits or read <= set(moves)):
            same.update(node.output)
            if Trait.TRUTH in traits or not (moves or Trait.BITWISE in traits):
                computes = True
                numbers.update((v, None) for n in node.input for v in stored.get(n, ()))
    return list(numbers) if computes else None


def may_end_process(model: onnx.ModelProto, name: str) -> bool:
    """Return whether a node may end the process at some values of an input: it divides by them."""
    dependent = {name}
    for node in traversal.in_order(model.graph):
        if dependent.isdisjoint(traversal.needs(node)) or Trait.SIZES in op_traits.of(node).traits:
            continue
        divides = node.op_type in DIVIDES and node.input[1] in dependent
        inside = any(n.op_type in DIVIDES | _TRUSTS for n in traversal.inner_nodes(node))
        if divides or inside or node.op_type in _TRUSTS or not op_traits.is_standard(node):
            return True
        dependent.update(node.output)
    return False


def _ends(read: list[float]) -> Iterator[float]:
    """Yield where a node with a scale and an offset rounds or limits: `x / a + b` and `x * a + b`."""
    if len(read) == 2:
        for (a, b), end in itertools.product(itertools.permutations(read), _ENDS):
            yield (end - b) * a
            if a:
                yield (end - b) / a


def _attributes(node: onnx.NodeProto, opset: int) -> Iterator[_Number]:
    """Yield the real attributes of a node, defaults included; all numbers of a Constant."""
    reals = (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS)
    integers = (onnx.AttributeProto.INT, onnx.AttributeProto.INTS)
    texts = (onnx.AttributeProto.STRING, onnx.AttributeProto.STRINGS)
    for attribute in (a for a in node.attribute if not a.ref_attr_name):
        value = onnx.helper.get_attribute_value(attribute)
        values = value if isinstance(value, (list, tuple)) else [value]
        if attribute.type in reals or (node.op_type == "Constant" and attribute.type in integers):
            yield from map(float, values[:_FEW_ELEMENTS])
        elif node.op_type == "Constant" and attribute.type in texts:
            yield from (v.decode("utf-8", "replace") for v in values[:_FEW_ELEMENTS])
        elif attribute.type == onnx.AttributeProto.TENSOR:
            yield from _values(attribute.t)
    if op_traits.is_standard(node) and onnx.defs.has(node.op_type, opset):
        given = {attribute.name for attribute in node.attribute}
        schema = onnx.defs.get_schema(node.op_type, opset)
        for name, known in schema.attributes.items():
            if name not in given and known.default_value.type == onnx.AttributeProto.FLOAT:
                yield known.default_value.f


def _values(tensor: onnx.TensorProto) -> Iterator[_Number]:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if external or math.prod(tensor.dims) > _FEW_ELEMENTS:
        return
    try:
        array = constant_value(tensor, None)
    except ModelFileError:  # reported where its value is needed
        return
    if array.dtype.kind == "O":
        yield from array.flat
    elif array.dtype.kind != "c":
        yield from map(float, array.flat)
