"""Remove the local functions of this package: their calls become the operators they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from onnx_spatial.conversion.local_functions.metadata import spelled
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import node_groups, patch_proto


@dataclass(frozen=True)
class WithoutForm:
    """A model without local functions of this package.

    It is no `EditResult`: nothing is reported, and the removed functions are still needed, to inline
    them.

    Attributes:
        model: the model; the given one if it has no such functions.
        functions: the function of each node that called one, by its position in `traversal.nodes`.
        removed: names of the functions, as domain:name.
        domains: domains of these nodes, which hold spatial operators.
    """

    model: onnx.ModelProto
    functions: Mapping[int, onnx.FunctionProto] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    domains: frozenset[str] = frozenset()


def without_earlier_form(model: onnx.ModelProto, *, groups_too: bool = True) -> WithoutForm:
    """Undo mode "function" and mode "custom-op".

    Args:
        model: the model; it stays as it is.
        groups_too: whether the node groups of mode "custom-op" become single nodes again.
    """
    return remove_functions(node_groups.merge(model) if groups_too else model)


def remove_functions(model: onnx.ModelProto) -> WithoutForm:
    """Remove marked functions; `model` stays as it is."""
    marked = {(f.domain, f.name): (f, known) for f in model.functions if (known := spelled(f))}
    if not marked:
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
        if node.overload or key not in marked:
            continue
        called[index], (domain, op_type) = marked[key]
        changed.append((place, node.domain))
        node.domain, node.op_type = domain, op_type
    # The domain of the functions may be imported for nothing now.
    patch_proto.adjust_imports(
        copy, changed + [(traversal.Place(), domain) for domain, _ in marked], None
    )
    removed = tuple(f"{domain}:{name}" for domain, name in marked)
    return WithoutForm(copy, called, removed, frozenset(s.domain for _, s in marked.values()))
