"""Run the original: spatial operators by their numpy kernels, the other nodes in onnxruntime.

    nodes, S2B, nodes, B2S, nodes  ->  [session] kernel [session] kernel [session]

Functions are inlined first. onnxruntime runs the other nodes as sub-models without optimisations, with
the same kernels that the converted model uses, so that a difference comes from the conversion. numpy
pads the data of convolutions that onnxruntime refuses (`same_padding`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis.unknown_operators import is_known
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.match.graphs import Imports
from onnx_spatial.verification.runtime.context import RunContext, Sessions
from onnx_spatial.verification.runtime.flat_model import FlatModel
from onnx_spatial.verification.runtime.numpy_ops import Kernel
from onnx_spatial.verification.runtime.planner import Planner

#: Bounds of a small model: its weights, the elements of its inputs, and the product of both, which is
#: more than the number of its multiplications.
_FEW_WEIGHTS, _FEW_ELEMENTS, _FEW_PRODUCTS = 2**24, 2**20, 2**30


class Program(RunContext):
    """A model with spatial operators, ready to run; `flat` is the model with its functions inlined.

    Args:
        model, folder: the original and the folder of its external data.
        sites: positions of its spatial operators in `traversal.nodes`.
        kernels: numpy kernels for other operators, by operator type of the default domain.
        optimise: whether onnxruntime may optimise the nodes between sites.
        sessions: those that are shared with other programs; None: the program keeps its own.

    Raises:
        RunFailure: functions cannot be inlined, or nodes depend on each other in a cycle.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        sites: Collection[int],
        folder: Path | None = None,
        kernels: Mapping[str, Kernel] | None = None,
        *,
        optimise: bool = False,
        sessions: Sessions | None = None,
    ) -> None:
        self._model = FlatModel(model, sites)
        self.flat = self._model.proto
        super().__init__(Imports.of(self.flat), folder, optimise=optimise, sessions=sessions)
        self._plan = Planner(self, self._model, kernels or {}).plan(self.flat.graph)

    @cached_property
    def body_types(self) -> Mapping[tuple[int, str], onnx.TypeProto]:
        """Inferred types of the outputs of bodies, by the id of the graph and the name."""
        sites = (n for _, _, n in traversal.nodes(self.flat) if self.site_of(n) is not None)
        infos = analysis.find(self.flat, {node.domain for node in sites}, self.folder)
        inferred = traversal.graphs(analysis.inferred(self.flat, infos, self.folder))
        return {
            (id(graph), value.name): value.type
            for (place, graph), (_, result) in zip(
                traversal.graphs(self.flat), inferred, strict=True
            )
            if place.steps and isinstance(result, onnx.GraphProto)
            for value in result.output
        }

    def site_of(self, node: onnx.NodeProto) -> int | None:
        """Return the position in the original of a spatial operator of `flat`; None for other nodes."""
        return self._model.site_of(node)

    def positions(self) -> list[int]:
        """Return the positions of the sites in `traversal.nodes` of `flat`."""
        return self._model.positions()

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Run the model and return its outputs by name; sequences are lists.

        Raises:
            RunFailure: a node does not run, or not on this data.
        """
        self.executed, self.site_inputs = set(), {}
        return self._plan.run(feeds, None)

    def is_small(self, feeds: Mapping[str, Array]) -> bool:
        """Return whether a run on some inputs takes no time worth mentioning."""
        weights = sum(math.prod(t.dims) for t in traversal.tensors(self.flat))
        elements = sum(int(np.size(array)) for array in feeds.values())
        few = weights <= _FEW_WEIGHTS and elements <= _FEW_ELEMENTS
        return few and weights * elements <= _FEW_PRODUCTS

    def foreign(self) -> list[str]:
        """Return operators without any implementation here, as domain:op_type, each with a node."""
        functions = {(f.domain, f.name) for f in self.flat.functions}
        nodes: dict[str, str] = {}
        for _, _, node in traversal.nodes(self.flat):
            domain = op_traits.canonical_domain(node.domain)
            key = (domain, node.op_type)
            known = key in functions or is_known(domain, node.op_type)
            if self.site_of(node) is None and not known:
                nodes.setdefault(f"{domain or 'ai.onnx'}:{node.op_type}", traversal.label(node))
        return [f"{operator} (node {label!r})" for operator, label in nodes.items()]
