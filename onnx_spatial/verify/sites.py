"""Prove each site on its own, bit for bit: the numpy kernel against what stands for the node.

Isolated: the nodes that stand for it are cut out of the converted model and fed with all-distinct
data of every element type it may see, NaN payloads, -0.0 and infinities included, at several legal
sizes, with onnxruntime's optimisations off and on. In place: in a run of the whole converted model
the kernel is applied to the site's own inputs there, and must give the site's own output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from onnx_spatial.errors import OperatorError
from onnx_spatial.facts import Finding, dtype_name
from onnx_spatial.graph import walk
from onnx_spatial.ops.shapes import is_countable, show
from onnx_spatial.verify import legal
from onnx_spatial.verify.compare import compare
from onnx_spatial.verify.exactness import Exactness
from onnx_spatial.verify.kernels import MAX_RANK, run_facts
from onnx_spatial.verify.report import Check, Difference, SiteResult
from onnx_spatial.verify.sessions import RunFailure, Session
from onnx_spatial.verify.slices import Converted, Slice
from onnx_spatial.verify.values import Array, differing_bits, patterns
from onnx_spatial.verify.values import dtype_name as array_dtype_name

#: Larger data than this (128 MiB of float32) is compared inside the model only.
MAX_ELEMENTS = 2**25


@dataclass
class Site:
    """A site under proof.

    Attributes:
        finding: what is known of the node in the original.
        result: what is proven so far.
        difference: the first comparison that failed, with its inputs.
        merged: what gives its output in the converted model stands for other nodes as well.
    """

    finding: Finding
    result: SiteResult
    difference: Difference | None = None
    merged: bool = False

    @classmethod
    def of(cls, finding: Finding) -> Site:
        """A site of which nothing is proven yet."""
        node = finding.node
        result = SiteResult(walk.label(node), str(finding.place), node.op_type, node.domain)
        return cls(finding, result)

    @property
    def output(self) -> str:
        """Name of the value that the node gives."""
        return str(self.finding.node.output[0])

    def record(self, check: Check, inputs: Mapping[str, Array]) -> None:
        """Keep a comparison; the first that failed with its inputs."""
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
        self.difference = Difference("site", result.node, result.graph, message, dict(inputs))

    def withdraw(self, reason: str) -> None:
        """Forget the comparisons made so far."""
        self.result.checks.clear()
        self.result.reason = f"not compared on its own: {reason}"
        self.difference = None


def check_isolated(site: Site, converted: Converted, folder: Path | None, seed: int) -> None:
    """Compare what stands for a site, on its own, with the numpy kernel."""
    finding = site.finding
    if finding.call is None:
        domain = finding.node.domain
        unknown = f"its domain is not known to hold this operator (--domain {domain} says so)"
        site.result.reason = unknown if not finding.known_domain else finding.error
        return
    names = {name for name in finding.node.input if name}
    known = {
        name
        for name, fact in zip(finding.node.input, finding.facts.inputs, strict=False)
        if fact is not None and fact.value is not None
    }
    part = converted.slice(finding.place, site.output, names, known)
    if isinstance(part, str):
        site.merged = True
        site.result.reason = f"not compared on its own: {part}"
        return
    data = finding.facts.inputs[0]
    if data is not None and data.shape is not None and len(data.shape) > MAX_RANK:
        site.withdraw(f"numpy has no more than {MAX_RANK} dims")
        return
    rng = np.random.default_rng([seed, finding.index])
    types = sorted(finding.element_types) or [onnx.TensorProto.FLOAT]
    possible = (d for d in _draws(finding, rng) if is_countable(d.shape))
    draws = [d for d in possible if d.elements <= MAX_ELEMENTS]
    if draws and max(len(d.shape) for d in draws) > MAX_RANK:
        site.withdraw(f"numpy has no more than {MAX_RANK} dims")
        return
    if not draws:
        site.withdraw("no legal sizes were found, or only very large ones")
    if ignored := _ignored_parameters(finding, draws, part):
        site.result.reason = (
            f"not compared on its own: nothing reads {', '.join(ignored)}, it was derived otherwise"
        )
        return
    for element_type in types:
        if not _exists_for_onnxruntime(element_type):
            site.result.reason = f"onnxruntime has no {dtype_name(element_type)} tensors"
            continue
        bench = _Bench(site, part, element_type, folder)
        try:
            for number, draw in enumerate(draws):
                bench.compare(draw, np.random.default_rng([seed, finding.index, number]))
        except OperatorError as error:
            site.withdraw(str(error))
            return
        if len(draws) > 1 and bench.never_ran:
            # Nothing is fixed here that shape inference could see, yet no size at all runs: made
            # for the one size that the whole model has at this place. The whole model will tell.
            site.withdraw("it runs at none of the sizes that seem legal here")


def _draws(finding: Finding, rng: np.random.Generator) -> Iterator[legal.Draw]:
    seen = set()
    assert finding.call is not None
    for number in range(legal.corners(finding.call)):
        draw = legal.draw(finding.facts, rng, number)
        if draw is None:
            return
        key = (draw.shape, tuple((i, v.tobytes()) for i, v in draw.parameters.items()))
        if key not in seen:
            seen.add(key)
            yield draw


def _ignored_parameters(finding: Finding, draws: Sequence[legal.Draw], part: Slice) -> list[str]:
    """Run-time parameters that the slice does not read: any but the model's own may be wrong."""
    names = {finding.node.input[i]: None for d in draws for i in d.parameters}
    return [repr(n) for n in names if n not in part.read]


