"""Implement the Python operators that onnxruntime calls, on the kernels of `onnx_spatial.operators`.

An exception that leaves a Python operator ends the process. So

errors     the operator keeps one here under a number, and returns an array that no Reshape accepts,
           whose shape holds that number. onnxruntime quotes the shape in its exception, on any thread
           and in any kind of run, which leads back to the error.
signals    Python calls a handler on the main thread between any two steps, also between
           onnxruntime-extensions' entry into Python and the body of the operator. Nothing can catch an
           exception there. So signals are kept during a run and handled after it. If Ctrl-C has
           Python's own handler, operators end the run early.
"""

from __future__ import annotations

import _signal  # whose functions take a hundredth of the time: `signal` makes enums of what they return
import itertools
import logging
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators.operator import INT32_MAX
from onnx_spatial.operators.spellings import InputFacts, NodeFacts, read
from onnx_spatial.operators.spellings.python_ops import DOMAIN, OP_TYPES
from onnx_spatial.operators.strided_copies import Copies, Shape

logger = logging.getLogger("onnx_spatial.custom_ops")  # a name that programs know

Array = npt.NDArray[Any]
Body = Callable[..., Array]

#: Element types of Python operators, those that numpy and onnxruntime-extensions both have.
PREPARED_TYPES = tuple(
    TensorProto.DataType.Value(name)
    for name in "FLOAT DOUBLE INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL".split()
)

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


def operator_bodies(failures: Failures, signals: Signals, *, raw: bool) -> dict[str, Body]:
    """Return the function of each operator of the domain.

    Args:
        failures: keeps errors.
        signals: says whether the run was interrupted.
        raw: whether onnxruntime-extensions accepts a `Result`.
    """

    def body_of(name: str) -> Body:
        def body(x: Array, *parameters: Array, site: str, **attributes: Any) -> Array:
            try:
                if signals.pending():
                    raise KeyboardInterrupt
                arrays = ((array.shape, array.tobytes()) for array in parameters)
                plan = _plan_of_node(name, x.shape, tuple(attributes.items()), *arrays)
                result = _run_plan(plan, x)
            except BaseException as error:
                number = failures.keep(site, error)
                with suppress(BaseException):  # of the program's own handlers and filters
                    level = logging.DEBUG if failures.awaited else logging.ERROR
                    logger.log(level, "%s: %s", site, error or type(error).__name__)
                result = refused_array(number, x.ndim, x.dtype)
            return result.view(Result) if raw else _as_boxable(result)

        return body

    return {name: body_of(name) for name in OP_TYPES}


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


#: Number of failures that are kept; older ones, which were never raised, are dropped.
_MAX_KEPT_FAILURES = 4096

_SHAPE = re.compile(r"Input shape:\s*\{([0-9,]+)\}")

#: Signals whose handlers may raise exceptions.
_NAMES = "SIGINT SIGTERM SIGALRM SIGHUP SIGVTALRM SIGPROF SIGUSR1 SIGUSR2"
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES.split() if hasattr(signal, name))

_main = threading.main_thread()


@dataclass(frozen=True)
class Failure:
    """The failure of an operator as text, as another copy of this package may have to raise it.

    Attributes:
        site: place of the node in the model.
        kind: "rule" for an OperatorError, or the name of another exception.
        text: message of the exception.
        code: code of an OperatorError.
    """

    site: str
    kind: str
    text: str
    code: str | None = None

    @classmethod
    def of(cls, site: str, error: BaseException) -> Failure:
        """Describe an exception; the exception itself would keep the arrays of the run alive."""
        known = (KeyboardInterrupt, MemoryError)  # or a subclass
        kind = next((c.__name__ for c in known if isinstance(error, c)), type(error).__name__)
        if isinstance(error, OperatorError):
            return cls(site, "rule", str(error), error.code)
        return cls(site, kind, str(error))


def exception_of(failure: Failure) -> BaseException:
    """Return the exception to raise for a failure, of this copy's types; it names the node."""
    if failure.kind == "KeyboardInterrupt":
        return KeyboardInterrupt(*filter(None, [failure.text]))
    if failure.kind == "MemoryError":
        return MemoryError(f"{failure.site}: {failure.text or 'out of memory'}")
    if failure.kind == "rule":
        code = None if failure.code is None else Code(failure.code)
        return OperatorError(f"{failure.site}: {failure.text}", code=code)
    return OperatorError(f"{failure.site}: {failure.kind}: {failure.text}")


class Failures:
    """The latest failures, by number, and the current runs whose caller raises them.

    A count of runs, not a flag on the thread: onnxruntime may run operators on threads of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._failures: dict[int, Failure] = {}
        self._runs = 0

    def after_fork(self) -> None:
        """Forget, in a forked child, the other threads: one might hold the lock."""
        self._lock = threading.Lock()
        self._runs = 0

    def begin(self) -> None:
        """Count one run more."""
        with self._lock:
            self._runs += 1

    def end(self) -> None:
        """Count one run less."""
        with self._lock:
            self._runs -= 1

    @property
    def awaited(self) -> bool:
        """Whether there is a run whose caller raises failures."""
        return self._runs > 0

    def keep(self, site: str, error: BaseException) -> int:
        """Keep a failure and return its number."""
        failure = Failure.of(site, error)
        with self._lock:
            number = next(self._numbers) % INT32_MAX + 1  # a size in a shape
            self._failures[number] = failure
            while len(self._failures) > _MAX_KEPT_FAILURES:
                del self._failures[next(iter(self._failures))]
        return number

    def take(self, message: str) -> Failure | None:
        """Remove and return the failure that a message of onnxruntime refers to, if any."""
        shape = _SHAPE.search(message)
        if shape is None:
            return None
        number = max((int(d) for d in shape.group(1).split(",") if d), default=0)
        with self._lock:
            return self._failures.pop(number, None)


def refused_array(number: int, rank: int, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Return an array that no Reshape to a shape of `rank` dims accepts.

    It has no elements and one dim too many. A Reshape that copies its dims asks for `number`
    elements; another one asks for those of the true output.
    """
    return np.empty((number, *(1,) * (rank - 1), 0) if rank else (0, number), dtype)


class Signals:
    """Signals that arrived during a run."""

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._ctrl_c_ends_the_run = False

    def pending(self) -> bool:
        """Return whether the current run was interrupted and will end in KeyboardInterrupt."""
        if not self._pending or threading.current_thread() is not _main:
            return False
        return self._ctrl_c_ends_the_run and signal.SIGINT in self._pending

    def hold(self) -> dict[int, Any]:
        """Delay signals until `release`, on the main thread; others handle no signals.

        Returns:
            The handlers that were replaced, by number of the signal.
        """
        if threading.current_thread() is not _main:
            return {}
        previous = {}
        for number in _SIGNALS:
            handler = _signal.getsignal(number)
            # `!=`, as each access to a bound method makes a new, equal object.
            if callable(handler) and handler != self._keep_signal:
                previous[number] = handler
        if signal.SIGINT in previous:
            self._ctrl_c_ends_the_run = previous[signal.SIGINT] is signal.default_int_handler
        for number in previous:
            _signal.signal(number, self._keep_signal)
        return previous

    def release(self, previous: dict[int, Any]) -> None:
        """Restore the handlers that `hold` replaced, and send the signals that arrived since."""
        for number, handler in previous.items():
            _signal.signal(number, handler)
        if previous:
            arrived = list(dict.fromkeys(self._pending))
            self._pending.clear()
            for number in arrived:
                signal.raise_signal(number)

    def _keep_signal(self, number: int, frame: FrameType | None) -> None:
        self._pending.append(number)
