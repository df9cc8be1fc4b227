"""Propose sizes for the unknown input dims of a model, and values for run-time parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.strip_weights import SMALL
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators import Dim, Operator
from onnx_spatial.operators.spellings import InputFacts, NodeFacts
from onnx_spatial.verification.arrays import Array, constant_value
from onnx_spatial.verification.run.data import GraphInput, named_dims
from onnx_spatial.verification.sizes import operator_shapes, work

#: Usual image sizes, odd and even ones in turn.
_SPATIAL = (33, 40, 17, 24, 65, 48, 35, 32, 113, 64, 49, 16, 129, 96, 225, 128, 299, 224, 257, 256)
#: The same for inputs with three or more unknown dims beside the batch.
_VOLUME = (9, 12, 7, 8, 5, 16, 11, 6, 17, 24, 3, 4, 33, 32)
_BATCH = (2, 3, 1, 4, 6, 8)
#: All sizes below this are candidates.
_ALL_BELOW = 130
_MODEL_INTEGERS = 64
#: Factors between the input and smaller tensors whose sizes a net may fix.
_STRIDES = (1, 2, 4, 8, 16, 32)
#: Samples of other parameters for a site that refuses its data.
_REDRAWN = 6


@dataclass(frozen=True)
class _Demand:
    """An operator, and the dims of its data, some of them symbolic."""

    operator: Operator
    dims: tuple[Dim, ...]

    def axes(self, symbols: Sequence[str]) -> list[int]:
        return [a for a, d in enumerate(self.dims) if isinstance(d, str) and d in symbols]


class Candidates:
    """Sizes and values to try for the inputs of one model.

    Args:
        model: the original, for the integers in it.
        inputs: its inputs.
        infos: its sites, with shapes in the symbols of the inputs.
        folder: folder of its external data.
        places: position of each site in the model that is run, where `model` has its functions inlined.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        inputs: Sequence[GraphInput],
        infos: Sequence[OperatorInfo],
        folder: Path | None = None,
        places: Mapping[int, int] | None = None,
    ) -> None:
        self._folder = folder
        self._places = places or {}
        self._inputs = {i.name: i for i in inputs}
        self._model = model
        self._all = infos
        self._infos = [f for f in infos if f.call is not None]
        self._demands = list(dict.fromkeys(self._find_demands()))
        self._integers = _integers_in(model)

    def groups(self) -> list[list[str]]:
        """Group the symbols that most likely share a size: those of one axis of all inputs."""
        groups: dict[tuple[int, int], list[str]] = {}
        seen: set[str] = set()
        for graph_input in self._inputs.values():
            dims = graph_input.dims or ()
            for axis, dim in enumerate(dims):
                if isinstance(dim, str) and dim not in seen and graph_input.default is None:
                    seen.add(dim)
                    key = (0, 0) if axis == 0 and len(dims) > 1 else (len(dims), axis)
                    groups.setdefault(key, []).append(dim)
        return list(groups.values())

    def is_batch(self, symbols: Sequence[str]) -> bool:
        """Tell whether one of the symbols is the first of several dims of an input."""
        return any(
            i.dims is not None and len(i.dims) > 1 and i.dims[0] in symbols
            for i in self._inputs.values()
        )

    def sizes(self, symbols: Sequence[str]) -> list[int]:
        """Return sizes that all sites allow for symbols that share one, the likely ones first."""
        spatial = _VOLUME if self._unknown_beside_batch(symbols) > 2 else _SPATIAL
        demanded = [
            size
            for demand in self._demands
            if (axes := demand.axes(symbols))
            for size in operator_shapes.fitting_sizes(demand.operator, demand.dims, axes)
        ]
        # With one image left after BatchToSpace a wrong batch order could not be seen.
        typical = [*demanded, *_BATCH] if self.is_batch(symbols) else [*spatial, *demanded]
        scaled = (v * s for s in _STRIDES for v in self._integers)
        every = dict.fromkeys((*typical, *self._integers, *scaled, *range(1, _ALL_BELOW)))
        return self.allowed(symbols, (s for s in every if s > 0))

    def _unknown_beside_batch(self, symbols: Sequence[str]) -> int:
        """Return the number of unknown dims beside the batch, of the input with the fewest."""
        holding = (i.dims or () for i in self._inputs.values() if set(symbols) & {*(i.dims or ())})
        return min((sum(isinstance(d, str) for d in dims[1:]) for dims in holding), default=0)

    def allows(self, symbols: Sequence[str], size: int) -> bool:
        """Tell whether no site is known to forbid a size."""
        return bool(self.allowed(symbols, [size]))

    def allowed(self, symbols: Sequence[str], sizes: Iterable[int]) -> list[int]:
        """Return the sizes that no site is known to forbid."""
        demands = {
            (d.operator, len(d.dims), tuple(axes))
            for d in self._demands
            if (axes := d.axes(symbols))
        }
        return [s for s in sizes if all(operator_shapes.fits(*d, s) for d in demands)]

    def dims(self) -> Mapping[str, tuple[Dim, ...]]:
        """Return the inferred dims of the main graph's values, in the symbols of the inputs."""
        named = named_dims(self._model, list(self._inputs.values()))
        graph = analysis.inferred(named, self._all).graph
        types = {v.name: v.type for v in (*graph.value_info, *graph.input, *graph.output)}
        every = {name: shape_inference.dims(known) for name, known in types.items()}
        return {name: dims for name, dims in every.items() if dims is not None}

    def work(self, sizes: Mapping[str, int]) -> int:
        """Return about how many products a run with some sizes sums up (`work`)."""
        inputs = list(self._inputs.values())
        return work.multiply_adds(self._model, inputs, self._all, sizes)

    def bounds(self) -> list[int]:
        """Return sizes that may leave elements where the model crops by its constants."""
        return sorted({v * n + more for v in self._integers for n in (1, 2) for more in (0, 1)})

    def hinted(self, message: str) -> list[int]:
        """Return numbers in an error message, which often names the required size, and multiples."""
        numbers = [int(n) for n in re.findall(r"\d+", message) if len(n) < 8]
        return list(dict.fromkeys(n * s for s in _STRIDES for n in numbers if n > 1))

    def pairs(self, message: str) -> Iterator[tuple[int, int]]:
        """Yield pairs of sizes whose product, after a stride, is in an error message or the model."""
        numbers = [int(n) for n in re.findall(r"\d+", message) if len(n) < 8]
        channels = [1, *(v for v in self._integers if v <= 64)]
        areas = [v // c for v in (*numbers, *self._integers) for c in channels if v % c == 0]
        seen = set()
        for stride in _STRIDES:
            for area in areas:
                for low in range(math.isqrt(area), 1, -1):
                    pair = (low * stride, area // low * stride)
                    if area % low == 0 and pair not in seen:
                        seen.add(pair)
                        yield pair

    def parameters(
        self, fixed: Mapping[str, int], number: int, rng: np.random.Generator, override: bool
    ) -> tuple[dict[str, int], dict[str, Array]]:
        """Draw legal (sizes, values) for the inputs of the model that are parameters of sites.

        Args:
            fixed: sizes that must not change.
            number: of the sample; samples with other numbers differ.
            rng: random generator.
            override: whether parameters that have a default get another value.
        """
        sizes, values = dict(fixed), dict[str, Array]()
        for info in self._infos:
            if not self._fed_parameters(info):
                continue
            facts = self._facts(info, sizes, values, override)
            sample = operator_shapes.draw_sample(facts, rng, number)
            if sample is None:
                continue
            for index, value in sample.parameters.items():
                name = info.node.input[index]
                if name in self._inputs:
                    values[name] = value
            for dim, size in zip(self._dims(info) or (), sample.shape, strict=False):
                if isinstance(dim, str):
                    sizes.setdefault(dim, size)
        return sizes, values

    def redrawn(
        self, site: int, shape: Sequence[int], values: Mapping[str, Array], seed: int
    ) -> Iterator[dict[str, Array]]:
        """Yield the parameters of all sites, with others for a site that refused its data.

        Args:
            site: position of its node.
            shape: of its data.
            values: parameters of all sites, as they were.
            seed: of the random generator.
        """
        for info in (f for f in self._infos if self._places.get(f.index, f.index) == site):
            own = self._fed_parameters(info)
            others = {name: value for name, value in values.items() if name not in own}
            facts = self._facts(info, {}, others, override=True)
            data = replace(facts.inputs[0] or InputFacts(), shape=tuple(shape))
            facts = replace(facts, inputs=(data, *facts.inputs[1:]))
            for number in range(_REDRAWN if own else 0):
                rng = np.random.default_rng([seed, number])
                sample = operator_shapes.draw_sample(facts, rng, number)
                if sample is not None:
                    drawn = {info.node.input[i]: v for i, v in sample.parameters.items()}
                    yield {**values, **{n: v for n, v in drawn.items() if n in own}}

    def parameter_names(self) -> set[str]:
        """Return the inputs of the model that are parameters of sites."""
        return {name for f in self._infos for name in self._fed_parameters(f)}

    def _fed_parameters(self, info: OperatorInfo) -> list[str]:
        if info.place != traversal.Place():
            return []
        return [n for n in info.node.input[1:] if n in self._inputs]

    def _facts(
        self,
        info: OperatorInfo,
        sizes: Mapping[str, int],
        values: Mapping[str, Array],
        override: bool,
    ) -> NodeFacts:
        inputs = list(info.facts.inputs)
        for index, name in enumerate(info.node.input):
            default = self._inputs[name].default if name in self._inputs else None
            if index and name in values:
                inputs[index] = InputFacts.of(values[name])
            elif index and default is not None and not override:
                inputs[index] = InputFacts.of(constant_value(default, self._folder))
        dims = self._dims(info)
        if dims is not None:
            known = tuple(sizes.get(d, d) if isinstance(d, str) else d for d in dims)
            inputs[0] = replace(inputs[0] or InputFacts(), shape=known)
        return replace(info.facts, inputs=tuple(inputs))

    def _dims(self, info: OperatorInfo) -> tuple[Dim, ...] | None:
        data = info.facts.inputs[0] if info.facts.inputs else None
        if data is not None and data.shape is not None:
            return data.shape
        name = info.node.input[0]
        if info.place == traversal.Place() and name in self._inputs:
            return self._inputs[name].dims
        return None

    def _find_demands(self) -> Iterator[_Demand]:
        for info in self._infos:
            operator = info.call.operator if info.call is not None else None
            dims = self._dims(info)
            if operator is not None and dims is not None:
                yield _Demand(operator, dims)


def rank_from_sites(name: str, infos: Iterable[OperatorInfo]) -> int | None:
    """Return the rank of an input that a site reads, if that fixes it."""
    for info in infos:
        if info.place == traversal.Place() and info.call and info.node.input[0] == name:
            return info.call.sample_rank()
    return None


def _integers_in(model: onnx.ModelProto) -> list[int]:
    """Return dims of weights and integers in small constants: likely values of a fixed size."""
    integers: dict[int, None] = {}
    for _, graph in traversal.graphs(model):
        stored = graph.initializer if isinstance(graph, onnx.GraphProto) else ()
        integers.update(dict.fromkeys(d for tensor in stored for d in tensor.dims))
        integers.update(dict.fromkeys(stored_integers(stored, graph.node)))
    return sorted(v for v in integers if 1 < v <= SMALL**2)[:_MODEL_INTEGERS]


def stored_integers(
    stored: Iterable[onnx.TensorProto], nodes: Iterable[onnx.NodeProto]
) -> Iterator[int]:
    """Yield the integers in small constants of a graph."""
    for tensor in stored:
        yield from _values(tensor)
    for node in nodes:
        if node.op_type == "Constant" and node.attribute:
            attribute = node.attribute[0]
            yield from (*_values(attribute.t), *attribute.ints, attribute.i)


def _values(tensor: onnx.TensorProto) -> list[int]:
    integers = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if tensor.data_type not in integers or external or math.prod(tensor.dims) > 8:
        return []
    try:
        return [int(v) for v in constant_value(tensor, None).flat]
    except ModelFileError:  # reported where its value is needed
        return []
