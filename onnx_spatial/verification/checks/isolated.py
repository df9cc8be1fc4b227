"""Prove each site on its own, bit for bit: the numpy kernel against what stands for the node.

The nodes that stand for it are cut out of the converted model and fed with all-distinct data of every
element type it may see, NaN payloads, -0.0 and infinities included, at several legal sizes, with
onnxruntime's optimisations off and on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.analysis import OperatorInfo, dtype_name
from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.operators.shapes import is_countable, show
from onnx_spatial.verification.arrays import Array, extremes, patterns
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.report import Check, Difference, SiteResult
from onnx_spatial.verification.runtime.sessions import RunFailure, Session
from onnx_spatial.verification.runtime.spatial_kernels import MAX_RANK
from onnx_spatial.verification.sizes import operator_shapes
from onnx_spatial.verification.sizes.edge_shapes import corners
from onnx_spatial.verification.subgraphs.converted_part import Converted, ConvertedPart
from onnx_spatial.verification.subgraphs.transpose_chain import Original, TransposeChain

#: Larger data than this (128 MiB of float32) is compared inside the model only.
MAX_ELEMENTS = 2**25


@dataclass
class OperatorCheck:
    """A site under proof.

    Attributes:
        info: what is known of the node in the original.
        result: what is proven so far.
        difference: the first comparison that failed, with its inputs.
        merged: what gives its output in the converted model stands for other nodes as well.
        undecided: what it was merged with gives something else, which may be rounding or not.
        replaced: Transposes around it that were proven with it, by their position in `traversal.nodes`.
    """

    info: OperatorInfo
    result: SiteResult
    difference: Difference | None = None
    merged: bool = False
    undecided: str | None = None
    replaced: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, info: OperatorInfo) -> OperatorCheck:
        """A site of which nothing is proven yet."""
        node = info.node
        result = SiteResult(traversal.label(node), str(info.place), node.op_type, node.domain)
        return cls(info, result)

    @property
    def output(self) -> str:
        """Name of the value that the node gives."""
        return str(self.info.node.output[0])

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Keep a comparison of a value; the first that failed with its inputs."""
        self.result.checks.append(check)
        if check.passed or self.difference is not None:
            return
        result = self.result
        mode = "on" if check.optimised else "off"
        message = (
            f"{result.op_type} node {result.node!r} ({result.graph}), {check.how}, {check.dtype} "
            f"{show(check.shape)}, optimisations {mode}: {check.reason}"
        )
        result.reason = message
        place = self.info.place
        self.difference = Difference(
            "site",
            result.node,
            result.graph,
            message,
            dict(inputs),
            value,
            place,
            check.optimised,
        )

    def withdraw(self, reason: str) -> None:
        """Forget the comparisons made so far."""
        self.result.checks.clear()
        self.replaced.clear()
        self.result.reason = f"not compared on its own: {reason}"
        self.difference = None


def check_isolated(
    site: OperatorCheck, original: Original, converted: Converted, folder: Path | None, seed: int
) -> None:
    """Compare what stands for a site, on its own, with the numpy kernel.

    Where the site's own values are gone from the converted model, what stands for it and for what
    was around it is compared with all of these (`transpose_chain`).
    """
    info = site.info
    if info.call is None:
        domain = info.node.domain
        unknown = f"its domain is not known to hold this operator (--domain {domain} says so)"
        site.result.reason = unknown if not info.known_domain else info.error
        return

    def computes(name: str) -> bool:
        return converted.computes(name, info.place)

    ways = original.stretches(info, computes) or original.stretches(info, lambda _: True)
    parts = []
    for stretches in ways:
        found = _part(stretches, converted)
        if isinstance(found, str):
            site.merged = True
            site.result.reason = f"not compared on its own: {found}"
            return
        parts.append(found)
    data = info.facts.inputs[0]
    if data is not None and data.shape is not None and len(data.shape) > MAX_RANK:
        site.withdraw(f"numpy has no more than {MAX_RANK} dims")
        return
    for stretch, part in parts:
        if not _compare_isolated(site, stretch, part, folder, seed):
            return
        site.replaced |= stretch.replaced(computes)


def _part(
    stretches: Sequence[TransposeChain], converted: Converted
) -> tuple[TransposeChain, ConvertedPart] | str:
    """What stands for the shortest stretch that can be cut out, or why none can."""
    nearest: tuple[TransposeChain, ConvertedPart] | str | None = None
    for stretch in stretches:
        stops = {stretch.source, *stretch.parameters}
        known = {name for name, value in stretch.parameters.items() if value is not None}
        found = converted.slice(stretch.head.place, stretch.sink, stops, known)
        if isinstance(found, ConvertedPart) and stretch.source in found.read:
            return stretch, found
        nearest = nearest or (found if isinstance(found, str) else (stretch, found))
    assert nearest is not None
    return nearest


