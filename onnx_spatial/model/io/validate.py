"""Refuse models that contradict themselves, in one line, before anything walks through them.

Nothing here recurses deeper than a file can be nested, and everything is linear in the size of the
model: the first thing that looks at a file must survive whatever is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import onnx

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal

#: Graphs inside graphs. Protobuf readers stop at 100 nested messages; each graph takes three of them
#: (node, attribute, graph), so nothing deeper can come from a file or be read from one.
MAX_DEPTH = 33

#: Nodes of a model with every call of a function spelled out; 40 functions that call the next one
#: twice each would be 2^40.
MAX_INLINED = 200_000

#: Of a value.
_UNKNOWN = "which no node, input or initializer produces"

Identity = tuple[str, str, str]


def check(model: onnx.ModelProto, name: str) -> None:
    """See that graphs are not nested too deep and that every value and function has one source.

    Args:
        model: as it was parsed or given; only looked at.
        name: the model in messages.

    Raises:
        ModelFileError: graphs nested too deep; a function defined twice, calling itself, or standing
            for too many nodes; a node that reads what nothing produces, or waits for itself.
        UnicodeDecodeError: a name is not UTF-8 text.
    """
    try:
        _check_depth(model)
        _check_functions(model)
        for function in model.functions:
            identity = _identity(function)
            _Names(traversal.Place(identity)).check(function)
        _Names(traversal.Place()).check(model.graph)
    except _InvalidError as error:
        raise ModelFileError(f"{name}: {error}") from None


class _InvalidError(Exception):
    """What is wrong, and where."""


def _check_depth(model: onnx.ModelProto) -> None:
    waiting: list[tuple[traversal.GraphLike, int]] = [(model.graph, 0)]
    waiting += ((function, 0) for function in model.functions)
    while waiting:
        graph, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _InvalidError(
                f"graphs are nested more than {MAX_DEPTH} deep, which no file can hold"
            )
        waiting += ((g, depth + 1) for node in graph.node for _, g in traversal.subgraphs(node))


def _identity(function: onnx.FunctionProto) -> Identity:
    return function.domain, function.name, function.overload


def _words(identity: Identity) -> str:
    return str(traversal.Place(identity)).removeprefix("function ")


def _check_functions(model: onnx.ModelProto) -> None:
    """Every function is defined once, does not call itself, and does not multiply beyond reason."""
    bodies: dict[Identity, onnx.FunctionProto] = {}
    for function in model.functions:
        if bodies.setdefault(_identity(function), function) is not function:
            raise _InvalidError(f"function {_words(_identity(function))} is defined twice")
    if not bodies:
        return
    calls = {identity: list(_calls(body, bodies)) for identity, body in bodies.items()}
    sizes: dict[Identity, int] = {}
    try:
        for identity in TopologicalSorter(calls).static_order():
            own = sum(1 for _ in traversal.graph_nodes(traversal.Place(), bodies[identity]))
            sizes[identity] = own + sum(sizes[callee] for callee in calls[identity])
    except CycleError as error:
        ring = sorted(map(_words, set(error.args[1])))
        raise _InvalidError(f"functions call each other in a ring: {_listed(ring)}") from None
    total = sum(sizes[callee] for callee in _calls(model.graph, bodies))
    if total > MAX_INLINED:
        raise _InvalidError(
            f"the calls of its functions stand for {total} nodes, more than {MAX_INLINED}"
            if total < 10**15
            else f"the calls of its functions stand for more than {MAX_INLINED} nodes"
        )


def _calls(
    graph: traversal.GraphLike, bodies: dict[Identity, onnx.FunctionProto]
) -> Iterator[Identity]:
    for _, _, node in traversal.graph_nodes(traversal.Place(), graph):
        identity = (node.domain, node.op_type, node.overload)
        if identity in bodies:
            yield identity


def _listed(words: list[str], most: int = 5) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


class _Names:
    """Where the values of a graph, and of the graphs inside it, come from."""

    def __init__(self, place: traversal.Place) -> None:
        self._place = place
        self._outer: list[set[str]] = []

    def check(self, graph: traversal.GraphLike) -> set[str]:
        """The names that a graph takes from those around it.

        Raises:
            _Unsound: a name comes from nowhere or from two nodes, or a node waits for itself.
        """
        given, results = _declared(graph, self._place)
        produced = self._produced(graph, given)
        self._outer.append(given | produced)
        captured: set[str] = set()
        reads: list[set[str]] = []
        for node in graph.node:
            wanted = {name for name in node.input if name}
            for name in wanted:
                if not self._visible(name):
                    raise _InvalidError(
                        f"{node.op_type} {traversal.label(node)!r} in {self._place} reads {name!r}, "
                        f"{_UNKNOWN}"
                    )
            inside = list(traversal.subgraphs(node))
            if len({step for step, _ in inside}) < len(inside):
                raise _InvalidError(
                    f"{node.op_type} {traversal.label(node)!r} in {self._place} "
                    "has two graphs of one name"
                )
            for step, inner in inside:
                outside = self._place
                self._place = outside.inside(traversal.step(node.op_type, node.output, step))
                wanted |= self.check(inner)
                self._place = outside
            reads.append(wanted & produced)
            captured |= wanted
        for name in results:
            if not self._visible(name):
                raise _InvalidError(f"{self._place} returns {name!r}, {_UNKNOWN}")
        captured.update(results)
        self._check_order(graph, reads)
        return captured - self._outer.pop()

    def _produced(self, graph: traversal.GraphLike, given: set[str]) -> set[str]:
        makers = dict.fromkeys(given, "as an input or a stored tensor")
        for node in graph.node:
            maker = f"by {node.op_type} {traversal.label(node)!r}"
            for name in filter(None, node.output):
                if name in makers:
                    first = makers[name]
                    raise _InvalidError(
                        f"{name!r} in {self._place} is given twice: {first} and {maker}"
                    )
                makers[name] = maker
        return set(makers) - given

    def _visible(self, name: str) -> bool:
        return any(name in names for names in reversed(self._outer))

    def _check_order(self, graph: traversal.GraphLike, reads: list[set[str]]) -> None:
        """Nodes may stand in any order, but none may wait for what it gives itself."""
        done: set[str] = set()
        waiting = []
        for node, wanted in zip(graph.node, reads, strict=True):
            if wanted <= done:
                done.update(node.output)
            else:
                waiting.append((node, wanted))
        if not waiting:
            return
        try:
            traversal.waiting([n for n, _ in waiting], [wanted for _, wanted in waiting]).prepare()
        except CycleError as error:
            # Each reads a result of the next; the last, which is the first, goes.
            ring = error.args[1][:0:-1]
            first = ring.index(min(ring))
            circle = [waiting[index][0] for index in (*ring[first:], *ring[:first])]
            raise _InvalidError(
                f"{circle[0].op_type} {traversal.label(circle[0])!r} in {self._place} waits for itself: "
                f"{_listed([traversal.label(node) for node in circle])} read each other's results"
            ) from None


def _declared(graph: traversal.GraphLike, place: traversal.Place) -> tuple[set[str], list[str]]:
    """Names that a graph has without any node, and the names that it returns.

    Raises:
        _Unsound: two inputs have the same name; the name of a dim is no text.
    """
    is_function = isinstance(graph, onnx.FunctionProto)
    inputs = list(graph.input) if is_function else [v.name for v in graph.input]
    given = set(inputs)
    if len(given) < len(inputs):
        twice = next(name for name in inputs if inputs.count(name) > 1)
        raise _InvalidError(f"{place} has two inputs of the name {twice!r}")
    if is_function:
        return given, list(graph.output)
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if isinstance(dim.dim_param, bytes):  # what protobuf makes of it
                raise _InvalidError(
                    f"is damaged: a dim of {value.name!r} in {place} has a name that is not UTF-8 text"
                )
    given.update(t.name for t in graph.initializer)
    given.update(t.values.name for t in graph.sparse_initializer)
    return given, [v.name for v in graph.output]
