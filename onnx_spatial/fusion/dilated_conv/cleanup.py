"""Clean up after dilated-convolution fusion: cancel Transpose pairs, fold Add into the Conv bias.

    Conv -> Transpose -> Add c -> Relu -> Transpose back -> Conv
    Conv with bias c -> Relu -> Conv

    Conv -> Transpose -> Relu -> another Transpose
    Conv -> Relu -> Transpose

Converters change the layout around every spatial operator. Without the operator the Transposes of both
sides meet, with only operators on single elements between them, which do the same in either layout. A
rule as all others (`fusion.rule`): the pattern is a chain from Transpose to Transpose, the check wants
a new node in it or right in front and no other readers, the rewrite is a `GraphEdit`. Nothing is
reported where it declines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

import numpy as np
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.graph_view import Array, GraphView
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.model import op_traits
from onnx_spatial.model.graph.replace_nodes import Draft, GraphEdit
from onnx_spatial.model.op_traits import Trait

#: Most nodes between two Transposes.
_FAR = 16

_UNARY = op_traits.having(Trait.UNARY) - {"Dropout"}  # which may draw a mask for each place
_WITH_CONSTANT = op_traits.having(Trait.BROADCASTS)


@dataclass(frozen=True)
class _Link:
    """A node between the Transposes.

    Attributes:
        node: the node.
        index: index of the data among its inputs.
        constant: index and elements of the other input, with all axes; None if it is the same in
            every layout.
    """

    node: ir.Node
    index: int
    constant: tuple[int, Array] | None = None


@dataclass(frozen=True)
class _Chain:
    """Transposes that cancel or become one, and the nodes between them.

    Attributes:
        first: the Transpose in front.
        links: the nodes between, in order.
        last: the Transposes behind, of one permutation.
        perm: permutation that both together are; None if they cancel.
    """

    first: ir.Node
    links: tuple[_Link, ...]
    last: tuple[ir.Node, ...]
    perm: tuple[int, ...] | None = None


class Cleanup:
    """Rule for the chains of one graph.

    Args:
        view: sizes and known values, by the names of the original.
        matcher: the nodes.
        new: nodes that regions have written.
    """

    def __init__(self, view: GraphView, matcher: Matcher, new: Collection[ir.Node]) -> None:
        self._view = view
        self._matcher = matcher
        self._new = dict.fromkeys(new)  # in order, so that equal models give equal bytes

    def apply(self, last: ir.Node) -> GraphEdit | None:
        """Write the chain that ends with this Transpose without its Transposes; None without a chain."""
        chain = self._match(last)
        if chain is None:
            return None
        edit = self._rewrite(chain)
        self._new.update((node, None) for draft in edit.drafts for node in draft.nodes)
        return edit

    def candidates(self) -> Iterator[ir.Node]:
        """Yield Transposes that may end a chain: new ones, and those not far behind new nodes."""
        seen: set[ir.Node] = set()
        todo = [(node, 0) for node in self._new if node.graph is not None]
        while todo:
            node, distance = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.op_type == "Transpose":
                yield node
            if distance < _FAR:
                todo += [
                    (reader, distance + 1)
                    for value in node.outputs
                    for reader, _ in self._matcher.readers(value)
                    if reader.op_type in _UNARY | _WITH_CONSTANT | {"Transpose"}
                ]

    def _match(self, last: ir.Node) -> _Chain | None:
        perm = self._perm(last)
        data = last.inputs[0]
        if perm is None or data is None or last.graph is None:
            return None
        readers = self._matcher.readers(data)
        ends = [node for node, _ in readers]
        links: list[_Link] = []
        fresh = any(node in self._new for node in ends)
        while True:
            node = data.producer()
            if node is None or node.graph is not last.graph or len(links) > _FAR:
                return None
            fresh |= node in self._new
            first = self._perm(node)
            if first is not None:
                source = node.inputs[0]
                fresh |= source is not None and source.producer() in self._new
                if len(first) != len(perm) or not fresh:
                    return None
                if not links:
                    ends = [n for n in ends if self._perm(n) == perm]
                together = tuple(first[p] for p in perm)
                cancels = together == tuple(sorted(perm))
                chain = _Chain(
                    node, tuple(reversed(links)), tuple(ends), None if cancels else together
                )
                return chain if ends and (cancels or self._goes(chain)) else None
            # The value itself goes: no other node may read it.
            readers = self._matcher.readers(data)
            if self._matcher.is_named(data) or any(
                n.graph is not last.graph
                or (n not in ends and (not links or n is not links[-1].node))
                for n, _ in readers
            ):
                return None
            if not links and any(self._perm(n) != perm for n in ends):
                return None
            link = self._link(node, perm)
            if link is None:
                return None
            links.append(link)
            data = node.inputs[link.index]
            if data is None:
                return None

    def _goes(self, chain: _Chain) -> bool:
        """Return whether nobody else reads what the first Transpose gives."""
        output = chain.first.outputs[0]
        known = {*chain.last, *(link.node for link in chain.links[:1])}
        return not self._matcher.is_named(output) and known.issuperset(
            node for node, _ in self._matcher.readers(output)
        )

    def _link(self, node: ir.Node, perm: Sequence[int]) -> _Link | None:
        if not op_traits.is_standard(node) or len(node.outputs) != 1:
            return None
        if node.op_type in _UNARY:
            return _Link(node, 0) if node.inputs[0] not in node.inputs[1:] else None
        # Before opset 7 an attribute said how operands line up.
        if node.op_type not in _WITH_CONSTANT or len(node.inputs) != 2 or self._view.opset < 7:
            return None
        for index in (0, 1):
            other = node.inputs[1 - index]
            known = self._view.value(other.name) if other is not None and other.name else None
            if known is None or known.ndim > len(perm) or known.dtype == object:
                continue
            if known.size == 1:
                return _Link(node, index)
            wide = known.reshape((1,) * (len(perm) - known.ndim) + known.shape)
            return _Link(node, index, (1 - index, wide))
        return None

    def _rewrite(self, chain: _Chain) -> GraphEdit:
        drafts: list[Draft] = []
        source = chain.first.inputs[0]
        assert source is not None
        value, links = source, [self._in_front(link, chain.first) for link in chain.links]
        goes = self._goes(chain)
        if links and goes and (draft := self._with_bias(source, links[0], chain)) is not None:
            drafts.append(draft)
            value = draft.nodes[0].outputs[0]
            drafts.append(Draft(links.pop(0).node))
        for link in links:
            draft = Draft(link.node)
            inputs = list(link.node.inputs)
            inputs[link.index] = value
            if link.constant is not None:
                place, array = link.constant
                inputs[place] = draft.constant(array, "constant")
            value = self._copy(link.node, inputs, draft)
            drafts.append(draft)
        for node in chain.last if chain.perm is not None else ():
            draft = Draft(node, successor=ir.node("Transpose", [value], {"perm": chain.perm}))
            assert draft.successor is not None
            draft.nodes.append(draft.successor)
            draft.results[node.outputs[0]] = draft.successor.outputs[0]
            drafts.append(draft)
        for node in chain.last if chain.perm is None else ():
            output = node.outputs[0]
            new = all(n in self._new for n, _ in self._matcher.readers(output))
            if node in self._new and new and not self._matcher.is_named(output):
                drafts.append(Draft(node, redirected={output: value}))
            else:
                drafts.append(Draft(node, results={output: value}))
        return GraphEdit(drafts, [chain.first] if goes else [])

    def _in_front(self, link: _Link, first: ir.Node) -> _Link:
        """Return a link with its constant in the layout in front of the first Transpose."""
        perm = self._perm(first)
        if link.constant is None or perm is None:
            return link
        place, wide = link.constant
        moved = wide.transpose(np.argsort(perm))
        trimmed = moved.reshape(tuple(dropwhile((1).__eq__, moved.shape)))
        return replace(link, constant=(place, np.ascontiguousarray(trimmed)))

    def _with_bias(self, source: ir.Value, link: _Link, chain: _Chain) -> Draft | None:
        """Draft the Conv in front of a chain with the constant of the Add as bias; None if it cannot."""
        conv = source.producer()
        if conv not in self._new or (conv.op_type, link.node.op_type) != ("Conv", "Add"):
            return None
        readers = [node for node, _ in self._matcher.readers(source)]
        if (
            any(value is not None for value in conv.inputs[2:])
            or readers != [chain.first]
            or self._matcher.is_named(source)
        ):
            return None
        kernel = conv.inputs[1]
        dims = self._view.dims(kernel.name) if kernel is not None and kernel.name else None
        if link.constant is None or dims is None:
            return None
        place, array = link.constant
        if array.shape != (dims[0].constant, *(1,) * (len(dims) - 2)):
            return None
        draft = Draft(conv)
        addend = link.node.inputs[place]
        assert addend is not None
        known = self._view.value(addend.name or "")
        assert known is not None
        # A Constant node may stand behind the convolution.
        stored = known.ndim == 1 and addend.producer() is None
        bias = addend if stored else draft.constant(array.reshape(-1), "constant")
        self._copy(conv, [conv.inputs[0], kernel, bias], draft)
        return draft

    def _copy(self, node: ir.Node, inputs: Sequence[ir.Value | None], draft: Draft) -> ir.Value:
        copy = self._matcher.copy(node, inputs)
        draft.nodes.append(copy)
        draft.successor = copy
        return copy.outputs[0]

    def _perm(self, node: ir.Node) -> tuple[int, ...] | None:
        if node.op_type != "Transpose" or not op_traits.is_standard(node):
            return None
        perm = self._matcher.attributes(node).get("perm")
        return perm if isinstance(perm, tuple) else None
