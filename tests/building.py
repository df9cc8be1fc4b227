"""Build the small models that tests convert."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

TF = "ai.onnx.converters.tensorflow"
OPENVINO = "org.openvinotoolkit"

#: The element types that onnxruntime moves, by numpy's names.
ELEMENT_TYPES = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
    "string": TensorProto.STRING,
}

Shape = Sequence[int | str | None]


def element_type(array: np.ndarray) -> int:
    """ONNX element type of an array; object arrays are strings."""
    if array.dtype == object:
        return TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def one_node(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    *,
    domain: str = TF,
    shape: Shape | str | None = "static",
    run_time: Collection[int] = (),
    opset: int = 17,
    ir_version: int = 8,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node called "site": inputs x, p1, p2, ..; output y.

    Args:
        op_type: of the node.
        inputs: data and parameters; None leaves the place of one empty.
        domain: of the node; it is imported, if it is not ONNX's own.
        shape: what is declared of x: "static" for its own shape, None for nothing at all, of y
            either.
        run_time: numbers of the parameters that are inputs; the others are initializers.
        opset: version of the default domain.
        ir_version: below 4 the initializers are listed as inputs too, as they had to be then.
        attributes: of the node.
    """
    data, *parameters = inputs
    declared = list(data.shape) if shape == "static" else shape
    infos = [helper.make_tensor_value_info("x", element_type(data), declared)]
    initializers = []
    for number, value in enumerate(parameters, start=1):
        if value is None:
            continue
        if number not in run_time:
            initializers.append(onnx.numpy_helper.from_array(value, f"p{number}"))
        if number in run_time or ir_version < 4:
            infos.append(
                helper.make_tensor_value_info(f"p{number}", element_type(value), value.shape)
            )
    names = ["x", *("" if v is None else f"p{i}" for i, v in enumerate(parameters, start=1))]
    node = helper.make_node(op_type, names, ["y"], "site", domain=domain, **attributes)
    rank = None if declared is None else [None] * data.ndim
    output = helper.make_tensor_value_info("y", element_type(data), rank)
    graph = helper.make_graph([node], "one_node", infos, [output], initializers)
    imports = [helper.make_opsetid("", opset)]
    if domain not in ("", "ai.onnx"):  # which are one
        imports.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def feeds_of(model: onnx.ModelProto, inputs: Sequence[np.ndarray | None]) -> dict[str, np.ndarray]:
    """The arrays that a model of one node wants to be fed."""
    held = {t.name for t in model.graph.initializer}
    wanted = {v.name for v in model.graph.input} - held
    names = ["x", *(f"p{i}" for i in range(1, len(inputs)))]
    return {name: value for name, value in zip(names, inputs, strict=True) if name in wanted}


def quantised(
    model: onnx.ModelProto, scale: float, zero_point: int, *, outside: bool = False
) -> onnx.ModelProto:
    """The same node on reals between Dequantize- and QuantizeLinear, as converters write TFLite models.

    Args:
        model: a model of one node, whose data has the type of the stored numbers.
        scale, zero_point: of both.
        outside: the model's data is real, and the node moves the stored numbers.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    stored = graph.input[0].type.tensor_type.elem_type
    dtype = helper.tensor_dtype_to_np_dtype(stored)
    graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(np.float32(scale), "scale"),
            onnx.numpy_helper.from_array(np.array(zero_point, dtype), "zero_point"),
        ]
    )
    (site,) = graph.node
    site.input[0], site.output[0] = "inside", "moved"
    ends = ["QuantizeLinear", "DequantizeLinear"][:: 1 if outside else -1]
    before = helper.make_node(ends[0], ["x", "scale", "zero_point"], ["inside"])
    after = helper.make_node(ends[1], ["moved", "scale", "zero_point"], ["y"])
    if outside:
        for value in (graph.input[0], graph.output[0]):
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    nodes = [before, site, after]
    del graph.node[:]
    graph.node.extend(nodes)
    return copy
