"""Define the errors that onnx-spatial raises on purpose: the exit code and the code of each.

`onnx_spatial.errors.messages` has the cause of each code and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import ClassVar

#: Most characters of a message; names in a file may be of any length.
_LONGEST = 1500


def one_line(text: str) -> str:
    """Escape line breaks and control codes in a text, and shorten it if it is too long."""
    if text.isprintable() and len(text) <= _LONGEST:
        return text
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in _cut(text)))


def _cut(text: str) -> str:
    half = _LONGEST // 2 - 10
    return text if len(text) <= _LONGEST else f"{text[:half]} [...] {text[-half:]}"


class Code(StrEnum):
    """Stable code of an error or a warning. A code never gets another meaning."""

    # The call
    USAGE = "OS101"
    INPUT_DATA = "OS102"
    NAME = "OS103"
    SAME_FILE = "OS104"
    PACKAGE_MISSING = "OS105"
    NO_MODELS = "OS106"
    REGISTRATION = "OS107"
    # Files
    UNREADABLE = "OS201"
    NOT_ONNX = "OS202"
    GIT_LFS_POINTER = "OS203"
    EXPORT_FIRST = "OS204"
    EXTERNAL_DATA = "OS205"
    INVALID_GRAPH = "OS206"
    DAMAGED = "OS207"
    TOO_LARGE = "OS208"
    UNWRITABLE = "OS209"
    FILE_CHANGED = "OS210"
    DATA_FILE = "OS211"
    NO_REPRODUCER = "OS212"
    NO_MEMORY = "OS213"
    # Operators that break their own rules
    OPERATOR_RULE = "OS301"
    NOT_DIVISIBLE = "OS302"
    CROPS_EXCEED = "OS303"
    OUT_OF_RANGE = "OS304"
    RANK = "OS305"
    OVERFLOW = "OS306"
    WINDOW = "OS307"
    ATTRIBUTE = "OS308"
    PARAMETER = "OS309"
    # Operators that cannot be converted
    NOT_CONVERTED = "OS401"
    OPSET_TOO_OLD = "OS402"
    IR_VERSION = "OS403"
    UNKNOWN_DOMAIN = "OS404"
    NO_LOWERING = "OS405"
    ELEMENT_TYPE = "OS406"
    OPSET_NOT_RAISED = "OS407"
    FUNCTION_BODY = "OS408"
    FOREIGN_OPERATOR = "OS409"
    BEYOND_LIMITS = "OS410"
    # Results
    DIFFERENT = "OS501"
    UNVERIFIED = "OS502"
    NOT_PROVEN = "OS503"
    WOULD_CHANGE = "OS504"
    # A run over many models
    RECORDED_DATA = "OS601"
    DOES_NOT_RUN = "OS602"
    CRASH = "OS603"
    TIMEOUT = "OS604"
    MEMORY_LIMIT = "OS605"
    WORKER_LOST = "OS606"
    NOT_VALIDATED = "OS607"
    PASSED_UNEXPECTEDLY = "OS608"
    # The program
    BUG = "OS901"
    INTERRUPTED = "OS902"


class SpatialError(Exception):
    """Base of every error that onnx-spatial raises on purpose.

    The message is one line: what is wrong, where, and what to do. `onnx-spatial explain CODE` says
    more about a code.

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
