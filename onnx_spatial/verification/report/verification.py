"""Define the result of a verification: of each operator, of each run and of the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from onnx_spatial.model import traversal
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.report.comparisons import Check, OutputResult

Status = Literal["passed", "failed", "unverified"]


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
        refused: whether it is not a spatial operator but a convolution that onnxruntime refuses;
            its results may differ by `RTOL`.
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
    def label(self) -> str:
        """The node in messages: its type, name and graph."""
        return f"{self.op_type} node {self.node!r} ({self.graph})"

    @property
    def how(self) -> list[str]:
        """In which ways it was compared: "isolated", "in place", "end to end"."""
        ways: list[str] = list(dict.fromkeys(c.how for c in self.checks if c.skipped is None))
        return [*ways, "end to end"] if self.end_to_end else ways

    @property
    def passed(self) -> bool | None:
        """Whether every comparison passed; None if none could be made apart from the whole model."""
        return all(c.passed for c in self.checks) if self.compared else None

    @property
    def compared(self) -> list[Check]:
        """The comparisons with the nodes that replace it in the converted model."""
        return [c for c in self.checks if c.how in ("isolated", "in place")]

    @property
    def exact(self) -> bool:
        """Whether it was compared, and every comparison was bit for bit."""
        return not self.refused and bool(self.compared) and all(c.exact for c in self.compared)


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


@dataclass(frozen=True)
class Difference:
    """The first difference, with the data that shows it.

    Attributes:
        kind: "site", "value" of a node that is not a spatial operator, "output", or "model" where
            the converted model does not run at all.
        name: label of the operator's node, name of the value or output, or "".
        graph: graph of the operator or value; None for the others.
        message: the difference in one line.
        inputs: data of the operator, of the part that leads to the value, or of the whole model.
        value: name of the value that differs; where the operator's own is gone, the nearest one.
        place: graph that holds the value; None for the others.
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


@dataclass
class Verification:
    """Whether a converted model computes what its original does, and the evidence.

    True only if everything that has to be compared was compared and agreed.

    Attributes:
        status: "passed", "failed", or "unverified": no difference, but not everything was compared.
        message: the result in one line.
        problems: everything that is wrong or missing, one line each.
        outputs: each output in each run.
        sites: each spatial operator of the original, and each convolution that onnxruntime refuses.
        runs: sizes and seeds.
        forced: input dims for which only one size runs, with that size.
        first_difference: of the first operator that differs (in the order of the file), else of the
            first output.
        first_value: the first value that differs in a run of both models, if one does.
        advice: what to do about it; None if nothing differs.
        reproducer: script that shows the first difference, if one was asked for and saved.
        unsteady: sizes that were left out, because the original's outputs change from run to run.
        sites_only: unverified because of the rest of the model (an operator that no runtime has,
            random numbers, too much rounding); every operator was proven on its own.
        rest: where nothing was run end to end, the parts of the original that the converted model
            lacks or changes.
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
        """Return version 1 of the report, ready for JSON; docs/verification.md lists its keys.

        Keys are attribute names, and `version`. Infinities and NaN are None, tuples lists, and inputs
        are given as name -> dtype, shape.
        """
        difference, first = self.first_difference, self.first_value
        return {
            "version": 1,
            "status": self.status,
            "message": self.message,
            "problems": list(self.problems),
            "sites_only": self.sites_only,
            "runs": [
                {
                    "seed": run.seed,
                    "inputs": _inputs(run.dtypes, run.shapes),
                    "overridden": list(run.overridden),
                }
                for run in self.runs
            ],
            "forced": dict(self.forced),
            "outputs": [_plain(vars(o)) for o in self.outputs],
            "sites": [
                {
                    **{key: getattr(site, key) for key in _SITE_KEYS},
                    "checks": [_plain({**vars(c), "passed": c.passed}) for c in site.checks],
                }
                for site in self.sites
            ],
            "first_difference": difference
            and {
                **{key: getattr(difference, key) for key in ("kind", "name", "graph", "message")},
                "inputs": _inputs(
                    {n: str(a.dtype) for n, a in difference.inputs.items()},
                    {n: a.shape for n, a in difference.inputs.items()},
                ),
            },
            "first_value": first
            and _plain({key: value for key, value in vars(first).items() if key != "before"}),
            "advice": self.advice,
            "unsteady": list(self.unsteady),
            "reproducer": None if self.reproducer is None else str(self.reproducer),
        }


_SITE_KEYS = ("node", "graph", "op_type", "domain", "exact", "how", "passed", "reason")


def _inputs(
    dtypes: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, dict[str, object]]:
    return {n: {"dtype": dtypes[n], "shape": list(shape)} for n, shape in shapes.items()}


def _plain(values: Mapping[str, Any]) -> dict[str, object]:
    """Replace what JSON lacks: infinities and NaN by None, tuples by lists."""
    plain: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        plain[key] = list(value) if isinstance(value, tuple) else value
    return plain
