"""What the table says of ONNX's operators, held against their schemas and against numbers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from building import element_type
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import OPERATORS, Trait

Array = npt.NDArray[Any]

_SCHEMAS = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""]
_NEWEST = {s.name: s for s in sorted(_SCHEMAS, key=lambda s: s.since_version) if not s.deprecated}

_X = np.random.default_rng(0).uniform(-3, 3, (4, 6)).astype(np.float32)
_DATA = np.arange(1, 25, dtype=np.float32).reshape(1, 4, 2, 3)

#: Attributes that an operator does not run without, or that tell its versions apart.
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "BitCast": {"to": TensorProto.INT32},
    "BitShift": {"direction": "LEFT"},
    "Cast": {"to": TensorProto.INT64},
    "RegexFullMatch": {"pattern": "1.*"},
}
#: Operators that move data: attributes and inputs.
_MOVED: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "CenterCropPad": ({}, [_DATA, np.array([2, 3, 4, 1])]),
    "Compress": ({}, [_DATA, np.array([True, False, True])]),
    "DepthToSpace": ({"blocksize": 2}, [_DATA]),
    "Flatten": ({}, [_DATA]),
    "Gather": ({"axis": 1}, [_DATA, np.array(2)]),
    "GatherElements": ({"axis": 1}, [_DATA, np.ones((1, 1, 2, 3), np.int64)]),
    "Pad": ({}, [_DATA, np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.array(77, np.float32)]),
    "Reshape": ({}, [_DATA, np.array([3, -1])]),
    "ReverseSequence": ({"time_axis": 1}, [_DATA.reshape(6, 4), np.array([1, 2, 3, 4])]),
    "ScatterElements": ({"axis": 3}, [_DATA, np.ones((1, 4, 2, 1), int), -_DATA[..., :1]]),
    "ScatterND": ({}, [_DATA[0], np.array([[1]]), -_DATA[0, :1]]),
    "Slice": ({}, [_DATA, np.array([1]), np.array([3]), np.array([1])]),
    "SpaceToDepth": ({"blocksize": 2}, [_DATA.reshape(1, 1, 4, 6)]),
    "Split": ({"axis": 1, "num_outputs": 2}, [_DATA]),
    "Squeeze": ({}, [_DATA, np.array([0])]),
    "TensorScatter": ({"axis": 2}, [_DATA, -_DATA[:, :, :1], np.array([1])]),
    "Tile": ({}, [_DATA, np.array([1, 2, 1, 1])]),
    "Transpose": ({"perm": [0, 2, 3, 1]}, [_DATA]),
    "Trilu": ({}, [_DATA]),
    "Unsqueeze": ({}, [_DATA, np.array([1])]),
}


def _names(trait: Trait) -> list[str]:
    """Operators with a trait that this onnx knows."""
    return sorted(op_traits.having(trait) & _NEWEST.keys())


def _run(op_type: str, inputs: list[Any], attributes: dict[str, Any] | None = None) -> list[Any]:
    """The outputs of one node by onnx's reference evaluator."""
    attributes = _ATTRIBUTES.get(op_type, {}) if attributes is None else attributes
    feeds = {f"x{i}": value for i, value in enumerate(inputs)}
    outputs = [f"y{i}" for i in range(attributes.get("num_outputs", 1))]
    node = helper.make_node(op_type, list(feeds), outputs, **attributes)
    given = [helper.make_tensor_value_info(n, element_type(x), None) for n, x in feeds.items()]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    model = helper.make_model(helper.make_graph([node], "one", given, made))
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, feeds)


def _inputs(op_type: str, count: int, shape: tuple[int, ...] = (4, 6)) -> list[Array]:
    """Inputs of a function of elements, of a type that it takes."""
    schema = _NEWEST[op_type]
    rng = np.random.default_rng(1)
    found = []
    for index in range(count):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        x: Array = rng.uniform(-3, 3, shape)
        if "tensor(float)" in formal.types:
            x = x.astype(np.float32)
        elif "tensor(uint8)" in formal.types:
            x = (np.abs(x) + 1).astype(np.uint8)
        elif "tensor(bool)" in formal.types:
            x = x > 0
        else:
            x = x.astype(np.str_).astype(object)
        found.append(x)
    return found


def _elementwise() -> Iterator[tuple[str, int]]:
    """(operator, number of inputs) of all functions of elements."""
    for name in _names(Trait.UNARY):
        yield name, 2 if name == "CastLike" else 1
    for name in _names(Trait.BROADCASTS):
        yield name, max(2, _NEWEST[name].min_input)


def test_every_operator_has_a_row_and_weights_are_where_the_schemas_have_them() -> None:
    assert sorted({s.name for s in _SCHEMAS} - OPERATORS.keys()) == []
    found = {n: o.weight for n, o in OPERATORS.items() if o.weight is not None}
    named = {
        n: i
        for n in _names(Trait.WINDOWS)
        for i, formal in enumerate(_NEWEST[n].inputs)
        if formal.name.lower() == "w"
    }
    assert found == named
    for name in _names(Trait.WINDOWS):
        assert {"kernel_shape", "strides", "dilations", "pads"} <= _NEWEST[name].attributes.keys()


