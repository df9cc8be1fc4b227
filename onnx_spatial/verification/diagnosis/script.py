"""Write the script of a reproducer, which needs numpy and onnxruntime only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from onnx_spatial.verification.arrays import Array, bits_of, dtype_name, element_type_of, is_native

_TEXT = '''"""{message}

Exits with 1 and says how converted.onnx differs from expected.npz, while it does. That holds what
original.onnx computes, with its spatial operators by their definition. Needs numpy and onnxruntime.
"""
{imports}
from pathlib import Path

import numpy as np
import onnxruntime

here = Path(__file__).parent


def load(name):
    arrays = np.load(here / name).items()
    return {{n: a.astype(object) if a.dtype.kind == "U" else a for n, a in arrays}}


{helpers}inputs, expected = load("inputs.npz"), load("expected.npz")
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_{level}
options.log_severity_level = 4
try:
    session = onnxruntime.InferenceSession(
        here / "converted.onnx", options, ["CPUExecutionProvider"]
    )
    known = {{i.name for i in (*session.get_inputs(), *session.get_overridable_initializers())}}
{run}
except Exception as error:
    sys.exit(f"converted.onnx does not run: {{error}}")
for name, right in expected.items():
    actual = results[name]
    if (actual.dtype, actual.shape) != (right.dtype, right.shape):
        sys.exit(f"{{name}} is {{actual.dtype}} {{actual.shape}}, not {{right.dtype}} {{right.shape}}")
    {wrong}
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        print(f"{{name}}: {{wrong.sum()}} of {{wrong.size}} {what} differ{limit}", file=sys.stderr)
        sys.exit(f"{{name}}{{list(first)}} is {{actual[first]!r}} instead of {{right[first]!r}}")
print("the same")
'''

_RUN = """\
    fed = {n: a for n, a in inputs.items() if n in known}
    results = dict(zip(expected, session.run(list(expected), fed)))"""
_RUN_BITS = """\
    fed = {n: to_ort(n, a) for n, a in inputs.items() if n in known}
    values = session.run_with_ort_values(list(expected), fed)
    results = {n: from_ort(n, v) for n, v in zip(expected, values)}"""

#: onnxruntime's interface for numpy takes no types that numpy lacks: their bits go through an OrtValue.
_HELPERS = """\
#: Arrays of types that numpy lacks are saved as bits: the type, its number in ONNX, the shape.
types = {types!r}


def to_ort(name, array):
    if name not in types:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    _, number, shape = types[name]
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), number)
    ctypes.memmove(value.data_ptr(), array.tobytes(), array.nbytes)
    return value


def from_ort(name, value):
    if name not in types:
        return value.numpy()
    text, _, shape = types[name]
    if (value.data_type(), tuple(value.shape())) != (f"tensor({{text}})", shape):
        sys.exit(f"{{name}} is {{value.data_type()}} {{value.shape()}}, not {{text}} {{list(shape)}}")
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(data, expected[name].dtype).reshape(expected[name].shape)


"""

_BITS = """\
both = (np.frombuffer(a.tobytes(), np.uint8) for a in (actual, right))
    wrong = np.not_equal(*(b.reshape(*right.shape, right.itemsize) for b in both)).any(axis=-1)"""
_TEXTS = "wrong = np.asarray(actual != right)"
_CLOSE = """\
actual, right = (number(name, a) for a in (actual, right))
    most = {tolerance} * np.abs(right[np.isfinite(right)]).max(initial=0)
    same = (actual == right) | (np.isnan(actual) & np.isnan(right))
    wrong = ~(same | (np.abs(actual - right) <= most))"""
_NUMBER = '''\
def number(name, array):
    """Return the numbers of an array in double precision; bfloat16 is half of a float32."""
    bfloat16 = {bfloat16!r}
    if name in bfloat16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


'''


def text(
    message: str,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    *,
    optimised: bool,
    tolerance: float,
) -> str:
    """Return the script that shows a difference.

    Args:
        message: the difference in one line.
        feeds: the inputs.
        expected: the outputs of the original.
        optimised: whether onnxruntime's optimisations are on.
        tolerance: relative to the largest expected value of an output; 0 compares bits.
    """
    strings = any(dtype_name(a) == "string" for a in expected.values())
    types = {
        name: (_type_name(array), element_type_of(array), array.shape)
        for name, array in (*feeds.items(), *expected.items())
        if not is_native(array.dtype)
    }
    helpers = _HELPERS.format(types=types) if types else ""
    wrong = _TEXTS if strings else _BITS
    if tolerance:
        wrong = _CLOSE.format(tolerance=tolerance)
        helpers += _NUMBER.format(
            bfloat16=sorted(n for n, a in expected.items() if dtype_name(a) == "bfloat16")
        )
    packed = any(bits_of(a.dtype) < 8 for a in expected.values() if not is_native(a.dtype))
    return _TEXT.format(
        message=message.replace("\\", "/").replace('"""', "'''"),
        imports="import ctypes\nimport sys" if types else "import sys",
        helpers=helpers,
        level="ENABLE_ALL" if optimised else "DISABLE_ALL",
        run=_RUN_BITS if types else _RUN,
        wrong=wrong,
        what="bytes" if packed else "elements",
        limit=f" by more than {tolerance:g} of the largest value" if tolerance else "",
    )


def plain(array: Array) -> Array:
    """Return an array as it is saved: in a type of numpy's own, without Python objects.

    Types that numpy lacks become unsigned integers of their bits; those shorter than a byte are
    packed as in ONNX.
    """
    if array.dtype.kind == "O":
        return array.astype(np.str_)
    if is_native(array.dtype):
        return np.asarray(array)
    if bits_of(array.dtype) < 8:
        packed = onnx.numpy_helper.from_array(np.ascontiguousarray(array)).raw_data
        return np.frombuffer(packed, np.uint8)
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


def _type_name(array: Array) -> str:
    """Return the name of an element type in onnxruntime: float8e4m3fn."""
    return str(onnx.TensorProto.DataType.Name(element_type_of(array))).lower()
