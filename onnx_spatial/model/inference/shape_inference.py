"""Shapes and types of every value, with a rule of the caller's for the nodes that onnx cannot know.

The nodes in question carry the operator type `PROBE` in a domain of our own, registered with onnx
once; onnx's C++ inference then calls back for each of them in the middle of its own pass, so that
shapes flow through standard operators, subgraphs and probes in one go.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import onnx
import onnx.defs
import onnx.shape_inference

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import bounded_data_propagation

DOMAIN = "onnx_spatial.probe"
PROBE = "Probe"
#: INT attribute that tells probes apart.
NUMBER = "onnx_spatial_probe"

#: Graphs times nodes of a model above which onnx, whose time grows with it, is not asked.
_MAX_WORK = 5 * 10**7

logger = logging.getLogger(__name__)

#: (probe number, type of each input or None) -> type of its output, or None if unknown.
Rule = Callable[[int, list[onnx.TypeProto | None]], onnx.TypeProto | None]

_current = threading.local()
_registration = threading.Lock()


def _infer_probe(context: onnx.shape_inference.InferenceContext) -> None:
    rule: Rule | None = getattr(_current, "rule", None)
    if rule is None:
        return
    known = [
        context.get_input_type(i) if context.has_input(i) else None
        for i in range(context.get_num_inputs())
    ]
    result = rule(context.get_attribute(NUMBER).i, known)
    if result is not None:
        context.set_output_type(0, result)


def _infer_bound(context: onnx.shape_inference.InferenceContext) -> None:
    known = context.get_input_type(0)
    if known is not None:
        context.set_output_type(
            0,
            bounded_data_propagation.output_type(
                known, context.get_attribute(bounded_data_propagation.MOST).i
            ),
        )


def _register() -> None:
    with _registration:
        _register_one(PROBE, _infer_probe)
        _register_one(bounded_data_propagation.BOUND, _infer_bound)


def _register_one(
    op_type: str, rule: Callable[[onnx.shape_inference.InferenceContext], None]
) -> None:
    if onnx.defs.has(op_type, DOMAIN):
        return
    parameter = onnx.defs.OpSchema.FormalParameter
    option = onnx.defs.OpSchema.FormalParameterOption
    identity = onnx.defs.get_schema("Identity").type_constraints[0].allowed_type_strs
    types = sorted(t for t in identity if t.startswith("tensor("))
    schema = onnx.defs.OpSchema(
        op_type,
        DOMAIN,
        1,
        inputs=[parameter("inputs", "T", param_option=option.Variadic, is_homogeneous=False)],
        outputs=[parameter("output", "T")],
        type_constraints=[("T", types, "any tensor")],
    )
    schema.set_type_and_shape_inference_function(rule)
    onnx.defs.register_schema(schema)
    # onnx 1.19 deadlocks at exit if a Python function outlives the interpreter.
    atexit.register(onnx.defs.deregister_schema, op_type, 1, DOMAIN)


@contextmanager
def _rule(rule: Rule) -> Iterator[None]:
    _current.rule = rule
    try:
        yield
    finally:
        _current.rule = None


def infer(model: onnx.ModelProto, rule: Rule) -> onnx.ModelProto:
    """A copy of `model` with everything in value_info that can be known.

    `model` should be a skeleton without weights. Where onnx gives up on a model as a whole, the
    copy is returned as it was: less is then known, and more is left to the run.
    """
    _register()
    if all(o.domain != DOMAIN for o in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    sizes = [len(graph.node) for _, graph in traversal.graphs(model)]
    if len(sizes) * sum(sizes) > _MAX_WORK:
        logger.info("shapes are not inferred: %d graphs, %d nodes", len(sizes), sum(sizes))
        return model
    bounded = onnx.ModelProto()
    bounded.CopyFrom(model)
    found = bounded_data_propagation.insert(bounded, DOMAIN)
    try:
        with _rule(rule):
            inferred = onnx.shape_inference.infer_shapes(bounded, data_prop=True)
    except Exception as error:  # onnx raises a dozen types; none may stop a conversion
        logger.info("onnx shape inference gave up: %s", error)
        return model
    if found:
        bounded_data_propagation.remove(inferred, DOMAIN)
    return inferred


def element_type(known: onnx.TypeProto | None) -> int | None:
    """The ONNX element type of a dense tensor type, if there is one."""
    if known is None or not known.HasField("tensor_type"):
        return None
    return known.tensor_type.elem_type or None


#: What exporters write for a dim of which nothing is known: no name that two dims share.
_NO_NAMES = frozenset({"", "?", "-1", "None"})


def dims(known: onnx.TypeProto | None) -> tuple[int | str | None, ...] | None:
    """The dims of a dense tensor type; None if not even the rank is known."""
    if known is None or not known.tensor_type.HasField("shape"):
        return None
    return tuple(map(_dim, known.tensor_type.shape.dim))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None  # some exporters write -1
    return None if dim.dim_param in _NO_NAMES else dim.dim_param


def symbols(model: onnx.ModelProto) -> set[str]:
    """Names of symbolic dims that a model declares."""
    return {
        dim.dim_param
        for _, graph in traversal.graphs(model)
        if isinstance(graph, onnx.GraphProto)
        for info in (*graph.input, *graph.output, *graph.value_info)
        for dim in info.type.tensor_type.shape.dim
        if dim.dim_param
    }


def downstream(graph: traversal.GraphLike, starts: set[str]) -> set[str]:
    """Names in one graph, and in the graphs inside it, whose shape may follow from `starts`."""
    reached = starts - {""}
    _reach(graph, reached)
    return reached


def _reach(graph: traversal.GraphLike, reached: set[str]) -> None:
    for node in traversal.in_order(graph):
        inner = [g for _, g in traversal.subgraphs(node)]
        bodies = [n for g in inner for _, _, n in traversal.graph_nodes(traversal.Place(), g)]
        # `starts` may lie in the bodies.
        if not all(map(reached.isdisjoint, (traversal.needs(node), *(n.output for n in bodies)))):
            # What enters the body of a loop comes round again: all of the body follows.
            for body in inner:
                reached.update(v.name for v in body.input)
            for n in (*bodies, node):
                reached.update(n.output)
            reached.discard("")
