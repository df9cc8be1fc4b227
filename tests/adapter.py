"""Convert, plan, inspect, verify and run commands, in the form that tests need.

Tests say what they want in the words of the interface of 1.0: `prefer`, `chains`, `lowering`. Where the
package has other words today, this module translates, and it alone changes when the package does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

import onnx_spatial
from onnx_spatial import ConversionError, Inspection, OperatorReport, Verification

#: Keywords of 1.0 and what they are called today.
_KEYWORDS = {
    "prefer": "strategy",
    "external_data": "save_as_external_data",
    "reproducer": "save_reproducer",
}


def _today(options: dict[str, Any]) -> dict[str, Any]:
    return {_KEYWORDS.get(name, name): value for name, value in options.items()}


@dataclass(frozen=True)
class Plan:
    """What becomes of a model.

    Attributes:
        model: the new model, with the operators that are refused in it; None if nothing changes.
        operators: the operators, in the order of the file.
        chains: the chains of standard nodes that are operators.
        touched: what differs from the original, by kind; empty if an operator is refused.
        nodes: numbers of nodes without and with the rewriting of chains.
        message: of the error, if an operator is refused.
    """

    model: onnx.ModelProto | None
    operators: list[OperatorReport]
    chains: list[OperatorReport] = field(default_factory=list)
    touched: dict[str, list[str]] = field(default_factory=dict)
    nodes: tuple[int, int] = (0, 0)
    message: str = ""

    @property
    def refused(self) -> list[OperatorReport]:
        """The operators that cannot be converted."""
        return [operator for operator in self.operators if operator.action == "refuse"]


def plan(model: onnx.ModelProto, *, chains: bool = False, **options: Any) -> Plan:
    """Convert without verification; the model that is given must stay as it is.

    Args:
        model: the model.
        chains: whether chains of standard nodes are rewritten, too.
        options: of `onnx_spatial.convert`.
    """
    before = model.SerializeToString(deterministic=True)
    edit = onnx_spatial.optimize if chains else onnx_spatial.convert
    message = ""
    try:
        conversion = edit(model, verify=False, **_today(options))
    except ConversionError as error:
        if not isinstance(error.inspection, Inspection):
            raise
        inspection, touched, message = error.inspection, {}, str(error)
        made = None if inspection.result is None else inspection.result.proto
    else:
        inspection, touched = conversion.inspection, conversion.touched
        made = conversion.model if conversion.changed else None
    assert model.SerializeToString(deterministic=True) == before
    return Plan(
        made,
        inspection.operators,
        inspection.chains,
        touched,
        inspection.nodes,
        message,
    )


def convert(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """The converted model, checked by onnx.

    Raises:
        ConversionError: an operator is refused.
    """
    made = plan(model, **options)
    if made.refused:
        raise ConversionError(made.message)
    assert made.model is not None
    declared = (*model.graph.input, *model.graph.output)
    if all(v.type.tensor_type.HasField("shape") for v in declared):  # the checker wants a rank
        onnx.checker.check_model(made.model)
    return made.model


def refusal(model: onnx.ModelProto, **options: Any) -> str:
    """Why the only operator of the model that is refused is refused."""
    (operator,) = plan(model, **options).refused
    assert operator.reason is not None
    return operator.reason


def verify(original: Any, converted: Any, **options: Any) -> Verification:
    """The verdict on a converted model; the options are those of `VerifyOptions`, and domains."""
    return onnx_spatial.verify(original, converted, **_today(options))


def run(arguments: Sequence[str]) -> int:
    """The exit code of the command line with these arguments."""
    from onnx_spatial.cli.main import run  # only tests of commands need all that it imports

    return run(arguments)
