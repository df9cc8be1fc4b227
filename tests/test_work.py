"""Walks over all nodes and inferences of shapes do not become more with more operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import onnx
import pytest
from adapter import verify
from hand_lowered import TF
from onnx import parser, shape_inference

import onnx_spatial
from onnx_spatial.model import traversal


def model(layers: int) -> onnx.ModelProto:
    """Pairs of SpaceToBatch and BatchToSpace, each around another operator."""
    values = ["x", *(f"v{i}" for i in range(1, layers)), "y"]
    body = "".join(
        f"s{i} = tf.SpaceToBatchND({values[i]}, block, none) f{i} = Softmax(s{i})"
        f"{values[i + 1]} = tf.BatchToSpaceND(f{i}, block, none)"
        for i in range(layers)
    )
    made = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "tf" : 1]>
        f (float[N,8,8,3] x) => (float[A,B,C,3] y)
        <int64[2] block = {{2, 2}}, int64[2,2] none = {{0, 0, 0, 0}}> {{ {body} }}"""
    )
    for item in (*made.graph.node, made.opset_import[1]):
        item.domain = TF if item.domain == "tf" else item.domain
    return made


@pytest.fixture(name="count")
def counter(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Counter[str]]:
    """Counts walks and inferences of models that have as many nodes as the whole one."""
    counts: Counter[str] = Counter()
    least = [0]

    def walk(made: onnx.ModelProto) -> Iterator[object]:
        counts["walks"] += len(made.graph.node) >= least[0]
        return nodes(made)

    def infer(made: onnx.ModelProto | bytes, *others: object, **options: object) -> object:
        whole = made if isinstance(made, onnx.ModelProto) else onnx.ModelProto.FromString(made)
        counts["inferences"] += len(whole.graph.node) >= least[0]
        return infer_shapes(made, *others, **options)

    nodes, infer_shapes = traversal.nodes, shape_inference.infer_shapes
    monkeypatch.setattr(traversal, "nodes", walk)
    monkeypatch.setattr(shape_inference, "infer_shapes", infer)

    def count(run: Callable[[], object], size: int) -> Counter[str]:
        least[0] = size
        counts.clear()
        run()
        return counts.copy()

    return count


def test_convert(count):
    few, many = (
        count(lambda n=n: onnx_spatial.convert(model(n), verify=False), 3 * n) for n in (4, 12)
    )
    assert few == many
    assert 0 < many["walks"] <= 14 and 0 < many["inferences"] <= 2


def test_verify(count):
    counts = []
    for layers in (4, 12):
        original = model(layers)
        converted = onnx_spatial.convert(original, verify=False).model
        counts.append(count(lambda a=original, b=converted: verify(a, b), layers))
    few, many = counts
    assert few == many
    assert 0 < many["walks"] <= 28 and 0 < many["inferences"] <= 3
