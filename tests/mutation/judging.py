"""Whether a changed model gives anything else than its original on legal inputs.

The original runs in onnx's reference evaluator with the tests' own definitions of the operators
(`reference`), the changed model in onnxruntime. Nothing of the package under test is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import reference
import running
from subjects import Feeds

#: Sums differ by rounding up to this share of the largest value; of float16 the second.
ROUNDING = 1e-4, 2e-2


@dataclass(frozen=True)
class Pair:
    """An original and a model that is, or is not, a right conversion of it.

    Attributes:
        name: base and change.
        original, changed: the models.
        wrong: says how they differ in a run; None if they do not, as far as was tried.
        right: the right conversion that was broken, if it is one.
    """

    name: str
    original: onnx.ModelProto
    changed: onnx.ModelProto
    wrong: Callable[[], str | None] = lambda: None
    right: onnx.ModelProto | None = None


class Judge:
    """What an original gives on some inputs; `exact`: every bit counts, because data is only moved."""

    def __init__(
        self, original: onnx.ModelProto, feeds: Iterable[Feeds], exact: bool = False
    ) -> None:
        stored = {t.name for t in original.graph.initializer}
        self._inputs = [v.name for v in original.graph.input if v.name not in stored]
        self._outputs = [v.name for v in original.graph.output]
        self._exact = exact
        self._cases = [(each, [*map(np.asarray, reference.run(original, each))]) for each in feeds]

    def difference(self, changed: onnx.ModelProto) -> tuple[str, str] | None:
        """("loud", why) if it does not load or run or has other inputs; ("silent", how) if it gives
        other outputs; None if nothing differs.
        """
        if any(map(_ends_the_process, changed.graph.node)):
            return "loud", "onnxruntime ends the process while it loads"
        for level in running.LEVELS:
            try:
                session = running.session(changed, level)
            except Exception as error:  # onnxruntime's errors have no common class
                return "loud", f"does not load: {str(error)[:120]}"
            if [o.name for o in session.get_outputs()] != self._outputs:
                return "silent", "its outputs have other names, or another order"
            if [i.name for i in session.get_inputs()] != self._inputs:
                return "loud", "its inputs have other names"
            for given, expected in self._cases:
                sizes = {n: a.shape for n, a in given.items()}
                try:
                    results = running.run_session(session, given)
                except Exception as error:  # as above
                    return "loud", f"does not run at {sizes}: {str(error)[:120]}"
                if not all(map(running.same_bits if self._exact else alike, expected, results)):
                    return "silent", f"other values at {sizes}"
        return None


def alike(wanted: np.ndarray, given: np.ndarray) -> bool:
    """Whether nothing but rounding differs."""
    return apart(wanted, given) <= ROUNDING[wanted.dtype == np.float16]


def apart(wanted: np.ndarray, given: np.ndarray) -> float:
    """The largest error by the largest value; infinite where NaNs, infinities or shapes differ."""
    if given.shape != wanted.shape or given.dtype != wanted.dtype:
        return math.inf
    if wanted.dtype.kind != "f":
        return 0.0 if running.same_bits(wanted, given) else math.inf
    a, b = wanted.astype(np.float64), given.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    a, b = a[finite], b[finite]
    if not np.isfinite(b).all():
        return math.inf
    return float(np.abs(a - b).max(initial=0) / (np.abs(a).max(initial=0) or 1.0))


def moved(original: onnx.ModelProto, changed: onnx.ModelProto, feeds: Feeds) -> str | None:
    """Return how a model that only moves data differs from the original on one input; None if not."""
    found = Judge(original, [feeds], exact=True).difference(changed)
    return found and ": ".join(found)


def shapes(model: onnx.ModelProto, feeds: Feeds) -> dict[str, Any]:
    """What every Shape of the main graph gives on one input, by name."""
    kept = {v.name for v in model.graph.output}
    names = [n.output[0] for n in model.graph.node if n.op_type == "Shape"]
    wanted = [n for n in names if n not in kept]
    if not wanted:
        return {}
    more = onnx.ModelProto()
    more.CopyFrom(model)
    more.graph.output.extend(onnx.ValueInfoProto(name=n) for n in wanted)
    results = running.run(more, feeds, running.LEVELS[0])
    return dict(zip(wanted, results[len(kept) :], strict=True))


def _ends_the_process(node: onnx.NodeProto) -> bool:
    """A Split with more results than its attribute says; of other sizes it is just refused."""
    said = [attribute.i for attribute in node.attribute if attribute.name == "num_outputs"]
    return node.op_type == "Split" and any(count < len(node.output) for count in said)
