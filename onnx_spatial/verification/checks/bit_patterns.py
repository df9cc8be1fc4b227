"""Runs of the whole model on every bit pattern, where a model only moves what it is fed.

An input that nothing but data movement reads may hold anything: NaNs with payloads, infinities, -0.0,
the extremes of integers, empty strings. What it leads to must come out bit for bit, whatever it is:

    x -> Transpose -> SpaceToBatch -> Slice -> y       x is moved, y is compared
    s -> Cast -> Conv ...                              s is fed as ever
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import Array, element_type_of, is_native, patterns
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.trial_runs import Trial

#: Operators with bodies, and their inputs that say which runs, or how often.
_DECIDES: dict[str, frozenset[int]] = {
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "Scan": frozenset(),  # in opset 8 the one in front, which is no input of the body
}
#: The sizes of a value say nothing of its numbers.
_SIZES = op_traits.having(Trait.SIZES)


def moved_inputs(program: Program) -> list[str]:
    """Inputs of a model that nothing but data movement reads, and that lead to an output."""
    graph = program.flat.graph
    outputs = {v.name for v in graph.output}
    return [v.name for v in graph.input if _is_moved(program, v.name, outputs)]


def _is_moved(program: Program, name: str, outputs: set[str]) -> bool:
    reached = {name}
    return _follow(program, program.flat.graph, reached) and not reached.isdisjoint(outputs)


def _follow(program: Program, graph: onnx.GraphProto, reached: set[str]) -> bool:
    """Add what the reached values of a graph are moved to; whether nothing else reads them."""
    for node in traversal.in_order(graph):
        if reached.isdisjoint(traversal.needs(node)) or node.op_type in _SIZES:
            continue
        moved: tuple[int, ...] = (0,)
        if program.site_of(node) is None:
            if not op_traits.is_standard(node):
                return False
            if node.op_type in _DECIDES:
                if not _follow_bodies(program, node, reached):
                    return False
                continue
            moved = op_traits.moved_inputs(node)
        read = {i for i, n in enumerate(node.input) if n in reached}
        if not read <= set(moved):
            return False
        reached.update(n for n in node.output if n)
    return True


def _follow_bodies(program: Program, node: onnx.NodeProto, reached: set[str]) -> bool:
    """The same for the bodies of If, Loop and Scan, and what comes out of them."""
    read = {i for i, n in enumerate(node.input) if n in reached}
    if read & _DECIDES[node.op_type]:
        return False
    given: set[str] = set()
    for _, body in traversal.subgraphs(node):
        ahead = len(node.input) - len(body.input) if node.op_type == "Scan" else 0
        if not all(0 <= i - ahead < len(body.input) for i in read):
            return False
        inside = {*reached, *(body.input[i - ahead].name for i in read)}
        states = _states(node, body)
        while True:  # what one turn gives is what the next one gets
            before = len(inside)
            if not _follow(program, body, inside):
                return False
            inside |= {body.input[to].name for of, to in states if body.output[of].name in inside}
            if len(inside) == before:
                break
        goes_on = node.op_type == "Loop"
        if goes_on and body.output[0].name in inside:
            return False
        results = zip(body.output[goes_on:], node.output, strict=False)
        given.update(name for value, name in results if name and value.name in inside)
    reached |= given
    return True


def _states(node: onnx.NodeProto, body: onnx.GraphProto) -> list[tuple[int, int]]:
    """(output, input) of the body for each value that a turn hands on to the next."""
    if node.op_type == "Loop":
        return [(i - 1, i) for i in range(2, len(body.input))]
    if node.op_type == "Scan":
        (scanned,) = (a.i for a in node.attribute if a.name == "num_scan_inputs")
        return [(i, i) for i in range(len(body.input) - scanned)]
    return []


def again(program: Program, trial: Trial, names: Sequence[str], seed: int) -> Trial | None:
    """A trial with any bits in the inputs of those names; None if the original does not run so."""
    fed: dict[str, Array] = {}
    for position, (name, array) in enumerate(trial.feeds.items()):
        if name in names and name not in trial.assignment.values and array.size:
            rng = np.random.default_rng([seed, position, array.size])
            fed[name] = patterns(element_type_of(array), array.shape, rng)
    if not fed or any(not is_native(a.dtype) and a.dtype.itemsize < 2 for a in fed.values()):
        return None  # of the 8-bit floats and 4-bit integers nothing is known
    feeds = {**trial.feeds, **fed}
    try:
        outputs: Mapping[str, Any] = program.run(feeds)
    except RunFailure:
        return None
    return replace(trial, feeds=feeds, outputs=dict(outputs), any_bits=True)
