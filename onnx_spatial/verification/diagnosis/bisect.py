"""Find the first value that differs in a run of both models.

Converted models keep the names of the original's values. So both run once more with every value that
both compute as an output, and these are compared in the order in which the original computes them:

    a, b, c equal,  d differs     the nodes between a, b, c and d are wrong
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnx_spatial.errors import SpatialError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.compare import exactness
from onnx_spatial.verification.compare.outputs import compare
from onnx_spatial.verification.compare.tolerance import Tolerance
from onnx_spatial.verification.match.graphs import Graphs
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.report import FirstValue
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import CONVERTED, RunFailure, Session

#: Serialized models larger than this (256 MiB) are not copied to be bisected.
MOST_BYTES = 2**28


@dataclass(frozen=True)
class Bisection:
    """The first value that differs, if one does; inputs and computed tensors of the original by name."""

    first: FirstValue | None
    values: Mapping[str, Array]


def bisect(
    models: ModelPair,
    operators: Collection[int],
    feeds: Mapping[str, Array],
    *,
    optimised: bool,
    tolerance: Tolerance | None = None,
) -> Bisection | None:
    """Find the first value of the main graph that differs; None if the models cannot be run so.

    `operators` are the spatial operators of the original, by position in `traversal.nodes`; `tolerance`
    is that of the output that differs, if the caller set one.
    """
    shared = shared_values(models, operators, feeds, optimised=optimised)
    if shared is None:
        return None
    marks = exactness.of_outputs(shared.program)
    values = {n: v for n, v in {**feeds, **shared.before}.items() if isinstance(v, np.ndarray)}
    agreed = set(feeds)
    for name, node in shared.names.items():
        results = compare(
            name,
            0,
            optimised,
            shared.before[name],
            shared.after[name],
            marks[name],
            same_kernels=not shared.program.substitutes,
            tolerance=tolerance,
        )
        wrong = next((r for r in results if not r.passed), None)
        if wrong is None:
            agreed.add(name)
        elif not marks[name].random:
            first = FirstValue(
                name,
                traversal.label(node),
                node.op_type,
                str(traversal.Place()),
                wrong.dtype,
                wrong.shape,
                optimised,
                str(wrong.reason),
                frozenset(agreed),
            )
            return Bisection(first, values)
    return Bisection(None, values)


@dataclass(frozen=True)
class SharedValues:
    """The values of the main graph that both models compute in a run.

    Attributes:
        names: the original's node of each value, in the order in which they are computed.
        before, after: all outputs of the run, by name.
        program: the original with these values as outputs.
    """

    names: Mapping[str, onnx.NodeProto]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    program: Program


def shared_values(
    models: ModelPair,
    operators: Collection[int],
    feeds: Mapping[str, Array],
    *,
    optimised: bool,
) -> SharedValues | None:
    """Run both models with all values that both compute as outputs; None if that is impossible."""
    before, after = models.original, models.converted
    if max(before.proto.ByteSize(), after.proto.ByteSize()) > MOST_BYTES:
        return None
    converted = Graphs(after.proto)
    names = {
        name: node
        for node in traversal.in_order(before.proto.graph)
        for name in node.output
        if name and converted.computes(name)
    }
    try:
        program = Program(_with_outputs(before.proto, names), operators, before.folder)
        expected = program.run(feeds)
        extended = reader.serialize(_with_outputs(after.proto, names))
        session = Session(extended, optimise=optimised, folder=after.folder, of=CONVERTED)
        actual = session.run(models.as_fed(feeds))
    except (RunFailure, SpatialError):
        return None
    return SharedValues(names, expected, actual, program)


def _with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Copy a model and add outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {v.name for v in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known)
    return copy
