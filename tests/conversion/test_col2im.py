"""Col2Im becomes shifted sums for targets that lack it, whatever its sizes, strides and dilations."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import onnx
import pytest
import running
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnx_spatial
from onnx_spatial.conversion.col2im import replace_col2im
from onnx_spatial.conversion.options import ConvertOptions

RNG = np.random.default_rng(3)
CORE_ML = ConvertOptions(target="coreml")


def model(
    kernel: Sequence[int],
    image: Sequence[int],
    shape: Sequence[int | str],
    *,
    dtype: str = "float32",
    computed: bool = False,
    **attributes: object,
) -> onnx.ModelProto:
    """One Col2Im of x; its image_shape is an input if it is computed."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tables = {"kernel": np.array(kernel)}
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    if computed:
        inputs.append(helper.make_tensor_value_info("image", 7, [len(image)]))
    else:
        tables["image"] = np.array(image)
    node = helper.make_node("Col2Im", ["x", "image", "kernel"], ["y"], **attributes)
    y = helper.make_tensor_value_info("y", kind, [None] * (2 + len(image)))
    stored = [numpy_helper.from_array(table, name) for name, table in tables.items()]
    graph = helper.make_graph([node], "g", inputs, [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def windows(image: Sequence[int], kernel: Sequence[int], attributes: dict[str, list[int]]) -> int:
    """Number of windows; 0 if one does not fit."""
    count = 1
    for axis, (size, k) in enumerate(zip(image, kernel, strict=True)):
        pads = attributes["pads"][axis] + attributes["pads"][axis + len(image)]
        span = attributes["dilations"][axis] * (k - 1) + 1
        count *= max(0, (size + pads - span) // attributes["strides"][axis] + 1)
    return count


def test_random_windows():
    """The definition of ONNX says what is right: onnxruntime errs with dilations of 1-D and 3-D."""
    random, seen = Random(5), 0
    while seen < 60:
        axes = random.choice((1, 2, 2, 3))
        kernel, image = ([random.randint(1, most) for _ in range(axes)] for most in (4, 8))
        attributes = {
            "strides": [random.randint(1, 4) for _ in range(axes)],
            "dilations": [random.randint(1, 3) for _ in range(axes)],
            "pads": [random.randint(0, 2) for _ in range(2 * axes)],
        }
        count = windows(image, kernel, attributes)
        if not count:
            continue
        seen += 1
        computed = random.random() < 0.4
        shape = (2, 3 * int(np.prod(kernel)), count)
        declared = ("N", shape[1], "L") if computed else shape
        given = model(kernel, image, declared, computed=computed, **attributes)
        made = replace_col2im(given, CORE_ML).model
        assert made is not None and all(node.op_type != "Col2Im" for node in made.graph.node)
        feeds = {"x": RNG.integers(-99, 99, shape).astype(np.float32)}
        feeds |= {"image": np.array(image)} if computed else {}
        (expected,) = ReferenceEvaluator(given).run(None, feeds)
        (actual,) = running.run(made, feeds)
        np.testing.assert_array_equal(actual, expected)


def test_tiles_are_a_permutation():
    """Windows side by side are moved, not added; the largest rank is 4."""
    given = model([2, 3], [6, 9], (2, 30, 9), strides=[2, 3])
    made = replace_col2im(given, ConvertOptions(target="ncnn")).model
    assert {node.op_type for node in made.graph.node} == {"Reshape", "Transpose"}
    x = RNG.random((2, 30, 9), np.float32)
    np.testing.assert_array_equal(running.run(made, {"x": x})[0], running.run(given, {"x": x})[0])


@pytest.mark.parametrize("dtype", ["float64", "int64", "float16"])
def test_types_that_onnxruntime_lacks(dtype):
    given = model([2, 2], [4, 5], (1, 8, 12), dtype=dtype)
    made = replace_col2im(given, CORE_ML).model
    x = RNG.integers(-9, 9, (1, 8, 12)).astype(dtype)
    (expected,) = ReferenceEvaluator(given).run(None, {"x": x})
    np.testing.assert_array_equal(running.run(made, {"x": x})[0], expected)


def test_only_for_targets_without_it():
    given = model([3, 3], [8, 8], ("N", 18, 64), pads=[1, 1, 1, 1])
    assert not onnx_spatial.optimize(given).changed
    assert not onnx_spatial.optimize(given, target="tflite").changed
    result = onnx_spatial.optimize(given, target="coreml")
    assert result.verification.status == "passed"
    assert result.inspection.summary.startswith("1 chain shifted sums: 1 -> ")
    assert result.inspection.limits.to_dict()["nodes"] == []


def test_what_is_not_known_stays():
    unknown = model([2, 2], [4, 4], ("N", 8, "L"))
    unknown.graph.initializer.remove(unknown.graph.initializer[0])
    unknown.graph.input.append(helper.make_tensor_value_info("kernel", 7, [2]))
    assert replace_col2im(unknown, CORE_ML).model is None
