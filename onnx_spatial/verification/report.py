"""What verification found, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from onnx_spatial.model import traversal
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.compare.outputs import OutputResult

Status = Literal["passed", "failed", "unverified"]


@dataclass(frozen=True)
class Check:
    """One comparison of a site with the numpy kernel: bit for bit, or within a tolerance.

    A site that was merged with what computes with reals (a convolution) is compared together with
    that, to a reference in double precision.

    Attributes:
        how: "isolated": the nodes that stand for it, cut out and fed with data of their own;
            "in place": its own inputs and output in a run of the converted model; "tensorflow",
            "openvino": the numpy kernel itself with that runtime's.
        optimised: with onnxruntime's optimisations, or without any.
        dtype, shape: of the site's data, or of what goes into the part that it was merged into.
        elements: of its output, or of that part's.
        mismatches: elements whose bits differ, or that are outside the tolerance.
        reason: why it failed; None if it passed.
        exact: whether every bit has to be the same.
        max_ulps: largest error, in units in the last place of the sum of the magnitudes that make up
            an element, or of the largest element where that is not known; None where every bit
            has to be the same, or where there is no reference in double precision.
        max_relative_error: largest error relative to the largest element; None if `exact`.
        allowed_ulps: what `max_ulps` may be; None where it is None.
        skipped: why nothing was compared; None if it was.
    """

    how: Literal["isolated", "in place", "tensorflow", "openvino"]
    optimised: bool
    dtype: str
    shape: tuple[int, ...]
    elements: int
    mismatches: int = 0
    reason: str | None = None
    exact: bool = True
    max_ulps: float | None = None
    max_relative_error: float | None = None
    allowed_ulps: float | None = None
    skipped: str | None = None

    @property
    def passed(self) -> bool:
        """Whether no bit differs, or no element by more than is allowed."""
        return self.reason is None


@dataclass
class SiteResult:
    """What is proven of one operator node of the original.

    Attributes:
        node: its name, or <its output> if it has none.
        graph: graph that holds it, in words.
        op_type, domain: as in the original.
        checks: comparisons made.
        reason: why it failed, or why it could not be compared on its own.
        end_to_end: whether it took part in a run of the whole model that was compared.
        refused: whether it is no spatial operator but a convolution that onnxruntime refuses, whose
            reals may differ by `RTOL`.
    """

    node: str
    graph: str
    op_type: str
    domain: str
    checks: list[Check] = field(default_factory=list)
    reason: str | None = None
    end_to_end: bool = False
    refused: bool = False

    @property
    def how(self) -> list[str]:
        """In which ways it was compared: "isolated", "in place", "end to end"."""
        ways: list[str] = list(dict.fromkeys(c.how for c in self.checks if c.skipped is None))
        return [*ways, "end to end"] if self.end_to_end else ways

    @property
    def passed(self) -> bool | None:
        """Whether every comparison agreed, bit for bit or within its tolerance; None if none could
        be made on its own.
        """
        return all(c.passed for c in self.checks) if self.compared else None

    @property
    def compared(self) -> list[Check]:
        """The comparisons with what stands for it in the converted model."""
        return [c for c in self.checks if c.how in ("isolated", "in place")]

    @property
    def exact(self) -> bool:
        """Whether it was compared, and every comparison asked for every bit."""
        return not self.refused and bool(self.compared) and all(c.exact for c in self.compared)


@dataclass(frozen=True)
class Run:
    """One run of both models.

    Attributes:
        seed: of the data.
        shapes: of the inputs fed.
        dtypes: of the inputs fed.
        overridden: initializers that were fed something else than their default.
    """

    seed: int
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    overridden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """The first thing that differs, with what is needed to see it again.

    Attributes:
        kind: "site", "value" behind a node that is no operator of ours, "output", or "model" where the
            converted model does not run at all.
        name: label of the site's node, name of the value or output, or "".
        graph: where the site or value is; None for the others.
        message: what differs.
        inputs: what the site, the part that leads to the value, or the whole model was fed.
        value: name of the value that differs; of an operator's, where its own is gone, the nearest.
        place: graph that holds it; None for the others.
        optimised: whether onnxruntime's optimisations were on.
    """

    kind: Literal["site", "value", "output", "model"]
    name: str
    graph: str | None
    message: str
    inputs: dict[str, Array] = field(repr=False)
    value: str | None = None
    place: traversal.Place | None = field(default=None, repr=False)
    optimised: bool = False


@dataclass(frozen=True)
class FirstValue:
    """The first value, in the order in which the original computes them, that differs in a run of both.

    Attributes:
        name: of the value.
        node, op_type: label and type of the node that computes it in the original.
        graph: that holds it.
        dtype, shape: of the value.
        optimised: whether onnxruntime's optimisations were on.
        reason: how it differs.
        before: names of values that both models computed alike, those that were fed included.
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


