"""Raise the errors of Python operators as Python exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onnx_spatial.custom_ops import registration
from onnx_spatial.verification.runtime.sessions import Extension


@contextmanager
def raising() -> Iterator[None]:
    """Raise the errors of Python operators in a block around one `run` of a session.

    `InferenceSession` does this itself; for sessions of the program's own:

        >>> with onnx_spatial.custom_ops.raising():
        ...     outputs = session.run(None, feeds)

    Ctrl-C then takes effect after the current operator, and ends the run.

    Raises:
        OperatorError: an input breaks a rule of an operator; the message names the node.
        MemoryError, KeyboardInterrupt: likewise.
    """
    state = registration.state()
    state.watch.begin()
    try:
        with state.signals.held():
            try:
                yield
            except Exception as error:
                reason = registration.explain(error)
                if reason is None:
                    raise
                raise reason from None
    finally:
        state.watch.end()


#: What `verification.runtime.sessions` runs prepared models with.
EXTENSION = Extension(registration.register_fresh, raising)
