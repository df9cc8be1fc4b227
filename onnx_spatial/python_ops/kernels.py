"""Implement the Python operators that onnxruntime calls, on the kernels of `onnx_spatial.operators`.

No exception leaves them, as it would end the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from onnx_spatial.operators.spellings import InputFacts, NodeFacts, read
from onnx_spatial.operators.spellings.python_ops import DOMAIN, OP_TYPES
from onnx_spatial.operators.strided_copies import Copies, Shape
from onnx_spatial.python_ops.failures import Failures, Signals, refused_array

logger = logging.getLogger("onnx_spatial.custom_ops")  # a name that programs know

Array = npt.NDArray[Any]
Body = Callable[..., Array]

#: Element types of Python operators, those that numpy and onnxruntime-extensions both have.
PREPARED_TYPES = tuple(
    TensorProto.DataType.Value(name)
    for name in "FLOAT DOUBLE INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL".split()
)

#: Operators that call a function of this process, by number of inputs, all of int64; the attribute KEY
#: is the number of the function. They serve sessions that are made and run here.
CALLS = {count: f"Call{count}" for count in range(1, 6)}
KEY = "key"

#: Inputs of at least this size, in bytes, are freed before onnxruntime allocates the output.
_LARGE_BYTES = 1 << 24


class Result(np.ndarray[Any, np.dtype[Any]]):
    """An array that onnxruntime-extensions copies without boxing its elements.

    It calls `result.flatten().tolist()`, which makes a Python object per element, and makes an array
    of the list. If the list is an array, it copies the bytes.
    """

    def flatten(self, order: str = "C") -> Result:  # type: ignore[override]
        """Return itself, as it is contiguous."""
        return self

    def tolist(self) -> Array:  # type: ignore[override]
        """Return the array, which onnxruntime-extensions copies."""
        return self.view(np.ndarray)


def operator_bodies(
    failures: Failures,
    signals: Signals,
    functions: Mapping[int, Callable[..., Array]],
    *,
    raw: bool,
) -> dict[str, Body]:
    """Return the function of each operator of the domain.

    Args:
        failures: keeps errors.
        signals: says whether the run was interrupted.
        functions: functions that CALLS may call, by number; the first argument is a shape.
        raw: whether onnxruntime-extensions accepts a `Result`.
    """

    def guarded(compute: Callable[..., Array], rank: Callable[[Array], int] = np.ndim) -> Body:
        def body(x: Array, *parameters: Array, site: str, **attributes: Any) -> Array:
            try:
                if signals.pending():
                    raise KeyboardInterrupt
                result = compute(x, *parameters, **attributes)
            except BaseException as error:
                number = failures.keep(site, error)
                with suppress(BaseException):  # of the program's own handlers and filters
                    level = logging.DEBUG if failures.awaited else logging.ERROR
                    logger.log(level, "%s: %s", site, error or type(error).__name__)
                result = refused_array(number, rank(x), x.dtype)
            return result.view(Result) if raw else _as_boxable(result)

        return body

    def spatial(name: str) -> Body:
        def compute(x: Array, *parameters: Array, **attributes: Any) -> Array:
            arrays = ((array.shape, array.tobytes()) for array in parameters)
            return _run_plan(_plan_of_node(name, x.shape, tuple(attributes.items()), *arrays), x)

        return guarded(compute)

    def call(*inputs: Array, key: int) -> Array:
        return functions[key](*inputs)

    return {
        **{name: spatial(name) for name in OP_TYPES},
        **{name: guarded(call, np.size) for name in CALLS.values()},
    }


def _run_plan(plan: Copies, x: Array) -> Array:
    result = plan.run(x)
    if x.nbytes >= _LARGE_BYTES and x.base is None:
        # A copy that onnxruntime-extensions made, and would keep until the operator returns.
        x.resize((0,), refcheck=False)
    return result


def _as_boxable(result: Array) -> Array:
    """Return uint64 as int64: boxing in Python integers would lose the top bit."""
    return result.view(np.int64) if result.dtype == np.uint64 else result


@lru_cache(maxsize=512)
def _plan_of_node(
    name: str,
    x_shape: Shape,
    attributes: tuple[tuple[str, Any], ...],
    *parameters: tuple[Shape, bytes],
) -> Copies:
    """Return the copies of an operator for an input of that shape.

    Raises:
        OperatorError: the parameters, of int64, or the shape break a rule; that is not kept.
    """
    arrays = [np.frombuffer(data, np.int64).reshape(shape) for shape, data in parameters]
    facts = (InputFacts(shape=x_shape), *map(InputFacts.of, arrays))
    call = read(NodeFacts(name, DOMAIN, facts, dict(attributes)))
    return call.bind((None, *arrays)).plan(x_shape)
