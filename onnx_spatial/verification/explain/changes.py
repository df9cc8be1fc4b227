"""Name the nodes and constants that were edited: an operator, an attribute, a weight.

    original    x -> [Conv, w, pads = 1] -> c
    converted   x -> [Conv, w, pads = 0] -> c      it has another 'pads': [0, 0], not [1, 1]

A conversion gives new names to what it computes. So what keeps its name and reads the same values, but
differs, was edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import external_data
from onnx_spatial.model.traversal import Place
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.compare.comparison import describe_element, find_mismatch
from onnx_spatial.verification.compare.kinds import Kind
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import described
from onnx_spatial.verification.pair import ModelPair

#: Changes that are named; a model that differs in more is another model.
_MOST_CHANGES = 8
#: Bytes of a constant whose elements are compared.
_MOST_BYTES = 2**28
#: Characters of an attribute's value that are shown.
_MOST_CHARACTERS = 40


def find(
    models: ModelPair, definitions: Definitions, infos: Sequence[OperatorInfo] = ()
) -> list[str]:
    """Return a line for each node and constant that was edited; none if there are too many.

    Args:
        models: the original and the converted model.
        definitions: of their values.
        infos: the spatial operators of the original, which a conversion replaces.
    """
    replaced = {info.index for info in infos if info.known_domain}
    lines: list[str] = []
    for index, (place, _, node) in enumerate(traversal.nodes(models.original.proto)):
        if index not in replaced:
            label = described(node, place)
            changes = list(_Changes(models, definitions, place, node))
            more = f" (and {len(changes) - 1} more changes)" if len(changes) > 1 else ""
            lines += [f"{label} was changed: {change}{more}" for change in changes[:1]]
    return lines if len(lines) <= _MOST_CHANGES else []


class _Changes:
    """What was changed in one node of the original, as ends of sentences."""

    def __init__(
        self, models: ModelPair, definitions: Definitions, place: Place, node: onnx.NodeProto
    ) -> None:
        self._models, self._place, self._node = models, place, node
        self._graphs = definitions.original, definitions.converted
        output = next(filter(None, node.output), "")
        shared = definitions.is_shared(output, place) and not definitions.same(output, place)
        after = self._graphs[1].find(output, place) if shared else None
        self._after = after if isinstance(after, onnx.NodeProto) else None

    def __iter__(self) -> Iterator[str]:
        before, after = self._node, self._after
        if after is None or self._computed(before, 0) != self._computed(after, 1):
            for name in dict.fromkeys(before.input):
                if change := self._constant(name, name):
                    yield f"its constant {name!r} differs: {change}"
            return
        was, now = (".".join(filter(None, (n.domain, n.op_type))) for n in (before, after))
        if was != now:
            yield f"it is {now}, not {was}"
            return
        for old, new in zip(before.input, after.input, strict=False):
            if change := self._constant(old, new):
                yield f"it reads another constant {new!r}: {change}"
        yield from self._attributes(before, after)
        if sorted(before.input) == sorted(after.input) and list(before.input) != list(after.input):
            yield f"it reads its inputs in another order: {', '.join(after.input)}"

    def _computed(self, node: onnx.NodeProto, side: int) -> list[str]:
        """Return the names of the inputs that are no constants."""
        stored = (onnx.TensorProto, onnx.SparseTensorProto)
        producers = ((n, self._graphs[side].find(n, self._place)) for n in node.input)
        return sorted(name for name, producer in producers if not isinstance(producer, stored))

    def _attributes(self, before: onnx.NodeProto, after: onnx.NodeProto) -> Iterator[str]:
        old, new = ({a.name: a for a in node.attribute} for node in (before, after))
        for name in sorted(old.keys() | new.keys()):
            was, now = old.get(name), new.get(name)
            if was is None or now is None:
                yield f"it has {'no' if now is None else 'a new'} attribute {name!r}"
            elif was.HasField("t") and now.HasField("t"):
                if change := self._difference(was.t, now.t):
                    yield f"it has another {name!r}: {change}"
            elif (texts := (_shown(now), _shown(was)))[0] != texts[1]:
                yield f"it has another {name!r}: {texts[0]}, not {texts[1]}"

    def _constant(self, old: str, new: str) -> str | None:
        """Say how a constant differs that both models store; None if it does not."""
        graphs = zip(self._graphs, (old, new), strict=True)
        was, now = (model.find(name, self._place) for model, name in graphs)
        if not (isinstance(was, onnx.TensorProto) and isinstance(now, onnx.TensorProto)):
            return None
        return self._difference(was, now)

    def _difference(self, was: onnx.TensorProto, now: onnx.TensorProto) -> str | None:
        """Say how two tensors differ; None if their values are the same."""
        folders = self._models.folders
        if external_data.same(was, folders[0], now, folders[1]):
            return None
        if max(was.ByteSize(), now.ByteSize()) > _MOST_BYTES:
            return "its bytes differ"
        try:
            before, after = constant_value(was, folders[0]), constant_value(now, folders[1])
        except ModelFileError as error:
            return str(error)
        mismatch = find_mismatch(before, after, Kind())
        if mismatch is None or mismatch.element is None:
            return None if mismatch is None else mismatch.reason
        element = describe_element(before, after, mismatch.element, {})
        return f"{mismatch.reason}; {show(mismatch.element)} {element}"


def _shown(attribute: onnx.AttributeProto) -> str:
    """Show the value of an attribute; graphs are all alike, as their nodes are named by themselves."""
    if attribute.ref_attr_name:
        return f"attribute {attribute.ref_attr_name!r} of the function"
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return "a graph"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = str(value if isinstance(value, str | int | float) else list(value))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
