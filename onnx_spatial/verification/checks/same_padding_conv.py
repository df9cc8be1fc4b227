"""Prove convolutions that onnxruntime refuses, auto_pad SAME with dilations, each on its own.

What stands for one in the converted model, from its data to its output, is cut out and run on made-up
data. It must give what the original's weights give on data that numpy has padded (`same_padding`):
in whole numbers the same, in reals within the tolerance of `compare.outputs`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.operators import Dim
from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.operators.spellings import InputFacts, NodeFacts
from onnx_spatial.verification.arrays import Array, dtype_name, plain
from onnx_spatial.verification.checks.isolated import MAX_ELEMENTS, OperatorCheck
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.outputs import compare
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime import same_padding
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure, Session
from onnx_spatial.verification.subgraphs.converted_part import Converted

#: Sizes that are not known, as (times the dilation, plus that): odd and even, and smaller than a window.
_SIZES = ((4, 1), (6, 0), (3, 2), (0, 2))

#: Products that are summed up for one convolution, about; a second or two.
_MOST_WORK = 2**34


def find(
    model: onnx.ModelProto, infos: Sequence[OperatorInfo], folder: Path | None
) -> list[OperatorCheck]:
    """The refused convolutions of a model, of which nothing is proven yet.

    Args:
        model: the original.
        infos: its spatial operators.
        folder: where its external data lies.
    """
    local = {(f.domain, f.name) for f in model.functions}
    indices = {
        index
        for index, (_, _, node) in enumerate(traversal.nodes(model))
        if same_padding.is_refused(node) and (node.domain, node.op_type) not in local
    }
    if not indices:
        return []
    inputs = _inputs(model, infos, indices, folder)
    found = []
    for index, (place, _, node) in enumerate(traversal.nodes(model)):
        if index in inputs:
            known = NodeFacts(node.op_type, node.domain, inputs[index], analysis.attributes(node))
            opset = analysis.opset_of(model, place)
            site = OperatorCheck.of(OperatorInfo(index, place, node, opset, True, known))
            site.result.refused = True
            found.append(site)
    return found


def _inputs(
    model: onnx.ModelProto,
    infos: Sequence[OperatorInfo],
    indices: Collection[int],
    folder: Path | None,
) -> dict[int, tuple[InputFacts | None, ...]]:
    """What is known of the inputs of some nodes."""
    known = analysis.inferred(model, infos, folder)
    nodes = [node for _, _, node in traversal.nodes(known)]  # kept, and with them their ids
    positions = {id(node): index for index, node in enumerate(nodes)}
    return {
        positions[id(node)]: tuple(
            analysis.input_facts(scope.type(name)) if name else None for name in node.input
        )
        for scope, graph in constant_folding.scopes(known)
        for node in graph.node
        if positions[id(node)] in indices
    }


def check(
    site: OperatorCheck, original: Converted, converted: Converted, folder: Path | None, seed: int
) -> None:
    """Compare what stands for a refused convolution with what it means.

    Args:
        site: the convolution.
        original, converted: the models.
        folder: where their external data lies.
        seed: of the data.
    """
    info = site.info
    source, sink = str(info.node.input[0]), str(info.node.output[0])
    before, after = (m.slice(info.place, sink, {source}) for m in (original, converted))
    if isinstance(before, str) or isinstance(after, str):
        reason = before if isinstance(before, str) else after
        site.result.reason = f"not compared on its own: {reason}"
        return
    if any(map(same_padding.is_refused, after.nodes)):
        site.result.reason = "onnxruntime refuses to run it: auto_pad SAME with dilations"
        return
    dtype = info.facts.inputs[0].dtype if info.facts.inputs[0] is not None else None
    # Pads that are computed from the shape must fit every size; others may fit the model's only.
    computed = any(n.op_type == "Shape" for n in after.nodes)
    weight = same_padding.weight_of(info.node)
    shapes = list(_shapes(info.facts, weight, computed=computed))
    if dtype is None or not shapes:
        site.result.reason = "not compared on its own: what it is given is not known before it runs"
        return
    types = {
        source: onnx.helper.make_tensor_type_proto(_element_type(dtype), [None] * len(shapes[0]))
    }
    try:
        program = Program(before.model(types, {}, sink), (), folder)
        model = after.model(types, {}, sink).SerializeToString()
        sessions = [_session(model, folder, optimised=optimised) for optimised in (False, True)]
        for number, shape in enumerate(shapes):
            x = plain(_element_type(dtype), shape, np.random.default_rng([seed, number]))
            expected = program.run({source: x})[sink]
            for optimised, session in enumerate(sessions):
                _compare(site, x, expected, _run(session, source, x), bool(optimised))
    except RunFailure as failure:  # of the original: such sizes are not legal here
        site.withdraw(str(failure))
        return
    if site.difference is None:
        site.replaced.add(info.index)


def _session(model: bytes, folder: Path | None, *, optimised: bool) -> Session | str:
    """A session, or why there is none."""
    try:
        return Session(model, optimise=optimised, folder=folder, threads=1)
    except RunFailure as failure:
        return f"it does not load: {failure}"


def _run(session: Session | str, source: str, x: Array) -> Array | str:
    """What a part of the converted model gives, or why it gives nothing."""
    if isinstance(session, str):
        return session
    try:
        (result,) = session.run({source: x}).values()
    except RunFailure as failure:
        return f"it does not run: {failure}"
    return np.asarray(result)


def _compare(
    site: OperatorCheck, x: Array, expected: Array, actual: Array | str, optimised: bool
) -> None:
    inputs = {str(site.info.node.input[0]): x}
    if isinstance(actual, str):
        size = expected.size
        check = Check("isolated", optimised, dtype_name(x), x.shape, size, size, actual)
        site.record(check, inputs, site.output)
        return
    (found,) = compare("", 0, optimised, expected, actual, Exactness(arithmetic=True))
    reason = None if found.passed else found.reason
    check = Check(
        "isolated", optimised, dtype_name(x), x.shape, expected.size, found.mismatches, reason
    )
    site.record(check, inputs, site.output)


def _element_type(name: str) -> int:
    types = onnx.TensorProto.DataType.values()
    return next(int(t) for t in types if t and analysis.dtype_name(t) == name)


def _dims(known: NodeFacts, index: int, rank: int) -> tuple[Dim, ...]:
    """What is known of an input's dims."""
    found = known.inputs[index] if index < len(known.inputs) else None
    shape = found.shape if found is not None else None
    return shape if shape is not None and len(shape) == rank else (None,) * rank


