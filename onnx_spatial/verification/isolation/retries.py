"""Run a function in child processes until one returns: each without the calls that ended those before.

Such a call then raises an error, as a run that failed: of the original at one size, or of the
converted model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from onnx_spatial.verification.isolation import child
from onnx_spatial.verification.isolation.calls import FatalCall

T = TypeVar("T")

#: Calls that end the process, and are left out; if there are more, no further process is tried.
MOST_FATAL = 6


class Ended(Exception):
    """All processes ended without a result; the message says what ended the first one."""


def run(
    work: Callable[[child.Progress], T], progress: child.Progress, limit: child.MemoryLimit
) -> T:
    """Run a function in child processes and return its result.

    Raises:
        Ended: no further process is tried.
    """
    fatal: dict[int, FatalCall] = {}
    while True:
        try:
            return child.run(work, progress, limit, tuple(fatal.values()))
        except child.Died as death:
            call = death.call
            before = None if call is None else fatal.get(call.number)
            if call is None or (len(fatal) == MOST_FATAL and before is None):
                raise Ended(_reason(death, list(fatal.values()))) from None
            if before is None:
                alike = [other for other in fatal.values() if other.model == call.model]
                # The same node, most likely; and where two runs end the process, all may do so.
                node = alike[0].node if alike else None
                fatal[call.number] = replace(call, node=node, hopeless=bool(alike))
            elif before.node is None:  # it ended while its nodes ran one by one
                fatal[call.number] = replace(before, node=call.node or "")
            else:  # the calls are not the same each time
                raise Ended(_reason(death, list(fatal.values()))) from None


def _reason(death: child.Died, fatal: Sequence[FatalCall]) -> str:
    """Say what ended the process, the first time if there were several."""
    advice = "; use smaller sizes (--shape) or a higher limit (--memory)"
    advice = advice if death.out_of_memory else ""
    if not fatal:
        where = f" ({death.doing})" if death.doing else ""
        return f"the verification {death.reason}{where}{advice}"
    first = fatal[0]
    return (
        f"{first.node or 'it'} {first.reason} ({first.text}), and further runs do so, too{advice}"
    )
