"""Run a function in child processes until one returns: each without the calls that ended those before.

Such a call then raises an error, as a run that failed: of the original at one size, or of the
converted model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from onnx_spatial.verification.process import calls, child
from onnx_spatial.verification.process.calls import CallRecord, FatalCall

T = TypeVar("T")

#: Calls that end the process, and are left out; if there are more, no further process is tried.
MOST_FATAL = 6


class Ended(Exception):
    """All processes ended without a result; the message says what ended the first one."""


@dataclass(frozen=True)
class _Recorded(Generic[T]):
    """A function that records its calls into native code in a file.

    Attributes:
        work: the function.
        path: the file.
        fatal: calls that ended earlier processes; the function must make the same ones again.
        too_large: what to say of nodes that need more memory than the process may take.
    """

    work: Callable[[child.Progress], T]
    path: Path
    fatal: tuple[FatalCall, ...]
    too_large: str

    def __call__(self, progress: child.Progress) -> T:
        calls.current = CallRecord(calls.shared_memory(self.path), self.fatal, self.too_large)
        return self.work(progress)


def run(
    work: Callable[[child.Progress], T], progress: child.Progress, limit: child.MemoryLimit
) -> T:
    """Run a function in child processes and return its result.

    Raises:
        Ended: no further process is tried.
    """
    fatal: dict[int, FatalCall] = {}
    while True:
        with tempfile.TemporaryDirectory(
            prefix="onnx-spatial-", ignore_cleanup_errors=True
        ) as folder:
            path = Path(folder, "calls")
            try:
                memory = calls.shared_memory(path)
            except OSError as error:  # a full disk
                reason = f"no temporary file can be written: {error.strerror or error}"
                raise Ended(reason) from None
            recorded = _Recorded(work, path, tuple(fatal.values()), limit.exceeded)
            try:
                return child.run(recorded, progress, child.Bounds(limit))
            except child.Died as end:
                death, call = end, CallRecord(memory).fatal_call(end)
            finally:
                with suppress(BufferError):
                    memory.close()  # some systems do not delete a file that is mapped
        before = None if call is None else fatal.get(call.number)
        if call is None or (len(fatal) == MOST_FATAL and before is None):
            raise Ended(_reason(death, list(fatal.values())))
        if before is None:
            alike = [other for other in fatal.values() if other.model == call.model]
            # The same node, most likely; and where two runs end the process, all may do so.
            node = alike[0].node if alike else None
            fatal[call.number] = replace(call, node=node, hopeless=bool(alike))
        elif before.node is None:  # it ended while its nodes ran one by one
            fatal[call.number] = replace(before, node=call.node or "")
        else:  # the calls are not the same each time
            raise Ended(_reason(death, list(fatal.values())))


def _reason(death: child.Died, fatal: Sequence[FatalCall]) -> str:
    """Say what ended the process, the first time if there were several."""
    advice = "; use smaller sizes (--shape) or a higher limit (--memory)"
    advice = advice if death.ending == "memory" else ""
    if not fatal:
        where = f" ({death.doing})" if death.doing else ""
        return f"the verification {death.reason}{where}{advice}"
    first = fatal[0]
    return (
        f"{first.node or 'it'} {first.reason} ({first.text}), and further runs do so, too{advice}"
    )
