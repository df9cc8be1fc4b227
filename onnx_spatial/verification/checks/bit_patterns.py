"""Generate runs of the whole model on every bit pattern, for inputs that are only moved.

An input that only data movement reads may hold anything: NaNs with payloads, infinities, -0.0, the
extremes of integers, empty strings. The outputs that it leads to must come out bit for bit:

    x -> Transpose -> SpaceToBatch -> Slice -> y       x is moved, y is compared
    s -> Cast -> Conv ...                              s gets usual data
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import Array, element_type_of, is_native
from onnx_spatial.verification.run.data import patterns
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.trial_runs import Trial

#: Operators with bodies, and their inputs that decide which body runs, or how often.
_DECIDES: dict[str, frozenset[int]] = {
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "Scan": frozenset(),  # in opset 8 the first one, which is no input of the body
}
#: Operators that read the sizes of a value and not its numbers.
_SIZES = op_traits.having(Trait.SIZES)


def moved_inputs(program: Program) -> list[str]:
    """Return the inputs of a model that only data movement reads, and that lead to an output."""
    graph = program.flat.graph
    outputs = {v.name for v in graph.output}
    reached = {v.name: {v.name} for v in graph.input}
    return [
        name
        for name, values in reached.items()
        if _follow(program, graph, values) and not values.isdisjoint(outputs)
    ]


def _follow(program: Program, graph: onnx.GraphProto, reached: set[str]) -> bool:
    """Add the values that reached ones are moved to; return whether only data movement reads them."""
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
    """Do the same for the bodies of If, Loop and Scan, and add the outputs of the node."""
    read = {i for i, n in enumerate(node.input) if n in reached}
    if read & _DECIDES[node.op_type]:
        return False
    outputs: set[str] = set()
    for _, body in traversal.subgraphs(node):
        skipped = len(node.input) - len(body.input) if node.op_type == "Scan" else 0
        if not all(0 <= i - skipped < len(body.input) for i in read):
            return False
        inside = {*reached, *(body.input[i - skipped].name for i in read)}
        states = _states(node, body)
        while True:  # the outputs of one iteration are inputs of the next
            before = len(inside)
            if not _follow(program, body, inside):
                return False
            inside |= {body.input[i].name for o, i in states if body.output[o].name in inside}
            if len(inside) == before:
                break
        is_loop = node.op_type == "Loop"  # its first output decides whether it goes on
        if is_loop and body.output[0].name in inside:
            return False
        results = zip(body.output[is_loop:], node.output, strict=False)
        outputs.update(name for value, name in results if name and value.name in inside)
    reached |= outputs
    return True


def _states(node: onnx.NodeProto, body: onnx.GraphProto) -> list[tuple[int, int]]:
    """Return (output, input) of the body for each loop-carried value."""
    if node.op_type == "Loop":
        return [(i - 1, i) for i in range(2, len(body.input))]
    if node.op_type == "Scan":
        (scanned,) = (a.i for a in node.attribute if a.name == "num_scan_inputs")
        return [(i, i) for i in range(len(body.input) - scanned)]
    return []


def repeated(program: Program, trial: Trial, names: Sequence[str], seed: int) -> Trial | None:
    """Repeat a trial with any bits in the named inputs; None if the original does not run on them."""
    fed: dict[str, Array] = {}
    for position, (name, array) in enumerate(trial.feeds.items()):
        if name in names and name not in trial.assignment.values and array.size:
            rng = np.random.default_rng([seed, position, array.size])
            fed[name] = patterns(element_type_of(array), array.shape, rng)
    if not fed or any(not is_native(a.dtype) and a.dtype.itemsize < 2 for a in fed.values()):
        return None  # whether runtimes keep every bit of 8-bit floats and 4-bit integers is unknown
    feeds = {**trial.feeds, **fed}
    try:
        outputs: Mapping[str, Any] = program.run(feeds)
    except RunFailure:
        return None
    return replace(trial, feeds=feeds, outputs=dict(outputs), any_bits=True)
