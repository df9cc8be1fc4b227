"""Keep the errors of Python operators until onnxruntime raises its own exception for them.

An exception must not leave a Python operator: the process would end. The operator keeps it here under
a number, and returns an array that no Reshape accepts, whose shape holds that number. onnxruntime
quotes the shape in its exception, on any thread and in any kind of run, which leads back to the error.
"""

from __future__ import annotations

import itertools
import re
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import Code, OperatorError

#: Number of failures that are kept; older ones, which were never raised, are dropped.
_KEPT = 4096
_LARGEST = 2**31 - 1

_SHAPE = re.compile(r"Input shape:\s*\{([0-9,]+)\}")


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


def exception(failure: Failure) -> BaseException:
    """Return the exception to raise for a failure; it names the node."""
    if failure.kind == "KeyboardInterrupt":
        return KeyboardInterrupt(*filter(None, [failure.text]))
    if failure.kind == "MemoryError":
        return MemoryError(f"{failure.site}: {failure.text or 'out of memory'}")
    if failure.kind == "rule":
        code = None if failure.code is None else Code(failure.code)
        return OperatorError(f"{failure.site}: {failure.text}", code=code)
    return OperatorError(f"{failure.site}: {failure.kind}: {failure.text}")


class Failures:
    """The latest failures, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._failures: dict[int, Failure] = {}

    def after_fork(self) -> None:
        """Replace the lock in a forked child, which lacks the thread that might hold it."""
        self._lock = threading.Lock()

    def keep(self, site: str, error: BaseException) -> int:
        """Keep a failure and return its number."""
        failure = Failure.of(site, error)
        with self._lock:
            number = next(self._numbers) % _LARGEST + 1
            self._failures[number] = failure
            while len(self._failures) > _KEPT:
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


def answer(number: int, rank: int, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Return an array that no Reshape to a shape of `rank` dims accepts.

    It has no elements and one dim too many. A Reshape that copies its dims asks for `number`
    elements; another one asks for those of the true output.
    """
    return np.empty((number, *(1,) * (rank - 1), 0) if rank else (0, number), dtype)
