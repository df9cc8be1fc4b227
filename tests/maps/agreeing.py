"""Whether the map of a model is what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Sequence

import maps
import numpy as np
import onnx

from onnx_spatial.maps.cases import UndecidedError


def disagreement(
    model: onnx.ModelProto, sizes: Sequence[maps.Sizes], parameters: maps.Values | None = None
) -> str | None:
    """The first difference between the map and onnxruntime; None if there is none.

    Where onnxruntime fails at sizes of 1 or more, no map may be found.

    Raises:
        UndecidedError: there is no map.
    """
    explored = maps.Explored.of(model, steps=150_000)
    for each in sizes:
        feeds = maps.feeds_of(model, each, parameters or {})
        try:
            wanted = maps.run(model, feeds)
        except Exception as error:  # onnxruntime's errors have no common class
            return f"{each}: there is a map, and onnxruntime fails: {error}"
        try:
            shape = explored.shape(each)
            if shape != wanted.shape:
                return f"{each}: the shape is {shape}, not {wanted.shape}"
            found = explored.array(each, feeds)
        except AssertionError as error:
            return f"{each}: {error}"
        if not np.array_equal(found, wanted):
            return f"{each}: {found.tolist()}, not {wanted.tolist()}"
    return None


__all__ = ["UndecidedError", "disagreement"]
