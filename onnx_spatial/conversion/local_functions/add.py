"""Add local functions that define the spatial operators of a model.

Each operator gets the smallest body for its known sizes. Operators with outputs of unknown size share
one body per operator type, spelling and rank, unless that takes a quarter more nodes than a body for
each: it reads block shapes, pads and crops from its inputs and attributes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx

from onnx_spatial import analysis
from onnx_spatial.conversion import report
from onnx_spatial.conversion.local_functions import body
from onnx_spatial.conversion.local_functions.body import Body, BodyRequest
from onnx_spatial.conversion.local_functions.marked import Spelled, mark
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.errors import ConversionError, OperatorError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import patch_proto
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.operators.spellings import Conflict, python_ops, read

#: FunctionProto came with this IR version.
MIN_IR_VERSION = 8

#: The size of a shared body, at most, relative to that of the bodies that it replaces.
_SHARED_SIZE = 1.25

#: Domain of the functions for nodes in a domain of ONNX's own, which may hold no functions.
DOMAIN = "onnx_spatial"

_ONNX_DOMAINS = ("ai.onnx.ml", "ai.onnx.preview", "ai.onnx.training")

#: Function names in place of standard operators' names: for a node of such a name, onnx's reference
#: evaluator ignores the domain and runs the standard operator.
_RENAMED = {"SpaceToDepth": "SpaceToBatchND", "DepthToSpace": "BatchToSpaceND"}


def add_functions(
    model: onnx.ModelProto,
    infos: Sequence[analysis.OperatorInfo],
    options: ConvertOptions,
    *,
    opset: int,
) -> EditResult:
    """Add local functions to a copy of a model and let its spatial operators call them.

    An operator that cannot be converted gets its `error` set and stays as it is. `opset` is the version
    of the default domain where it is not imported.
    """
    calls: list[_FunctionCall] = []
    build = partial(body.build, options=options)
    for info in infos:
        if info.call is None:
            continue
        try:
            request = BodyRequest(info.call, info.facts, info.element_types, info.opset or opset)
            calls.append(_FunctionCall(info, request, build(request)))
        except ConversionError as error:
            info.refuse(error)
    result = EditResult(operator_at={info.index: report.left(info) for info in infos})
    if not calls:
        return result
    _share(calls, build)
    result.model = onnx.ModelProto()
    result.model.CopyFrom(model)
    if model.ir_version < MIN_IR_VERSION:
        _raise_ir_version(result.model)
    _add(result.model, calls, result)
    return result


def _raise_ir_version(model: onnx.ModelProto) -> None:
    """Give a model the first IR version that has local functions, without a change of its meaning.

    Before IR version 4 initializers were listed as inputs that nobody could feed; in later versions such
    inputs can be fed.
    """
    if model.ir_version < 4:
        stored = {tensor.name for tensor in model.graph.initializer}
        for index in reversed(range(len(model.graph.input))):
            if model.graph.input[index].name in stored:
                del model.graph.input[index]
    model.ir_version = MIN_IR_VERSION


@dataclass
class _FunctionCall:
    """An operator and the body of its function."""

    info: analysis.OperatorInfo
    request: BodyRequest
    body: Body

    @property
    def spelled(self) -> Spelled:
        return Spelled(self.info.node.domain, self.info.node.op_type)

    @property
    def family(self) -> tuple[object, ...] | None:
        """Key of the operators that one body could serve; None for one with an output of known shape."""
        call, node, shape = self.request.call, self.info.node, self.info.output_shape
        if shape is not None and all(isinstance(d, int) for d in shape):
            return None
        data = self.request.facts.inputs[0]
        rank = None if data is None or data.shape is None else len(data.shape)
        names = tuple(sorted(a.name for a in node.attribute))
        missing = tuple(fact is None for fact in self.request.facts.inputs)
        known_type = bool(self.request.element_types)
        kind = (self.spelled, call.dialect, *call.family, call.rank or rank)
        return (*kind, names, missing, known_type, self.request.opset)


def _share(calls: Sequence[_FunctionCall], build: Callable[[BodyRequest], Body]) -> None:
    """Give each family one body where that makes the model hardly larger, or smaller."""
    families: dict[tuple[object, ...], list[_FunctionCall]] = {}
    for call in calls:
        if call.family is not None:
            families.setdefault(call.family, []).append(call)
    for family in families.values():
        own = {call.body.key: call.body for call in family}
        if len(own) == 1:
            continue
        shared = _shared_body([call.request for call in family], build)
        apart = sum(len(b.function.node) for b in own.values())
        if shared is not None and len(shared.function.node) < _SHARED_SIZE * apart:
            for call in family:
                call.body = shared


def _shared_body(each: Sequence[BodyRequest], build: Callable[[BodyRequest], Body]) -> Body | None:
    first = each[0]
    joined = analysis.join([request.facts for request in each])
    differing = [n for n, value in joined.attributes.items() if isinstance(value, Conflict)]
    if differing and (first.opset < body.REFERENCE_OPSET or set(differing) - first.call.referable):
        return None
    joined = replace(joined, attributes=first.facts.attributes)
    element_types = frozenset[int]().union(*(request.element_types for request in each))
    try:
        request = BodyRequest(read(joined), joined, element_types, first.opset, differing)
        return build(request)
    except (ConversionError, OperatorError):
        return None


def _add(model: onnx.ModelProto, calls: Sequence[_FunctionCall], result: EditResult) -> None:
    wrapped = {call.info.index for call in calls}
    nodes = list(traversal.nodes(model))
    taken = {(f.domain, f.name) for f in model.functions}
    taken |= {(n.domain, n.op_type) for i, (_, _, n) in enumerate(nodes) if i not in wrapped}
    functions: dict[tuple[Spelled, bytes], onnx.FunctionProto] = {}
    holders = {
        traversal.Place((f.domain, f.name, f.overload)): f.opset_import for f in model.functions
    }
    for call in calls:
        key = (call.spelled, call.body.key)
        if key not in functions:
            functions[key] = _named(call, taken)
        function = functions[key]
        place, _, node = nodes[call.info.index]
        node.domain, node.op_type = function.domain, function.name
        for imports in (model.opset_import, holders.get(traversal.Place(place.function))):
            if imports is not None:
                patch_proto.add_import(imports, function.domain)
        name = f"{function.domain}:{function.name}"
        info, nodes_after = call.info, len(function.node)
        result.operator_at[info.index] = report.converted(
            info, "function", call.body.strategy, nodes_after, name
        )
        result.note_outputs(info, info.node.output[:1], info.output_shape)
    _tell_apart(model, [nodes[index] for index in sorted(wrapped)])
    # In front: onnx's reference evaluator knows only the functions above the one that it reads.
    own = list(model.functions)
    del model.functions[:]
    model.functions.extend([*functions.values(), *own])


def _tell_apart(
    model: onnx.ModelProto,
    wrapped: Sequence[tuple[traversal.Place, traversal.GraphLike, onnx.NodeProto]],
) -> None:
    """Rename nodes that bear the name of another one in their graph: onnxruntime refuses two."""
    names: Names | None = None
    count = Counter((place, node.name) for place, _, node in traversal.nodes(model))
    for place, _, node in wrapped:
        if node.name and count[place, node.name] > 1:
            count[place, node.name] -= 1
            names = names or Names(model)
            node.name = names.fresh(node.name)


def _named(call: _FunctionCall, taken: set[tuple[str, str]]) -> onnx.FunctionProto:
    function = onnx.FunctionProto()
    function.CopyFrom(call.body.function)
    domain, op_type = call.spelled
    function.domain = DOMAIN if _is_of_onnx(domain) else domain
    base = _RENAMED.get(op_type, op_type)
    # Overloads would say it better, but onnx's reference evaluator and onnxruntime 1.23 take the
    # wrong one without a word.
    names = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(2)))
    function.name = next(n for n in names if (function.domain, n) not in taken)
    taken.add((function.domain, function.name))
    function.doc_string = f"{op_type} of {domain or 'ai.onnx'} in standard operators"
    mark(function, call.spelled)
    return function


def _is_of_onnx(domain: str) -> bool:
    """Return whether onnx or onnxruntime may have operators in a domain, and look for no others."""
    return (
        op_traits.is_standard_domain(domain)
        or domain == python_ops.DOMAIN
        or domain.startswith(_ONNX_DOMAINS)
    )
