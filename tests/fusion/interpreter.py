"""A reference for whole models: every operator from its definition, in float64, slowly and plainly.

It knows nothing of the library. Beside each floating-point value it keeps a *slack*: how far float32
arithmetic may be off, element by element. The slack grows with the magnitude of the terms that are
accumulated (a Conv of K terms adds K roundings of the sum of their magnitudes), and where rounding
may fall either way (Cast to float16, QuantizeLinear) it says which elements that concerns. So a
result is right if it lies within the slack, and for nearly all elements that is a few ulps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import known_moves
import known_numbers
import numpy as np
import onnx
from known import HANDLERS, Attributes, Known, difference, given
from onnx import numpy_helper

__all__ = ["Known", "difference", "evaluate", "given", "run"]

#: Operators of several outputs.
_SEVERAL = {"Split", "TopK"}
#: Where the operators are defined.
DEFINED_IN = (known_moves, known_numbers)


def evaluate(
    op_type: str, inputs: Sequence[Known | None], attributes: Attributes, outputs: int = 1
) -> list[Known]:
    """The outputs of one node."""
    if op_type in _SEVERAL:
        return list(HANDLERS[op_type](list(inputs), dict(attributes, outputs=outputs)))
    return [HANDLERS[op_type](list(inputs), dict(attributes))]


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, Known]:
    """Every value of the main graph of a model without subgraphs, by name."""
    known = {t.name: given(numpy_helper.to_array(t)) for t in model.graph.initializer}
    known |= {name: given(array) for name, array in feeds.items()}
    for node in model.graph.node:
        attributes = {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}
        inputs = [known[name] if name else None for name in node.input]
        results = evaluate(node.op_type, inputs, attributes, len(node.output))
        known.update(zip(node.output, results, strict=True))
    return known


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
