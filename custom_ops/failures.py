"""What went wrong inside an operator, kept until the exception that onnxruntime raises for it is seen.

An exception must not leave a Python operator: the process would end. The operator keeps it here
under a number and answers with an array that no Reshape takes, whose shape holds that number.
onnxruntime quotes the shape in its own exception, on whatever thread and in whatever kind of run, and
so the two are brought together again.
"""

from __future__ import annotations

import itertools
import re
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import OperatorError

#: Failures that nobody asks for are forgotten, oldest first.
_KEPT = 4096
_LARGEST = 2**31 - 1

_SHAPE = re.compile(r"Input shape:\s*\{([0-9,]+)\}")


@dataclass(frozen=True)
class Failure:
    """One failed operator, in words: another copy of this package may have to raise it.

    Attributes:
        site: where it stands.
        kind: "rule" (an OperatorError), or the name of another exception.
        text: what that said.
    """

    site: str
    kind: str
    text: str

    @classmethod
    def of(cls, site: str, error: BaseException) -> Failure:
        """A failure in words; the exception itself would keep the arrays of the run."""
        known = (KeyboardInterrupt, MemoryError)  # or of a class that is derived from one
        kind = next((c.__name__ for c in known if isinstance(error, c)), type(error).__name__)
        return cls(site, "rule" if isinstance(error, OperatorError) else kind, str(error))


def exception(failure: Failure) -> BaseException:
    """What to raise for a failure; it names the node."""
    if failure.kind == "KeyboardInterrupt":
        return KeyboardInterrupt(*filter(None, [failure.text]))
    if failure.kind == "MemoryError":
        return MemoryError(f"{failure.site}: {failure.text or 'out of memory'}")
    if failure.kind == "rule":
        return OperatorError(f"{failure.site}: {failure.text}")
    return OperatorError(f"{failure.site}: {failure.kind}: {failure.text}")


class Failures:
    """Failures by number, the latest of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._failures: dict[int, Failure] = {}

    def after_fork(self) -> None:
        """In the child: no other thread is left that could release the lock."""
        self._lock = threading.Lock()

    def keep(self, site: str, error: BaseException) -> int:
        """Keep a failure; its number."""
        failure = Failure.of(site, error)
        with self._lock:
            number = next(self._numbers) % _LARGEST + 1
            self._failures[number] = failure
            while len(self._failures) > _KEPT:
                del self._failures[next(iter(self._failures))]
        return number

    def take(self, message: str) -> Failure | None:
        """The failure that a message of onnxruntime speaks of, if it is one of ours; only once."""
        found = _SHAPE.search(message)
        if found is None:
            return None
        number = max((int(d) for d in found.group(1).split(",") if d), default=0)
        with self._lock:
            return self._failures.pop(number, None)


def answer(number: int, rank: int, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """An array that no Reshape to a shape of `rank` dims takes, whatever they are.

    It has no elements and one more dim than it should. Where the Reshape copies its dims it asks
    for `number` elements, elsewhere for those of the true output.
    """
    return np.empty((number, *(1,) * (rank - 1), 0) if rank else (0, number), dtype)
