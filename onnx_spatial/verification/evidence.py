"""Define the result of a verification: of the whole, of each operator, of each run.

Verification
  status     passed | failed | unverified
  evidence   proven | sampled            what a pass rests on
  unproven   the parts without a proof, each with what the prover found
  operators  outputs  runs               what was proven, compared and run
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from onnx_spatial.documents import Document
from onnx_spatial.errors import Code, VerificationError, one_line
from onnx_spatial.model import traversal
from onnx_spatial.operators.operator import show
from onnx_spatial.verification.options import Array, VerifyOptions

Status = Literal["passed", "failed", "unverified"]
#: What a pass rests on: a proof of every part that differs, or runs.
Evidence = Literal["proven", "sampled"]
#: Sizes that a proof holds for: all, or those of the file, which are static.
Scope = Literal["all sizes", "these sizes"]
#: What the prover found instead of a proof: nothing, or another formula.
Found = Literal["gave up", "other formula"]
#: What tables call a scope.
SCOPES = {"all sizes": "every size", "these sizes": "fixed sizes", None: "not proven"}
#: Reason of an operator that the converted model keeps: there is nothing to prove.
UNCHANGED = "it is left as it is"


@dataclass(frozen=True)
class Unproven:
    """A part of the model that is not proven.

    Attributes:
        node: label of the node: its type, name and graph.
        kind: "gave up", or "other formula" where the formulas of both models differ.
        reason: what the prover found, as the rest of a sentence.
    """

    node: str
    kind: Found
    reason: str

    def __str__(self) -> str:
        if self.reason.startswith("reads "):
            return f"{self.node} {self.reason}"
        return f"{self.node} is not proven: {self.reason}"


@dataclass(frozen=True)
class Counterexample(Document):
    """An input for which the nodes that replace an operator compute something else.

    Attributes:
        inputs: data of the part of the original that was compared.
        parameters: values of those of the inputs that are parameters.
        element: index of the first element of the output that differs; None if its shape does.
        reason: how it differs: "is x[0, 4, 1, 0] instead of ...", or a sentence.
        value: name of the output.
    """

    KEYS = "inputs parameters element reason"

    inputs: Mapping[str, Array] = field(repr=False)
    parameters: Mapping[str, Any]
    element: tuple[int, ...] | None
    reason: str
    value: str

    @property
    def names_values(self) -> bool:
        """Whether the reason says what an element should be, or why there is none."""
        return self.reason.startswith(("is ", "cannot "))

    @property
    def message(self) -> str:
        """The counterexample in one line."""
        data = [f"{n} {show(a.shape)}" for n, a in self.inputs.items() if n not in self.parameters]
        parameters = [f"{name} = {values}" for name, values in self.parameters.items()]
        where, what = "", self.reason
        if not self.names_values:
            what = f"differs: {self.reason}"
        elif self.element is not None:
            where = f"element {show(self.element)} of "
        return f"for {', '.join([*data, *parameters])}, {where}the output {what}"


@dataclass
class OperatorResult:
    """The result for one operator of the original, or for one chain of nodes that is an operator.

    Attributes:
        node: its name, or <its output> if it has none.
        graph: graph that holds it, in words.
        op_type, domain: as in the original.
        proven: "all sizes": the nodes that replace it are proven equal for all sizes and values;
            "these sizes": for all values at the sizes of the file, which are static; None: not proven.
        assumptions: what the proof assumes, one sentence each.
        unproven: what the prover found instead; None if it is proven.
        ran: whether it ran on its own, beside its definition, and agreed.
        reason: how it differs, or why it did not run on its own; None if it ran and agreed.
        counterexample: input for which it differs, if one was found.
    """

    node: str
    graph: str
    op_type: str
    domain: str
    proven: Scope | None = None
    assumptions: tuple[str, ...] = ()
    unproven: Unproven | None = None
    ran: bool = False
    reason: str | None = None
    counterexample: Counterexample | None = None

    @property
    def label(self) -> str:
        """The node in messages: its type, name and graph."""
        return f"{self.op_type} node {self.node!r} ({self.graph})"


@dataclass(frozen=True)
class Run(Document):
    """One run of both models.

    Attributes:
        seed: of the data.
        shapes, dtypes: of the inputs fed.
        overridden: initializers that were fed another value than their default.
    """

    KEYS = "seed inputs overridden"

    seed: int
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    overridden: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, dict[str, object]]:
        """Type and shape of each input fed."""
        return {n: {"dtype": self.dtypes[n], "shape": shape} for n, shape in self.shapes.items()}


@dataclass(frozen=True)
class WorstElement:
    """An element of an output with one of the largest errors: its index, and both values as text."""

    index: tuple[int, ...]
    original: str
    converted: str


@dataclass(frozen=True)
class OutputResult:
    """One comparison of an output of the whole model, in one run.

    Attributes:
        name: of the output.
        run: position of the run in `Verification.runs`.
        optimised: with onnxruntime's optimisations, or without any.
        dtype, shape: of the original's output.
        elements: number of elements.
        equal_bits: whether every bit is the same.
        max_abs_error: largest difference; None for strings, bools and where shapes differ.
        max_relative_error: the same relative to the largest value of the original.
        tolerance: largest relative error allowed; 0 where bits must be equal.
        mismatches: elements outside the tolerance.
        passed: the verdict; None if the output cannot be compared.
        reason: why it failed or cannot be compared; a remark if it passed.
        mean_relative_error, p50_relative_error, p99_relative_error: mean, median and 99th percentile
            of the differences, relative as above.
        max_steps: largest number of representable values between the two; None for integers.
        atol: absolute error that the caller allows beside it.
        error_decades: number of elements by their error, relative as above: "1e-07" counts those from
            1e-7 to below 1e-6, "0" those without one, "inf" NaN and infinities on one side. Empty if
            every bit is the same.
        worst_elements: those with the largest errors, the worst first.
        element: index of the first element outside the tolerance; None if there is none, or the type
            or the shape differs.
    """

    name: str
    run: int
    optimised: bool
    dtype: str
    shape: tuple[int, ...]
    elements: int = 0
    equal_bits: bool = False
    max_abs_error: float | None = None
    max_relative_error: float | None = None
    tolerance: float = 0.0
    mismatches: int = 0
    passed: bool | None = True
    reason: str | None = None
    mean_relative_error: float | None = None
    p50_relative_error: float | None = None
    p99_relative_error: float | None = None
    max_steps: float | None = None
    atol: float = 0.0
    error_decades: Mapping[str, int] = field(default_factory=dict)
    worst_elements: tuple[WorstElement, ...] = ()
    element: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Difference(Document):
    """The first difference, with the data that shows it.

    Attributes:
        kind: "operator", "value" of a part without operators, "output", or "model" where the converted
            model does not load or run at all.
        name: label of the operator's node, name of the value or output, or "".
        graph: graph of the operator or value; None for the others.
        message: the difference in one line.
        inputs: data of the part that differs, or of the whole model.
        value: name of the value that differs.
        place: graph that holds the value; None for the others.
        optimised: whether onnxruntime's optimisations were on.
    """

    KEYS = "kind name graph message inputs"

    kind: Literal["operator", "value", "output", "model"]
    name: str
    graph: str | None
    message: str
    inputs: Mapping[str, Array] = field(repr=False)
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
    """

    name: str
    node: str
    op_type: str
    graph: str
    dtype: str
    shape: tuple[int, ...]
    optimised: bool
    reason: str


