"""Parts that differ in names alone share a session, each with its own data and messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model

import onnx_spatial
from onnx_spatial.verification.checks import isolated
from onnx_spatial.verification.runtime import segment, shared_sessions
from onnx_spatial.verification.runtime.both_levels import BothLevels
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.shared_sessions import SharedSessions

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def part(
    x: str = "x",
    y: str = "y",
    dims: str = "2, 12",
    perm: str = "2, 0, 1",
    dtype: str = "float",
) -> onnx.ModelProto:
    return model(f"""
        g ({dtype}[K,L,M] {x}) => ({dtype}[P,Q] {y}) <int64[2] {y}_dims = {{{dims}}}>
        {{ [move_{x}] {x}_moved = Transpose<perm = [{perm}]>({x})
           [shape_{y}] {y} = Reshape({x}_moved, {y}_dims) }}
    """)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    models: list[bytes] = []
    load = shared_sessions.load_part

    def counted(content: bytes, *rest: Any) -> Any:
        models.append(content)
        return load(content, *rest)

    monkeypatch.setattr(shared_sessions, "load_part", counted)
    return models


def run(levels: BothLevels, made: onnx.ModelProto, x: np.ndarray) -> list[Any]:
    return [out for _, out, _ in levels.run({made.graph.input[0].name: x, "unread": x})]


def shared_run(shared: SharedSessions, made: onnx.ModelProto, x: np.ndarray) -> list[Any]:
    return run(shared.both_levels(made, made.graph.output[0].name, None), made, x)


def test_names_do_not_count(loaded: list[bytes]) -> None:
    shared = SharedSessions()
    for data, names in ((X, ("x", "y")), (X + 1, ("y", "x")), (-X, ("v4", "v1"))):
        for output in shared_run(shared, part(*names), data):
            np.testing.assert_array_equal(output, data.transpose(2, 0, 1).reshape(2, 12))
    assert len(loaded) == 2  # without optimisations and with them


@pytest.mark.parametrize("change", [{"dims": "3, 8"}, {"perm": "0, 1, 2"}])
def test_constants_and_attributes_count(change: dict[str, str], loaded: list[bytes]) -> None:
    shared = SharedSessions()
    outputs = [shared_run(shared, made, X)[0] for made in (part(), part(**change))]
    assert len(loaded) == 4
    assert outputs[0].tolist() != outputs[1].tolist()


def test_the_order_of_constants_does_not_count(loaded: list[bytes]) -> None:
    text = """
        g (float[K,L,M] x) => (float[P,Q] y) <int64[2] ONE, int64[2] OTHER>
        { [one] a = Reshape(x, first) [two] y = Reshape(a, second) }
    """
    first, second = "first = {3, 8}", "second = {2, 12}"
    shared = SharedSessions()
    for one, other in ((first, second), (second, first)):
        shared_run(shared, model(text.replace("ONE", one).replace("OTHER", other)), X)
    assert len(loaded) == 2


def test_a_failure_names_the_nodes_of_the_part() -> None:
    shared = SharedSessions()
    shared_run(shared, part(), X)
    made = part("data", "result")
    expected = run(BothLevels(made, "result", None), made, X[:, :, :3])
    assert "shape_result" in expected[0]
    assert shared_run(shared, made, X[:, :, :3]) == expected


@pytest.mark.parametrize(
    "made",
    [
        part(dtype="int32"),
        model(
            "g (float[N] x, float[N] w) => (float[N] y) { [one] a = Neg(x) [two] y = Div(a, w) }"
        ),
        model("g (float[N] x, float[N] w) => (float[N] y) { y = RandomNormalLike(x) }"),
    ],
    ids=["integers", "division", "random"],
)
def test_others_run_on_their_own(made: onnx.ModelProto, loaded: list[bytes]) -> None:
    levels = SharedSessions().both_levels(made, "y", None)
    x = X.astype(np.int32) if made.graph.input[0].type.tensor_type.elem_type == 6 else X[0, 0]
    assert all(failure is None for _, _, failure in levels.run({"x": x, "w": x + 1}))
    assert not loaded


def test_few_sessions_are_kept(loaded: list[bytes]) -> None:
    shared = SharedSessions()
    for axis in range(80):
        made = model(f"g (float[N] x) => (float[N] y) {{ y = Elu<alpha = {axis}.5>(x) }}")
        shared_run(shared, made, X[0, 0])
    assert len(loaded) == 160
    assert shared.load.cache_info().currsize == 64


def chain(count: int) -> onnx.ModelProto:
    text = "g (float[N,4,4,3] x0) => (float[a,b,c,d] y)"
    text += " <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {"
    for i in range(count):
        text += f" [space{i}] s{i} = tf.SpaceToBatchND(x{i}, block, none)"
        text += f" t{i} = Softmax<axis = 1>(s{i})"
        text += f" [batch{i}] x{i + 1} = tf.BatchToSpaceND(t{i}, block, none)"
    return model(text + f" y = Identity(x{count}) }}")


def test_equal_operators_of_a_model_share_sessions(loaded: list[bytes]) -> None:
    original = chain(3)
    converted = onnx_spatial.convert(original, fuse=False, verify=False).model
    result = verify(original, converted, isolate=False)
    assert result
    assert all("isolated" in site.how for site in result.operators)
    assert len(loaded) == 4  # two for each of two operators


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    calls: list[object] = []
    compare = isolated._compare
    monkeypatch.setattr(isolated, "_compare", lambda *a: (calls.append(a), compare(*a))[1])
    return calls


def test_equal_operators_that_are_proven_are_compared_once(compared: list[object]) -> None:
    original = chain(4)
    converted = onnx_spatial.convert(original, fuse=False, verify=False).model
    result = verify(original, converted, isolate=False)
    assert result
    assert len(compared) == 3  # the first one has a batch of another name
    _, _, first, _, second, *_ = result.operators
    assert first.checks
    assert first.checks == second.checks


def test_operators_with_parameters_of_the_run_are_compared_each(compared: list[object]) -> None:
    original = model("""
        g (float[N,4,4,3] x, int32[2,2] pads) => (float[a,b,c,d] y, float[e,f,g,h] z)
          <int32[2] block = {2, 2}>
        { u = tf.SpaceToBatchND(x, block, pads) y = Softmax<axis = 1>(u)
          v = tf.SpaceToBatchND(x, block, pads) z = Softmax<axis = 2>(v) }
    """)
    converted = onnx_spatial.convert(original, fuse=False, verify=False).model
    assert verify(original, converted, isolate=False)
    assert len(compared) == 2


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    models: list[bytes] = []
    session = segment.Session

    def counted(content: bytes, **options: Any) -> Any:
        models.append(content)
        return session(content, **options)

    monkeypatch.setattr(segment, "Session", counted)
    return models


def test_layers_that_differ_in_weights_share_a_session(opened: list[bytes]) -> None:
    made = model("""
        g (float[N,4,4,1] x) => (float[a,b,c,d] y)
          <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}, float[1,2] v = {2.0, 3.0},
           float[2,1] w = {5.0, -1.0}, float[1,2] u = {7.0, 4.0}>
        { a = MatMul(x, v) b = tf.SpaceToBatchND(a, block, none) c = MatMul(b, w)
          d = tf.BatchToSpaceND(c, block, none) y = MatMul(d, u) }
    """)
    sites = [1, 3]
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    product = x * 7  # of 2 * 5 - 3
    program = Program(made, sites)
    np.testing.assert_array_equal(program.run({"x": x})["y"], product * [7, 4])
    assert len(opened) == 2  # v and u are of one shape
    other = Program(made, sites, sessions=program.sessions)
    other.run({"x": x})
    other.close()
    assert len(opened) == 2
    assert program.sessions
    program.close()
    assert not program.sessions


def test_an_optimised_session_keeps_its_weights(opened: list[bytes]) -> None:
    made = model("""
        g (float[2,2] x) => (float[a,b] y) <float[2,2] w = {1.0, 2.0, 3.0, 4.0}>
        { y = MatMul(x, w) }
    """)
    Program(made, (), optimise=True).run({"x": np.eye(2, dtype=np.float32)})
    (content,) = opened
    assert [t.name for t in onnx.load_from_string(content).graph.initializer] == ["w"]


def test_a_wrong_one_among_equal_operators_is_found() -> None:
    original = chain(3)
    converted = onnx_spatial.convert(original, fuse=False, verify=False).model
    moves = [node for node in converted.graph.node if node.op_type == "Transpose"]
    (perm,) = moves[2].attribute  # each operator has one
    perm.ints[:2] = [perm.ints[1], perm.ints[0]]
    result = verify(original, converted, isolate=False)
    assert [site.node for site in result.operators if not site.passed] == ["space1"]
