"""Check the nodes that are not spatial operators and that the converted model changes, one by one.

    original   x -> [Conv, weights w]  -> c          converted   x -> [Conv, weights w'] -> c

A conversion leaves the rest of a model alone. Where it did not, the outputs of the whole say little: a
wrong weight may change them by less than rounding may in a deep net, a branch may never be taken, and
a limit that the original does not have may be beyond the usual numbers. So the region that leads to
the value of such a node is compared (`matching_region`), by the magnitudes of its sums, and on rare
numbers if it is not proven: thousands, thousandths, equal ones, NaNs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators.spellings import recognise
from onnx_spatial.verification.checks import node_changes
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import ChangedNode
from onnx_spatial.verification.checks.proof import prove_region
from onnx_spatial.verification.checks.region_judge import Doubt
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion

#: Work of all comparisons, in multiplications of one run, about: a model that another tool wrote anew
#: differs everywhere. It is counted and not timed: a busy machine compares as much as an idle one.
MOST_WORK = 2**31
#: Work of the comparison of an output, which may be the only node of a large model that is changed.
_MOST_FOR_OUTPUT = 2**35
#: Work of a comparison, and of each node in it, whatever the size of the data.
_EACH, _NODE = 2**22, 2**18
#: Runs of each node: sizes and kinds of data, optimisations off and on, double precision.
_RUNS = 16
#: A size that is assumed of an open dim.
_USUAL_SIZE = 8

#: A value of the original: position, node and graph, and its name.
_Value = tuple[int, onnx.NodeProto, traversal.Place, str]


def check(context: Context) -> None:
    """Compare the nodes that the converted model changes.

    Outputs of the model are compared end to end, too, and what a function returns is compared where it
    is called: nodes that cannot be compared are gaps elsewhere.
    """
    findings, regions = context.findings, context.regions
    convolutions = {c.info.index for c in findings.convolutions}
    outputs = {v.name for v in context.models.original.proto.graph.output}
    findings.sampled += _added_and_unread(context)
    findings.gaps += _redefined(context)
    work = 0
    todo = list(_changed(context))
    for index, node, place, name in todo:  # grows by calls of functions that cannot be compared
        # Sizes are right if what is made with them is; another tool may compute them otherwise.
        size = regions.is_size(name, place) and not regions.is_data(name, place)
        if size and not place.steps and name not in outputs:
            findings.computes_sizes_otherwise = True
            region = _prove(node, place, name, context)
            if isinstance(region, MatchingRegion):
                findings.differing_shapes += _differing_shapes(region, context)
            continue
        graphs = (context.original, context.converted)
        changed = ChangedNode(
            node, place, node_changes.describe(node, name, place, context.models, graphs)
        )
        findings.changed.append(changed)
        region = _prove(node, place, name, context)
        is_output = place == traversal.Place() and name in outputs
        in_function = place.function is not None and not place.steps
        elsewhere = in_function or index in convolutions
        if _has_other_graphs(node, place, context):
            changed.doubt = "a graph inside it has other inputs or results"
        if isinstance(region, str):
            changed.left = None if elsewhere else region
            todo += _calls(place, todo, context)
            continue
        proven = context.region_proofs[region.key].scope != "sampled"
        changed.compared = changed.proven = proven
        own_work = _work(region)
        work += own_work
        if work > MOST_WORK and (not is_output or own_work > _MOST_FOR_OUTPUT):
            changed.left = "too many nodes were changed"
            continue
        compared = context.region_results.checked(region)
        if not proven or isinstance(compared, str):
            context.watched.append((changed, context.region_results.comparison(region)))
        if isinstance(compared, Doubt) and not in_function:  # the calls of a function will tell
            changed.doubt = changed.doubt or compared
        elif isinstance(compared, str):
            changed.left = None if elsewhere else compared
            todo += _calls(place, todo, context)
        else:
            for each in compared:
                changed.record(each.check, each.feeds, name)
            if changed.change is not None and changed.change.is_data and not proven:
                changed.doubt = f"it {changed.change.text}; no run shows it"


def _prove(
    node: onnx.NodeProto, place: traversal.Place, name: str, context: Context
) -> MatchingRegion | str:
    """Return the region that leads to a changed value, and note if it is not proven to be the same."""
    region = context.regions.at(place, name)
    reason: str | None = region if isinstance(region, str) else None
    if isinstance(region, MatchingRegion):
        if region.key not in context.region_proofs:
            context.region_proofs[region.key] = prove_region(region, context)
        proof = context.region_proofs[region.key]
        reason = proof.reason if proof.scope == "sampled" else None
    if reason is not None:
        context.findings.sampled.append(f"{ChangedNode(node, place).label} was changed: {reason}")
    return region


def _differing_shapes(
    region: MatchingRegion, context: Context
) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """Return shapes of the model's inputs at which both parts of a region may differ."""
    proof = context.region_proofs[region.key]
    if region.fed:
        return proof.sizes
    return proof.widened.sizes if proof.widened is not None else ()


