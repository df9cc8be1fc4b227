"""What verification gives up on: loops without end, arrays that numpy has no room for."""

from __future__ import annotations

import importlib
import re
from itertools import pairwise

import numpy as np
import onnx
import pytest
from hand_lowered import TF
from onnx import helper, parser

import onnx_spatial
from onnx_spatial import Verification
from onnx_spatial.verification.checks.in_place import InPlace
from onnx_spatial.verification.runtime import segment, sessions
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure, Session

HEAD = '<ir_version: 8, opset_import: ["" : 17, "tf" : 1]>\n'
PARAMETERS = "int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}"


def model(text: str) -> onnx.ModelProto:
    made = parser.parse_model(HEAD + text)
    for node in made.graph.node:
        _rename(node)
    made.opset_import[1].domain = TF
    return made


def _rename(node: onnx.NodeProto) -> None:
    if node.domain == "tf":
        node.domain = TF
    for attribute in node.attribute:
        for inner in attribute.g.node:
            _rename(inner)


def looped(body: str, turns: int = 2**63 - 1) -> onnx.ModelProto:
    return model(f"""g (float[1,4,4,1] x) => (float[a,b,c,d] z)
        <{PARAMETERS}, int64 n = {{{turns}}}, bool yes = {{1}}> {{
            l = Loop <body = b (int64 i, bool on, float[?,?,?,?] v) => (bool go, float[?,?,?,?] w)
                {{ go = Identity(on) {body} }}> (n, yes, x)
            z = tf.SpaceToBatchND(l, block, none)
    }}""")


def verified(made: onnx.ModelProto) -> Verification:
    found = onnx_spatial.convert(made).verification
    assert found is not None
    return found


OURS = "q = tf.SpaceToBatchND(v, block, none) w = tf.BatchToSpaceND(q, block, none)"


@pytest.mark.parametrize("body", ["w = Neg(v)", OURS], ids=["in onnxruntime", "around our own"])
def test_a_loop_without_end_is_given_up(body, monkeypatch):
    monkeypatch.setattr(sessions, "LOOP_SECONDS", 0.3)
    result = verified(looped(body))
    assert not result
    assert result.operators_only
    assert "a loop was still running after" in result.message


@pytest.mark.parametrize("body", ["w = Neg(v)", OURS], ids=["in onnxruntime", "around our own"])
def test_a_loop_that_ends_is_run(body):
    assert verified(looped(body, 3))


def test_only_models_with_loops_are_given_a_time(monkeypatch):
    monkeypatch.setattr(sessions, "LOOP_SECONDS", 0.0)
    made = parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Neg(x) }")
    (y,) = Session(made.SerializeToString()).run({"x": np.float32([1, 2])}).values()
    assert y.tolist() == [-1, -2]


def test_a_session_can_be_used_again_after_it_was_told_to_stop(monkeypatch):
    made = looped("w = Neg(v)")
    del made.graph.node[1:]
    made.graph.output[0].name = "l"
    made.graph.initializer.pop(2)
    made.graph.input.append(helper.make_tensor_value_info("n", onnx.TensorProto.INT64, []))
    session = Session(made.SerializeToString())
    x = np.ones((1, 4, 4, 1), np.float32)
    monkeypatch.setattr(sessions, "LOOP_SECONDS", 0.3)
    with pytest.raises(RunFailure, match="still running") as caught:
        session.run({"x": x, "n": np.array(2**62)})
    assert caught.value.stage == "load"  # other data would not help
    assert session.run({"x": x, "n": np.array(1)})["l"].tolist() == (-x).tolist()


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.ClearField("input"),
        lambda body: body.ClearField("output"),
        lambda body: body.output.pop(),
    ],
    ids=["no inputs", "no outputs", "too few outputs"],
)
def test_a_body_that_does_not_fit_its_loop_is_said_to(change):
    made = looped(OURS, 2)
    change(made.graph.node[0].attribute[0].g)
    for node in made.graph.node[0].attribute[0].g.node:
        for index, name in enumerate(node.input):
            node.input[index] = {"v": "x", "on": "yes"}.get(name, name)
    with pytest.raises(RunFailure, match=r"does not match its subgraphs|is read, but"):
        Program(made, [2, 3, 4]).run({"x": np.ones((1, 4, 4, 1), np.float32)})


def test_more_dims_than_numpy_has_are_not_compared():
    made = model(
        f"g (float[1,4,4,1] x) => (float[a,b] z) <{PARAMETERS}> "
        "{ z = tf.SpaceToBatchND(x, block, none) }"
    )
    for _ in range(100):
        made.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 1
    found = onnx_spatial.convert(made).verification
    assert found.status == "unverified" and re.search(r"has 104 dims; numpy", found.message)
    with pytest.raises(onnx_spatial.VerificationError, match="has 104 dims"):
        onnx_spatial.convert(made, verify=onnx_spatial.VerifyOptions(strict=True))


def test_windows_of_many_thousands_are_not_compared():
    made = model("""g (float[1,300,300,1] x) => (float[a,b,c,d] z) {
        z = tf.ExtractImagePatches <ksizes = [1, 300, 300, 1], strides = [1, 1, 1, 1],
            rates = [1, 1, 1, 1], padding = "VALID"> (x)
    }""")
    found = onnx_spatial.convert(made).verification
    assert found.status == "unverified" and "too large to be compared" in found.message


