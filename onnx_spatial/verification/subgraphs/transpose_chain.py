"""Find the values of the original between which a site can be compared: its own, or outer ones.

    u -> [Transpose] -> x -> [site] -> y -> [Transpose] -> t

A conversion may merge a site with Transposes and opposite operators next to it; then x or y is no value
of the converted model. But all nodes between u and t only move data, in a way that the original states.
So a site is compared between the nearest values that the converted model has, with all nodes of the
original between them. What the conversion reports plays no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import OperatorError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.operators import Dim
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime.spatial_kernels import run_facts

#: Nodes of a chain in front of a site, or behind it, at most.
_MOST_STEPS = 8


@dataclass(frozen=True)
class Transpose:
    """A Transpose of the original, by position in `traversal.nodes`; no `perm` reverses the axes."""

    index: int
    output: str
    perm: tuple[int, ...] | None

    def axes(self, rank: int) -> tuple[int, ...]:
        """Axis of the input for each axis of the output.

        Raises:
            OperatorError: its permutation has another rank.
        """
        axes = self.perm if self.perm is not None else tuple(reversed(range(rank)))
        if sorted(axes) != list(range(rank)):
            raise OperatorError(f"a Transpose by {list(axes)} has an input of rank {rank}")
        return axes


_Step = Transpose | OperatorInfo


@dataclass(frozen=True)
class TransposeChain:
    """Consecutive nodes of the original that are compared as one.

    Attributes:
        source: name of the input value.
        turns: the Transposes before the first site.
        head: the first site.
        rest: the nodes behind it; the parameters of sites there are known.
        sink: name of the output value.
    """

    source: str
    turns: tuple[Transpose, ...]
    head: OperatorInfo
    rest: tuple[_Step, ...]
    sink: str

    @property
    def parameters(self) -> dict[str, Array | None]:
        """The parameters of its sites by name; None for unknown values."""
        return {
            name: fact.value if fact is not None else None
            for site in (self.head, *self.rest)
            if isinstance(site, OperatorInfo)
            for name, fact in list(zip(site.node.input, site.facts.inputs, strict=False))[1:]
            if name
        }

    def run(self, arrays: Sequence[Array | None]) -> Array:
        """Compute its output in numpy from the inputs of the head, with the input value for the first.

        Raises:
            OperatorError: the data breaks a rule of a node.
        """
        x, *parameters = arrays
        if x is None:
            raise OperatorError("the data input is missing")
        for transpose in self.turns:
            x = np.transpose(x, transpose.axes(x.ndim))
        x = run_facts(self.head.facts, [x, *parameters])
        for step in self.rest:
            if isinstance(step, Transpose):
                x = np.transpose(x, step.axes(x.ndim))
            else:
                known = [f.value if f is not None else None for f in step.facts.inputs]
                x = run_facts(step.facts, [x, *known[1:]])
        return np.ascontiguousarray(x).reshape(x.shape)

    def source_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the input value for a shape of the head's data."""
        for transpose in reversed(self.turns):
            axes = transpose.axes(len(shape))
            shape = [shape[axes.index(axis)] for axis in range(len(shape))]
        return tuple(shape)

    def check(self, shape: Sequence[int], parameters: Sequence[Array | None]) -> None:
        """Check that every node accepts its input, by the shape of the head's data and its parameters.

        Raises:
            OperatorError: a node does not.
        """
        self.source_shape(shape)
        assert self.head.call is not None
        dims: Sequence[Dim] = self.head.call.bind(parameters).output_shape(shape)
        for step in self.rest:
            if isinstance(step, Transpose):
                dims = [dims[axis] for axis in step.axes(len(dims))]
            else:
                assert step.call is not None
                dims = step.call.output_shape(dims)

    def replaced(self, computes: Callable[[str], bool]) -> set[int]:
        """Return the positions of Transposes whose own output the converted model does not compute."""
        transposes = [s for s in (*self.turns, *self.rest) if isinstance(s, Transpose)]
        return {t.index for t in transposes if t.output == self.sink or not computes(t.output)}


