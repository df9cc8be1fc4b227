"""Convert random regions and compare every output with the reference.

    python -m tests.fusion.campaign --cases 20000 --seed 0 -j 2
    python -m tests.fusion.campaign --cases 20000 --seed 0 -j 2 --functions

prints what was wrong and, kind by kind, how much was fused; the second with the nodes in functions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random

if __name__ == "__main__":  # what pytest's `pythonpath` does
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import functions
import numpy as np
import onnx
import regions
import running
from making import Case
from vocabulary import LOWERINGS

import onnx_spatial

#: What is not fused is lowered without a comparison of costs, which would take most of the time.
LOWERING = "transpose"
#: Models with QuantizeLinear per channel do not survive onnxruntime's own rewriting to QLinearConv
#: (sessions fail, numbers change), be they converted with fusion or without.
SETTINGS = {"session.disable_quant_qdq": "1"}
#: How far a result may be off, as a share of the largest element.
TOLERANCE = 1e-4
#: The same behind what rounds to few bits: there a sum in another order may take a whole step.
COARSE_TOLERANCE = 0.1


@dataclass
class Outcome:
    """What became of one case: its number and kind, the operators in it, how many of them became part of
    something else, and what is wrong."""

    number: int
    kind: str
    sites: int = 0
    fused: int = 0
    wrong: list[str] = field(default_factory=list)


def build(seed: int, number: int, kind: str | None, in_functions: bool) -> Case:
    """A case, its nodes in the main graph or in functions."""
    case = regions.build(seed, number, kind)
    if not in_functions:
        return case
    form = functions.FORMS[number % len(functions.FORMS)]
    return functions.moved(case, Random(f"function {seed} {number}"), form)


def try_case(
    seed: int, number: int, kind: str | None = None, in_functions: bool = False
) -> Outcome:
    """Build, convert and run one case."""
    case = build(seed, number, kind, in_functions)
    outcome = Outcome(number, case.labels["kind"])
    try:
        found = onnx_spatial.convert(case.model, verify=False, prefer=LOWERING)
        outcome.sites = len(found.operators)
        outcome.fused = sum(site.lowering not in LOWERINGS for site in found.operators)
        if wrong := mistakes(found.model, case):
            # What is wrong without fusion, too, is another room's, or of onnxruntime's optimizer.
            plain = onnx_spatial.convert(case.model, verify=False, fuse=False, prefer=LOWERING)
            known = mistakes(plain.model, case)
            outcome.wrong = [f"{k}: {v}" for k, v in wrong.items() if k not in known]
    except Exception as error:
        outcome.wrong.append(f"{type(error).__name__}: {error}")
    return outcome


def mistakes(model: onnx.ModelProto, case: Case) -> dict[str, str]:
    """What is wrong with a converted model, by where: outputs that are not what the reference says,
    optimisations off and on."""
    found, tolerance = {}, tolerance_of(case.model)
    for level in running.LEVELS:
        try:
            results = running.run_session(running.session(model, level, SETTINGS), case.feeds)
        except Exception as error:
            found[level.name] = f"{type(error).__name__}: {error}"
            continue
        for (name, wanted), result in zip(case.expected.items(), results, strict=True):
            if off := difference(np.asarray(result), wanted, tolerance):
                found[f"{level.name}, {name}"] = off
    return found


def tolerance_of(model: onnx.ModelProto) -> float:
    """How far results may be off."""
    for node in all_nodes(model):
        to = [a.i for a in node.attribute if node.op_type == "Cast" and a.name == "to"]
        if node.op_type == "QuantizeLinear" or onnx.TensorProto.FLOAT16 in to:
            return COARSE_TOLERANCE
    return TOLERANCE


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    return chain(model.graph.node, *(function.node for function in model.functions))


def difference(result: np.ndarray, wanted: np.ndarray, tolerance: float = TOLERANCE) -> str | None:
    """What is wrong with a result; None if nothing is."""
    if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
        return f"{result.dtype}{result.shape}, not {wanted.dtype}{wanted.shape}"
    off = np.abs(result.astype(np.float64) - wanted.astype(np.float64))
    allowed = tolerance * max(np.abs(wanted.astype(np.float64)).max(initial=0), 1e-2)
    if wanted.dtype.kind != "f":  # a quantised element may be a step or two off
        allowed = 0 if tolerance == TOLERANCE or wanted.dtype.itemsize > 1 else 3
    wrong = ~(off <= allowed)  # what is not a number is wrong
    return f"{wrong.sum()} of {off.size} differ by up to {off.max():.2g}" if wrong.any() else None


def _try_some(
    seed: int, kind: str | None, in_functions: bool, numbers: Sequence[int]
) -> list[Outcome]:
    return [try_case(seed, number, kind, in_functions) for number in numbers]


def outcomes(
    seed: int, numbers: Sequence[int], kind: str | None = None, processes: int = 1,
    *, in_functions: bool = False,
) -> Iterator[Outcome]:  # fmt: skip
    """Of many cases, on several cores."""
    chunks = [numbers[i : i + 100] for i in range(0, len(numbers), 100)]
    some = partial(_try_some, seed, kind, in_functions)
    if processes == 1:
        yield from chain.from_iterable(map(some, chunks))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from chain.from_iterable(pool.map(some, chunks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(regions.NAMES))
    parser.add_argument("-j", type=int, default=1, dest="processes")
    parser.add_argument("--functions", action="store_true", help="move the nodes into functions")
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.cases)
    counted: dict[str, Counter[str]] = {}
    for outcome in outcomes(
        given.seed, numbers, given.kind, given.processes, in_functions=given.functions
    ):
        if outcome.wrong:
            print(f"case {outcome.number}, {outcome.kind}", *outcome.wrong, sep="\n  ", flush=True)
        for kind in (outcome.kind, "all"):
            counts = counted.setdefault(kind, Counter())
            counts["wrong"] += bool(outcome.wrong)
            counts.update(cases=1, sites=outcome.sites, fused=outcome.fused)
    for kind, n in sorted(counted.items()):
        share = 100 * n["fused"] / max(n["sites"], 1)
        print(
            f"{kind:14} {n['cases']:6} cases, {n['wrong']} wrong, {share:5.1f} % of operators fused"
        )
    return int(any(counts["wrong"] for counts in counted.values()))


if __name__ == "__main__":
    sys.exit(main())
