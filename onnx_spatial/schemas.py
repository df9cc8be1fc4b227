"""Register schemas of the spatial operators with onnx, for its checker and its shape inference.

    >>> onnx_spatial.schemas.register()
    >>> onnx.checker.check_model(onnx.load("original.onnx"), full_check=True)

One schema serves all spellings of an operator type, so inputs and attributes are optional; the rules of
the spelling are checked where the shape is inferred. onnxruntime does not use these schemas.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial

import onnx
import onnx.defs
import onnx.shape_inference
from onnx import TensorProto

from onnx_spatial.analysis import attributes, input_facts
from onnx_spatial.errors import OperatorError
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.spellings import DOMAINS, InputFacts, NodeFacts, op_types, read
from onnx_spatial.operators.spellings.python_ops import (
    BATCH_ENTRY,
    BLOCKS,
    DOMAIN,
    FIXED,
    PARAMETERS,
    SITE,
    VERSION,
)

__all__ = ["PREPARED_TYPES", "deregister", "register"]

_Schema = onnx.defs.OpSchema

#: Element types of the operators of prepared models, which numpy and onnxruntime-extensions both have.
PREPARED_TYPES = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
    TensorProto.BOOL,
)

_INT, _INTS, _STRING = _Schema.AttrType.INT, _Schema.AttrType.INTS, _Schema.AttrType.STRING
_PATCHES = "ksizes strides rates padding data_format"
#: Attributes of all spellings by operator type. In those with a T TensorFlow records element types.
_ATTRIBUTES = {
    "SpaceToBatch": "block_size block_shape paddings pads_begin pads_end T Tblock_shape Tpaddings Tidx",
    "BatchToSpace": "block_size block_shape crops crops_begin crops_end T Tblock_shape Tcrops Tidx",
    "SpaceToBatchND": "block_shape paddings T Tblock_shape Tpaddings",
    "BatchToSpaceND": "block_shape crops T Tblock_shape Tcrops",
    "ExtractImagePatches": f"{_PATCHES} sizes auto_pad T",
    "ExtractVolumePatches": f"{_PATCHES} T",
    "ReorgYolo": "stride",
    "Rearrange": "sizes splits order joins",
}
#: Types of these attributes; the others are lists of integers.
_KINDS = {
    **dict.fromkeys(
        ("block_size", "stride", "T", "Tblock_shape", "Tpaddings", "Tcrops", "Tidx"), _INT
    ),
    **dict.fromkeys(("padding", "auto_pad", "data_format"), _STRING),
}
#: Inputs after the data. Those of the spellings with fewer entries come first.
_PARAMETERS = {
    "SpaceToBatch": ("block_shape_or_paddings", "paddings_or_pads_begin", "pads_end"),
    "BatchToSpace": ("block_shape_or_crops", "crops_or_crops_begin", "crops_end"),
    "SpaceToBatchND": ("block_shape", "paddings"),
    "BatchToSpaceND": ("block_shape", "crops"),
}

_lock = threading.Lock()
_registered: list[tuple[str, str]] = []


def register(domains: Iterable[str] = ()) -> None:
    """Make the spatial operators known to onnx.checker and onnx.shape_inference in this process.

    Covers every spelling in the domains that converters use, and the operators of prepared models. May
    be called again. Two spellings still fail the checker: `SpaceToDepth` and `DepthToSpace` with three
    inputs, as onnx has other operators of these names, and a list as `stride` of ReorgYolo.

    Args:
        domains: further operator domains.
    """
    # onnx.reference cannot be imported once two domains have an operator of the same name.
    import onnx.reference.op_run

    with _lock:
        for domain in sorted({*DOMAINS, *domains}):
            for schema in _schemas(domain):
                if onnx.defs.has(schema.name, domain):
                    continue
                onnx.defs.register_schema(schema)
                if not _registered:
                    # onnx 1.19 deadlocks at exit if a Python function outlives the interpreter.
                    atexit.register(deregister)
                _registered.append((schema.name, domain))


def deregister() -> None:
    """Undo `register`."""
    while _registered:
        op_type, domain = _registered.pop()
        onnx.defs.deregister_schema(op_type, VERSION, domain)


def _schemas(domain: str) -> Iterator[onnx.defs.OpSchema]:
    """Yield the schemas of a domain, with functions that infer types and shapes."""
    prepared = domain == DOMAIN
    for op_type in sorted(op_types(domain)):
        schema = _prepared(op_type) if prepared else _spelled(op_type, domain)
        schema.set_type_and_shape_inference_function(partial(_infer, schema))
        yield schema


def _spelled(op_type: str, domain: str) -> onnx.defs.OpSchema:
    optional = _Schema.FormalParameterOption.Optional
    names = _PARAMETERS.get(op_type, ())
    integers = ["tensor(int32)", "tensor(int64)"]
    if op_type in BLOCKS:  # OpenVINO's
        integers += [f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16)]
        integers += ["tensor(uint32)", "tensor(uint64)"]
    identity = onnx.defs.get_schema("Identity").type_constraints[0].allowed_type_strs
    return _Schema(
        op_type,
        domain,
        VERSION,
        doc=f"{op_type} in the spellings of TensorFlow and OpenVINO",
        inputs=[
            _Schema.FormalParameter("x", "T", description="the data"),
            *(
                _Schema.FormalParameter(name, f"I{index}", param_option=optional)
                for index, name in enumerate(names, start=1)
            ),
        ],
        outputs=[_Schema.FormalParameter("y", "T", description="the result")],
        type_constraints=[
            ("T", sorted(t for t in identity if t.startswith("tensor(")), "any tensor"),
            *((f"I{index}", integers, "integers") for index, _ in enumerate(names, start=1)),
        ],
        attributes=[
            _Schema.Attribute(name, _KINDS.get(name, _INTS), required=False)
            for name in _ATTRIBUTES[op_type].split()
        ],
    )


def _prepared(op_type: str) -> onnx.defs.OpSchema:
    types = [f"tensor({TensorProto.DataType.Name(t).lower()})" for t in PREPARED_TYPES]
    inputs = [_Schema.FormalParameter("x", "T", description="the data")]
    attributes = [_Schema.Attribute(SITE, _STRING, "location of the node in the original model")]
    if op_type in FIXED:
        attributes.append(_Schema.Attribute(PARAMETERS, _STRING, "parameters by name, as JSON"))
    else:
        inputs += [
            _Schema.FormalParameter("block_shape", "tensor(int64)", description="[M]"),
            _Schema.FormalParameter(BLOCKS[op_type][1], "tensor(int64)", description="[M, 2]"),
        ]
        attributes.append(
            _Schema.Attribute(
                BATCH_ENTRY,
                onnx.helper.make_attribute(BATCH_ENTRY, 0),
                "whether the vectors have an entry for the batch axis",
            )
        )
    return _Schema(
        op_type,
        DOMAIN,
        VERSION,
        doc=f"{op_type} as onnx_spatial.operators defines it",
        inputs=inputs,
        outputs=[_Schema.FormalParameter("y", "T", description="the result")],
        type_constraints=[("T", types, "element types of Python operators")],
        attributes=attributes,
    )


def _infer(schema: onnx.defs.OpSchema, context: onnx.shape_inference.InferenceContext) -> None:
    """Infer the element type, and the shape if no rule is broken, which the run reports."""
    element_type = shape_inference.element_type(context.get_input_type(0))
    if element_type is None:
        return
    try:
        shape = _output_shape(schema, context)
    except OperatorError:
        shape = None
    context.set_output_type(0, onnx.helper.make_tensor_type_proto(element_type, shape))


def _output_shape(
    schema: onnx.defs.OpSchema, context: onnx.shape_inference.InferenceContext
) -> tuple[int | str | None, ...] | None:
    present = (context.get_attribute(name) for name in schema.attributes)
    node = onnx.NodeProto(attribute=[a for a in present if a is not None])
    inputs = tuple(_input(context, index) for index in range(context.get_num_inputs()))
    call = read(NodeFacts(schema.name, schema.domain, inputs, attributes(node)))
    shape = shape_inference.dims(context.get_input_type(0))
    if shape is None:
        if call.rank is None:
            return None
        shape = (None,) * call.rank
    return call.output_shape(shape)


def _input(context: onnx.shape_inference.InferenceContext, index: int) -> InputFacts | None:
    if not context.has_input(index):
        return None
    value = context.get_input_data(index) if index else None
    if value is not None:
        with suppress(ValueError):  # onnx before 1.20 gives computed shapes without dims
            return InputFacts.of(onnx.numpy_helper.to_array(value))
    return input_facts(context.get_input_type(index))
