"""Record the calls into native code, which may end the process, where another process reads them.

    run 1    ... call 17: the original runs on x 2x4x6x3     the process ends with SIGFPE
    run 2    ... call 17, node by node: Div node 'd'         it ends again: the node is known
    run 3    ... call 17 raises an error instead             the verification goes on

A verification makes the same calls each time. One that ended the process is known by its number and
its text.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_spatial.verification.process.child import Died

_SIZE = 2**13
#: The first byte of the record after a call: one byte is written faster than the whole record.
_OVER = ord("-")
#: Characters of one text, which may hold names of any length.
_LONGEST = 400


@dataclass(frozen=True)
class FatalCall:
    """A call into native code that ended an earlier process.

    Attributes:
        number: position among all calls.
        model: which model ran, as a key.
        text: what ran: "the original runs on x 2x4x6x3".
        reason: how that ended the process: "ends the process with SIGFPE".
        out_of_memory: whether it took more memory than allowed.
        node: the node that ran, such as "Div node 'd'"; "" if that is unknown, None if it has to be
            looked for.
        hopeless: whether all runs of that model are taken to end the process.
    """

    number: int
    model: str
    text: str
    reason: str
    out_of_memory: bool
    node: str | None = None
    hopeless: bool = False


def shared_memory(path: Path) -> mmap.mmap:
    """Return memory for a record that two processes share by a file at `path`."""
    if not path.exists():
        path.write_bytes(bytes(_SIZE))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _SIZE)


class CallRecord:
    """What a process does at the moment, in memory that outlives it.

    Attributes:
        fatal: calls that ended earlier processes.
        too_large: what to say of nodes that need more memory than the process may take.
    """

    def __init__(
        self, memory: mmap.mmap, fatal: Collection[FatalCall] = (), too_large: str = ""
    ) -> None:
        self.too_large = too_large
        self.fatal = {call.number: call for call in fatal}
        self._memory = memory
        self._hopeless = {call.model: call for call in fatal if call.hopeless}
        self._state: dict[str, Any] = {"number": 0, "model": "", "text": "", "node": None}

    def begin(self, model: str, text: str) -> FatalCall | None:
        """Note that a model is called; return what is known of that if it ended a process."""
        number, text = self._state["number"] + 1, text[:_LONGEST]
        self._note(number=number, model=model, text=text, node=None)
        call = self.fatal.get(number)
        return call if call is not None and call.text == text else self._hopeless.get(model)

    def at_node(self, node: str) -> None:
        """Note the node of the call that runs next."""
        self._note(node=node[:_LONGEST])

    def end(self) -> None:
        """Note that the call returned."""
        self._state.update(text="", node=None)
        self._memory[0] = _OVER

    def _note(self, **changes: object) -> None:
        self._state.update(changes)
        data = json.dumps(self._state).encode()
        self._memory[: len(data) + 2] = b" " + data + b"\0"

    def fatal_call(self, death: Died) -> FatalCall | None:
        """Return the call during which the process ended; None if none was under way."""
        try:
            state = json.loads(self._memory[1:].split(b"\0", 1)[0])
        except ValueError:  # it ended while it wrote
            return None
        if self._memory[0] == _OVER or not state["text"]:
            return None
        return FatalCall(**state, reason=death.reason, out_of_memory=death.ending == "memory")


#: The record of this process; None if it is not watched.
current: CallRecord | None = None
