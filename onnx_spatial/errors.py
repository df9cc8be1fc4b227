"""Define the errors that onnx-spatial raises on purpose, and the exit code of each."""

from __future__ import annotations

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


class SpatialError(Exception):
    """Base of every error that onnx-spatial raises on purpose.

    The message is one line: what is wrong, where, and what to do.
    """

    exit_code = 3

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class UsageError(SpatialError):
    """Wrong call: an unknown mode, an output that is the input, an invalid option."""

    exit_code = 2


class ModelFileError(SpatialError):
    """Model that cannot be read or written: no such file, not a protobuf, missing external data."""

    exit_code = 2


class OperatorError(SpatialError, ValueError):
    """Operator that breaks its own rules: negative padding, a batch not divisible by the block."""


class ConversionError(SpatialError):
    """Operators that cannot be converted; the message names each node and the reason."""

    #: The `Inspection` of the model, if the error concerns the whole model.
    inspection: object = None


class VerificationError(SpatialError):
    """Original and converted model differ, or could not be compared where that was required."""

    exit_code = 1

    #: The `Conversion` that failed its verification, if the error comes from one.
    conversion: object = None

    def __init__(self, message: str, verification: object = None) -> None:
        super().__init__(message)
        #: The `Verification` with the figures, if there is one.
        self.verification = verification