def _work(region: MatchingRegion) -> int:
    """Return the work of comparing a region, about; it depends on the models alone."""
    shapes = [shape_inference.dims(known) or () for known in region.inputs.values()]
    sizes = [[d if isinstance(d, int) else _USUAL_SIZE for d in shape] for shape in shapes]
    data = max(sizes, key=math.prod, default=[])
    positions = math.prod(data) // max(1, data[1] if len(data) > 1 else 1)
    work = _EACH
    for part in (region.before, region.after):
        weights = {t.name: math.prod(t.dims) for t in part.stored}
        for node in part.nodes:
            work += _NODE + _RUNS * math.prod(data)
            if Trait.PRODUCTS in op_traits.of(node).traits:
                work += positions * max((weights.get(n, 0) for n in node.input), default=0)
    return work


def _has_other_graphs(node: onnx.NodeProto, place: traversal.Place, context: Context) -> bool:
    """Tell whether a graph inside a node takes or gives other values than the original's.

    Values that have a counterpart by name are compared themselves, and spatial operators without one
    are gaps themselves.
    """
    definitions = context.definitions
    left = {o.info.place for o in context.findings.operators if not o.result.checks}
    for name, body in traversal.subgraphs(node):
        inner = place.inside(traversal.step(node.op_type, node.output, name))
        kept = (context.converted.computes(value.name, inner) for value in body.output)
        same = definitions.same_results(inner) or all(kept)
        if not (same and definitions.same_inputs(inner)) and inner not in left:
            return True
    return False


def _added_and_unread(context: Context) -> Iterator[str]:
    """Yield the nodes of the converted model that it adds and whose outputs nothing reads.

    Runtimes run them all the same, and may fail.
    """
    original = context.original
    for place, graph in traversal.graphs(context.converted.model):
        named = [v if isinstance(v, str) else v.name for v in graph.output]
        read = set(named).union(*(traversal.needs(node) for node in graph.node))
        for node in graph.node:
            names = [name for name in node.output if name]
            if read.isdisjoint(names) and not any(original.computes(n, place) for n in names):
                yield f"{ChangedNode(node, place).label} was added, and nothing reads it"


def _redefined(context: Context) -> Iterator[str]:
    """Yield the functions that the converted model adds in place of standard operators.

    Which of the two is meant is left to the runtime; onnxruntime runs its own kernel.
    """
    known = {(f.domain, f.name, f.overload) for f in context.original.model.functions}
    for function in context.converted.model.functions:
        if (function.domain, function.name, function.overload) in known:
            continue
        # Programs may register schemas of the spatial operators with onnx.
        if recognise(function.name, function.domain, 1):
            continue
        if onnx.defs.has(function.name, op_traits.canonical_domain(function.domain)):
            yield f"function {function.name!r} was added, which redefines a standard operator"


def _calls(place: traversal.Place, known: Collection[_Value], context: Context) -> list[_Value]:
    """Return the results of further calls of a function, for the place of its body."""
    return [
        (index, node, caller, name)
        for index, (caller, _, node) in enumerate(traversal.nodes(context.original.model))
        if place == traversal.Place((node.domain, node.op_type, node.overload))
        for name in node.output
        if (index, node, caller, name) not in known and context.converted.computes(name, caller)
    ]


def _changed(context: Context) -> Iterator[_Value]:
    """Yield each value that the converted model computes otherwise."""
    compared = context.findings.compared
    for index, (place, _, node) in enumerate(traversal.nodes(context.original.model)):
        if index in compared:
            continue
        for name in node.output:
            is_kept = bool(name) and context.converted.computes(name, place)
            if is_kept and not context.definitions.same(name, place):
                yield index, node, place, name
