"""The original, graph by graph: a plan of sessions, kernels and control flow, and its execution."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.verification.runtime import control_flow, same_padding
from onnx_spatial.verification.runtime.numpy_ops import Kernel
from onnx_spatial.verification.runtime.same_padding import PaddingStep
from onnx_spatial.verification.runtime.scope import RunScope, Stored, is_dense_constant
from onnx_spatial.verification.runtime.segment import Segment, Step
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.spatial_kernels import run_node

if TYPE_CHECKING:
    from onnx_spatial.verification.runtime.program import Program


@dataclass
class SpatialStep(Step):
    """One of our nodes, run by its numpy kernel."""

    program: Program
    nodes: list[onnx.NodeProto]
    index: int

    def run(self, scope: RunScope) -> None:
        """Apply the kernel to the node's inputs."""
        node = self.nodes[0]
        arrays = [scope.value(name) if name else None for name in node.input]
        try:
            result = run_node(node, arrays)
        except OperatorError as error:
            failure = RunFailure(f"{self.program.label(self.index)}: {error}", "rule")
            if arrays and arrays[0] is not None:
                failure.refused = self.index, np.shape(arrays[0])
            raise failure from None
        except (MemoryError, ValueError, TypeError) as error:
            raise RunFailure(f"{self.program.label(self.index)}: {error}", "run") from None
        scope.values[node.output[0]] = result
        self.program.note(self.index, arrays)


@dataclass
class NumpyStep(Step):
    """Another node that has a numpy kernel here."""

    kernel: Kernel
    nodes: list[onnx.NodeProto]

    def run(self, scope: RunScope) -> None:
        """Apply the kernel to the node's inputs."""
        node = self.nodes[0]
        try:
            result = self.kernel(node, [scope.value(n) if n else None for n in node.input])
        except (OperatorError, MemoryError, ValueError, TypeError) as error:
            raise RunFailure(
                f"{node.op_type} node {traversal.label(node)!r}: {error}", "run"
            ) from None
        scope.values[node.output[0]] = result


@dataclass
class ControlFlowStep(Step):
    """An If, Loop or Scan with our operators somewhere in its bodies."""

    nodes: list[onnx.NodeProto]
    bodies: dict[str, GraphProgram]

    def run(self, scope: RunScope) -> None:
        """Run the bodies that the node chooses, as often as it says."""
        node = self.nodes[0]
        try:
            results = control_flow.run(node, self.bodies, scope)
        except (LookupError, ValueError, TypeError) as error:
            reason = (
                f"{node.op_type} node {traversal.label(node)!r} does not fit its graphs: {error}"
            )
            raise RunFailure(reason, "load") from None
        scope.values.update((n, v) for n, v in zip(node.output, results, strict=False) if n)


class GraphProgram:
    """A graph with the steps that run it.

    Attributes:
        graph: the message.
        stored: initializers and Constant nodes by name.
    """

    def __init__(
        self, graph: onnx.GraphProto, program: Program, parent: GraphProgram | None
    ) -> None:
        self.graph = graph
        self._folder = program.folder
        self.stored: dict[str, Stored] = {}
        self.stored.update((t.name, t) for t in graph.initializer)
        self.stored.update((s.values.name, s) for s in graph.sparse_initializer)
        self._paddings: dict[int, PaddingStep] = {}
        nodes = []
        for node in graph.node:
            if is_dense_constant(node):
                self.stored[node.output[0]] = node
            elif same_padding.is_refused(node) and program.kernel_of(node) is None:
                padding, rest = same_padding.split(node)
                self._paddings[id(padding)] = PaddingStep([padding], program.noting(node))
                nodes += [padding, rest]
            else:
                nodes.append(node)
        self._program = program
        self._steps = self._plan(nodes)
        program.parts += len(self._steps)
        self._choose_outputs()

    def run(self, feeds: Mapping[str, Any], outer: RunScope | None) -> dict[str, Any]:
        """The outputs by name, in order.

        Raises:
            RunFailure: a node cannot be run, or not on this data.
        """
        scope = RunScope(self.stored, self._folder, dict(feeds), outer)
        done = 0
        for step in self._steps:
            if time.monotonic() > self._program.deadline:
                raise RunFailure("it takes too long", "load")
            try:
                step.run(scope)
            except RunFailure as failure:
                failure.progress += done
                raise
            done += len(step.nodes)
            for name in self._last_read.get(id(step), ()):
                scope.values.pop(name, None)
        return {v.name: scope.value(v.name) for v in self.graph.output}

    def _plan(self, nodes: list[onnx.NodeProto]) -> list[Step]:
        """As few segments as possible: what does not wait for one of our nodes runs before it."""
        special = [self._special(node) for node in nodes]
        sorter = traversal.waiting(nodes, map(traversal.needs, nodes))
        try:
            sorter.prepare()
        except CycleError as error:
            name = traversal.label(nodes[min(error.args[1])])
            raise RunFailure(f"nodes wait for each other: {name}", "load") from None
        steps: list[Step] = []
        while sorter.is_active():
            taken, ours = list[int](), list[tuple[int, Step]]()
            while ready := sorter.get_ready():
                plain = [index for index in ready if special[index] is None]
                ours += [(index, step) for index in ready if (step := special[index]) is not None]
                taken += plain
                sorter.done(*plain)
            if taken:
                steps.append(Segment(self._program, [nodes[index] for index in taken]))
            for index, step in ours:
                steps.append(step)
                sorter.done(index)
        return steps

    def _special(self, node: onnx.NodeProto) -> Step | None:
        index = self._program.site_of(node)
        if index is not None:
            return SpatialStep(self._program, [node], index)
        if id(node) in self._paddings:
            return self._paddings[id(node)]
        kernel = self._program.kernel_of(node)
        if kernel is not None:
            return NumpyStep(kernel, [node])
        inner = list(traversal.subgraphs(node))
        if not any(
            self._program.site_of(n) is not None
            or self._program.kernel_of(n) is not None
            or same_padding.is_refused(n)
            for _, graph in inner
            for _, _, n in traversal.graph_nodes(traversal.Place(), graph)
        ):
            return None
        bodies = {name: GraphProgram(graph, self._program, self) for name, graph in inner}
        return ControlFlowStep([node], bodies)

    def _choose_outputs(self) -> None:
        readers: dict[str, set[int]] = {v.name: {-1} for v in self.graph.output}
        for number, step in enumerate(self._steps):
            for name in set().union(*map(traversal.needs, step.nodes)):
                readers.setdefault(name, set()).add(number)
        # What no later step reads is let go of: the values of a large model are many.
        self._last_read: dict[int, list[str]] = {}
        for name, numbers in readers.items():
            if -1 not in numbers:
                self._last_read.setdefault(id(self._steps[max(numbers)]), []).append(name)
        for number, step in enumerate(self._steps):
            if isinstance(step, Segment):
                produced = (name for node in step.nodes for name in node.output if name)
                step.outputs = [n for n in produced if readers.get(n, set()) - {number}]