def _compare_isolated(
    site: OperatorCheck,
    stretch: TransposeChain,
    part: ConvertedPart,
    folder: Path | None,
    seed: int,
) -> bool:
    """Compare one stretch through a site at several sizes; whether it could be compared."""
    info = stretch.head
    rng = np.random.default_rng([seed, site.info.index])
    types = sorted(info.element_types) or [onnx.TensorProto.FLOAT]
    possible = (d for d in _draws(stretch, rng) if is_countable(d.shape))
    draws = [d for d in possible if d.elements <= MAX_ELEMENTS]
    if draws and max(len(d.shape) for d in draws) > MAX_RANK:
        site.withdraw(f"numpy has no more than {MAX_RANK} dims")
        return False
    if not draws:
        site.withdraw("no legal sizes were found, or only very large ones")
        return False
    if ignored := _ignored_parameters(info, draws, part):
        site.result.reason = (
            f"not compared on its own: nothing reads {', '.join(ignored)}, it was derived otherwise"
        )
        return False
    for element_type in types:
        if not _exists_for_onnxruntime(element_type):
            site.result.reason = f"onnxruntime has no {dtype_name(element_type)} tensors"
            continue
        bench = _Bench(site, stretch, part, element_type, folder)
        try:
            for number, draw in enumerate(draws):
                if (draw.large and element_type != types[0]) or (draw.unusual and bench.never_ran):
                    continue
                bench.compare(draw, np.random.default_rng([seed, site.info.index, number]))
        except OperatorError as error:
            site.withdraw(str(error))
            return False
        if len(draws) > 1 and bench.never_ran:
            # Nothing is fixed here that shape inference could see, yet no size at all runs: made
            # for the one size that the whole model has at this place. The whole model will tell.
            site.withdraw("it runs at none of the sizes that seem legal here")
            return False
    return True


def _draws(
    stretch: TransposeChain, rng: np.random.Generator
) -> Iterator[operator_shapes.ShapeSample]:
    seen = set()
    facts = stretch.head.facts
    for draw in _legal_draws(stretch, rng):
        key = (draw.shape, tuple((i, v.tobytes()) for i, v in draw.parameters.items()))
        known = [fact.value if fact is not None else None for fact in facts.inputs]
        try:
            stretch.check(draw.shape, [draw.parameters.get(i, v) for i, v in enumerate(known)])
        except OperatorError:  # legal for the head, but not for what follows
            continue
        if key not in seen:
            seen.add(key)
            yield draw


def _legal_draws(
    stretch: TransposeChain, rng: np.random.Generator
) -> Iterator[operator_shapes.ShapeSample]:
    """Draws for the head of a stretch, and then such of unusual sizes."""
    facts, call = stretch.head.facts, stretch.head.call
    assert call is not None
    first = None
    for number in range(call.test_draws):
        draw = operator_shapes.draw_sample(facts, rng, number)
        if draw is None:
            break
        first = first or draw
        yield draw
    if first is not None:
        yield from corners(facts, first, stretch.head.opset or 0)


def _ignored_parameters(
    info: OperatorInfo, draws: Sequence[operator_shapes.ShapeSample], part: ConvertedPart
) -> list[str]:
    """Run-time parameters that the slice does not read: any but the model's own may be wrong."""
    names = {info.node.input[i]: None for d in draws for i in d.parameters}
    return [repr(n) for n in names if n not in part.read]


def _exists_for_onnxruntime(element_type: int) -> bool:
    return element_type not in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)


class _Bench:
    """The slice of one site in two sessions, for one element type."""

    def __init__(
        self,
        site: OperatorCheck,
        stretch: TransposeChain,
        part: ConvertedPart,
        element_type: int,
        folder: Path | None,
    ) -> None:
        self._site = site
        self._stretch = stretch
        self._part = part
        self._element_type = element_type
        self._folder = folder
        self._sessions: dict[object, Session] = {}
        self.never_ran = True

    def compare(self, draw: operator_shapes.ShapeSample, rng: np.random.Generator) -> None:
        stretch = self._stretch
        arrays: list[Array | None] = [
            f.value if f is not None else None for f in stretch.head.facts.inputs
        ]
        for index, value in draw.parameters.items():
            arrays[index] = value
        shape = stretch.source_shape(draw.shape)
        self._compare(draw, arrays, patterns(self._element_type, shape, rng))
        if draw.large:  # what a size does wrong shows on any data
            return
        everywhere = extremes(self._element_type, shape, rng)
        if everywhere is not None and self._site.difference is None:
            self._compare(draw, arrays, everywhere)

    def _compare(
        self, draw: operator_shapes.ShapeSample, arrays: list[Array | None], x: Array
    ) -> None:
        stretch, node = self._stretch, self._stretch.head.node
        arrays[0] = x
        inputs = {n: v for n, v in stretch.parameters.items() if v is not None}
        inputs[stretch.source] = x
        inputs |= {node.input[i]: value for i, value in draw.parameters.items()}
        expected = stretch.run(arrays)
        run_time = {stretch.source, *(node.input[i] for i in draw.parameters)}
        for optimised in (False, True):
            try:
                session = self._session(inputs, run_time, optimised)
                fed = {n: a for n, a in inputs.items() if n in session.inputs}
                actual: Array | str = session.run(fed)[stretch.sink]
                self.never_ran = False
            except RunFailure as failure:
                self.never_ran &= failure.stage == "run"
                actual = f"it does not {failure.stage}: {failure}"
            check = bitwise("isolated", optimised, x, expected, actual)
            self._site.record(check, inputs, stretch.sink)

    def _session(
        self, inputs: Mapping[str, Array], run_time: Iterable[str], optimised: bool
    ) -> Session:
        fed = {n: inputs[n] for n in run_time if n in self._part.read}
        key = (optimised, *((n, a.ndim) for n, a in sorted(fed.items())))
        if key not in self._sessions:
            types = {n: self._type(n, a) for n, a in fed.items()}
            known = {
                n: onnx.numpy_helper.from_array(a, n)
                for n, a in inputs.items()
                if n not in fed and n in self._part.read
            }
            model = self._part.model(types, known, self._stretch.sink)
            self._sessions[key] = Session(
                model.SerializeToString(), optimise=optimised, folder=self._folder, threads=1
            )
        return self._sessions[key]

    def _type(self, name: str, array: Array) -> onnx.TypeProto:
        if name == self._stretch.source:
            return onnx.helper.make_tensor_type_proto(self._element_type, [None] * array.ndim)
        element_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnx.helper.make_tensor_type_proto(element_type, list(array.shape))
