"""Read the operators from nodes in all spellings: one module per origin, and a registry.

`recognize` tells by its name whether a node is one of the operators; `read` turns it into a `Call`, or
raises an `OperatorError` with the rule that it breaks. A new spelling is one function in the module of
its origin, and its line in `_BLOCK_READERS` or `_FIXED_READERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators.operator import show
from onnx_spatial.operators.rearrange import Rearrange
from onnx_spatial.operators.spellings import chain_ops, openvino, python_ops, tensorflow
from onnx_spatial.operators.spellings.call import (
    MAX_BLOCKED,
    BlockCall,
    Call,
    Conflict,
    FixedCall,
    InputFacts,
    NodeFacts,
    Vector,
)


def _read_block(node: NodeFacts) -> Call:
    if len(node.inputs) == 4 or {"pads_begin", "crops_begin"} & node.attributes.keys():
        return openvino.read_block(node)
    # "SpaceToBatch" with the inputs of the ND form: exporters that dropped the suffix.
    has_block_shape = "block_shape" in node.attributes or len(node.inputs) == 3
    return tensorflow.block_nd(node) if has_block_shape else tensorflow.block_4d(node)


def _read_image_patches(node: NodeFacts) -> Call:
    by_openvino = "ksizes" not in node.attributes and {"sizes", "auto_pad"} & node.attributes.keys()
    return openvino.read_patches(node) if by_openvino else tensorflow.read_patches(node)


#: Block operators by type, whose parameters may be inputs.
_BLOCK_READERS: dict[str, Callable[[NodeFacts], Call]] = {
    "SpaceToBatch": _read_block,
    "BatchToSpace": _read_block,
    "SpaceToBatchND": tensorflow.block_nd,
    "BatchToSpaceND": tensorflow.block_nd,
}
#: Operators by type whose only input is the data.
_FIXED_READERS: dict[str, Callable[[NodeFacts], Call]] = {
    "ExtractImagePatches": _read_image_patches,
    "ExtractVolumePatches": tensorflow.read_patches,
    "ReorgYolo": openvino.read_reorg,
    Rearrange.name: chain_ops.rearrange,
}
_READERS = _BLOCK_READERS | _FIXED_READERS
OP_TYPES = frozenset(_READERS)

#: Names that tf2onnx gives to nodes whose block_shape is not constant; only with three inputs.
LEFTOVER_OP_TYPES = frozenset({"SpaceToDepth", "DepthToSpace"})
LEFTOVER_INPUTS = 3

#: Domains in which converters and exporters put these operators.
DOMAINS = frozenset(
    {
        "",
        "ai.onnx",
        "ai.onnx.contrib",
        "ai.onnx.converters.tensorflow",
        "com.microsoft",
        "onnx_spatial",
        "org.openvinotoolkit",
        python_ops.DOMAIN,
    }
)

_BEGINS_AND_ENDS = frozenset({"pads_begin", "pads_end", "crops_begin", "crops_end"})
#: Attributes that belong to different spellings.
_EXCLUSIVE = (
    ("block_size", frozenset({"block_shape", *_BEGINS_AND_ENDS})),
    ("paddings", frozenset({"crops", *_BEGINS_AND_ENDS})),
    ("crops", _BEGINS_AND_ENDS),
    ("ksizes", frozenset({"sizes", "auto_pad"})),
    ("padding", frozenset({"sizes", "auto_pad"})),
)


@cache  # a lookup for each node of a model
def op_types(domain: str) -> frozenset[str]:
    """Return the types of the operators in a domain; in ONNX's own, without `LEFTOVER_OP_TYPES`."""
    if domain == python_ops.DOMAIN:
        return python_ops.OP_TYPES
    if domain == chain_ops.DOMAIN:
        return OP_TYPES | chain_ops.OP_TYPES
    return OP_TYPES if domain in chain_ops.REARRANGE_DOMAINS else OP_TYPES - {Rearrange.name}


def recognize(op_type: str, domain: str, number_of_inputs: int) -> bool:
    """Tell whether a node has the name of one of the operators, in any domain."""
    if op_type in op_types(domain):
        return True
    return (
        op_type in LEFTOVER_OP_TYPES
        and domain in ("", "ai.onnx")
        and (number_of_inputs == LEFTOVER_INPUTS)
    )


def read(node: NodeFacts) -> Call:
    """Return the call of a recognized node, checked against the known facts about its inputs.

    Raises:
        OperatorError: the node breaks a rule of its spelling or of the operator.
    """
    if not node.inputs or node.inputs[0] is None:
        raise OperatorError("the data input is missing", code=Code.PARAMETER)
    if node.domain != python_ops.DOMAIN:
        _check_unambiguous(node)
    call = _reader_of(node)(node)
    shape = node.inputs[0].shape
    if shape is not None:
        if call.rank is not None and len(shape) != call.rank:
            raise OperatorError(
                f"the input must have rank {call.rank}, not {show(shape)}", code=Code.RANK
            )
        call.output_shape(shape)
    return call


def _reader_of(node: NodeFacts) -> Callable[[NodeFacts], Call]:
    if node.domain == python_ops.DOMAIN:
        return python_ops.read
    if node.domain == chain_ops.DOMAIN and node.op_type in chain_ops.OP_TYPES:
        return chain_ops.read
    if node.op_type in LEFTOVER_OP_TYPES:
        return tensorflow.block_nd
    return _READERS[node.op_type]


def _check_unambiguous(node: NodeFacts) -> None:
    """Refuse a node that mixes two spellings, or has too many inputs for its spelling.

    A parameter that is an attribute takes no input.
    """
    attributes = node.attributes.keys()
    for this, others in _EXCLUSIVE:
        if this in attributes and (both := sorted(others & attributes)):
            raise OperatorError(
                f"has both {this} and {both[0]}, which are two different spellings",
                code=Code.ATTRIBUTE,
            )
    inputs = sum(1 for fact in node.inputs if fact is not None)
    if node.op_type in _FIXED_READERS:
        most = 1
    elif _BEGINS_AND_ENDS & attributes:
        most = 4 - len({"block_shape", *_BEGINS_AND_ENDS} & attributes)
    elif "block_size" in attributes:
        most = 2 - len({"paddings", "crops"} & attributes)
    elif node.op_type in ("SpaceToBatch", "BatchToSpace") and len(node.inputs) == 4:
        most = 4 - len({"block_shape"} & attributes)
    else:
        most = 3 - len({"block_shape", "paddings", "crops"} & attributes)
    if inputs > most:
        raise OperatorError(
            f"has {inputs} inputs where its spelling has {most} at most", code=Code.PARAMETER
        )


__all__ = [
    "DOMAINS",
    "LEFTOVER_OP_TYPES",
    "MAX_BLOCKED",
    "OP_TYPES",
    "BlockCall",
    "Call",
    "Conflict",
    "FixedCall",
    "InputFacts",
    "NodeFacts",
    "Vector",
    "read",
    "recognize",
]
