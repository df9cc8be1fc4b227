"""The command takes no not enough memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from onnx import parser

DOUBLING = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[1,4,6,3] x) => (y) <int32[2] block = {2, 3}, int32[2,2] pads, int64 n = {60}, bool go = {1}> {
    z = Loop (n, go, x) <body = b (int64 i, bool c, float[d,e,f,g] v) => (bool c2, float[d2,e,f,g] w) {
        c2 = Identity(c)
        w = Concat <axis = 0> (v, v)
    }>
    [site] y = ai.onnx.converters.tensorflow.SpaceToBatchND(z, block, pads)
}
"""
LIMITED = (
    "import sys; from onnx_spatial.cli import main\n"
    "from onnx_spatial.verification import limits\n"
    "limits.machine_memory = lambda: 2**30\n"
    "main(sys.argv[1:])"
)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count mapped files apart")
def test_a_model_that_doubles_a_tensor_60_times_ends_with_one_line(tmp_path):
    path = tmp_path / "model.onnx"
    model = parser.parse_model(DOUBLING.replace("pads,", "pads = {0, 0, 0, 0},"))
    path.write_bytes(model.SerializeToString())
    command = [sys.executable, "-c", LIMITED, "convert", path, "-o", tmp_path / "out.onnx"]
    command.append("--strict")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "needs more than 256 MiB of memory (--memory" in done.stderr
    assert done.stderr.count("needs more than") == 1
    assert not (tmp_path / "out.onnx").exists()