def test_unknown_dims_between_parts_have_names():
    """Without, onnxruntime plans the memory of a long graph in quadratic time."""
    kind = segment._type_of("x", np.zeros((2, 3), np.float32))
    names = [dim.dim_param for dim in kind.tensor_type.shape.dim]
    assert len(set(names)) == 2 and all(names)


def test_parts_follow_from_what_waits_for_what_not_from_the_order():
    """Neg, ours, Neg, ours, Neg: five parts, however the nodes are shuffled."""
    names = ["x", "a", "b", "c", "d", "z"]
    op_types = ["Neg", "SpaceToBatchND", "Neg", "BatchToSpaceND", "Neg"]
    nodes = []
    for (source, result), op_type in zip(pairwise(names), op_types, strict=True):
        ours = op_type != "Neg"
        inputs = [source, "block", "none"] if ours else [source]
        nodes.append(helper.make_node(op_type, inputs, [result], domain=TF if ours else ""))
    made = model(f"g (float[1,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{ z = Neg(x) }}")
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        del made.graph.node[:]
        made.graph.node.extend(nodes[i] for i in order)
        sites = [place for place, i in enumerate(order) if op_types[i] != "Neg"]
        program = Program(made, sites)
        assert program.parts == 5
        assert program.run({"x": x})["z"].tolist() == (-x).tolist()


def test_nodes_in_a_cycle_are_refused():
    made = model(
        f"g (float[1,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{ "
        "a = Add(x, c) b = tf.SpaceToBatchND(a, block, none) "
        "c = tf.BatchToSpaceND(b, block, none) z = Neg(c) }"
    )
    with pytest.raises(RunFailure, match="form a cycle: <a>") as caught:
        Program(made, [1, 2])
    assert caught.value.stage == "load"


def test_values_are_let_go_of_behind_their_last_reader(monkeypatch):
    """A large model has hundreds of them."""
    text = f"g (float[N,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{ v0 = Neg(x)"
    for number in range(6):
        text += f" s{number} = tf.SpaceToBatchND(v{number}, block, none)"
        text += f" v{number + 1} = tf.BatchToSpaceND(s{number}, block, none)"
    program = Program(model(text + " z = Abs(v6) }"), range(1, 13))
    most = 0
    run = segment.Segment.run

    def counted(self, scope):
        nonlocal most
        run(self, scope)
        most = max(most, len(scope.values))

    monkeypatch.setattr(segment.Segment, "run", counted)
    x = np.arange(32, dtype=np.float32).reshape(2, 4, 4, 1)
    assert program.run({"x": x})["z"].tolist() == x.tolist()
    assert most <= 2


@pytest.mark.parametrize("most", [0, 200, 2**28])
def test_sites_are_watched_in_parts_that_fit(monkeypatch, most):
    end_to_end = importlib.import_module("onnx_spatial.verification.checks.end_to_end")
    monkeypatch.setattr(end_to_end, "MOST_WATCHED", most)
    watched = []
    wanted = InPlace.value_names
    monkeypatch.setattr(
        InPlace, "value_names", lambda self: watched.append(wanted(self)) or watched[-1]
    )
    text = f"g (float[N,8,8,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{ v0 = Neg(x)"
    for number in range(3):
        text += (
            f" s{number} = tf.SpaceToBatchND(v{number}, block, none) v{number + 1} = Neg(s{number})"
        )
    made = model(text + " z = Abs(v3) }")
    found = onnx_spatial.convert(made).verification
    assert found
    assert all("in place" in site.how for site in found.operators)
    sizes = [len(names) for names in watched if names]
    assert (len(sizes) > 1) == (most < 2**28)


def test_segments_that_differ_in_names_alone_share_a_session(monkeypatch):
    loaded = []
    session = segment.Session
    monkeypatch.setattr(segment, "Session", lambda *a, **k: loaded.append(a) or session(*a, **k))
    text = f"g (float[N,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{ v0 = Neg(x)"
    for number in range(3):
        text += f" s{number} = tf.SpaceToBatchND(v{number}, block, none) t{number} = Neg(s{number})"
        text += f" v{number + 1} = tf.BatchToSpaceND(t{number}, block, none)"
    program = Program(model(text + " z = Sub(v3, x) }"), [1, 3, 4, 6, 7, 9])
    x = np.arange(32, dtype=np.float32).reshape(2, 4, 4, 1)
    assert program.run({"x": x})["z"].tolist() == np.zeros_like(x).tolist()
    assert len(loaded) == 2  # Neg, Sub
    program.close()
    assert not program.sessions


def test_a_failure_in_a_shared_session_names_the_node_of_the_model():
    made = model(
        f"g (float[N,4,4,1] x, float[K,L] w) => (float[a,b,c,d] z) <{PARAMETERS}> {{ "
        "s = tf.SpaceToBatchND(x, block, none) [product] p = MatMul(s, w) "
        "z = tf.BatchToSpaceND(p, block, none) }"
    )
    program = Program(made, [0, 2])
    x = np.zeros((2, 4, 4, 1), np.float32)
    assert program.run({"x": x, "w": np.zeros((1, 1), np.float32)})["z"].shape == x.shape
    with pytest.raises(RunFailure) as caught:
        program.run({"x": x, "w": np.zeros((5, 1), np.float32)})
    assert (caught.value.node, caught.value.stage) == ("product", "run")
