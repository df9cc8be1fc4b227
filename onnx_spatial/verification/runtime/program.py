"""Run the original: our operators by their numpy kernels, everything between them in onnxruntime.

    nodes, S2B, nodes, B2S, nodes  ->  [session] kernel [session] kernel [session]

Functions are inlined first. Runs of other nodes become sub-models that onnxruntime executes without
optimisations, by the very kernels that the converted model uses, so that what differs is ours. Of
convolutions that onnxruntime refuses for their padding, numpy does the padding (`same_padding`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnx.defs

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import functions
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.verification.arrays import Array, element_type_of
from onnx_spatial.verification.extract import Imports
from onnx_spatial.verification.runtime.numpy_ops import Kernel
from onnx_spatial.verification.runtime.same_padding import may_be_refused
from onnx_spatial.verification.runtime.sessions import RunFailure, first_line
from onnx_spatial.verification.runtime.steps import GraphProgram


@dataclass(frozen=True)
class SiteInput:
    """What a site was given in a run: the data's shape and element type, and its parameters."""

    shape: tuple[int, ...]
    element_type: int
    parameters: tuple[Array | None, ...]


class Program:
    """A model with operators that no runtime knows, ready to run.

    Args:
        model: the original.
        sites: positions of the operator nodes in the order of `traversal.nodes`.
        folder: where its external data lies.
        kernels: what else runs in numpy: from operator type of the default domain to a function of
            the node and its inputs, None for those that are left out.
        optimise: whether onnxruntime may optimise what lies between them.

    Attributes:
        optimise: as given.
        deadline: time (`time.monotonic`) after which no further step of a run is begun.
        flat: the model with its functions inlined.
        imports: its opsets and functions.
        folder: as given.
        executed: which sites, and which convolutions that onnxruntime refuses, took part in the last
            run.
        met: what each of them was given there; the largest data where it ran more than once.
        parts: into how many steps it was taken apart.
        substitutes: why parts ran in onnx's reference evaluator instead of onnxruntime, if any did.
        pads: whether there are convolutions that onnxruntime refuses.
        explains: whether failures of runs are to tell what the node that failed was given.

    Raises:
        RunFailure: it cannot be taken apart.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        sites: Collection[int],
        folder: Path | None = None,
        kernels: Mapping[str, Kernel] | None = None,
        *,
        optimise: bool = False,
    ) -> None:
        self.optimise = optimise
        self.deadline = math.inf
        self.executed: set[int] = set()
        self.met: dict[int, SiteInput] = {}
        self._closing: list[Callable[[], None]] = []
        self.substitutes: list[str] = []
        self.explains = False
        self.folder = folder
        self._kernels = dict(kernels or {})
        self.parts = 0
        # Keeping the node objects keeps their ids, by which they are recognised.
        self._nodes = list(traversal.nodes(model))
        self._sites = {id(self._nodes[i][2]): i for i in sites}
        convolutions = (i for i, (_, _, n) in enumerate(self._nodes) if may_be_refused(n))
        self._convolutions = {id(self._nodes[i][2]): i for i in convolutions}
        self.pads = False
        self._inlined = bool(model.functions)  # then nodes are recognised by a number
        self.flat = self._inline(model, set(sites)) if model.functions else model
        self.imports = Imports.of(self.flat)
        self._graph = GraphProgram(self.flat.graph, self, None)

    def _inline(self, model: onnx.ModelProto, sites: set[int]) -> onnx.ModelProto:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        padded = set(self._convolutions.values())
        for index, (_, _, node) in enumerate(list(traversal.nodes(copy))):
            for attribute in reversed(range(len(node.attribute))):
                if node.attribute[attribute].name == shape_inference.NUMBER:  # not of our making
                    del node.attribute[attribute]
            if index in sites or index in padded:  # its inlined copies can then still be told
                node.attribute.append(onnx.helper.make_attribute(shape_inference.NUMBER, index))
        try:
            flat = functions.inline(copy)
        except Exception as error:  # of the C++ side, without a type of its own
            reason = f"its functions cannot be inlined: {first_line(error)}"
            raise RunFailure(reason, "load") from None
        self._flat = list(traversal.nodes(flat))
        for place, _, node in self._flat:
            number = self.site_of(node)
            if number in padded:  # onnxruntime knows no such attribute
                self._convolutions[id(node)] = number
                del node.attribute[[a.name for a in node.attribute].index(shape_inference.NUMBER)]
            elif place.function is not None and self.site_of(node) is not None:
                raise RunFailure(f"{place} holds spatial operators and cannot be inlined", "load")
        return flat

    def noting(self, node: onnx.NodeProto) -> Callable[[], None]:
        """What to call when a convolution that onnxruntime refuses takes part in a run."""
        self.pads = True
        index = self._convolutions.get(id(node))

        def note() -> None:
            if index is not None:
                self.executed.add(index)

        return note

    def site_of(self, node: onnx.NodeProto) -> int | None:
        """Which site a node is, as its position in the walk over the model; None: not ours."""
        if id(node) in self._sites:
            return self._sites[id(node)]
        if not self._inlined:
            return None
        return next((a.i for a in node.attribute if a.name == shape_inference.NUMBER), None)

    def positions(self) -> list[int]:
        """Positions of the sites in the order of `traversal.nodes` over `flat`."""
        nodes = enumerate(traversal.nodes(self.flat))
        return [index for index, (_, _, node) in nodes if self.site_of(node) is not None]

    def kernel_of(self, node: onnx.NodeProto) -> Kernel | None:
        """What runs a node that is none of ours in numpy; None if onnxruntime does."""
        return self._kernels.get(node.op_type) if op_traits.is_standard(node) else None

    def label(self, site: int) -> str:
        """A site in messages."""
        place, _, node = self._nodes[site]
        where = f" in {place}" if place.function is not None or place.steps else ""
        return f"{node.op_type} node {traversal.label(node)!r}{where}"

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """The outputs by name; sequences are lists.

        Raises:
            RunFailure: it cannot be run, or not on this data.
        """
        self.executed, self.met = set(), {}
        return self._graph.run(feeds, None)

    def note(self, site: int, arrays: Sequence[Array | None]) -> None:
        """Remember that a site ran, and on what."""
        self.executed.add(site)
        x = arrays[0]
        assert x is not None
        old = self.met.get(site)
        if old is None or x.size > math.prod(old.shape):
            self.met[site] = SiteInput(tuple(x.shape), element_type_of(x), tuple(arrays[1:]))

    def on_close(self, action: Callable[[], None]) -> None:
        """Have something called by `close`."""
        self._closing.append(action)

    def close(self) -> None:
        """Let go of the sessions; the next run would make them again."""
        for action in self._closing:
            action()

    def foreign(self) -> list[str]:
        """Operators that neither we nor onnxruntime know, as domain:op_type, each with a node."""
        functions = {(f.domain, f.name) for f in self.flat.functions}
        found: dict[str, str] = {}
        for _, _, node in traversal.nodes(self.flat):
            domain = op_traits.canonical_domain(node.domain)
            known = (domain, node.op_type) in functions or _is_known(domain, node.op_type)
            if self.site_of(node) is None and not known:
                found.setdefault(f"{domain or 'ai.onnx'}:{node.op_type}", traversal.label(node))
        return [f"{operator} (node {label!r})" for operator, label in found.items()]


def _is_known(domain: str, op_type: str) -> bool:
    return onnx.defs.has(op_type, domain) or (domain, op_type) in _onnxruntime_operators()


@cache
def _onnxruntime_operators() -> frozenset[tuple[str, str]]:
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        return frozenset((s.domain, s.name) for s in state.get_all_operator_schema())
    except (ImportError, AttributeError):  # builds without it: loading the model will tell
        return frozenset()
