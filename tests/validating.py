"""Models for validation: good ones, wrong ones, and some that take their process down with them."""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

ZOO = Path(__file__).parents[1] / "models"

#: One operator, nothing but data movement.
S2B = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[N,4,6,3] x) => (float[M,2,2,3] y) <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}> {
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
}
"""
#: One operator with arithmetic behind it.
SCALED = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[N,4,6,3] x) => (float[M,2,2,3] y)
<int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}, float[1] third = {0.333}> {
    z = Mul(x, third)
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(z, block, pads)
}
"""
#: The block does not divide the width.
REFUSED = S2B.replace("float[N,4,6,3]", "float[N,4,7,3]")
#: Stays unconverted: nobody knows the domain.
STRANGE_DOMAIN = S2B.replace("ai.onnx.converters.tensorflow", "somebody.else")
PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }
"""
FOREIGN = """<ir_version: 8, opset_import: ["" : 17, "somebody.else" : 1]>
g (float[4] x) => (float[4] y) { y = somebody.else.Magic(x) }
"""
SEQUENCE = """<ir_version: 8, opset_import: ["" : 17]>
g (seq(float[2,4]) x, int64 i) => (float[2,4] y) { y = SequenceAt(x, i) }
"""
#: INT64_MIN / -1 ends the process by a signal, while onnxruntime folds constants.
CRASHING = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[1] x) => (int64[1] y)
<int64[1] low = {-9223372036854775808}, int64[1] one = {-1}> { d = Div(low, one) y = Add(x, d) }
"""
#: Some 5e12 comparisons in one node.
HANGING = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3000,3000] x) => (y) { y = MaxPool<kernel_shape = [1500, 1500]>(x) }
"""
#: 4 GB of zeros.
HUNGRY = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (y) <int64[1] n = {1000000000}> {
    z = ConstantOfShape(n)
    s = ReduceSum(z)
    y = Add(x, s)
}
"""


def save(path: Path, text: str = S2B) -> Path:
    """Write a model given as ONNX text, and the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(parser.parse_model(text).SerializeToString())
    return path


def record(
    folder: Path,
    inputs: list[onnx.TensorProto | np.ndarray],
    outputs: list[onnx.TensorProto | np.ndarray],
    number: int = 0,
) -> Path:
    """Write a set of recorded data; arrays go without a name."""
    target = folder / f"test_data_set_{number}"
    target.mkdir(parents=True)
    for kind, values in (("input", inputs), ("output", outputs)):
        for index, value in enumerate(values):
            proto = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            (target / f"{kind}_{index}.pb").write_bytes(proto.SerializeToString())
    return target


def image(batch: int = 2) -> np.ndarray:
    """What S2B and SCALED take."""
    return np.arange(batch * 4 * 6 * 3, dtype=np.float32).reshape(batch, 4, 6, 3) + 1


def space_to_batch(x: np.ndarray) -> np.ndarray:
    """What S2B gives, by TensorFlow's definition."""
    n = len(x)
    split = x.reshape(n, 2, 2, 2, 3, 3)
    return split.transpose(2, 4, 0, 1, 3, 5).reshape(6 * n, 2, 2, 3)
