"""Find the first value that differs in a run of both models.

Converted models keep the names of the original's values. So both run once more with every value that
both compute as an output, and these are compared in the order in which the original computes them:

    a, b, c agree,  d differs     the nodes between a, b, c and d are wrong
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onnx_spatial.errors import SpatialError
from onnx_spatial.model import traversal
from onnx_spatial.verification.arrays import Array, dtype_name
from onnx_spatial.verification.compare.comparison import find_mismatch
from onnx_spatial.verification.compare.kinds import Kind, Kinds
from onnx_spatial.verification.compare.tolerance import Tolerance
from onnx_spatial.verification.evidence import FirstValue
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import MAIN
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.run.original import open_original
from onnx_spatial.verification.run.sessions import (
    CONVERTED,
    Report,
    RunError,
    Session,
    no_report,
    with_values,
)

#: Bytes of a model that is copied to give it more outputs.
_MOST_BYTES = 2**28


@dataclass(frozen=True)
class Divergence:
    """Where the values of two models part in a run.

    Attributes:
        first: the first value that differs; None if those that both compute agree.
        agreed: tensors that agree and come before it, the inputs included, by name.
        grows: whether both models compute it by the same node from the same values: then that node
            amplifies a difference that rounding makes.
    """

    first: FirstValue | None
    agreed: Mapping[str, Array]
    grows: bool = False


def find(
    models: ModelPair,
    definitions: Definitions,
    kinds: Kinds,
    feeds: Mapping[str, Array],
    *,
    optimised: bool,
    tolerance: Tolerance | None = None,
    report: Report = no_report,
) -> Divergence | None:
    """Find the first value of the main graph that differs; None if the models cannot be run so.

    Args:
        models: the original and the converted model.
        definitions: of their values.
        kinds: of the original's values.
        feeds: data of the original's inputs.
        optimised: whether the converted model runs with onnxruntime's optimisations.
        tolerance: that the caller sets for the output that differs.
        report: gets a line of progress before each load and run.
    """
    original, converted = models.original, models.converted
    if max(original.proto.ByteSize(), converted.proto.ByteSize()) > _MOST_BYTES:
        return None
    makers = {
        name: node
        for node in traversal.in_order(original.proto.graph)
        for name in node.output
        if name and definitions.converted.computes(name)
    }
    try:
        runner = open_original(original, models.domains, values=list(makers), report=report)
        expected = runner.run(feeds)
        session = Session(
            with_values(converted, makers),
            of=CONVERTED,
            optimise=optimised,
            folder=converted.folder,
            report=report,
        )
        actual = session.run(models.as_fed(feeds))
    except (RunError, SpatialError):
        return None
    kind_of, agreed = kinds.of_values(), dict(feeds)
    for name, node in makers.items():
        value, kind = expected[name], kind_of.get(name, Kind())
        mismatch = None if kind.random else find_mismatch(value, actual[name], kind, tolerance)
        if mismatch is not None:
            label, graph = traversal.label(node), str(MAIN)
            dtype = dtype_name(value) if isinstance(value, np.ndarray) else type(value).__name__
            what = (name, label, node.op_type, graph, dtype, np.shape(value), optimised)
            first = FirstValue(*what, mismatch.reason)
            return Divergence(first, agreed, definitions.same(name, MAIN))
        if isinstance(value, np.ndarray):
            agreed[name] = value
    return Divergence(None, agreed)
