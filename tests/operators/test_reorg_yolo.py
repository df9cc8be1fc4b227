"""ReorgYolo: where each element comes from, in every way that it is run."""

from __future__ import annotations

import definitions
import numpy as np
import onnx
import onnx.parser
import pytest
import running
from building import OPENVINO, one_node
from vocabulary import ReorgYolo

import onnx_spatial
from onnx_spatial import OperatorError

MODES = ["lower", "function", "custom-op"]


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_it_is_not_space_to_depth_of_its_axes():
    out = ReorgYolo(2)(numbered((1, 4, 2, 2)))
    # All sixteen elements are one image of 4 rows; the first channel holds its even rows and columns.
    assert out.reshape(4, 4).tolist() == [
        [0, 2, 8, 10],
        [1, 3, 9, 11],
        [4, 6, 12, 14],
        [5, 7, 13, 15],
    ]


def test_what_is_known_of_the_output():
    assert ReorgYolo(2).output_shape(("N", None, 6, "W")) == ("N", None, 3, None)
    assert ReorgYolo(1).output_shape(("N", None, 6, "W")) == ("N", None, 6, "W")
    with pytest.raises(OperatorError, match="overflows int64"):
        ReorgYolo(2).output_shape((2**40, 2**40, 2, 2))


@pytest.mark.parametrize("stride", [0, -1, 2.0, "2", True, None, 2**31])
def test_strides_that_are_none(stride):
    with pytest.raises(OperatorError, match="stride is"):
        ReorgYolo(stride)


@pytest.mark.parametrize("mode", MODES)
def test_it_is_converted_and_verified_in_subgraphs_and_functions(mode):
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "org.openvinotoolkit" : 1, "local" : 1]>
        g (float[N, 5, 4, 4] x, bool[1] turn) => (float[a, b, c, d] y) {
            f = local.Reorg <s = 2> (x)
            y = If (turn) <
                then_branch = g1 () => (float[?, ?, ?, ?] p) {
                    q = local.Reorg <s = 2> (x)
                    p = Neg (q)
                },
                else_branch = g2 () => (float[?, ?, ?, ?] r) {
                    v = org.openvinotoolkit.ReorgYolo <stride = 2> (x)
                    r = Add (v, f)
                }
            >
        }
        <domain: "local", opset_import: ["" : 17, "org.openvinotoolkit" : 1]>
        Reorg <s> (u) => (w) {
            w = org.openvinotoolkit.ReorgYolo <stride : int = @s> (u)
        }""")
    done = onnx_spatial.convert(made, mode=mode)
    assert done.verification.status == "passed"
    x = numbered((3, 5, 4, 4))
    session = onnx_spatial.InferenceSession(done.model.SerializeToString())
    for turn, factor in ((True, -1), (False, 2)):
        (y,) = session.run(None, {"x": x, "turn": np.array([turn])})
        assert np.array_equal(y, factor * definitions.reorg_yolo(x, 2))


@pytest.mark.parametrize("opset", [7, 21])
@pytest.mark.parametrize("shape", [(1, 3, 4, 4), (1, 4, 3, 4), (2, 5, 3, 6), (1, 0, 2, 2)])
def test_runs_that_break_a_rule_fail(shape, opset):
    declared = (1, shape[1], "H", "W") if shape[1] == 4 else ("N", "C", "H", "W")
    legal = one_node(
        "ReorgYolo", (numbered((1, 4, 4, 4)),), domain=OPENVINO, shape=declared, stride=2,
        opset=max(opset, 9 if "C" in declared else 7),
    )  # fmt: skip
    converted = onnx_spatial.convert(legal, verify=False).model
    opened = running.session(converted, running.LEVELS[0])
    with pytest.raises(Exception, match=r"Reshape|Gather"):
        running.run_session(opened, {"x": numbered(shape)})
