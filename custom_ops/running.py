"""Raise the errors of Python operators as Python exceptions."""

from __future__ import annotations

from types import TracebackType

from onnx_spatial.custom_ops import registration
from onnx_spatial.verification.runtime.sessions import Extension


class raising:
    """Raise the errors of Python operators in a block around one `run` of a session.

    `InferenceSession` does this itself; for sessions of the program's own:

        >>> with onnx_spatial.custom_ops.raising():
        ...     outputs = session.run(None, feeds)

    Ctrl-C then takes effect after the current operator, and ends the run.

    Raises:
        OperatorError: an input breaks a rule of an operator; the message names the node.
        MemoryError, KeyboardInterrupt: likewise.
    """

    # No generator with @contextmanager, which takes longer than a small operator.
    __slots__ = ("_handlers", "_state")

    def __enter__(self) -> None:
        state = self._state = registration.state()
        state.watch.begin()
        try:
            self._handlers = state.signals.hold()
        except BaseException:
            state.watch.end()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            try:
                reason = registration.explain(error) if isinstance(error, Exception) else None
            finally:
                self._state.signals.release(self._handlers)
        finally:
            self._state.watch.end()
        if reason is not None:
            raise reason from None


#: What `verification.runtime.sessions` runs prepared models with.
EXTENSION = Extension(registration.register_fresh, raising)
