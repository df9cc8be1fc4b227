"""Functions of single elements between inverse chains may have several nodes and paths."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import running
from onnx import parser

import onnx_spatial

TO_DEPTH = "p = SpaceToDepth <blocksize = 2> (x)"
TO_SPACE = 'y = DepthToSpace <blocksize = 2, mode = "DCR"> (m)'
TO_LAST = "p = Transpose <perm = [0, 2, 3, 1]> (x)"
TO_FIRST = "y = Transpose <perm = [0, 3, 1, 2]> (m)"


def model(body: str) -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 17]>'
    return parser.parse_model(f"{head} g (float[N,3,H,W] x) => (float[?,?,?,?] y) {{ {body} }}")


GONE = {
    "SiLU": (TO_DEPTH, "s = Sigmoid(p) m = Mul(p, s)", TO_SPACE),
    "GELU": (
        TO_LAST,
        """two = Constant <value_float = 1.41> () one = Constant <value_float = 1.0> ()
        d = Div(p, two) e = Erf(d) a = Add(one, e) m = Mul(a, p)""",
        TO_FIRST,
    ),
    "one in another": (
        TO_DEPTH,
        "a = Relu(p) s = Sigmoid(a) b = Mul(a, s) t = Tanh(b) u = Add(t, a) m = Max(u, p, s)",
        TO_SPACE,
    ),
}


@pytest.mark.parametrize("parts", GONE.values(), ids=GONE)
def test_inverse_chains_vanish(parts):
    given = model(" ".join(parts))
    result = onnx_spatial.optimize(given)
    made = result.model
    assert not {"SpaceToDepth", "DepthToSpace", "Transpose"} & {n.op_type for n in made.graph.node}
    assert len(made.graph.node) == len(given.graph.node) - 2
    assert result.verification.status == "passed"
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    np.testing.assert_array_equal(running.run(made, {"x": x})[0], running.run(given, {"x": x})[0])


@pytest.mark.parametrize(
    ("function", "made", "opset"),
    [
        ("LeakyRelu <alpha = 0.3> (p)", "float", 17),
        ("Shrink <lambd = 0.3, bias = 0.1> (p)", "float", 17),
        ('Gelu <approximate = "tanh"> (p)', "float", 20),
        ("IsInf <detect_positive = 0> (p)", "bool", 17),
        ("Clip <min = -20.0, max = 20.0> (p)", "float", 9),
        ("Cast <to = 11> (p)", "double", 17),
        ("Mod <fmod = 1> (p, seven)", "float", 17),
    ],
)
def test_a_function_with_attributes_keeps_all_its_fields(function, made, opset):
    original = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[N,8,H,16] x) => ({made}[?,?,?,?] y) <float seven = {{7}}> {{
            {TO_LAST} [function] m = {function} {TO_FIRST} }}""")
    kept = original.graph.node[1]
    kept.doc_string = "keeps what it says"
    result = onnx_spatial.optimize(original)
    (node,) = result.model.graph.node
    assert (node.op_type, node.name, node.doc_string) == (kept.op_type, kept.name, kept.doc_string)
    assert sorted(map(str, node.attribute)) == sorted(map(str, kept.attribute))
    x = 30 * np.random.default_rng(0).standard_normal((2, 8, 4, 16)).astype(np.float32)
    x[0, 0, 0, :2] = np.inf, -np.inf
    before, after = (running.run(model, {"x": x})[0] for model in (original, result.model))
    np.testing.assert_array_equal(after, before)


KEPT = {
    "a value is read elsewhere": (
        TO_LAST,
        "s = Sigmoid(p) m = Mul(p, s)",
        TO_FIRST.replace("y =", "z =") + " r = ReduceSum <keepdims = 0> (s) y = Add(z, r)",
    ),
    "two sources": (
        TO_LAST,
        "n = Sin(x) q = Transpose <perm = [0, 2, 3, 1]> (n) m = Add(p, q)",
        TO_FIRST,
    ),
    "not inverse": (TO_DEPTH, "s = Sigmoid(p) m = Mul(p, s)", TO_SPACE.replace("DCR", "CRD")),
    "a table": (
        TO_LAST,
        "t = Constant <value = float[3] {1.0, 2.0, 3.0}> () s = Mul(p, t) m = Add(p, s)",
        TO_FIRST,
    ),
}


@pytest.mark.parametrize("parts", KEPT.values(), ids=KEPT)
def test_others_stay(parts):
    assert not onnx_spatial.optimize(model(" ".join(parts)), verify=False).changed
