"""Convert, plan, inspect, verify and run commands, in the form that tests need.

This module alone changes when the package gets other words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

import onnx_spatial
from onnx_spatial import ConversionError, Inspection, Verification, VerifyOptions, verification
from onnx_spatial.conversion.report import OperatorReport
from onnx_spatial.verification import Tolerances, pair
from onnx_spatial.verification.match.matches import ChangedPart, find
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.prover import Proof, Prover


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
    message = ""
    try:
        conversion = onnx_spatial.convert(model, chains=chains, verify=False, **options)
    except ConversionError as error:
        if not isinstance(error.inspection, Inspection):
            raise
        inspection, touched, message = error.inspection, {}, str(error)
        made = None if inspection.result is None else inspection.result.proto
    else:
        inspection, touched = conversion.inspection, conversion.touched
        made = conversion.model if conversion.changed else None
    assert model.SerializeToString(deterministic=True) == before
    return Plan(made, inspection.named, inspection.chains, touched, inspection.nodes, message)


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


def verify(
    original: Any,
    converted: Any,
    *,
    domains: Sequence[str] = (),
    isolate: bool = False,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Verification:
    """The verdict on a converted model; the options are those of `VerifyOptions`.

    With `isolate` it is reached in a child process, and `progress` hears of it, as in a command.
    """
    if isolate:
        options.setdefault("memory", 4 << 30)
    asked = VerifyOptions(**options)
    if progress is None:
        return onnx_spatial.verify(original, converted, asked, domains=domains)
    return verification.verify(original, converted, asked, domains=domains, progress=progress)


@dataclass(frozen=True)
class Proofs:
    """What the prover says of two models; a run may hide a wrong proof in a verdict.

    Attributes:
        parts: the parts that differ, each with what is proven of it.
        rest: what differs and is in no part, one sentence each.
    """

    parts: list[tuple[ChangedPart, Proof]]
    rest: list[str]

    @property
    def is_proven(self) -> bool:
        """Whether both models are proven to compute the same."""
        return not self.rest and all(proof.scope is not None for _, proof in self.parts)


def prove(original: Any, converted: Any) -> Proofs:
    """Prove what differs between two models, and run nothing."""
    models = ModelPair.read(original, converted, ()).prepared()
    matches, proofs = Prover(models, find(models)).prove_all(lambda _: None)
    found = pair.compare_interfaces(models, Tolerances())
    rest = [*found.blocking, *found.types, *found.narrowed, *matches.rest]
    rest += [each.reason for each in matches.unmatched]
    return Proofs(list(zip(matches.changed, proofs, strict=True)), rest)


def run(arguments: Sequence[str]) -> int:
    """The exit code of the command line with these arguments."""
    from onnx_spatial.cli.main import run  # only tests of commands need all that it imports

    return run(arguments)
