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

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators.shapes import show
from onnx_spatial.operators.spellings.parameters import check_batch_entry
from onnx_spatial.operators.spellings.python_ops import BLOCKS, FIXED, from_json
from onnx_spatial.operators.strided_copies import Copies, Shape
from onnx_spatial.python_ops.failures import Failures, Signals, answer

logger = logging.getLogger("onnx_spatial.custom_ops")  # a name that programs know

Array = npt.NDArray[Any]
Body = Callable[..., Array]

#: Element types of Python operators, those that numpy and onnxruntime-extensions both have.
PREPARED_TYPES = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
    TensorProto.BOOL,
)

#: Operators that call a function of this process, by number of inputs, all of int64; the attribute KEY
#: is the number of the function. They serve sessions that are made and run here.
CALLS = {count: f"Call{count}" for count in range(1, 6)}
KEY = "key"

#: Inputs of at least this size, in bytes, are freed before onnxruntime allocates the output.
_LARGE = 1 << 24


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


def bodies(
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
                result = answer(number, rank(x), x.dtype)
            return result.view(Result) if raw else _boxed(result)

        return body

    def block(name: str) -> Body:
        def compute(x: Array, shape: Array, table: Array, *, batch_entry: int) -> Array:
            parameters = (shape.shape, shape.tobytes(), table.shape, table.tobytes())
            return _run(_block_plan(name, x.shape, batch_entry, *parameters), x)

        return guarded(compute)

    def fixed(name: str) -> Body:
        def compute(x: Array, *, parameters: str) -> Array:
            return _run(_fixed_plan(name, x.shape, parameters), x)

        return guarded(compute)

    def call(*inputs: Array, key: int) -> Array:
        return functions[key](*inputs)

    return {
        **{name: block(name) for name in BLOCKS},
        **{name: fixed(name) for name in FIXED},
        **{name: guarded(call, np.size) for name in CALLS.values()},
    }


def _run(plan: Copies, x: Array) -> Array:
    result = plan.run(x)
    if x.nbytes >= _LARGE and x.base is None:
        # A copy that onnxruntime-extensions made, and would keep until the operator returns.
        x.resize((0,), refcheck=False)
    return result


def _boxed(result: Array) -> Array:
    """Return uint64 as int64: boxing in Python integers would lose the top bit."""
    return result.view(np.int64) if result.dtype == np.uint64 else result


@lru_cache(maxsize=512)
def _block_plan(
    name: str,
    x_shape: Shape,
    batch_entry: int,
    block_shape: Shape,
    block_data: bytes,
    table_shape: Shape,
    table_data: bytes,
) -> Copies:
    """Return the copies of a block operator for an input of that shape.

    Raises:
        OperatorError: the parameters or the shape break a rule; that is not kept.
    """
    kind, what = BLOCKS[name]
    if len(block_shape) != 1:
        raise OperatorError(
            f"block_shape must be 1-D, not of shape {show(block_shape)}", code=Code.PARAMETER
        )
    if table_shape != (*block_shape, 2):
        raise OperatorError(
            f"{what} must have shape {show((*block_shape, 2))}, not {show(table_shape)}",
            code=Code.PARAMETER,
        )
    blocks = np.frombuffer(block_data, np.int64).tolist()
    amounts = np.frombuffer(table_data, np.int64).reshape(-1, 2).tolist()
    if batch_entry:
        if len(blocks) != len(x_shape):
            raise OperatorError(
                f"block_shape has {len(blocks)} entries but data has rank {len(x_shape)}",
                code=Code.RANK,
            )
        check_batch_entry("block_shape", blocks[0], 1)
        check_batch_entry(what, amounts[0][0], 0)
        check_batch_entry(what, amounts[0][1], 0)
        blocks, amounts = blocks[1:], amounts[1:]
    return kind(tuple(blocks), tuple((begin, end) for begin, end in amounts)).plan(x_shape)


@lru_cache(maxsize=512)
def _fixed_plan(name: str, x_shape: Shape, parameters: str) -> Copies:
    """Return the copies of an operator without run-time parameters for an input of that shape."""
    return from_json(name, parameters).plan(x_shape)
