"""What is known of a node that may run is kept by all that the rules of operators depend on."""

from __future__ import annotations

import numpy as np
import pytest
from vocabulary import NodeFacts

from onnx_spatial import OperatorError
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime import spatial_kernels
from onnx_spatial.verification.runtime.spatial_kernels import run_facts

X = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
ND = NodeFacts("SpaceToBatchND")


def inputs(x: Array = X, block: object = (2, 2), pads: object = ((0, 0), (0, 0))) -> list[Array]:
    return [x, np.array(block, np.int32), np.array(pads, np.int32)]


def test_an_equal_node_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_facts(ND, inputs())
    monkeypatch.setattr(spatial_kernels, "read", lambda facts: pytest.fail("it was read before"))
    np.testing.assert_array_equal(run_facts(ND, inputs(X + 1)), first + 1)


@pytest.mark.parametrize(
    "arrays",
    [
        inputs(np.zeros((1, 3, 4, 1), np.float32)),
        inputs(block=(3, 2)),
        inputs(pads=((1, 0), (0, 0))),
        [X, *(array.astype(np.int8) for array in inputs()[1:])],
        [X, *(array.astype(np.float32) for array in inputs()[1:])],
    ],
    ids=["sizes", "block", "pads", "int8", "float"],
)
def test_what_breaks_a_rule_does_so_after_an_alike_node(arrays: list[Array]) -> None:
    assert run_facts(ND, inputs()).shape == (4, 2, 2, 1)
    with pytest.raises(OperatorError):
        run_facts(ND, arrays)


def test_the_type_of_an_attribute_counts() -> None:
    arrays = [X, np.zeros((2, 2), np.int32)]
    assert run_facts(NodeFacts("SpaceToBatch", attributes={"block_size": 2}), arrays).size == 16
    with pytest.raises(OperatorError, match="integer"):
        run_facts(NodeFacts("SpaceToBatch", attributes={"block_size": 2.0}), arrays)


def test_few_nodes_are_kept() -> None:
    for rows in range(1, 600):
        run_facts(ND, inputs(np.zeros((1, 2 * rows, 2, 1), np.bool_)))
    assert len(spatial_kernels._CHECKED) <= 256