@dataclass
class Verification:
    """Whether two models are the same, and the figures. True only if everything that had to be
    compared was compared and agreed.

    Attributes:
        status: "passed", "failed", or "unverified": nothing differs, but the whole could not be
            compared.
        message: the result in one line.
        problems: everything that is wrong or missing, one line each.
        outputs: each output in each run.
        sites: each spatial operator of the original, and each convolution that onnxruntime refuses.
        runs: sizes and seeds.
        forced: input dims of which only one size runs, with that size.
        first_difference: the first site (in the order of the file), else output, that differs.
        first_value: the first value that differs in a run of both models, where one does.
        advice: what to do about it; None if nothing differs.
        reproducer: script that shows the first difference, where one was asked for and saved.
        unsteady: sizes that were left out, as the original gives something else there in every run.
        sites_only: unverified because of what else is in the model (an operator that nothing here
            can run, random numbers, more rounding than can be told from a mistake); every site was
            proven on its own.
        rest: where nothing was run end to end, the parts of the original that the converted model
            lacks or holds otherwise.
    """

    status: Status
    message: str
    problems: list[str] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    sites: list[SiteResult] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    first_difference: Difference | None = None
    sites_only: bool = False
    first_value: FirstValue | None = None
    advice: str | None = None
    reproducer: Path | None = None
    unsteady: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.status == "passed"

    def to_dict(self) -> dict[str, object]:
        """Version 1, ready for JSON; infinities and NaN are None.

        version, status, message, problems, sites_only, forced: as the attributes.
        runs: seed, inputs (name -> dtype, shape), overridden.
        outputs: name, run, optimised, dtype, shape, elements, equal_bits, max_abs_error,
            max_relative_error, tolerance, mismatches, passed, reason, mean_relative_error,
            p50_relative_error, p99_relative_error, max_steps, reference, max_ulps, allowed_ulps,
            own_relative_error, accepted.
        sites: node, graph, op_type, domain, exact, how, passed, reason, checks (how, optimised,
            dtype, shape, elements, mismatches, passed, reason, exact, max_ulps, max_relative_error,
            allowed_ulps, skipped).
        first_difference: kind, name, graph, message, inputs (name -> dtype, shape); or None.
        first_value: name, node, op_type, graph, dtype, shape, optimised, reason; or None.
        advice: text, or None.
        reproducer: path of the script, or None.
        unsteady: lines of text.
        """
        return {
            "version": 1,
            "status": self.status,
            "message": self.message,
            "problems": list(self.problems),
            "sites_only": self.sites_only,
            "runs": [_run(r) for r in self.runs],
            "forced": dict(self.forced),
            "outputs": [_plain(vars(o)) for o in self.outputs],
            "sites": [_site(s) for s in self.sites],
            "first_difference": _difference(self.first_difference),
            "first_value": _first_value(self.first_value),
            "advice": self.advice,
            "unsteady": list(self.unsteady),
            "reproducer": None if self.reproducer is None else str(self.reproducer),
        }


def _run(run: Run) -> dict[str, object]:
    inputs = {n: {"dtype": run.dtypes[n], "shape": list(s)} for n, s in run.shapes.items()}
    return {"seed": run.seed, "inputs": inputs, "overridden": list(run.overridden)}


def _site(site: SiteResult) -> dict[str, object]:
    return {
        "node": site.node,
        "graph": site.graph,
        "op_type": site.op_type,
        "domain": site.domain,
        "exact": site.exact,
        "how": site.how,
        "passed": site.passed,
        "reason": site.reason,
        "checks": [_plain({**vars(c), "passed": c.passed}) for c in site.checks],
    }


def _difference(found: Difference | None) -> dict[str, object] | None:
    if found is None:
        return None
    inputs = {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in found.inputs.items()}
    return {
        "kind": found.kind,
        "name": found.name,
        "graph": found.graph,
        "message": found.message,
        "inputs": inputs,
    }


def _first_value(found: FirstValue | None) -> dict[str, object] | None:
    if found is None:
        return None
    return _plain({name: value for name, value in vars(found).items() if name != "before"})


def _plain(values: dict[str, object]) -> dict[str, object]:
    plain: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            plain[key] = None
        else:
            plain[key] = list(value) if isinstance(value, tuple) else value
    return plain