@pytest.mark.parametrize(("name", "count"), list(_elementwise()))
def test_functions_of_elements_commute_with_permutations_and_keep_zeros(
    name: str, count: int
) -> None:
    inputs = _inputs(name, count)
    _check_zeros(name, count)
    (plain,) = _run(name, inputs)
    order = np.random.default_rng(2).permutation(24)
    (moved,) = _run(name, [x.reshape(-1)[order].reshape(6, 4) for x in inputs])
    assert plain.shape == (4, 6)
    assert moved.dtype == plain.dtype
    np.testing.assert_array_equal(moved.reshape(-1), plain.reshape(-1)[order])


def _check_zeros(name: str, count: int) -> None:
    """Whether a function keeps zeros is as its row says."""
    zeros = [np.zeros_like(x) for x in _inputs(name, count) if x.dtype != object]
    if len(zeros) < count or zeros[0].dtype == bool or Trait.TRUTH in OPERATORS[name].traits:
        assert Trait.KEEPS_ZERO not in OPERATORS[name].traits  # a fact of numbers
        return
    result = _run(name, zeros)[0]
    kept = bool((result == 0).all() and not np.signbit(result).any())
    # It depends on attributes or types whether these keep it, or 0 % 0 is no number at all.
    undecided = {"BitCast", "Cast", "CastLike", "Clip", "Mod", "Shrink", "Where"}
    assert name in undecided or kept == (Trait.KEEPS_ZERO in OPERATORS[name].traits)


@pytest.mark.parametrize("name", _MOVED)
def test_movement_keeps_what_its_traits_say(name: str) -> None:
    attributes, inputs = _MOVED[name]
    (result, *_), traits = _run(name, inputs, attributes), OPERATORS[name].traits
    # Trilu and scatters may leave all as it is; of Gather one index is taken.
    assert (result.shape == inputs[0].shape) == (Trait.SAME_SHAPE in traits)
    assert (result.ndim == inputs[0].ndim) == (Trait.SAME_RANK in traits)


@pytest.mark.parametrize("name", _names(Trait.REDUCES))
def test_reductions_drop_axes(name: str) -> None:
    is_attribute = "axis" in _NEWEST[name].attributes
    inputs = [_X] if is_attribute else [_X, np.array([1])]
    for keepdims, shape in ((1, (4, 1)), (0, (4,))):
        known = {"keepdims": keepdims, **({"axis": 1} if is_attribute else {})}
        assert _run(name, inputs, known)[0].shape == shape


@pytest.mark.parametrize(
    ("op_type", "attributes", "bitwise"),
    [
        *((op, {}, True) for op in ("ScatterElements", "ScatterND", "Identity")),
        *((op, {"reduction": "none"}, True) for op in ("ScatterElements", "ScatterND")),
        *((op, {"reduction": kind}, False) for op in ("ScatterElements", "ScatterND")
          for kind in ("add", "mul", "max", "min", "new")),
        ("Identity", {"domain": "x"}, False),
        ("Identity", {"domain": "ai.onnx"}, True),
    ],
)  # fmt: skip
def test_reductions_compute_and_other_domains_have_no_traits(op_type, attributes, bitwise) -> None:
    node = helper.make_node(op_type, ["x", "i", "u"], ["y"], **attributes)
    assert op_traits.is_bitwise(node) == bitwise
    if attributes.get("domain") == "x":
        assert op_traits.of(node) == op_traits.OpTraits()


def test_versions_and_domains() -> None:
    imports = [helper.make_opsetid("ai.onnx", 13), helper.make_opsetid("x", 2)]
    assert op_traits.opsets_of(imports) == {"": 13, "x": 2}
    assert (op_traits.opset_of(imports), op_traits.opset_of(imports[1:])) == (13, None)
    assert [op_traits.assumed_opset(v) for v in (3, 6, 7, 8, 12)] == [11, 11, 13, 17, 17]


@pytest.mark.parametrize("name", _names(Trait.RANDOM))
def test_random_operators_give_something_else_each_time(name: str) -> None:
    attributes: dict[str, Any] = {}
    inputs: list[Array] = [np.full((4, 64), 0.5, np.float32)]
    if "shape" in _NEWEST[name].attributes:
        attributes, inputs = {"shape": [256]}, []
    if name == "Multinomial":
        attributes = {"sample_size": 64}
    node = helper.make_node(name, ["x"] * len(inputs), ["y"], **attributes)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None) for _ in inputs]
    graph = helper.make_graph([node], "one", given, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    fed = dict.fromkeys("x", *inputs) if inputs else {}
    session = ort.InferenceSession(model.SerializeToString())
    first, second = (session.run(None, fed)[0] for _ in range(2))
    assert (first != second).any()
