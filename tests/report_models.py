"""Nets of any number of nodes, with dilated convolutions in blocks, for reports."""

from __future__ import annotations

import numpy as np
import onnx
from building import TF
from onnx import TensorProto, helper, numpy_helper

#: A name that would be markup if it were not escaped.
NASTY = "</script><script>document.title = 'broken'</script><b>&amp;\u2028'\""
_SIDE = (1, 2, 4, 4)


def net(nodes: int, regions: int) -> onnx.ModelProto:
    """A chain with skips: `regions` times SpaceToBatchND - Conv - BatchToSpaceND among other nodes."""
    made = [helper.make_node("Relu", ["x"], ["start"], name=NASTY)]
    value = skip = "start"

    def add(op_type: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        name = f"layer_{len(made)}/{op_type}"
        node = helper.make_node(op_type, inputs, [f"{name}:0"], name=name, domain=domain)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
        made.append(node)
        return f"{name}:0"

    every = nodes // regions
    while len(made) < nodes - 1:
        if len(made) % every == 1 and len(made) + 7 < nodes:
            blocks = add("Transpose", value, perm=[0, 2, 3, 1])
            blocks = add("SpaceToBatchND", blocks, "block", "pads", domain=TF)
            blocks = add("Transpose", blocks, perm=[0, 3, 1, 2])
            blocks = add("Transpose", add("Conv", blocks, "w"), perm=[0, 2, 3, 1])
            blocks = add("BatchToSpaceND", blocks, "block", "crops", domain=TF)
            value = skip = add("Transpose", blocks, perm=[0, 3, 1, 2])
        elif len(made) % 5 == 3:
            value = skip = add("Add", value, skip)
        else:
            value = add(("Relu", "Sigmoid", "Tanh")[len(made) % 3], value)
    made.append(helper.make_node("Identity", [value], ["y"], name="end"))
    weights = np.random.default_rng(0).standard_normal((2, 2, 3, 3)).astype(np.float32)
    constants = {
        "block": np.array([2, 2]),
        "pads": np.array([[2, 2], [2, 2]]),
        "crops": np.zeros((2, 2), np.int64),
        "w": weights,
    }
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, _SIDE) for n in "xy")
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(made, "net", [x], [y], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(TF, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def without_blocks(model: onnx.ModelProto) -> onnx.ModelProto:
    """The net without SpaceToBatchND, BatchToSpaceND and Transposes: its Convs read what these read."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    source: dict[str, str] = {}
    for node in model.graph.node:
        reads = [source.get(name, name) for name in node.input]
        if node.op_type in ("SpaceToBatchND", "BatchToSpaceND", "Transpose"):
            source[node.output[0]] = reads[0]
            continue
        kept = result.graph.node.add()
        kept.CopyFrom(node)
        kept.input[:] = reads
    return result
