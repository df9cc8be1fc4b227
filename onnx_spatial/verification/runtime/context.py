"""State that the steps of a program share: settings, and the record of the last run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnx_spatial.verification.arrays import Array, element_type_of
from onnx_spatial.verification.match.graphs import Imports
from onnx_spatial.verification.runtime.sessions import Session
from onnx_spatial.verification.runtime.stopwatch import Stopwatch


@dataclass(frozen=True)
class SiteInput:
    """Input of a site in a run: shape and element type of its data, and its parameters."""

    shape: tuple[int, ...]
    element_type: int
    parameters: tuple[Array | None, ...]


#: Sessions of steps that differ in names alone, by what makes up their models and by their options.
Sessions = dict[object, Session]


class RunContext:
    """Settings of a program and the record of its last run.

    Attributes:
        imports, folder: opsets and functions of the model, folder of its external data.
        optimise: whether onnxruntime may optimise the nodes between sites.
        sessions: of steps that differ in names alone.
        seconds: that runs may take; after that no further step begins.
        stopwatch: time of these runs.
        explains: whether a failure holds the operands of the node that failed.
        parts: number of steps, of all graphs.
        pads: whether there are convolutions that onnxruntime refuses.
        unsized: whether a Loop or Scan without iterations gave a value whose other dims are unknown.
        substitutes: why steps ran in onnx's reference evaluator instead of onnxruntime.
        executed: sites, and convolutions that onnxruntime refuses, that took part in the last run.
        site_inputs: inputs of the sites in it; of several runs of a site the largest.
    """

    def __init__(
        self,
        imports: Imports,
        folder: Path | None,
        *,
        optimise: bool,
        sessions: Sessions | None = None,
    ) -> None:
        self.imports = imports
        self.folder = folder
        self.optimise = optimise
        self.seconds = math.inf
        self.stopwatch = Stopwatch()
        self.explains = False
        self.parts = 0
        self.pads = False
        self.unsized = False
        self.substitutes: list[str] = []
        self.executed: set[int] = set()
        self.site_inputs: dict[int, SiteInput] = {}
        self.sessions: Sessions = {} if sessions is None else sessions
        # Those of other programs stay.
        self._closing: list[Callable[[], None]] = [self.sessions.clear] if sessions is None else []

    @property
    def body_types(self) -> Mapping[tuple[int, str], onnx.TypeProto]:
        """Inferred types of the outputs of bodies, by the id of the graph and the name."""
        return {}

    def record(self, site: int, arrays: Sequence[Array | None]) -> None:
        """Record that a site ran on some arrays."""
        self.executed.add(site)
        x = arrays[0]
        assert x is not None
        last = self.site_inputs.get(site)
        if last is None or x.size > math.prod(last.shape):
            self.site_inputs[site] = SiteInput(
                tuple(x.shape), element_type_of(x), tuple(arrays[1:])
            )

    def on_close(self, action: Callable[[], None]) -> None:
        """Register a function for `close` to call."""
        self._closing.append(action)

    def close(self) -> None:
        """Release the sessions; a later run creates them again."""
        for action in self._closing:
            action()
