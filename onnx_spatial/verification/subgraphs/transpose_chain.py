"""Between which values of the original a site can be compared: its own, or some further out.

    u -> [Transpose] -> x -> [site] -> y -> [Transpose] -> t

A conversion may take what stands around a site into it, Transposes and opposite operators; then x or
y is no value of the converted model any more. But everything between u and t only moves data, and the
original says how. So a site is compared between the nearest values that the converted model has, with
all that the original does between them; what the conversion says it did is of no interest.
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

#: Nodes that a stretch holds in front of a site, or behind it, at most.
_MOST_STEPS = 8


@dataclass(frozen=True)
class Transpose:
    """A Transpose of the original.

    Attributes:
        index: position in the order of `traversal.nodes`.
        output: name of its output.
        perm: its permutation; None reverses the axes.
    """

    index: int
    output: str
    perm: tuple[int, ...] | None

    def axes(self, rank: int) -> tuple[int, ...]:
        """Axis of the input for each axis of the output.

        Raises:
            OperatorError: it is a Transpose of another rank.
        """
        axes = self.perm if self.perm is not None else tuple(reversed(range(rank)))
        if sorted(axes) != list(range(rank)):
            raise OperatorError(f"a Transpose by {list(axes)} has an input of rank {rank}")
        return axes


@dataclass(frozen=True)
class TransposeChain:
    """Nodes of the original, one behind the other, that are compared as one.

    Attributes:
        source: name of the value that goes in.
        turns: the Transposes before the first site.
        head: the first site.
        rest: what follows it; all parameters of sites there are known.
        sink: name of the value that comes out.
    """

    source: str
    turns: tuple[Transpose, ...]
    head: OperatorInfo
    rest: tuple[Transpose | OperatorInfo, ...]
    sink: str

    @property
    def sites(self) -> list[OperatorInfo]:
        """Its sites, in order."""
        return [self.head, *(s for s in self.rest if isinstance(s, OperatorInfo))]

    @property
    def parameters(self) -> dict[str, Array | None]:
        """The parameters of its sites by name, with their values as far as they are known."""
        return {
            name: fact.value if fact is not None else None
            for site in self.sites
            for name, fact in list(zip(site.node.input, site.facts.inputs, strict=False))[1:]
            if name
        }

    def run(self, arrays: Sequence[Array | None]) -> Array:
        """What comes out of it, by numpy.

        Args:
            arrays: the inputs of the head, but for the first, which is the value that goes in.

        Raises:
            OperatorError: a node breaks a rule on this data.
        """
        x, *parameters = arrays
        if x is None:
            raise OperatorError("the data input is missing")
        for turn in self.turns:
            x = np.transpose(x, turn.axes(x.ndim))
        x = run_facts(self.head.facts, [x, *parameters])
        for step in self.rest:
            if isinstance(step, Transpose):
                x = np.transpose(x, step.axes(x.ndim))
            else:
                known = [f.value if f is not None else None for f in step.facts.inputs]
                x = run_facts(step.facts, [x, *known[1:]])
        return np.ascontiguousarray(x).reshape(x.shape)

    def source_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of what goes in, by that of the head's data."""
        for turn in reversed(self.turns):
            axes = turn.axes(len(shape))
            shape = [shape[axes.index(axis)] for axis in range(len(shape))]
        return tuple(shape)

    def check(self, shape: Sequence[int], parameters: Sequence[Array | None]) -> None:
        """See that every node takes what comes to it.

        Args:
            shape: of the head's data.
            parameters: the inputs of the head; the first does not matter.

        Raises:
            OperatorError: one does not.
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
        """Which of its Transposes something else stands for in a converted model.

        Args:
            computes: whether the converted model computes a value.
        """
        turns = [s for s in (*self.turns, *self.rest) if isinstance(s, Transpose)]
        return {t.index for t in turns if t.output == self.sink or not computes(t.output)}


class Original:
    """The original as far as it says what stands around its sites.

    Args:
        model: the original.
        infos: its sites.
    """

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
        """Stretches through a site, for each nearest value behind it that `computes` knows.

        Those to the same value differ in where they begin, the nearest first.
        """
        output = str(info.node.output[0])
        fronts = list(self._fronts(info))
        return [
            [_stretch(source, (*front, info, *behind), sink) for source, front in fronts]
            for behind, sink in self._ends(info.place, output, (), computes)
        ]

    def _ends(
        self,
        place: traversal.Place,
        name: str,
        steps: tuple[Transpose | OperatorInfo, ...],
        computes: Callable[[str], bool],
    ) -> Iterator[tuple[tuple[Transpose | OperatorInfo, ...], str]]:
        if computes(name):
            yield steps, name
        elif len(steps) < _MOST_STEPS:
            for index, node in self._readers.get((place, name), ()):
                step = self._step(index, node)
                if step is not None:
                    yield from self._ends(place, node.output[0], (*steps, step), computes)

    def _fronts(
        self, info: OperatorInfo
    ) -> Iterator[tuple[str, tuple[Transpose | OperatorInfo, ...]]]:
        name, steps = str(info.node.input[0]), tuple[Transpose | OperatorInfo, ...]()
        while True:
            yield name, steps
            if (info.place, name) not in self._producers or len(steps) == _MOST_STEPS:
                return
            index, node = self._producers[info.place, name]
            step = self._step(index, node)
            if step is None:
                return
            name, steps = node.input[0], (step, *steps)

    def _step(self, index: int, node: onnx.NodeProto) -> Transpose | OperatorInfo | None:
        """A node that only moves data in a way that is known before it runs."""
        info = self._infos.get(index)
        if info is not None:
            call = info.call
            return info if call is not None and call.operator is not None else None
        if not op_traits.is_standard(node) or self._has_transpose or len(node.input) != 1:
            return None
        if not node.attribute:
            return Transpose(index, node.output[0], None)
        (attribute, *more) = node.attribute
        if more or attribute.type != onnx.AttributeProto.INTS or attribute.ref_attr_name:
            return None
        return Transpose(index, node.output[0], tuple(attribute.ints))


def _stretch(source: str, steps: Sequence[Transpose | OperatorInfo], sink: str) -> TransposeChain:
    first = next(i for i, step in enumerate(steps) if isinstance(step, OperatorInfo))
    turns = tuple(s for s in steps[:first] if isinstance(s, Transpose))
    head = steps[first]
    assert isinstance(head, OperatorInfo)
    return TransposeChain(source, turns, head, tuple(steps[first + 1 :]), sink)
