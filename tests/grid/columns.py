"""Define the columns of the grid: the forms in which a model can hold a node."""

from __future__ import annotations

#: The columns, with what a model of each is like.
FORMS = {
    "static_1d": "every size is known; one axis is blocked, or has windows",
    "static_2d": "the same with two",
    "static_3d": "the same with three",
    "dynamic": "no size is known, the parameters are",
    "run_time": "the parameters are inputs of the graph, as far as the spelling has inputs for them",
    "computed": "paddings or crops are computed from the Shape of the data, as for a dilated "
    '"same" convolution',
    "overridable": "the parameters are initializers and inputs: a caller may give others, and the "
    "recorded data does",
    "subgraph_if": "in a branch, which captures data and parameters",
    "subgraph_loop": "in the body of a Loop, which captures the parameters",
    "subgraph_scan": "in the body of a Scan, which captures the parameters",
    "function": "in a model-local function that is called twice with other sizes; the parameters "
    "are attributes of the call",
    "quantised": "float32 between DequantizeLinear and QuantizeLinear",
    "quantised_integers": "integers between QuantizeLinear and DequantizeLinear",
}

#: Forms of nothing unknown, with their number of spatial axes.
STATIC = {"static_1d": 1, "static_2d": 2, "static_3d": 3}
#: Forms whose parameters are not known before the run.
RUN_TIME = frozenset({"run_time", "computed", "overridable"})
#: Forms in which nothing but the data is an input of the model or of a subgraph's node.
CONSTANT = frozenset(
    {
        "static_1d",
        "static_2d",
        "static_3d",
        "dynamic",
        "function",
        "quantised",
        "quantised_integers",
    }
)
