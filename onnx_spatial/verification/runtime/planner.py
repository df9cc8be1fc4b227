"""Plan the execution of a graph: group its nodes into steps.

    nodes, S2B, nodes, B2S, nodes  ->  [segment] [kernel] [segment] [kernel] [segment]

There are as few segments as possible: a standard node that does not depend on a spatial operator runs
in front of it. Nodes that compute from stored values alone, such as the DequantizeLinear of a weight,
are part of each segment that reads their outputs: there onnxruntime may join them with the reader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.runtime import same_padding
from onnx_spatial.verification.runtime.context import RunContext
from onnx_spatial.verification.runtime.control_flow import ControlFlowStep
from onnx_spatial.verification.runtime.flat_model import FlatModel
from onnx_spatial.verification.runtime.graph_plan import GraphPlan
from onnx_spatial.verification.runtime.numpy_ops import Kernel
from onnx_spatial.verification.runtime.scope import Stored, is_constant
from onnx_spatial.verification.runtime.segment import Segment
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.steps import NumpyStep, SpatialStep, Step


@dataclass(frozen=True)
class Planner:
    """Plan the graphs of one model; `kernels` in numpy are by operator type of the default domain."""

    context: RunContext
    model: FlatModel
    kernels: Mapping[str, Kernel]

    def plan(self, graph: onnx.GraphProto) -> GraphPlan:
        """Plan a graph and the graphs inside it.

        Raises:
            RunFailure: nodes depend on each other in a cycle.
        """
        stored: dict[str, Stored] = {t.name: t for t in graph.initializer}
        stored.update((s.values.name, s) for s in graph.sparse_initializer)
        nodes: list[onnx.NodeProto] = []
        special: dict[int, Step] = {}
        for node in graph.node:
            if is_constant(node):
                stored[node.output[0]] = node
            elif same_padding.is_refused(node) and self._kernel(node) is None:
                padding, rest = same_padding.split(node)
                site = self.model.convolution_of(node)
                special[len(nodes)] = same_padding.PaddingStep(self.context, [padding], site)
                self.context.pads = True
                nodes += [padding, rest]
            else:
                if (step := self._special_step(node)) is not None:
                    special[len(nodes)] = step
                nodes.append(node)
        steps = self._steps(nodes, special, stored, {v.name for v in graph.output})
        self.context.parts += len(steps)
        return GraphPlan(self.context, graph, stored, steps)

    def _steps(
        self,
        nodes: Sequence[onnx.NodeProto],
        special: Mapping[int, Step],
        stored: Collection[str],
        outputs: Collection[str],
    ) -> list[Step]:
        """Order the special steps, and the other nodes as segments between them."""
        constants = _constants(nodes, special, stored)
        producers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
        readers: dict[str, set[int]] = {}
        order = TopologicalSorter[int]({i: () for i in range(len(nodes)) if i not in constants})
        for index in set(range(len(nodes))) - constants.keys():
            for name in traversal.needs(nodes[index]) & producers.keys():
                if producers[name] not in constants:
                    order.add(index, producers[name])
                readers.setdefault(name, set()).add(index)
        try:
            order.prepare()
        except CycleError as error:
            name = traversal.label(nodes[min(error.args[1])])
            raise RunFailure(f"nodes form a cycle: {name}", "load") from None

        def segment_of(own: Collection[int]) -> Segment:
            """Return a segment, with the constants that its nodes read."""
            inside, todo = dict.fromkeys(own), list(own)
            while todo:
                read = (producers.get(name) for name in traversal.needs(nodes[todo.pop()]))
                new = [i for i in read if i in constants and i not in inside]
                inside.update(dict.fromkeys(new))
                todo += new
            produced = (name for i in own for name in nodes[i].output if name)
            read_later = [n for n in produced if n in outputs or readers.get(n, set()) - set(own)]
            first = [i for i in constants if i in inside]
            ordered = (*first, *(i for i in own if i not in constants))
            return Segment(self.context, [nodes[i] for i in ordered], read_later)

        steps: list[Step] = []
        # Special steps read values, and cannot compute constants themselves.
        read_apart = {name for name, by in readers.items() if by & special.keys()}.union(outputs)
        kept = [i for i in constants if not read_apart.isdisjoint(nodes[i].output)]
        if kept:
            steps.append(segment_of(kept))
        while order.is_active():
            ready_special: list[int] = []
            segment: list[int] = []
            while ready := order.get_ready():
                for index in ready:
                    (ready_special if index in special else segment).append(index)
                order.done(*(index for index in ready if index not in special))
            if segment:
                steps.append(segment_of(segment))
            steps += (special[index] for index in ready_special)
            order.done(*ready_special)
        return steps

    def _special_step(self, node: onnx.NodeProto) -> Step | None:
        """Return the step of a node that cannot be part of a segment; None for the others."""
        site = self.model.site_of(node)
        if site is not None:
            return SpatialStep(self.context, [node], site, self.model.label(site))
        kernel = self._kernel(node)
        if kernel is not None:
            return NumpyStep(kernel, [node])
        if not any(
            self.model.site_of(inner) is not None
            or self._kernel(inner) is not None
            or same_padding.is_refused(inner)
            for inner in traversal.inner_nodes(node)
        ):
            return None
        bodies = {name: self.plan(body) for name, body in traversal.subgraphs(node)}
        return ControlFlowStep([node], bodies)

    def _kernel(self, node: onnx.NodeProto) -> Kernel | None:
        return self.kernels.get(node.op_type) if op_traits.is_standard(node) else None


def _constants(
    nodes: Sequence[onnx.NodeProto], special: Collection[int], stored: Collection[str]
) -> dict[int, None]:
    """Return the positions of the nodes that compute from stored values alone, in order."""
    known, constants = {"", *stored}, dict[int, None]()
    todo = [
        i
        for i, node in enumerate(nodes)
        if i not in special
        and Trait.RANDOM not in op_traits.of(node).traits
        and not any(traversal.subgraphs(node))
    ]
    while new := [i for i in todo if known.issuperset(nodes[i].input)]:
        constants.update(dict.fromkeys(new))
        known.update(name for i in new for name in nodes[i].output)
        todo = [i for i in todo if i not in constants]
    return constants
