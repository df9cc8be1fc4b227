"""Tensors of the types that numpy lacks go to onnxruntime and come back, bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model
from onnx import TensorProto
from onnx.helper import make_graph, make_node, make_opsetid

from onnx_spatial.verification.arrays import (
    differing_bits,
    dtype_of,
    element_type_of,
)
from onnx_spatial.verification.run import ort_values
from onnx_spatial.verification.run.data import patterns, usual
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure, Session

SHORT = [
    *("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
    *("int4", "uint4"),
]
#: Of these onnxruntime 1.23 has no tensors.
NEWER = [name for name in ("int2", "uint2", "float8e8m0") if hasattr(TensorProto, name.upper())]
CAST = "g (TYPE[N,5] x) => (float[N,5] y) { y = Cast<to = 1>(x) }"
BACK = "g (float[N,5] x) => (TYPE[N,5] y) { y = Cast<to = NUMBER>(x) }"


def number(name: str) -> int:
    return int(getattr(TensorProto, name.upper()))


def data(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return patterns(number(name), shape, np.random.default_rng(0))


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("shape", [(3, 5), (2, 5), (0, 5)])
def test_every_short_type_is_fed_and_fetched(name: str, shape: tuple[int, ...]) -> None:
    x = data(name, shape)
    transposed = f"g ({name}[N,5] x) => ({name}[5,N] y) {{ y = Transpose(x) }}"
    session = Session(model(transposed, 21, 10).SerializeToString())
    (y,) = session.run({"x": x}).values()
    assert y.dtype == x.dtype and y.shape == shape[::-1]
    assert not differing_bits(np.ascontiguousarray(x.T), y).any()


@pytest.mark.parametrize("name", SHORT)
def test_they_are_the_numbers_that_they_stand_for(name: str) -> None:
    x = data(name, (3, 5))
    session = Session(model(CAST.replace("TYPE", name), 21, 10).SerializeToString())
    np.testing.assert_array_equal(session.run({"x": x})["y"], x.astype(np.float32))


@pytest.mark.parametrize("name", NEWER)
def test_newer_types_work_where_onnxruntime_has_them(name: str) -> None:
    x = data(name, (3, 5))
    try:
        session = Session(model(CAST.replace("TYPE", name), 25, 12).SerializeToString())
    except RunFailure as failure:
        pytest.skip(f"not in this onnxruntime: {failure}")
    np.testing.assert_array_equal(session.run({"x": x})["y"], x.astype(np.float32))


@pytest.mark.skipif(not hasattr(TensorProto, "FLOAT6E2M3"), reason="onnx has no such type, either")
def test_tensors_that_onnxruntime_has_not_are_told_from_a_failure() -> None:
    session = Session(model("g (float[N] x) => (float[N] y) { y = Neg(x) }").SerializeToString())
    with pytest.raises(RunFailure, match="not supported") as caught:
        session.run({"x": np.zeros(3, dtype_of(number("float6e2m3")))})
    assert caught.value.lacks_kernel


@pytest.mark.parametrize("name", [*SHORT, *NEWER])
def test_packing_is_undone_whatever_the_length(name: str) -> None:
    for count in (0, 1, 3, 4, 7):
        x = data(name, (count,))
        found = ort_values._unpacked(ort_values._packed(x), number(name), (count,))
        assert found.dtype == x.dtype and found.shape == x.shape
        assert not differing_bits(x, found).any()


def test_the_first_element_is_in_the_lowest_bits() -> None:
    x = np.array([1, -2, 7], dtype_of(number("int4")))
    assert ort_values._packed(x) == b"\xe1\x07"


def test_only_bits_that_count_are_compared() -> None:
    dtype = dtype_of(number("int4"))
    ours, theirs = (np.array([v], np.uint8).view(dtype) for v in (0xFB, 0x0B))  # both are -5
    assert not differing_bits(ours, theirs).any()
    assert differing_bits(ours, np.array([0x0A], np.uint8).view(dtype)).all()


@pytest.mark.parametrize("name", SHORT)
def test_whole_models_run_on_them(name: str) -> None:
    for text in (CAST, BACK.replace("NUMBER", str(number(name)))):
        whole = model(text.replace("TYPE", name), 21, 10)
        assert verify(whole, whole).status == "passed"


def test_strings_may_be_fed_beside_them() -> None:
    text = """g (bfloat16[2] x, string[2] s) => (float[2] y, string[2] t)
        { y = Cast<to = 1>(x) t = Identity(s) }"""
    x = usual(TensorProto.BFLOAT16, (2,), np.random.default_rng(0))
    s = np.array(["a", "\u00e9"], object)
    given = Session(model(text, 21, 10).SerializeToString()).run({"x": x, "s": s})
    assert list(given["t"]) == list(s)
    np.testing.assert_array_equal(given["y"], x.astype(np.float32))


def test_made_up_data_of_a_type_without_a_sign_is_positive() -> None:
    x = usual(number("float8e8m0"), (20,), np.random.default_rng(0))
    assert element_type_of(x) == number("float8e8m0")
    assert (x.astype(np.float32) > 0).all()


def test_an_optional_that_is_empty_is_a_value_as_any_other() -> None:
    kind = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    optional = onnx.helper.make_optional_type_proto(kind)
    y, o, p = (onnx.helper.make_value_info(name, optional) for name in "yop")
    branches = {
        "then_branch": ([make_node("Optional", [], ["o"], type=kind)], o),
        "else_branch": (
            [
                make_node("Constant", [], ["x"], value_floats=[1.0, 2.0]),
                make_node("Optional", ["x"], ["p"]),
            ],
            p,
        ),
    }
    graphs = {n: make_graph(nodes, n, [], [out]) for n, (nodes, out) in branches.items()}
    c = onnx.helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = make_graph([make_node("If", ["c"], ["y"], **graphs)], "g", [c], [y])
    whole = onnx.helper.make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    program = Program(whole, ())
    assert program.run({"c": np.array(True)}) == {"y": None}
    np.testing.assert_array_equal(program.run({"c": np.array(False)})["y"], [1, 2])
