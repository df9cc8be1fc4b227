"""Define the errors that onnx-spatial raises on purpose: the exit code and the code of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import ClassVar

#: Most characters of a message; names in a file may be of any length.
_MAX_MESSAGE_LETTERS = 1500


def one_line(text: str) -> str:
    """Escape line breaks and control codes in a text, and shorten it if it is too long."""
    if text.isprintable() and len(text) <= _MAX_MESSAGE_LETTERS:
        return text
    return _cut_text("".join(c if c.isprintable() else repr(c)[1:-1] for c in _cut_text(text)))


def _cut_text(text: str) -> str:
    half = _MAX_MESSAGE_LETTERS // 2 - 10
    return text if len(text) <= _MAX_MESSAGE_LETTERS else f"{text[:half]} [...] {text[-half:]}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 node", "1,200 nodes"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def innermost_message(error: BaseException) -> str:
    """Return the first line of the innermost message; the outer ones may quote whole graphs."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0]


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first names in one line, and how many there are more: "a, b, c and 2 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def first_lines(lines: Sequence[str], most: int | None, rest: str = "{} more") -> list[str]:
    """Return the first lines, and a line that says how many there are more; None: all of them."""
    left_out = [] if most is None else lines[most:]
    return [*lines[:most], *([f"and {rest.format(len(left_out))}"] if left_out else [])]


class Code(StrEnum):
    """Short name of what is wrong, for programs. A code never gets another meaning."""

    # The call
    USAGE = "usage"
    INPUT_DATA = "input-data"
    UNKNOWN_NAME = "unknown-name"
    SAME_FILE = "same-file"
    PACKAGE_MISSING = "package-missing"
    NO_MODELS = "no-models"
    REGISTRATION = "registration"
    # Files
    UNREADABLE = "unreadable"
    NOT_ONNX = "not-onnx"
    GIT_LFS_POINTER = "git-lfs-pointer"
    EXPORT_FIRST = "export-first"
    EXTERNAL_DATA = "external-data"
    INVALID_GRAPH = "invalid-graph"
    DAMAGED = "damaged"
    TOO_LARGE = "too-large"
    UNWRITABLE = "unwritable"
    DATA_FILE = "data-file"
    NO_REPRODUCER = "no-reproducer"
    NO_MEMORY = "no-memory"
    # Operators that break their own rules
    OPERATOR_RULE = "operator-rule"
    NOT_DIVISIBLE = "not-divisible"
    CROPS_EXCEED = "crops-exceed"
    OUT_OF_RANGE = "out-of-range"
    RANK = "rank"
    OVERFLOW = "overflow"
    WINDOW = "window"
    ATTRIBUTE = "attribute"
    PARAMETER = "parameter"
    # Operators that cannot be converted
    NOT_CONVERTED = "not-converted"
    OPSET_TOO_OLD = "opset-too-old"
    UNKNOWN_DOMAIN = "unknown-domain"
    NO_LOWERING = "no-lowering"
    ELEMENT_TYPE = "element-type"
    # Results
    DIFFERENT = "different"
    UNVERIFIED = "unverified"
    NOT_PROVEN = "not-proven"
    # A run over many models
    RECORDED_DATA = "recorded-data"
    DOES_NOT_RUN = "does-not-run"
    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY_LIMIT = "memory-limit"
    WORKER_LOST = "worker-lost"
    NOT_VALIDATED = "not-validated"
    PASSED_UNEXPECTEDLY = "passed-unexpectedly"
    # The program
    BUG = "bug"
    INTERRUPTED = "interrupted"


class SpatialError(Exception):
    """Base of every error that onnx-spatial raises on purpose.

    The message is one line: what is wrong, where, and what to do.

    Args:
        message: the message.
        code: its code, if it is a narrower one than that of the class.
    """

    exit_code: ClassVar[int] = 3
    code: Code = Code.NOT_CONVERTED

    def __init__(self, message: str, *, code: Code | None = None) -> None:
        super().__init__(one_line(message))
        if code is not None:
            self.code = code


class UsageError(SpatialError):
    """Wrong call: an unknown mode, an output that is the input, an invalid option."""

    exit_code = 2
    code = Code.USAGE


class ModelFileError(SpatialError):
    """Model that cannot be read or written: no such file, not a protobuf, missing external data."""

    exit_code = 2
    code = Code.UNREADABLE


@contextmanager
def of_model(name: str) -> Iterator[None]:
    """Name the model in each ModelFileError that does not say of which model it speaks."""
    try:
        yield
    except ModelFileError as error:
        if str(error).startswith(name):
            raise
        raise ModelFileError(f"{name}: {error}", code=error.code) from None


class OperatorError(SpatialError, ValueError):
    """Operator that breaks its own rules: negative padding, a batch not divisible by the block."""

    code = Code.OPERATOR_RULE


class ConversionError(SpatialError):
    """Operators that cannot be converted; the message names each node and the reason."""

    code = Code.NOT_CONVERTED
    #: The `Inspection` of the model, if the error concerns the whole model.
    inspection: object = None


class VerificationError(SpatialError):
    """Original and converted model differ, or could not be compared where that was required."""

    exit_code = 1
    code = Code.DIFFERENT

    #: The `Conversion` that failed its verification, if the error comes from one.
    conversion: object = None

    def __init__(
        self, message: str, verification: object = None, *, code: Code | None = None
    ) -> None:
        super().__init__(message, code=code)
        #: The `Verification` with the figures, if there is one.
        self.verification = verification
