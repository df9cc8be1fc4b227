"""Run a session with Python operators in it so that what goes wrong in one is raised as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onnx_spatial.custom_ops import registration
from onnx_spatial.verification.runtime.sessions import Extension


@contextmanager
def raising() -> Iterator[None]:
    """A block around one `run` of a session that runs a prepared model.

    `InferenceSession` does this by itself; a program with sessions of its own may:

        >>> with onnx_spatial.custom_ops.raising():
        ...     outputs = session.run(None, feeds)

    Ctrl-C then waits until the operator at work is done, and ends the run.

    Raises:
        OperatorError: an operator was asked for what it cannot do; the message names the node.
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