class Original:
    """The sites and Transposes of the original, by the values they read and compute."""

    def __init__(self, model: onnx.ModelProto, infos: Sequence[OperatorInfo]) -> None:
        self._infos = {f.index: f for f in infos}
        self._producers: dict[tuple[traversal.Place, str], tuple[int, onnx.NodeProto]] = {}
        self._readers: dict[tuple[traversal.Place, str], list[tuple[int, onnx.NodeProto]]] = {}
        local = {(f.domain, f.name) for f in model.functions}
        self._has_transpose = any(
            name == "Transpose" and op_traits.is_standard_domain(domain) for domain, name in local
        )
        for index, (place, _, node) in enumerate(traversal.nodes(model)):
            if index not in self._infos and node.op_type != "Transpose":
                continue
            if node.input and len(node.output) == 1:
                self._producers[place, node.output[0]] = (index, node)
                self._readers.setdefault((place, node.input[0]), []).append((index, node))

    def stretches(
        self, info: OperatorInfo, computes: Callable[[str], bool]
    ) -> list[list[TransposeChain]]:
        """Chains through a site, a list for each nearest value behind it that `computes` accepts.

        The chains of a list begin at different values, the nearest first.
        """
        output = str(info.node.output[0])
        fronts = list(self._fronts(info))
        if not _is_known(info):  # a chain has run-time parameters at its first site only
            fronts = [(n, f) for n, f in fronts if all(isinstance(s, Transpose) for s in f)]
        return [
            [_chain(source, (*front, info, *behind), sink) for source, front in fronts]
            for behind, sink in self._ends(info.place, output, (), computes)
        ]

    def _ends(
        self,
        place: traversal.Place,
        name: str,
        steps: tuple[_Step, ...],
        computes: Callable[[str], bool],
    ) -> Iterator[tuple[tuple[_Step, ...], str]]:
        if computes(name):
            yield steps, name
        elif len(steps) < _MOST_STEPS:
            for index, node in self._readers.get((place, name), ()):
                step = self._step(index, node)
                if step is not None:
                    yield from self._ends(place, node.output[0], (*steps, step), computes)

    def _fronts(self, info: OperatorInfo) -> Iterator[tuple[str, tuple[_Step, ...]]]:
        name, steps = str(info.node.input[0]), tuple[_Step, ...]()
        while True:
            yield name, steps
            if (info.place, name) not in self._producers or len(steps) == _MOST_STEPS:
                return
            index, node = self._producers[info.place, name]
            step = self._step(index, node)
            if step is None:
                return
            name, steps = node.input[0], (step, *steps)

    def _step(self, index: int, node: onnx.NodeProto) -> _Step | None:
        """Return a node that only moves data, in a way that is known before it runs; else None."""
        info = self._infos.get(index)
        if info is not None:
            return info if _is_known(info) else None
        if not op_traits.is_standard(node) or self._has_transpose or len(node.input) != 1:
            return None
        if not node.attribute:
            return Transpose(index, node.output[0], None)
        (attribute, *more) = node.attribute
        if more or attribute.type != onnx.AttributeProto.INTS or attribute.ref_attr_name:
            return None
        return Transpose(index, node.output[0], tuple(attribute.ints))


def _is_known(info: OperatorInfo) -> bool:
    """Tell whether all parameters of an operator are known before it runs."""
    values = (fact.value for fact in info.facts.inputs[1:] if fact is not None)
    return (
        info.call is not None
        and info.call.operator is not None
        and all(value is not None for value in values)
    )


def _chain(source: str, steps: Sequence[_Step], sink: str) -> TransposeChain:
    first = next(i for i, step in enumerate(steps) if isinstance(step, OperatorInfo))
    transposes = tuple(s for s in steps[:first] if isinstance(s, Transpose))
    head = steps[first]
    assert isinstance(head, OperatorInfo)
    return TransposeChain(source, transposes, head, tuple(steps[first + 1 :]), sink)
