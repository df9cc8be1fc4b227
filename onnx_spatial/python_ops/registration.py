"""Register the Python operators with onnxruntime, all of them once per process, and raise their errors.

onnxruntime-extensions registers operators for good. If one is registered twice every later session
fails, and adding one to a domain that is in use is a use after free. So a private domain has a fixed
set of operators. They and their state are kept on the module onnxruntime_extensions: a second copy of
this package, or this module imported anew, uses the same operators and raises their errors as its own
exceptions.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from onnx_spatial.errors import Code, UsageError
from onnx_spatial.operators.spellings.call import BLOCKS
from onnx_spatial.operators.spellings.python_ops import (
    BATCH_ENTRY,
    DOMAIN,
    FIXED,
    PARAMETERS,
    SITE,
    VERSION,
)
from onnx_spatial.python_ops import kernels
from onnx_spatial.python_ops.kernels import Failures, Signals, exception_of

#: Attribute of the module onnxruntime_extensions that holds the state, and of
#: onnxruntime.SessionOptions that holds the modules of onnxruntime_extensions.
_MARK = "_onnx_spatial_operators"
_LIBRARY = "onnxruntime_extensions"
#: Version of the state, so that incompatible copies of this package do not share it.
_PROTOCOL = 5

#: onnxruntime-extensions sets this variable when it is imported, which would make every child
#: process parse its models with protobuf's slow implementation.
_LEAKED = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"

#: An operator of onnxruntime-extensions, to test whether its library is registered.
_FOREIGN_DOMAIN, _FOREIGN = "ai.onnx.contrib", "StringUpper"

#: What options say of a session that writes nothing.
_QUIET = {"enable_profiling": False, "optimized_model_filepath": "", "log_severity_level": 4}

#: Held while the program's options say that.
_quiet_lock = threading.Lock()


def extensions() -> ModuleType:
    """Import and return the module onnxruntime_extensions.

    Raises:
        UsageError: it is not installed.
    """
    if _LIBRARY not in sys.modules:
        # A second import would register its operators twice, and every later session would fail.
        sys.modules.update(ort.SessionOptions.__dict__.get(_MARK, {}))
    before = os.environ.get(_LEAKED)
    try:
        import onnxruntime_extensions
    except ImportError as error:
        raise UsageError(
            "mode 'custom-op' needs onnxruntime-extensions, which is not installed or does not load "
            f"({error}); install it with 'pip install onnxruntime-extensions' (CPython 3.11 to "
            "3.13 on Linux or macOS arm64), or use mode 'lower', which does not need it",
            code=Code.PACKAGE_MISSING,
        ) from None
    finally:
        if before is None:
            os.environ.pop(_LEAKED, None)
    return onnxruntime_extensions  # type: ignore[no-any-return]


def available() -> bool:
    """Return whether onnxruntime-extensions is installed, which Python operators need."""
    try:
        extensions()
    except UsageError:
        return False
    return True


def register(sess_options: ort.SessionOptions) -> None:
    """Register the Python operators on options, so that their sessions run prepared models.

    onnxruntime-extensions' own operators, and those that the program declared with `onnx_op` before,
    are registered with them. May be called again, on the same or on other options.

    Args:
        sess_options: onnxruntime.SessionOptions; it is changed.

    Raises:
        UsageError: onnxruntime-extensions is not installed, or its library was registered on these
            options before the Python operators existed.
    """
    library = extensions()
    shared = state()
    with shared.lock:
        was_ready = shared.ready
        of_ours = one_node(next(iter(FIXED)), DOMAIN, attributes={SITE: "probe", PARAMETERS: "{}"})
        of_extensions = one_node(_FOREIGN, _FOREIGN_DOMAIN, TensorProto.STRING)
        _register_operators(library, shared)
        # Options that hold initializers load no other model; those were registered here, if at all.
        if sess_options in shared.options or (was_ready and loads(of_ours, sess_options)):
            return  # they are registered on these options, perhaps by the program itself
        if loads(of_extensions, sess_options):
            raise UsageError(
                "onnxruntime-extensions was registered on these SessionOptions without the operators "
                "of onnx-spatial: call onnx_spatial.custom_ops.register(options) instead of "
                "options.register_custom_ops_library(...); it registers both",
                code=Code.REGISTRATION,
            )
        sess_options.register_custom_ops_library(library.get_library_path())
        shared.options.add(sess_options)


def register_fresh(sess_options: ort.SessionOptions) -> None:
    """Register on options that hold no operators yet."""
    library = extensions()
    shared = state()
    with shared.lock:
        _register_operators(library, shared)
        sess_options.register_custom_ops_library(library.get_library_path())


def explain(error: BaseException | str) -> BaseException | None:
    """Return the error of a Python operator behind an exception of onnxruntime.

    Args:
        error: exception that `run` raised, or message that `run_async` passed on.

    Returns:
        An OperatorError (KeyboardInterrupt, MemoryError) that names the node; None if the exception
        has another reason or was explained before.
    """
    if not available():
        return None
    failure = state().failures.take(str(error))
    return None if failure is None else exception_of(failure)


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
        self._state = shared = state()
        shared.failures.begin()
        try:
            self._handlers = shared.signals.hold()
        except BaseException:
            shared.failures.end()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            try:
                reason = explain(error) if isinstance(error, Exception) else None
            finally:
                self._state.signals.release(self._handlers)
        finally:
            self._state.failures.end()
        if reason is not None:
            raise reason from None


def state() -> Any:
    """Return the state that all copies of this package share: operators, failures, signals.

    Raises:
        UsageError: onnxruntime-extensions is not installed, or another version of this package
            registered its operators first.
    """
    shared = getattr(sys.modules.get(_LIBRARY), _MARK, None)  # in front of each run
    if shared is None:
        shared = _new_state(extensions())
    if (shared.protocol, shared.version) != (_PROTOCOL, VERSION):
        raise UsageError(
            "another version of onnx-spatial has registered its operators in this process; use one "
            "version per process",
            code=Code.REGISTRATION,
        )
    return shared


def _new_state(library: ModuleType) -> Any:
    """Put a state on the module onnxruntime_extensions, unless another thread was faster."""
    fresh = SimpleNamespace(
        protocol=_PROTOCOL,
        version=VERSION,
        lock=threading.RLock(),
        ready=False,
        failures=Failures(),
        signals=Signals(),
        operators=[],
        options=weakref.WeakSet(),
    )
    shared = library.__dict__.setdefault(_MARK, fresh)
    if shared is fresh:
        modules = {n: m for n, m in sys.modules.items() if n.split(".")[0] == _LIBRARY}
        setattr(ort.SessionOptions, _MARK, modules)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=functools.partial(_after_fork, fresh))
    return shared


def _after_fork(state: Any) -> None:
    """Replace locks in a forked child, which other threads of the parent might have held."""
    state.lock = threading.RLock()
    state.failures.after_fork()


def _register_operators(library: ModuleType, state: Any) -> None:
    if state.ready:
        return
    kinds = library.PyOp
    int64, text = kinds.dt_int64, kinds.dt_string
    signatures = []
    for element_type in kernels.PREPARED_TYPES:
        data = getattr(kinds, f"dt_{TensorProto.DataType.Name(element_type).lower()}")
        block = ([data, int64, int64], {SITE: text, BATCH_ENTRY: int64})
        fixed = ([data], {SITE: text, PARAMETERS: text})
        signatures += [(name, *block) for name in BLOCKS]
        signatures += [(name, *fixed) for name in FIXED]
    raw = _takes_results(library)
    bodies = kernels.operator_bodies(state.failures, state.signals, raw=raw)
    for name, inputs, attributes in signatures:
        state.operators.append(
            library.Opdef.create(
                bodies[name],
                op_type=f"{DOMAIN}::{name}",
                inputs=inputs,
                outputs=inputs[:1],
                attrs=attributes,
            )
        )
    state.ready = True


def _takes_results(library: ModuleType) -> bool:
    """Return whether onnxruntime-extensions takes a `Result` without boxing its elements.

    Its hook is called as onnxruntime would call it.
    """
    try:
        result = np.arange(6, dtype=np.float32).reshape(2, 3).view(kernels.Result)
        definition = SimpleNamespace(body=lambda: result, cast_attributes=lambda given: given)
        ocos = library._ocos
        key = id(definition)
        ocos.Opdef._odlist[key] = definition
        try:
            _, shape, data = ocos._on_pyop_invocation(key, [], {})
        finally:
            del ocos.Opdef._odlist[key]
        return tuple(shape) == (2, 3) and type(data) is np.ndarray and data.dtype == np.float32
    except Exception:  # another version, with another hook
        return False


def loads(model: bytes, options: ort.SessionOptions) -> bool:
    """Return whether a session of a small model can be made with options, which stay as they are."""
    with silence_options(options):
        return open_session(model, options) is not None


@contextmanager
def silence_options(options: ort.SessionOptions) -> Iterator[dict[str, Any]]:
    """Keep sessions with these options from writing files and messages; what the options say else."""
    with _quiet_lock:
        kept = {name: getattr(options, name) for name in _QUIET}
        try:
            for name, value in _QUIET.items():
                setattr(options, name, value)
            yield kept
        finally:
            for name, value in kept.items():
                setattr(options, name, value)


def open_session(model: bytes, options: ort.SessionOptions) -> ort.InferenceSession | None:
    """Return a session of a model on the CPU; None if it does not load."""
    try:
        return ort.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception:  # of onnxruntime's own types
        return None


def one_node(
    op_type: str,
    domain: str = "",
    element_type: int = TensorProto.FLOAT,
    stored: onnx.TensorProto | None = None,
    attributes: Mapping[str, str] | None = None,
) -> bytes:
    """Return a model of one node from x to y; x is an input, or the stored tensor."""
    x, y = (helper.make_tensor_value_info(name, element_type, None) for name in "xy")
    node = helper.make_node(op_type, ["x"], ["y"], domain=domain, **(attributes or {}))
    inputs, initializers = ([x], []) if stored is None else ([], [stored])
    graph = helper.make_graph([node], op_type, inputs, [y], initializers)
    imports = [helper.make_opsetid("", 13), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=imports, ir_version=7)
    return bytes(model.SerializeToString())
