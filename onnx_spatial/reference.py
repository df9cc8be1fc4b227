"""Run original models in onnx's reference evaluator.

    >>> evaluator = onnx.reference.ReferenceEvaluator(model, new_ops=onnx_spatial.reference.OPS)

The evaluator does not pass `new_ops` on to local functions: inline them first, with
`onnx.inliner.inline_local_functions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_depth_to_space import DepthToSpace
from onnx.reference.ops.op_space_to_depth import SpaceToDepth

from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.operators.spellings import (
    DOMAINS,
    InputFacts,
    NodeFacts,
    op_types,
    read,
    recognize,
)

__all__ = ["OPS", "SpatialOp", "operators"]

Array = npt.NDArray[Any]


class SpatialOp(OpRun):
    """A spatial operator in the reference evaluator; subclasses have its type as name."""

    #: onnx has no schema of the operator, or one of another operator with the same name.
    op_schema = None

    def _run(self, *inputs: Array | None, **attributes: Any) -> tuple[Array]:
        node = self.onnx_node
        lists = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
        try:
            return (self.compute(node.op_type, inputs, lists),)
        except OperatorError as error:
            message = f"{node.op_type} {traversal.label(node)!r}: {error}"
            raise OperatorError(message, code=error.code) from None

    def compute(
        self, op_type: str, inputs: Sequence[Array | None], attributes: dict[str, Any]
    ) -> Array:
        """Return the output of the node.

        Args:
            op_type: type of the node.
            inputs: of the node; a missing one is None.
            attributes: of the node, those of a function's call included.

        Raises:
            OperatorError: the node breaks a rule of the operator.
        """
        facts = tuple(None if array is None else InputFacts.of(array) for array in inputs)
        call = read(NodeFacts(op_type, self.onnx_node.domain, facts, attributes))
        data = inputs[0]
        assert data is not None
        result: Array = call.bind(inputs)(data)
        return result


class _Leftover(SpatialOp):
    """tf2onnx's `SpaceToDepth` and `DepthToSpace` with three inputs, else the operator of ONNX."""

    standard: type[OpRun]

    def __new__(cls, node: Any, run_params: dict[str, Any], schema: Any = None) -> Any:
        if recognize(node.op_type, node.domain, len(node.input)):
            return super().__new__(cls)
        return cls.standard(node, run_params, schema)


def operators(domain: str) -> Iterator[type[SpatialOp]]:
    """Yield an OpRun class for each operator type in a domain."""
    for op_type in sorted(op_types(domain)):
        yield type(op_type, (SpatialOp,), {"op_domain": domain})
    if domain in ("", "ai.onnx"):
        for standard in (SpaceToDepth, DepthToSpace):
            yield type(standard.__name__, (_Leftover,), {"op_domain": domain, "standard": standard})


#: OpRun classes of the operators in every domain that converters use; `operators` gives those of others.
OPS: list[type[SpatialOp]] = [op for domain in sorted(DOMAINS) for op in operators(domain)]
