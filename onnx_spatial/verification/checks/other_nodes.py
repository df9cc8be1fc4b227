"""Nodes that are none of ours and that the converted model holds otherwise, compared one by one.

    original   x -> [Conv, weights w]  -> c          converted   x -> [Conv, weights w'] -> c

A conversion leaves the rest of a model alone. Where it did not, the outputs of the whole say little: a
wrong weight may change them by less than what rounding may do in a deep net, a branch may never be
taken, and a limit that the original does not have may be beyond the usual numbers. So what leads to
the value of such a node is compared as a region is (`matching_region`), by the magnitudes of what is
summed there, and on numbers that are seldom: thousands, thousandths, equal ones, NaNs.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.checks.fused import FusedSites
from onnx_spatial.verification.checks.region import Proof
from onnx_spatial.verification.checks.unchanged import Comparison
from onnx_spatial.verification.report import Check, Difference
from onnx_spatial.verification.subgraphs.converted_part import Converted
from onnx_spatial.verification.subgraphs.value_graph import Graphs

#: Nodes that are compared so, and seconds that this may take: a model that another tool wrote anew
#: differs everywhere.
MOST_NODES = 64
SECONDS = 10.0


@dataclass
class Changed:
    """A node that the converted model holds otherwise.

    Attributes:
        node: it, in the original.
        place: where it stands.
        proof: compares it in a run of the whole; None if nothing can.
        difference: the first comparison that failed, if one did.
        gap: what is not known of it, and has to be.
    """

    node: onnx.NodeProto
    place: traversal.Place
    proof: Proof | None = None
    difference: Difference | None = None
    gap: str | None = None

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Take note of a comparison of what leads to its value."""
        if check.passed or self.difference is not None:
            return
        message = f"{self._is_another}, and what it gives differs: {check.reason}"
        self.difference = Difference(
            "value",
            value,
            str(self.place),
            message,
            dict(inputs),
            value,
            self.place,
            check.optimised,
        )

    def leave(self, reason: str) -> None:
        """Take note that it could not be compared."""
        self.gap = f"{self._is_another}, and could not be compared: {reason}"

    @property
    def _is_another(self) -> str:
        name = traversal.label(self.node)
        return f"{self.node.op_type} node {name!r} ({self.place}) is not the original's"


@dataclass(frozen=True)
class Found:
    """The nodes that are not the original's.

    Attributes:
        nodes: those that were compared, or should have been.
        sizes: whether there are some that compute sizes: these are right if all runs are.
    """

    nodes: list[Changed]
    sizes: bool


def compare(
    before: reader.Source,
    after: reader.Source,
    converted: Converted,
    merged: FusedSites,
    proven: Collection[int],
    elsewhere: Collection[int] = (),
) -> Found:
    """Compare the nodes that are not the original's.

    Those in branches and loops may take part in no run of the whole: what could not be compared of
    these is a gap.

    Args:
        before, after: the two models.
        converted: the converted one by name.
        merged: compares regions.
        proven: nodes that something else was proven to stand for, by position in `traversal.nodes`.
        elsewhere: nodes of which somebody else says whether they were compared.
    """
    found, sizes = list[Changed](), False
    outputs = {v.name for v in before.proto.graph.output}
    deadline = time.monotonic() + SECONDS
    for index, node, place in _changed(before, after, converted, proven):
        name, inner = node.output[0], bool(place.steps) and index not in elsewhere
        # Sizes are right if what is made with them is; another tool may compute them otherwise.
        if merged.is_size(name, place) and not place.steps and name not in outputs:
            sizes = True
            continue
        changed = Changed(node, place)
        found.append(changed)
        if len(found) > MOST_NODES or time.monotonic() > deadline:
            if inner:
                changed.leave("there are too many of them")
            continue
        outcome = merged.compared(place, name)
        for each in outcome.compared:
            changed.record(each.check, each.feeds, name)
        changed.proof = outcome.proof
        if outcome.reason is not None and (inner or outcome.doubtful):
            changed.leave(outcome.reason)
    return Found(found, sizes)


def _changed(
    before: reader.Source, after: reader.Source, converted: Converted, proven: Collection[int]
) -> Iterator[tuple[int, onnx.NodeProto, traversal.Place]]:
    """Positions of the nodes whose message, or a constant that they read, is another one, with them."""
    same = Comparison(before.folder, after.folder or before.folder)
    original = Graphs(before.proto)
    for index, (place, _, node) in enumerate(traversal.nodes(before.proto)):
        if index in proven or not node.output or not node.output[0]:
            continue
        if not converted.computes(node.output[0], place):
            continue
        found = converted.find(node.output[0], place)
        if not isinstance(found, onnx.NodeProto) or not same.nodes(node, found):
            yield index, node, place
            continue
        for name in node.input:
            stored, now = original.find(name, place), converted.find(name, place)
            if isinstance(stored, onnx.TensorProto) and not (
                isinstance(now, onnx.TensorProto) and same.tensors(stored, now)
            ):
                yield index, node, place
                break
