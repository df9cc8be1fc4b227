"""Find the operators that neither ONNX, onnxruntime nor the model defines, and say what helps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.operators.spellings import python_ops, recognize

#: Domain of the operators that tf2onnx copies without converting them.
_TENSORFLOW = "ai.onnx.converters.tensorflow"


@dataclass(frozen=True)
class UnknownOperator:
    """An operator that nothing defines.

    Attributes:
        domain, op_type: as in the file.
        node: label of the first node.
        nodes: number of nodes.
        advice: what helps.
    """

    domain: str
    op_type: str
    node: str
    nodes: int
    advice: str

    @property
    def message(self) -> str:
        """The operator and what helps, in one line."""
        what = f"{self.domain or 'ai.onnx'}:{self.op_type}"
        where = f"node {self.node!r}" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"onnxruntime has no operator {what} ({where}): {self.advice}"


def unknown_operators(
    model: onnx.ModelProto | traversal.Index, spatial: Collection[tuple[str, str]] = ()
) -> list[UnknownOperator]:
    """List the operators that neither ONNX, onnxruntime nor a function of the model defines.

    Args:
        model: the model.
        spatial: domain and type of operators that could be converted if their domain were accepted.
    """
    index = traversal.Index.of(model)
    functions = {(f.domain, f.name) for f in index.model.functions}
    return [
        UnknownOperator(
            domain,
            op_type,
            node=traversal.label(index.nodes[positions[0]]),
            nodes=len(positions),
            advice=_advice_on(domain, op_type, spatial=(domain, op_type) in spatial),
        )
        for (domain, op_type), positions in index.kinds.items()
        if (domain, op_type) not in functions
        and domain != python_ops.DOMAIN
        and not is_known(domain, op_type)
    ]


def is_known(domain: str, op_type: str) -> bool:
    """Tell whether ONNX or onnxruntime defines an operator."""
    # Programs may register schemas of the spatial operators. With one input, SpaceToDepth and
    # DepthToSpace are ONNX's own.
    if recognize(op_type, domain, number_of_inputs=1):
        return False
    domain = op_traits.canonical_domain(domain)
    known = _onnxruntime_operators()
    return known is None or onnx.defs.has(op_type, domain) or (domain, op_type) in known


def _advice_on(domain: str, op_type: str, *, spatial: bool) -> str:
    if spatial:
        return f"--domain {domain} converts it, if it means the same as TensorFlow's or OpenVINO's"
    if not op_traits.canonical_domain(domain):
        return "correct its name, or convert the model with the tool that it belongs to"
    if domain == _TENSORFLOW:
        return (
            "tf2onnx cannot convert it: use other operators in the TensorFlow model, or register a "
            "library that has it (SessionOptions.register_custom_ops_library)"
        )
    return (
        "register the library that has it (SessionOptions.register_custom_ops_library), or export the "
        "model without it"
    )


@cache
def _onnxruntime_operators() -> frozenset[tuple[str, str]] | None:
    """Return domain and type of all operators; None if this build of onnxruntime does not list them."""
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        return frozenset((s.domain, s.name) for s in state.get_all_operator_schema())
    except (ImportError, AttributeError):
        return None  # loading the model will tell
