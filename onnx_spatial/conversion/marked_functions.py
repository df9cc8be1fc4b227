"""Mark the local functions of this package, and remove them: calls become operators again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import onnx

from onnx_spatial.chains.illegal_reshapes import Repaired, with_legal_patches
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import imports, marks
from onnx_spatial.model.traversal import Index
from onnx_spatial.operators.spellings import LEFTOVER_OP_TYPES, OP_TYPES, python_ops

#: Metadata key of a marked function: "domain:op_type" of the nodes that call it, as in the file.
MARK = "onnx_spatial.function"

#: Most nodes of a body. Written ones have fewer than a hundred; longer ones would multiply when inlined.
_LARGEST_BODY = 1000


class Spelled(NamedTuple):
    """Domain and operator type of a node in the file."""

    domain: str
    op_type: str


def mark(function: onnx.FunctionProto, spelled: Spelled) -> None:
    """Mark a function."""
    function.metadata_props.add(key=MARK, value=f"{spelled.domain}:{spelled.op_type}")


def spelled(function: onnx.FunctionProto) -> Spelled | None:
    """Return the operator that the calls of a function were; None for a function of the user's own.

    A marked function of another form than `local_functions` writes is the user's own, too.
    """
    value = next((p.value for p in function.metadata_props if p.key == MARK), None)
    if value is None:
        return None
    domain, separator, op_type = value.rpartition(":")
    is_ours = (
        separator == ":"
        and op_type in OP_TYPES | LEFTOVER_OP_TYPES
        and not function.overload
        and len(function.input) >= 1
        and len(function.output) == 1
        and len(function.node) <= _LARGEST_BODY
        and all(n.domain == "" and not any(traversal.subgraphs(n)) for n in function.node)
    )
    return Spelled(domain, op_type) if is_ours else None


@dataclass(frozen=True)
class WithoutForm:
    """A model without local functions of this package, and these functions.

    Attributes:
        index: the model; the given one if it has no such functions.
        functions: the function of each node that called one, by its position in `traversal.nodes`.
        domains: domains of these nodes, which hold spatial operators.
        repaired: graphs and outputs of operators in the place of nodes that no runtime loads.
    """

    index: Index
    functions: Mapping[int, onnx.FunctionProto] = field(default_factory=dict)
    domains: frozenset[str] = frozenset()
    repaired: frozenset[tuple[str, str]] = frozenset()

    @property
    def model(self) -> onnx.ModelProto:
        """The model as a message."""
        return self.index.model


def without_earlier_form(
    model: onnx.ModelProto | Index, *, groups_too: bool = True, folder: Path | None = None
) -> WithoutForm:
    """Undo mode "function" and, with `groups_too`, the node groups of mode "custom-op", in a copy.

    Patches that tf2onnx wrote, and that no runtime loads, become operators again, too
    (`chains.illegal_reshapes`); `folder` is where their external data lies.
    """
    index = Index.of(model)
    repaired = Repaired(index.model)
    if index.having("Reshape"):
        repaired = with_legal_patches(index.model, folder)
        index = index if repaired.model is index.model else Index(repaired.model)
    if groups_too and any(domain == python_ops.DOMAIN for domain, _ in index.kinds):
        index = Index(marks.merge_groups(index.model))
    result = remove_functions(index)
    return replace(
        result, domains=result.domains | repaired.domains, repaired=frozenset(repaired.outputs)
    )


def remove_functions(index: Index) -> WithoutForm:
    """Remove marked functions; the model stays as it is."""
    model = index.model
    marked = {(f.domain, f.name): (f, known) for f in model.functions if (known := spelled(f))}
    if not marked:
        return WithoutForm(index)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [f for f in copy.functions if spelled(f) is None]
    del copy.functions[:]
    copy.functions.extend(kept)
    called: dict[int, onnx.FunctionProto] = {}
    changed = []
    for position, (place, _, node) in enumerate(traversal.nodes(copy)):
        key = (node.domain, node.op_type)
        if node.overload or key not in marked:
            continue
        called[position], (domain, op_type) = marked[key]
        changed.append((place, node.domain))
        node.domain, node.op_type = domain, op_type
    # The domain of the functions may be imported for nothing now.
    imports.adjust_imports(
        copy, changed + [(traversal.Place(), domain) for domain, _ in marked], None
    )
    domains = frozenset(s.domain for _, s in marked.values())
    return WithoutForm(Index(copy), called, domains)
