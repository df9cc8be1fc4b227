"""Check convolutions that onnxruntime refuses (auto_pad SAME with dilations), each on its own.

The nodes that replace one in the converted model, from its data to its output, are cut out and run on
generated data. They must give what the original's weights give on data that numpy has padded
(`same_padding`): the same integers, reals within the tolerance of `compare.outputs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.operators import Dim
from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.operators.spellings import NodeFacts
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.checks.replacement import MAX_ELEMENTS
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.compare.outputs import within_tolerance
from onnx_spatial.verification.match.graphs import Graphs
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.run.data import usual
from onnx_spatial.verification.runtime import same_padding
from onnx_spatial.verification.runtime.both_levels import BothLevels
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure

#: Unknown sizes, as (times the dilation, plus that): odd and even, and smaller than a window.
_SIZES = ((4, 1), (6, 0), (3, 2), (0, 2))

#: Products that are summed for one convolution, about; a second or two.
_MOST_WORK = 2**34


def find(context: Context) -> None:
    """Find the refused convolutions of the original."""
    context.findings.convolutions = _find(context)


def check(context: Context) -> None:
    """Compare every refused convolution with the nodes that replace it."""
    convolutions = context.findings.convolutions
    if convolutions:
        original = Graphs(context.reference.named)
        for convolution in (c for c in convolutions if c.difference is None):
            context.request.progress(f"convolution {convolution.result.node}")
            _check(convolution, original, context)


def _find(context: Context) -> list[OperatorCheck]:
    """Return the refused convolutions of the original, of which nothing is compared yet."""
    model = context.reference.named
    local = {(f.domain, f.name) for f in model.functions}
    refused = {
        index: (place, node)
        for index, (place, _, node) in enumerate(traversal.nodes(model))
        if same_padding.is_refused(node) and (node.domain, node.op_type) not in local
    }
    if not refused:
        return []
    inferred = analysis.inferred(model, context.reference.infos, context.reference.source.folder)
    nodes = [node for _, _, node in traversal.nodes(inferred)]  # kept, and with them their ids
    positions = {id(node): index for index, node in enumerate(nodes)}
    typed = ((scope, node) for scope, g in constant_folding.scopes(inferred) for node in g.node)
    checks = []
    for scope, each in typed:
        index = positions[id(each)]
        if index in refused:
            place, node = refused[index]
            inputs = (analysis.input_facts(scope.type(n)) if n else None for n in each.input)
            attributes = analysis.attributes(node)
            facts = NodeFacts(node.op_type, node.domain, tuple(inputs), attributes)
            info = OperatorInfo(index, place, node, analysis.opset_of(model, place), True, facts)
            checks.append(OperatorCheck.of(info, refused=True))
    return sorted(checks, key=lambda check: check.info.index)


def _check(convolution: OperatorCheck, original: Graphs, context: Context) -> None:
    info, result = convolution.info, convolution.result
    folder, seed = context.models.converted.folder, context.seed
    source, sink = str(info.node.input[0]), convolution.output
    before, after = (m.slice(info.place, sink, {source}) for m in (original, context.converted))
    if isinstance(before, str) or isinstance(after, str):
        reason = before if isinstance(before, str) else after
        result.reason = f"not compared on its own: {reason}"
        return
    if any(map(same_padding.is_refused, after.nodes)):
        result.reason = "onnxruntime refuses to run it: auto_pad SAME with dilations"
        return
    data = info.facts.inputs[0]
    # Pads that are computed from the shape must fit every size; others may fit the model's only.
    computed = any(n.op_type == "Shape" for n in after.nodes)
    weight = same_padding.weight_of(info.node)
    shapes = list(_shapes(info.facts, weight, computed=computed))
    if convolution.is_proven:
        del shapes[1:]
    element_type = analysis.element_type_named(data.dtype) if data and data.dtype else None
    if element_type is None or not shapes:
        result.reason = "not compared on its own: the shape or type of its data is unknown"
        return
    types = {source: onnx.helper.make_tensor_type_proto(element_type, [None] * len(shapes[0]))}
    try:
        program = Program(before.model(types, sink), (), folder)
        sessions = BothLevels(after.model(types, sink), sink, folder)
        for number, shape in enumerate(shapes):
            x = usual(element_type, shape, np.random.default_rng([seed, number]))
            expected = program.run({source: x})[sink]
            for optimised, actual, failure in sessions.run({source: x}):
                if failure is not None and failure.out_of_memory:
                    raise failure
                check = _compared(optimised, x, expected, actual)
                convolution.record(check, {source: x}, sink)
    except (
        RunFailure
    ) as failure:  # of the original: such sizes are not legal here; or too little memory
        convolution.withdraw(str(failure))


def _compared(optimised: bool, x: Array, expected: Array, actual: Array | str) -> Check:
    check = bitwise("isolated", optimised, x, expected, actual)
    if isinstance(actual, str):
        return replace(check, exact=False)
    return within_tolerance(check, expected, actual)


def _dims(facts: NodeFacts, index: int, rank: int) -> tuple[Dim, ...]:
    """Return the known dims of an input."""
    fact = facts.inputs[index] if index < len(facts.inputs) else None
    shape = fact.shape if fact is not None else None
    return shape if shape is not None and len(shape) == rank else (None,) * rank


def _shapes(facts: NodeFacts, weight: int, *, computed: bool) -> Iterator[tuple[int, ...]]:
    """Yield shapes of data to compare with; none where a size matters that is not known.

    All sizes but the channels are free if the converted model has `computed` its pads at run time.
    """
    dilations, group = facts.integers("dilations"), facts.attributes.get("group", 1)
    strides = facts.attributes.get("strides", (1,) * len(dilations))
    rank = 2 + len(dilations)
    data, kernel = (_dims(facts, index, rank) for index in (0, weight))
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
    for number in range(len(_SIZES)):
        lengths = [
            size if isinstance(size, int) else dilation * times + more
            for axis, (size, dilation) in enumerate(zip(data[2:], dilations, strict=True))
            for times, more in [_SIZES[(number + axis) % len(_SIZES)]]
        ]
        shape = (batch, channels, *lengths)
        if shape in seen or not is_countable(shape) or math.prod(shape) > MAX_ELEMENTS:
            continue
        work += batch * math.prod(d for d in (*lengths, *kernel) if isinstance(d, int))
        if seen and work > _MOST_WORK:
            return
        seen.add(shape)
        yield shape
