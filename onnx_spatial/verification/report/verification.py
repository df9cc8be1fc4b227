"""Define the result of a verification: of each operator, of each run and of the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnx_spatial.errors import Code, VerificationError, one_line
from onnx_spatial.model import traversal
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.report.comparisons import Check, OutputResult

if TYPE_CHECKING:
    from onnx_spatial.conversion.report import ProofScope

Status = Literal["passed", "failed", "unverified"]


@dataclass(frozen=True)
class Counterexample:
    """An input for which the nodes that replace an operator compute something else.

    Attributes:
        inputs: data of the operator, or of the region that it became part of.
        parameters: values of those of the inputs that are parameters.
        element: index of the first element of the output that differs; None if its shape does.
        reason: how it differs, as the rest of a sentence: "is x[0, 4, 1, 0] instead of ...".
        value: name of the output; None for that of the operator.
        optimised: whether onnxruntime's optimisations were on in the run that confirmed it.
    """

    inputs: dict[str, Array] = field(repr=False)
    parameters: dict[str, Any]
    element: tuple[int, ...] | None
    reason: str
    value: str | None = None
    optimised: bool = False

    @property
    def message(self) -> str:
        """The counterexample in one line."""
        data = [f"{n} {show(a.shape)}" for n, a in self.inputs.items() if n not in self.parameters]
        parameters = [f"{name} = {values}" for name, values in self.parameters.items()]
        where = "" if self.element is None else f"element {show(self.element)} of "
        return f"for {', '.join([*data, *parameters])}, {where}the output {self.reason}"


@dataclass
class OperatorResult:
    """The result for one operator node of the original.

    Attributes:
        node: its name, or <its output> if it has none.
        graph: graph that holds it, in words.
        op_type, domain: as in the original.
        checks: comparisons made.
        reason: why it failed, or why it could not be compared on its own.
        end_to_end: whether it took part in a run of the whole model that was compared.
        refused: whether it is not a spatial operator but a convolution that onnxruntime refuses;
            its results may differ by `RTOL`.
        proven: "all sizes": the nodes that replace it are proven equal for all sizes and values;
            "these sizes": for all values at the sizes of the file, which are static; "sampled": no
            proof, only comparisons at sampled sizes; None: nothing was compared, or it differs.
        assumptions: what a proof for all sizes assumes, one sentence each.
        proof_reason: why it is not proven.
        counterexample: input for which it differs, if the prover found one.
    """

    node: str
    graph: str
    op_type: str
    domain: str
    checks: list[Check] = field(default_factory=list)
    reason: str | None = None
    end_to_end: bool = False
    refused: bool = False
    proven: ProofScope | None = None
    assumptions: tuple[str, ...] = ()
    proof_reason: str | None = None
    counterexample: Counterexample | None = None

    @property
    def label(self) -> str:
        """The node in messages: its type, name and graph."""
        return f"{self.op_type} node {self.node!r} ({self.graph})"

    @property
    def how(self) -> list[str]:
        """In which ways it was compared: "isolated", "in place", "end to end"."""
        ways: list[str] = list(dict.fromkeys(c.how for c in self.checks))
        return [*ways, "end to end"] if self.end_to_end else ways

    @property
    def passed(self) -> bool | None:
        """Whether every comparison passed; None if none could be made apart from the whole model."""
        if self.counterexample is not None:
            return False
        return all(c.passed for c in self.checks) if self.checks else None

    @property
    def exact(self) -> bool:
        """Whether it was compared, and every comparison was bit for bit."""
        return not self.refused and bool(self.checks) and all(c.exact for c in self.checks)

    @property
    def unproven(self) -> str | None:
        """Why it is not proven, in one line; None if it is."""
        if self.proven in ("all sizes", "these sizes"):
            return None
        compared = "not proven, only compared at sampled sizes"
        reason = self.proof_reason or self.reason or "not compared"
        return f"{self.label} is {compared if self.proven else 'not proven'}: {reason}"


@dataclass(frozen=True)
class Run:
    """One run of both models.

    Attributes:
        seed: of the data.
        shapes, dtypes: of the inputs fed.
        overridden: initializers that were fed another value than their default.
    """

    seed: int
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    overridden: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, dict[str, object]]:
        """Type and shape of each input fed."""
        return {n: {"dtype": self.dtypes[n], "shape": shape} for n, shape in self.shapes.items()}


@dataclass(frozen=True)
class Difference:
    """The first difference, with the data that shows it.

    Attributes:
        kind: "operator", "value" of a node that is not a spatial operator, "output", or "model" where
            the converted model does not run at all.
        name: label of the operator's node, name of the value or output, or "".
        graph: graph of the operator or value; None for the others.
        message: the difference in one line.
        inputs: data of the operator, of the part that leads to the value, or of the whole model.
        value: name of the value that differs; where the operator's own is gone, the nearest one.
        place: graph that holds the value; None for the others.
        optimised: whether onnxruntime's optimisations were on.
    """

    kind: Literal["operator", "value", "output", "model"]
    name: str
    graph: str | None
    message: str
    inputs: dict[str, Array] = field(repr=False)
    value: str | None = None
    place: traversal.Place | None = field(default=None, repr=False)
    optimised: bool = False


@dataclass(frozen=True)
class FirstValue:
    """The first value, in the original's order of computation, that differs in a run of both models.

    Attributes:
        name: of the value.
        node, op_type, graph: label and type of the node that computes it in the original, its graph.
        dtype, shape: of the value.
        optimised: whether onnxruntime's optimisations were on.
        reason: how it differs.
        before: names of the values before it that are equal in both models, inputs included.
    """

    name: str
    node: str
    op_type: str
    graph: str
    dtype: str
    shape: tuple[int, ...]
    optimised: bool
    reason: str
    before: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(repr=False)
class Verification:
    """The verdict on a converted model, with the evidence.

    True only if everything that has to be compared was compared and agreed.

    Attributes:
        status: "passed", "failed", or "unverified": no difference, but not everything was compared.
        message: the result in one line.
        problems: everything that is wrong or missing, one line each.
        outputs: each output in each run.
        operators: each spatial operator of the original, and each convolution that onnxruntime refuses.
        runs: sizes and seeds.
        forced: input dims for which only one size runs, with that size.
        first_difference: of the first operator that differs (in the order of the file), else of the
            first output.
        first_value: the first value that differs in a run of both models, if one does.
        advice: what to do about it; None if nothing differs.
        reproducer: script that shows the first difference, if one was asked for and saved.
        unsteady: sizes that were left out, because the original's outputs change from run to run.
        operators_only: unverified because of the rest of the model (an operator that no runtime has,
            random numbers, too much rounding); every operator was compared on its own and passed.
        rest: where nothing was run end to end, the parts of the original that the converted model
            lacks or changes.
        sampled: nodes beside the operators that the converted model changes or adds, and that are not
            proven.
        notes: what was left out as the caller asked, or is allowed by a tolerance that the caller set.
        outputs_only: whether nothing but outputs was compared, as the caller asked.
    """

    status: Status
    message: str
    problems: list[str] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    operators: list[OperatorResult] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    first_difference: Difference | None = None
    operators_only: bool = False
    first_value: FirstValue | None = None
    advice: str | None = None
    reproducer: Path | None = None
    unsteady: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outputs_only: bool = False

    def __bool__(self) -> bool:
        return self.status == "passed"

    def __repr__(self) -> str:
        return one_line(f"<Verification {self.message}>")

    @property
    def code(self) -> Code | None:
        """Code of the verdict; None if passed."""
        return {"failed": Code.DIFFERENT, "unverified": Code.UNVERIFIED}.get(self.status)

    @property
    def proofs(self) -> str:
        """How many operators are proven, in one line."""
        line = count_proofs([operator.proven for operator in self.operators])
        return f"{line}; other nodes sampled: {len(self.sampled)}" if self.sampled else line

    @property
    def unproven(self) -> list[str]:
        """What is not proven and why, one line for each operator and other node that differs."""
        operators = [
            reason for operator in self.operators if (reason := operator.unproven) is not None
        ]
        return operators + self.sampled

    def to_dict(self) -> dict[str, object]:
        """Return version 2 of the report, ready for JSON; docs/verification.md lists its keys.

        Keys are attribute names, and `version`. Infinities and NaN are None, tuples lists, and inputs
        are given as name -> dtype, shape.
        """
        return {"version": 2, **plain(self)}


def check_verified(name: str, verification: Verification, options: VerifyOptions) -> None:
    """Raise unless the models were compared, as far as they can be run, and are equal.

    Raises:
        VerificationError: they differ, or could not be compared, or (strict) not end to end, or
            (strict_proof) an operator is not proven.
    """
    if not verification and (options.strict or not verification.operators_only):
        message = f"{name}: {verification.message}"
        raise VerificationError(message, verification, code=verification.code)
    if options.strict_proof and (unproven := verification.unproven):
        more = f" (and {len(unproven) - 1} more)" if len(unproven) > 1 else ""
        message = f"{name}: {unproven[0]}{more}"
        raise VerificationError(message, verification, code=Code.NOT_PROVEN)


def count_proofs(scopes: Sequence[str | None]) -> str:
    """Count operators by what is proven: "proven for all sizes: 2 of 3 operators; sampled: 1"."""
    scope, rest = "all sizes", ["these sizes", "sampled", None]
    if scope not in scopes and "these sizes" in scopes:  # as of models with static sizes only
        scope, rest = "these sizes", ["sampled", None]
    others = [f"; {each or 'not compared'}: {n}" for each in rest if (n := scopes.count(each))]
    noun = "operator" if len(scopes) == 1 else "operators"
    return f"proven for {scope}: {scopes.count(scope)} of {len(scopes)} {noun}{''.join(others)}"


#: Attributes that are keys of the JSON report, in order; of other classes all of them.
_KEYS = {
    Verification: (
        "status code message problems operators_only runs forced outputs operators first_difference "
        "first_value advice unsteady sampled reproducer notes outputs_only"
    ),
    Run: "seed inputs overridden",
    OperatorResult: (
        "node graph op_type domain exact how passed reason proven assumptions proof_reason "
        "counterexample checks"
    ),
    Counterexample: "inputs parameters element reason",
    Check: (
        "how optimised dtype shape elements mismatches reason exact max_ulps max_relative_error "
        "allowed_ulps passed"
    ),
    Difference: "kind name graph message inputs",
    FirstValue: "name node op_type graph dtype shape optimised reason",
}


def plain(value: Any) -> Any:
    """Replace what JSON lacks: results by dicts, arrays by their dtype and shape, infinities by None."""
    if is_dataclass(value):
        keys = _KEYS[type(value)].split() if type(value) in _KEYS else vars(value)
        return {key: plain(getattr(value, key)) for key in keys}
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
