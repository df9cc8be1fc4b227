"""Register schemas of the Python operators with onnx, for its checker and its shape inference."""

from __future__ import annotations

import atexit
import threading
from typing import Any

import onnx
import onnx.defs
import onnx.shape_inference
from onnx import TensorProto

from onnx_spatial.analysis import dtype_name
from onnx_spatial.custom_ops.carriers import DIRECT
from onnx_spatial.errors import OperatorError
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.spellings import InputFacts, NodeFacts, read
from onnx_spatial.operators.spellings.python_ops import (
    BATCH_ENTRY,
    BLOCKS,
    DOMAIN,
    FIXED,
    PARAMETERS,
    SITE,
    VERSION,
)

_lock = threading.Lock()


def register_schemas() -> None:
    """Make the operators of prepared models known to onnx.checker and onnx.shape_inference.

    They stay registered in this process; may be called again. onnxruntime does not use the schemas.
    """
    with _lock:
        for op_type in (*BLOCKS, *FIXED):
            if not onnx.defs.has(op_type, DOMAIN):
                _register(op_type)


def _register(op_type: str) -> None:
    schema = onnx.defs.OpSchema
    parameter = schema.FormalParameter
    types = [_type_name(t) for t in DIRECT]
    inputs = [parameter("x", "T", description="the data")]
    attributes = [
        schema.Attribute(SITE, schema.AttrType.STRING, "location of the node in the original model")
    ]
    if op_type in FIXED:
        attributes.append(
            schema.Attribute(PARAMETERS, schema.AttrType.STRING, "parameters by name, as JSON")
        )
    else:
        inputs += [
            parameter("block_shape", "tensor(int64)", description="[M]"),
            parameter(BLOCKS[op_type][1], "tensor(int64)", description="[M, 2]"),
        ]
        attributes.append(
            schema.Attribute(
                BATCH_ENTRY,
                onnx.helper.make_attribute(BATCH_ENTRY, 0),
                "whether the vectors have an entry for the batch axis",
            )
        )
    made = schema(
        op_type,
        DOMAIN,
        VERSION,
        doc=f"{op_type} as onnx_spatial.operators defines it",
        inputs=inputs,
        outputs=[parameter("y", "T", description="the result")],
        type_constraints=[("T", types, "element types of Python operators")],
        attributes=attributes,
    )

    def infer(context: onnx.shape_inference.InferenceContext) -> None:
        _infer(op_type, context)

    made.set_type_and_shape_inference_function(infer)
    onnx.defs.register_schema(made)
    # onnx 1.19 deadlocks at exit if a Python function outlives the interpreter.
    atexit.register(onnx.defs.deregister_schema, op_type, VERSION, DOMAIN)


def _infer(op_type: str, context: Any) -> None:
    known = context.get_input_type(0)
    element_type = shape_inference.element_type(known)
    if element_type is None:
        return
    try:
        shape = _output_shape(op_type, context)
    except OperatorError:  # an input breaks a rule, which the run reports
        shape = None
    context.set_output_type(0, onnx.helper.make_tensor_type_proto(element_type, shape))


def _output_shape(op_type: str, context: Any) -> Any:
    facts = []
    for index in range(context.get_num_inputs()):
        known = context.get_input_type(index)
        value = context.get_input_data(index) if index else None
        if value is not None:
            facts.append(InputFacts.of(onnx.numpy_helper.to_array(value)))
        else:
            dtype = dtype_name(shape_inference.element_type(known) or TensorProto.UNDEFINED)
            facts.append(InputFacts(dtype, shape_inference.dims(known)))
    attributes: dict[str, Any] = {}
    for name in (PARAMETERS, BATCH_ENTRY):
        attribute = context.get_attribute(name)
        if attribute is not None:
            value = onnx.helper.get_attribute_value(attribute)
            attributes[name] = value.decode() if isinstance(value, bytes) else value
    call = read(NodeFacts(op_type, DOMAIN, tuple(facts), attributes))
    shape = shape_inference.dims(context.get_input_type(0))
    if shape is None:
        if call.rank is None:
            return None
        shape = (None,) * call.rank
    return call.output_shape(shape)


def _type_name(element_type: int) -> str:
    return f"tensor({onnx.TensorProto.DataType.Name(element_type).lower()})"
