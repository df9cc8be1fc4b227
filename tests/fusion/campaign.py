"""Convert random regions, with fusion and without, and compare every output with the reference.

    python -m tests.fusion.campaign --cases 20000 --seed 0 -j 2
    python -m tests.fusion.campaign --cases 20000 --seed 0 -j 2 --functions

prints what was wrong and, class by class, how much was fused; the second with the nodes in functions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random

if __name__ == "__main__":  # what pytest's `pythonpath` does
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import functions
import interpreter
import making
import numpy as np
import onnx
import regions
import running
from making import Case
from vocabulary import LOWERINGS

import onnx_spatial

#: What `strategy` says of operators that are not fused into anything.
UNFUSED = frozenset(LOWERINGS)
CANCELLED = "cancelled"
#: What is not fused is lowered without a comparison of costs, which would take most of the time.
LOWERING = "transpose"
#: Of so many cases one is also converted without fusion.
PLAIN = 4

#: Models with QuantizeLinear per channel do not survive onnxruntime's own rewriting to QLinearConv
#: (sessions fail, numbers change), be they converted with fusion or without.
SETTINGS = {"session.disable_quant_qdq": "1"}


@dataclass
class Outcome:
    """What became of one case.

    Attributes:
        number: of the case.
        labels: its classes.
        sites, fused: the operators in it, and those that became part of something else.
        left: whether one of them is still lowered, those with block 1 on all axes aside: they are a
            Pad or a Slice.
        larger: how many nodes more there are than in the original.
        wrong: what is wrong; empty if nothing is.
        runtime: what onnxruntime's optimizer makes wrong of the model without fusion too.
    """

    number: int
    labels: dict[str, str]
    sites: int = 0
    fused: int = 0
    left: bool = True
    larger: int = 0
    wrong: list[str] = field(default_factory=list)
    runtime: list[str] = field(default_factory=list)


def build(seed: int, number: int, kind: str | None, in_functions: bool) -> Case:
    """A case, its nodes in the main graph or in functions."""
    case = regions.build(seed, number, kind)
    if in_functions:
        form = functions.FORMS[number % len(functions.FORMS)]
        return functions.moved(case, Random(f"function {seed} {number}"), form)
    case.labels["place"] = "main graph"
    return case


def try_case(
    seed: int, number: int, kind: str | None = None, in_functions: bool = False
) -> Outcome:
    """Build, convert and run one case."""
    case = build(seed, number, kind, in_functions)
    outcome = Outcome(number, case.labels)
    try:
        found = onnx_spatial.convert(case.model, verify=False, prefer=LOWERING)
        plain = _without_blocks(case.model)
        strategies = [s.lowering for s in found.operators if s.node not in plain]
        outcome.sites = len(strategies)
        outcome.fused = sum(s not in UNFUSED and s != CANCELLED for s in strategies)
        outcome.left = any(s in UNFUSED for s in strategies)
        outcome.larger = size(found.model) - size(case.model)
        wrong = mistakes(found.model, case)
        if wrong or number % PLAIN == 0:
            unfused = onnx_spatial.convert(
                case.model, verify=False, fuse=False, prefer=LOWERING
            ).model
            also = mistakes(unfused, case)
            outcome.runtime = [
                f"{where}: {wrong[where]}" for where in wrong if _is_its(where, also)
            ]
            wrong = {where: off for where, off in wrong.items() if not _is_its(where, also)}
            wrong |= {f"not fused, {k}": v for k, v in also.items() if not _is_its(k, also)}
        outcome.wrong += [f"{where}: {off}" for where, off in wrong.items()]
    except Exception as error:
        outcome.wrong.append(f"{type(error).__name__}: {error}")
    return outcome


def _without_blocks(model: onnx.ModelProto) -> set[str]:
    """Names of the operators whose block is known to be 1 on all axes."""
    nodes = [node for graph in (model.graph, *model.functions) for node in graph.node]
    tables = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in nodes:
        if node.op_type == "Constant" and not node.attribute[0].ref_attr_name:
            held = onnx.helper.get_attribute_value(node.attribute[0])
            is_tensor = isinstance(held, onnx.TensorProto)
            tables[node.output[0]] = onnx.numpy_helper.to_array(held) if is_tensor else held
    ones = {name for name, table in tables.items() if np.all(np.equal(table, 1))}
    operators = [n for n in nodes if "Batch" in n.op_type and len(n.input) > 2]
    return {n.name for n in operators if n.input[1] in ones}


def size(model: onnx.ModelProto) -> int:
    """How many nodes it has, or one of its calls of the region."""
    return functions.needed_nodes(model) if model.functions else len(model.graph.node)


def mistakes(model: onnx.ModelProto, case: Case) -> dict[str, str]:
    """What is wrong with a converted model, by where: outputs that are not what the reference says,
    optimisations off and on, and values that are read before they are there.
    """
    graphs = (model.graph, *model.functions)
    early = chain.from_iterable(map(_too_early, graphs))
    found = dict.fromkeys(early, "is read before it is there")
    for level in running.LEVELS:
        try:
            results = running.run_session(running.session(model, level, SETTINGS), case.feeds)
        except Exception as error:
            found[level.name] = f"{type(error).__name__}: {error}"
            continue
        for (name, wanted), result in zip(case.expected.items(), results, strict=True):
            if off := interpreter.difference(np.asarray(result), wanted):
                found[f"{level.name}, {name}"] = off
    return found


def _is_its(where: str, unfused: Mapping[str, str]) -> bool:
    """Whether onnxruntime's own optimizer is to blame: without fusion the same is wrong, and only
    with optimisations.
    """
    off, on = (level.name for level in running.LEVELS)
    return where in unfused and where.startswith(on) and where.replace(on, off) not in unfused


def _too_early(graph: onnx.GraphProto | onnx.FunctionProto) -> list[str]:
    """Values that nodes read in front of the node that gives them."""
    early, there = [], {""}
    if isinstance(graph, onnx.FunctionProto):
        there.update(graph.input)
    else:
        there.update(value.name for value in (*graph.input, *graph.initializer))
    for node in graph.node:
        early += [name for name in node.input if name not in there]
        there.update(node.output)
    return early


def _try_some(
    seed: int, kind: str | None, in_functions: bool, numbers: Sequence[int]
) -> list[Outcome]:
    return [try_case(seed, number, kind, in_functions) for number in numbers]


def outcomes(
    seed: int,
    numbers: Sequence[int],
    kind: str | None = None,
    processes: int = 1,
    *,
    in_functions: bool = False,
) -> Iterator[Outcome]:
    """Of many cases, on several cores."""
    chunks = [numbers[i : i + 100] for i in range(0, len(numbers), 100)]
    some = partial(_try_some, seed, kind, in_functions)
    if processes == 1:
        yield from chain.from_iterable(map(some, chunks))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from chain.from_iterable(pool.map(some, chunks))


def table(found: Iterable[Outcome]) -> str:
    """Markdown: for each class its cases, the share of them in which nothing is left of the
    operators, the share of these with more nodes than before, and the share of operators that became
    part of something else."""
    headings = ("kind", "layout", "mode", "place", "parameters and readers")
    rows: dict[str, dict[str, Counter[str]]] = {heading: {} for heading in headings}
    for outcome in found:
        labels = outcome.labels | {headings[-1]: _reason_to_grow(outcome)}
        for heading, of_class in rows.items():
            for name in (labels[heading], "all"):
                counted = of_class.setdefault(name, Counter())
                counted["cases"] += 1
                counted["gone"] += not outcome.left
                if outcome.larger > 0 and not outcome.left:
                    counted["larger"] += 1
                    counted["more"] += outcome.larger
                counted["sites"] += outcome.sites
                counted["fused"] += outcome.fused
                counted["wrong"] += bool(outcome.wrong)
    lines = []
    for heading, of_class in rows.items():
        lines += [
            f"| {heading} | cases | wrong | fused | of these larger | by nodes | operators fused |",
            "|---|---|---|---|---|---|---|",
        ]
        named = (*regions.FUSIBLE, *regions.KINDS, *making.OBSTACLES)
        order = [name for name in dict.fromkeys(named) if name in of_class]
        order += [*sorted(of_class.keys() - {*order, "all"}), "all"]
        for name in order:
            counted = of_class[name]
            gone, larger, fused = (
                f"{100 * counted[part] / max(counted[whole], 1):.1f} %"
                for part, whole in (("gone", "cases"), ("larger", "gone"), ("fused", "sites"))
            )
            more = f"{counted['more'] / max(counted['larger'], 1):.1f}"
            cells = [name, str(counted["cases"]), str(counted["wrong"]), gone, larger, more, fused]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _reason_to_grow(outcome: Outcome) -> str:
    """Say why a fused case may have more nodes than the original; see docs/optimize.md."""
    if outcome.labels["kind"] in ("inner values read outside", "anything"):
        return "values are needed in blocks"
    return "inputs of the model" if outcome.labels["mode"] == "run-time" else "known or computed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(regions.KINDS))
    parser.add_argument("-j", type=int, default=1, dest="processes")
    parser.add_argument("--functions", action="store_true", help="move the nodes into functions")
    arguments = parser.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.cases)
    began, found = time.monotonic(), []
    for outcome in outcomes(
        arguments.seed,
        numbers,
        arguments.kind,
        arguments.processes,
        in_functions=arguments.functions,
    ):
        found.append(outcome)
        if outcome.wrong:
            print(f"case {outcome.number} {outcome.labels}", *outcome.wrong, sep="\n  ", flush=True)
        if outcome.runtime:
            print(f"onnxruntime, case {outcome.number}", *outcome.runtime, sep="\n  ", flush=True)
        if len(found) % 1000 == 0:
            print(f"{len(found)} cases, {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(table(found))
    return int(any(outcome.wrong for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
