"""Nodes that are none of ours and that the converted model holds otherwise, compared one by one.

    original   x -> [Conv, weights w]  -> c          converted   x -> [Conv, weights w'] -> c

A conversion leaves the rest of a model alone. Where it did not, the outputs of the whole say little: a
wrong weight may change them by less than what rounding may do in a deep net. So what leads to the value
of such a node is compared as a region is (`region`), by the magnitudes of what is summed there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import onnx

from onnx_spatial.graph import files, walk
from onnx_spatial.verify.merged import Merged
from onnx_spatial.verify.proof import Proof
from onnx_spatial.verify.report import Check, Difference
from onnx_spatial.verify.rest import Comparison
from onnx_spatial.verify.slices import Converted
from onnx_spatial.verify.values import Array

#: Nodes of the main graph that are compared so, and seconds that this may take: a model that another
#: tool wrote anew differs everywhere.
MOST_NODES = 64
SECONDS = 10.0


@dataclass
class Changed:
    """A node that the converted model holds otherwise.

    Attributes:
        node: it, in the original.
        difference: the first comparison that failed, if one did.
    """

    node: onnx.NodeProto
    difference: Difference | None = None

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Take note of a comparison of what leads to its value."""
        if check.passed or self.difference is not None:
            return
        message = (
            f"{self.node.op_type} node {walk.label(self.node)!r} (main graph) is not the original's, "
            f"and what it gives differs: {check.reason}"
        )
        place = walk.Place()
        self.difference = Difference(
            "value", value, str(place), message, dict(inputs), value, place, check.optimised
        )


def compare(
    before: files.Source,
    after: files.Source,
    converted: Converted,
    merged: Merged,
    proven: Collection[int],
) -> list[tuple[Changed, Proof]]:
    """Compare the nodes of the main graph that are not the original's; each with what can compare it
    in a run of the whole as well.

    Args:
        before, after: the two models.
        converted: the converted one by name.
        merged: compares regions.
        proven: nodes that something else was proven to stand for, by position in `walk.nodes`.
    """
    found: list[tuple[Changed, Proof]] = []
    deadline = time.monotonic() + SECONDS
    nodes = (
        node
        for node in _changed(before, after, proven)
        # Sizes are right if what is made with them is; another tool may compute them otherwise.
        if converted.computes(node.output[0]) and not merged.is_size(node.output[0])
    )
    for number, node in enumerate(nodes):
        if number == MOST_NODES or time.monotonic() > deadline:
            break
        changed = Changed(node)
        proof, compared = merged.compared(walk.Place(), node.output[0])
        for each in compared:
            changed.record(each.check, each.feeds, node.output[0])
        if proof is not None:
            found.append((changed, proof))
    return found


def _changed(
    before: files.Source, after: files.Source, proven: Collection[int]
) -> Iterator[onnx.NodeProto]:
    """Nodes of the main graph whose message, or a constant that they read, is another one."""
    same = Comparison(before.folder, after.folder or before.folder)
    held = {node.output[0]: node for node in after.proto.graph.node if node.output}
    stored, now = (
        {t.name: t for t in source.proto.graph.initializer} for source in (before, after)
    )
    for index, (place, _, node) in enumerate(walk.nodes(before.proto)):
        if place != walk.Place() or index in proven or not node.output or not node.output[0]:
            continue
        found = held.get(node.output[0])
        if found is None:
            continue
        constants = [n for n in node.input if n in stored]
        if not same.nodes(node, found) or not all(
            n in now and same.tensors(stored[n], now[n]) for n in constants
        ):
            yield node