@dataclass(repr=False)
class Verification(Document):
    """The verdict on a converted model, with the evidence.

    True only if the status is "passed". docs/report.md lists the keys of `to_dict`.

    Attributes:
        status: "passed", "failed", or "unverified": not proven, and it could not be run.
        message: the result in one line.
        evidence: "proven" if every part that differs is proven, "sampled" if some parts were only run;
            None unless passed.
        unproven: the parts that are not proven, each with what the prover found.
        problems: everything that is wrong or missing, one line each.
        outputs: each output in each run.
        operators: each spatial operator of the original, each chain that is one, and each convolution
            that onnxruntime refuses.
        parts: each changed part without operators, named after the node that computes its output.
        runs: sizes and seeds.
        first_difference: of the first part that differs (in the order of the file), else of the first
            output.
        first_value: the first value that differs in a run of both models, if one does.
        advice: what to do about it; None if there is nothing to do.
        reproducer: script that shows the first difference, if one was asked for and saved.
        notes: what was left out or is allowed, one sentence each.
        outputs_only: whether nothing but outputs was compared, as the caller asked.
        out_of_memory: whether it is unverified for want of memory.
    """

    KEYS = (
        "version status evidence code message problems unproven operators parts outputs runs "
        "first_difference first_value advice reproducer notes outputs_only"
    )
    version: ClassVar[int] = 2

    status: Status
    message: str
    evidence: Evidence | None = None
    unproven: list[Unproven] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    operators: list[OperatorResult] = field(default_factory=list)
    parts: list[OperatorResult] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    first_difference: Difference | None = None
    first_value: FirstValue | None = None
    advice: str | None = None
    reproducer: Path | None = None
    notes: list[str] = field(default_factory=list)
    outputs_only: bool = False
    out_of_memory: bool = False

    def __bool__(self) -> bool:
        return self.status == "passed"

    def __repr__(self) -> str:
        return one_line(f"<Verification {self.message}>")

    def _repr_html_(self) -> str:
        """Return the verdict and a table of the operators for a notebook."""
        rows = [
            (each.op_type, each.node, "DIFFERS" if each.counterexample else SCOPES[each.proven])
            for each in [*self.operators, *self.parts]
        ]
        lines = ("".join(f"<td>{html.escape(one_line(cell))}</td>" for cell in row) for row in rows)
        table = "".join(f"<tr>{line}</tr>" for line in lines)
        head = "<tr><th>operator</th><th>node</th><th>proven for</th></tr>"
        verdict = f"<p><b>{html.escape(one_line(self.message))}</b></p>"
        return f"{verdict}<table>{head}{table}</table>" if rows else verdict

    @property
    def code(self) -> Code | None:
        """Code of the verdict; None if passed."""
        return {"failed": Code.DIFFERENT, "unverified": Code.UNVERIFIED}.get(self.status)