def _exists_for_onnxruntime(element_type: int) -> bool:
    return element_type not in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)


class _Bench:
    """The slice of one site in two sessions, for one element type."""

    def __init__(self, site: Site, part: Slice, element_type: int, folder: Path | None) -> None:
        self._site = site
        self._part = part
        self._element_type = element_type
        self._folder = folder
        self._sessions: dict[object, Session] = {}
        self.never_ran = True

    def compare(self, draw: legal.Draw, rng: np.random.Generator) -> None:
        node = self._site.finding.node
        arrays: list[Array | None] = [
            f.value if f is not None else None for f in self._site.finding.facts.inputs
        ]
        for index, value in draw.parameters.items():
            arrays[index] = value
        x = arrays[0] = patterns(self._element_type, draw.shape, rng)
        inputs = {n: a for n, a in zip(node.input, arrays, strict=False) if n and a is not None}
        expected = run_facts(self._site.finding.facts, arrays)
        run_time = {node.input[0], *(node.input[i] for i in draw.parameters)}
        for optimised in (False, True):
            try:
                session = self._session(inputs, run_time, optimised)
                fed = {n: a for n, a in inputs.items() if n in session.inputs}
                actual: Array | str = session.run(fed)[self._site.output]
                self.never_ran = False
            except RunFailure as failure:
                self.never_ran &= failure.stage == "run"
                actual = f"it does not {failure.stage}: {failure}"
            self._site.record(_check("isolated", optimised, x, expected, actual), inputs)

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
            model = self._part.model(types, known, self._site.output)
            self._sessions[key] = Session(
                model.SerializeToString(), optimise=optimised, folder=self._folder, threads=1
            )
        return self._sessions[key]

    def _type(self, name: str, array: Array) -> onnx.TypeProto:
        if name == self._site.finding.node.input[0]:
            return onnx.helper.make_tensor_type_proto(self._element_type, [None] * array.ndim)
        element_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnx.helper.make_tensor_type_proto(element_type, list(array.shape))


def _check(
    how: Literal["isolated", "in place"],
    optimised: bool,
    x: Array,
    expected: Array,
    actual: Array | str,
) -> Check:
    what = (how, optimised, array_dtype_name(x), x.shape, expected.size)
    if isinstance(actual, str):
        return Check(*what, expected.size, actual)
    if array_dtype_name(actual) != array_dtype_name(expected):
        wrong = f"the output is {array_dtype_name(actual)}, not {array_dtype_name(expected)}"
        return Check(*what, expected.size, wrong)
    if actual.shape != expected.shape:
        wrong = f"the output has shape {show(actual.shape)}, not {show(expected.shape)}"
        return Check(*what, expected.size, wrong)
    count = int(differing_bits(expected, actual).sum())
    reason = f"{count} of {expected.size} elements differ in their bits" if count else None
    return Check(*what, count, reason)


class InPlace:
    """Sites of the main graph whose inputs and output can be read off a run of the whole."""

    def __init__(self, sites: Sequence[Site], converted: Converted) -> None:
        self._converted = converted
        self._sites = [
            s
            for s in sites
            if s.finding.call is not None
            and s.finding.place == walk.Place()
            and converted.computes(s.output)
        ]

    def wanted(self) -> list[str]:
        """Names of the values to read off, each computed by a node of the main graph."""
        names = [n for s in self._sites for n in (*s.finding.node.input, s.output) if n]
        return [n for n in dict.fromkeys(names) if self._converted.computes(n)]

    def compare(self, values: Mapping[str, Array], other: Callable[[str], Array | None]) -> None:
        """Compare each site by the values of one run.

        Args:
            values: what was read off, by name, and what was fed.
            other: value of an initializer by name, None if there is none.
        """
        for site in self._sites:
            node, facts = site.finding.node, site.finding.facts
            arrays: list[Array | None] = []
            missing = site.output not in values
            for index, name in enumerate(node.input):
                fact = facts.inputs[index] if index < len(facts.inputs) else None
                value = fact.value if fact is not None else None
                if name and value is None:
                    value = values.get(name)
                    value = other(name) if value is None else value
                    missing |= value is None
                arrays.append(value)
            if not missing and arrays[0] is not None:
                _compare_in_place(site, arrays, values[site.output])


def _compare_in_place(site: Site, arrays: Sequence[Array | None], actual: Array) -> None:
    x = arrays[0]
    assert x is not None
    names = site.finding.node.input
    inputs = {n: a for n, a in zip(names, arrays, strict=False) if n and a is not None}
    try:
        expected = run_facts(site.finding.facts, arrays)
    except OperatorError as error:  # its inputs in the converted model are not the original's
        check = Check("in place", False, array_dtype_name(x), x.shape, 0, 0, str(error))
        site.record(check, inputs)
        return
    check = _check("in place", False, x, expected, actual)
    if site.merged and not check.passed and _close(expected, actual):
        # A convolution that took the site in computes the same reals in another order.
        check = replace(check, reason=None)
    site.record(check, inputs)


def _close(expected: Array, actual: Array) -> bool:
    (result,) = compare("", 0, False, expected, actual, Exactness(arithmetic=True))
    return bool(result.passed)