def _shapes(known: NodeFacts, weight: int, *, computed: bool) -> Iterator[tuple[int, ...]]:
    """Shapes of data to compare with; none where a size matters that is not known.

    Args:
        known: of the convolution.
        weight: which input its weight is.
        computed: whether the converted model looks at sizes when it runs.
    """
    dilations, group = known.integers("dilations"), known.attributes.get("group", 1)
    strides = known.attributes.get("strides", (1,) * len(dilations))
    rank = 2 + len(dilations)
    data, kernel = (_dims(known, index, rank) for index in (0, weight))
    channels = data[1]
    if isinstance(kernel[1], int) and isinstance(group, int):
        channels = kernel[1] * group
    if not isinstance(channels, int) or not isinstance(strides, tuple):
        return
    if len(strides) != len(dilations):
        return
    sizes = zip(data[2:], strides, strict=True)
    if not computed and any(s != 1 and not isinstance(d, int) for d, s in sizes):
        return
    batch = data[0] if isinstance(data[0], int) else 2
    seen, work = set[tuple[int, ...]](), 0
    for turn in range(len(_SIZES)):
        drawn = [
            size if isinstance(size, int) else dilation * times + more
            for axis, (size, dilation) in enumerate(zip(data[2:], dilations, strict=True))
            for times, more in [_SIZES[(turn + axis) % len(_SIZES)]]
        ]
        shape = (batch, channels, *drawn)
        if shape in seen or not is_countable(shape) or math.prod(shape) > MAX_ELEMENTS:
            continue
        work += batch * math.prod(d for d in (*drawn, *kernel) if isinstance(d, int))
        if seen and work > _MOST_WORK:
            return
        seen.add(shape)
        yield shape