def ended_early(status: Status, reason: str, *, out_of_memory: bool) -> Verification:
    """Return the result of a verification that ended before anything else could be said."""
    message = f"{status}: {reason}"
    return Verification(status, message, problems=[reason], out_of_memory=out_of_memory)


def check_verified(name: str, verification: Verification, options: VerifyOptions) -> None:
    """Raise if a verdict is not good enough.

    Raises:
        VerificationError: the models differ, or (strict, strict_proof) could not be compared, or
            (strict_proof) a part is not proven.
    """
    strict = options.strict or options.strict_proof
    if verification.status == "failed" or (strict and verification.status == "unverified"):
        message = f"{name}: {verification.message}"
        raise VerificationError(message, verification, code=verification.code)
    if options.strict_proof and (unproven := verification.unproven):
        message = f"{name}: {first_of(unproven)}"
        raise VerificationError(message, verification, code=Code.NOT_PROVEN)


def first_of(lines: Sequence[object]) -> str:
    """Return the first of some lines, and how many there are more."""
    return f"{lines[0]} (and {len(lines) - 1} more)" if len(lines) > 1 else str(lines[0])


def count_proofs(
    scopes: Sequence[str | None], noun: str = "operator", *, sampled: bool = False
) -> str:
    """Say what is proven: "proven: 2 operators for every size", or "sampled: 18 of 21 operators proven
    for every size, 2 for the fixed sizes in the file, 1 only run".

    A scope is None where it was only run, and "" where it was neither proven nor run.
    """
    where = {"all sizes": "for every size", "these sizes": "for the fixed sizes in the file"}
    total = len(scopes)
    sampled = sampled or None in scopes
    counts = [(n, f" {text}") for scope, text in where.items() if (n := scopes.count(scope))]
    (number, text), *others = counts or [(0, "")]
    of = f"{number} of {total}" if number < total else f"{total}"
    what = f"{of} {noun}{'' if total == 1 else 's'}{' proven' if sampled else ''}{text}"
    rest = [f"{scopes.count(None)} only run"] if None in scopes else []
    parts = ", ".join([what, *(f"{n}{text}" for n, text in others), *rest])
    return f"{'sampled' if sampled else 'proven'}: {parts}"
