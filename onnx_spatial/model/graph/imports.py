"""Import the domains that nodes need, and drop imports that no node needs any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.remove_unused import remove_where


def used_domains(graph: traversal.GraphLike) -> set[str]:
    """Return the domains of the nodes in a graph and in the graphs inside it."""
    return {node.domain for _, _, node in traversal.graph_nodes(traversal.Place(), graph)}


def import_missing(imports: Any, domains: Iterable[str], opset: int | None = None) -> None:
    """Import domains in version 1 where they are not imported yet, and ONNX's own as `opset`."""
    imported = op_traits.opsets_of(imports)
    for domain in map(op_traits.canonical_domain, sorted(domains, key=str)):
        if domain not in imported:
            imported[domain] = 1 if domain or opset is None else opset
            imports.append(onnx.helper.make_opsetid(domain, imported[domain]))


def import_everywhere(model: onnx.ModelProto, domain: str) -> None:
    """Import version 1 of a domain in a model and in its functions."""
    for message in (model, *model.functions):
        import_missing(message.opset_import, [domain])


def import_where_used(model: onnx.ModelProto, domain: str) -> None:
    """Import version 1 of a domain in the functions with nodes of it, and in the model if any has."""
    users = [function for function in model.functions if domain in used_domains(function)]
    for function in users:
        import_missing(function.opset_import, [domain])
    if users or domain in used_domains(model.graph):
        import_missing(model.opset_import, [domain])


def adjust_imports(
    proto: onnx.ModelProto, converted: Iterable[tuple[traversal.Place, str]], opset: int | None
) -> list[str]:
    """Drop imports that no node needs any more; import "" where it is needed now.

    Args:
        proto: the converted model, changed in place.
        converted: places and domains of the nodes that were replaced.
        opset: version of "" where it was not imported; None leaves it missing.

    Returns:
        The domains that the model no longer imports.
    """
    replaced = set(converted)
    candidates = {d for _, d in replaced if not op_traits.is_standard_domain(d)}
    all_used = used_domains(proto.graph)
    for function in proto.functions:
        identity = (function.domain, function.name, function.overload)
        used = used_domains(function)
        here = {d for p, d in replaced if p.function == identity} & candidates
        _adjust_list(function.opset_import, here - used, "" in used, opset)
        all_used |= used | {o.domain for o in function.opset_import} | {function.domain}
    return _adjust_list(proto.opset_import, candidates - all_used, "" in all_used, opset)


def _adjust_list(
    imports: Any, unused: set[str], needs_default: bool, opset: int | None
) -> list[str]:
    dropped = remove_where(imports, lambda entry: entry.domain in unused)
    if needs_default and opset is not None:
        import_missing(imports, [""], opset)
    return [entry.domain for entry in dropped]
