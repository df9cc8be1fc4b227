"""Take our functions off a model: the nodes that called them are what they were before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from onnx_spatial.conversion.local_functions.metadata import spelled
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import node_groups, patch_proto


@dataclass(frozen=True)
class WithoutForm:
    """A model without functions of ours.

    Attributes:
        model: the model that was given, where it had none.
        functions: the function behind each node that called one, by the node's position in
            `walk.nodes(model)`.
        removed: names of our functions, as domain:name.
        domains: domains that are known to hold spatial operators, because these nodes were wrapped.
    """

    model: onnx.ModelProto
    functions: Mapping[int, onnx.FunctionProto] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    domains: frozenset[str] = frozenset()


def without_earlier_form(model: onnx.ModelProto, *, groups_too: bool = True) -> WithoutForm:
    """The model as it was before it was given local functions or prepared for Python operators.

    Args:
        model: the model; it stays as it is.
        groups_too: whether prepared operators become single nodes again.
    """
    return remove_functions(node_groups.merge(model) if groups_too else model)


def remove_functions(model: onnx.ModelProto) -> WithoutForm:
    """`model`, which stays as it is, without our functions."""
    ours = {(f.domain, f.name): (f, known) for f in model.functions if (known := spelled(f))}
    if not ours:
        return WithoutForm(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [f for f in copy.functions if spelled(f) is None]
    del copy.functions[:]
    copy.functions.extend(kept)
    called: dict[int, onnx.FunctionProto] = {}
    changed = []
    for index, (place, _, node) in enumerate(traversal.nodes(copy)):
        key = (node.domain, node.op_type)
        if node.overload or key not in ours:
            continue
        called[index], (domain, op_type) = ours[key]
        changed.append((place, node.domain))
        node.domain, node.op_type = domain, op_type
    # A domain of ours that only the functions were in is a dead import now.
    patch_proto.adjust_imports(
        copy, changed + [(traversal.Place(), domain) for domain, _ in ours], None
    )
    removed = tuple(f"{domain}:{name}" for domain, name in ours)
    return WithoutForm(copy, called, removed, frozenset(s.domain for _, s in ours.values()))
