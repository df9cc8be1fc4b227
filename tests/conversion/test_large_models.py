"""Of a large model only the part around the operators is edited; the rest keeps its place and bytes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial
from onnx_spatial.model.graph import patch_proto
from tests.running import run

DOMAIN = "ai.onnx.converters.tensorflow"


def interleaved(seed: int, convolutions: int, count: int = 150) -> onnx.ModelProto:
    """Sums of earlier values, with dilated convolutions among them; any value may be read late."""
    rng = np.random.default_rng(seed)
    nodes, values = list[onnx.NodeProto](), ["x"]

    def add(op_type: str, inputs: list[str], **attributes: object) -> str:
        domain = DOMAIN if "Batch" in op_type else ""
        name = f"n{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [name], name, domain=domain, **attributes))
        return name

    for index in range(count):
        a, b = (values[-1 - min(len(values) - 1, int(rng.geometric(0.3)) - 1)] for _ in "ab")
        if index % 40 == 20:
            value = add("SpaceToBatchND", [a, "block", "pads"])
            if not convolutions:
                add("Neg", [value])  # the pair around it computes nothing, but its value is read
            for _ in range(convolutions):
                value = add("Conv", [value, "w"], kernel_shape=[1, 3], pads=[0, 1, 0, 1])
            values.append(add("BatchToSpaceND", [value, "block", "pads"]))
        else:
            values.append(add("Max" if index % 2 else "Add", [a, b]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, "W"])],
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 4)
            for n in (values[-1], values[7])
        ],
        [
            numpy_helper.from_array(np.array([1, 2], np.int64), "block"),
            numpy_helper.from_array(np.zeros((2, 2), np.int64), "pads"),
            numpy_helper.from_array(rng.uniform(0, 0.5, (3, 3, 1, 3)).astype(np.float32), "w"),
        ],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=imports)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("distance", "convolutions", "fuse"), [(0, 0, True), (0, 1, False), (4, 1, True), (2, 6, True)]
)
def test_nodes_far_from_operators_keep_their_order_and_the_result_is_that_of_the_whole(
    seed: int, distance: int, convolutions: int, fuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = interleaved(seed, convolutions)
    whole = onnx_spatial.convert(model, fuse=fuse, verify=False).model
    monkeypatch.setattr(patch_proto, "DISTANCE", distance)
    near = patch_proto.part_around(model, [i for i, n in enumerate(model.graph.node) if n.domain])
    assert near.main is not None and len(near.main) < len(model.graph.node)
    made = onnx_spatial.convert(model, fuse=fuse, verify=False).model
    onnx.checker.check_model(made, full_check=True)
    if convolutions <= distance or not fuse:  # else the part ends inside the convolutions
        one, other = (sorted(map(str, each.graph.node)) for each in (made, whole))
        assert one == other
    kept = {n.name for n in model.graph.node if n.op_type in ("Add", "Max")}
    assert [n.name for n in made.graph.node if n.name in kept] == sorted(
        kept, key=lambda n: int(n[1:])
    )
    x = np.random.default_rng(seed).standard_normal((1, 3, 4, 6)).astype(np.float32)
    for one, other in zip(run(made, {"x": x}), run(whole, {"x": x}), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
