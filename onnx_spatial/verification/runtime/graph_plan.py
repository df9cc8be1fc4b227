"""A graph as a list of steps, and its execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.verification.runtime import time_limit
from onnx_spatial.verification.runtime.context import RunContext
from onnx_spatial.verification.runtime.scope import RunScope, Stored
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.steps import Step


@dataclass
class GraphPlan:
    """The steps of one graph in an order in which they can run, and its initializers and Constants."""

    context: RunContext
    graph: onnx.GraphProto
    stored: dict[str, Stored]
    steps: Sequence[Step]

    def __post_init__(self) -> None:
        outputs = {v.name for v in self.graph.output}
        last_reader: dict[str, int] = {}
        for number, step in enumerate(self.steps):
            for name in set().union(*map(traversal.needs, step.nodes)) - outputs:
                last_reader[name] = number
        # A value is dropped behind its last reader: a large model has many.
        self._dropped: dict[int, list[str]] = {}
        for name, number in last_reader.items():
            self._dropped.setdefault(number, []).append(name)

    def run(self, feeds: Mapping[str, Any], outer: RunScope | None) -> dict[str, Any]:
        """Run the steps and return the outputs of the graph by name, in order.

        Raises:
            RunFailure: a node does not run, or not on this data.
        """
        scope = RunScope(self.stored, self.context.folder, dict(feeds), outer)
        progress = 0
        for number, step in enumerate(self.steps):
            time_limit.check()
            if self.context.stopwatch.exceeds(self.context.seconds):
                raise RunFailure("it takes too long", "load")
            try:
                step.run(scope)
            except RunFailure as failure:
                failure.progress += progress
                raise
            progress += len(step.nodes)
            for name in self._dropped.get(number, ()):
                scope.values.pop(name, None)
        return {v.name: scope.value(v.name) for v in self.graph.output}
