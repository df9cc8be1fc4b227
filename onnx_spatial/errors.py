"""What the library raises on purpose, and the exit code that each kind of failure means."""

from __future__ import annotations

#: Letters of a message; names in a file may be of any length.
_LONGEST = 1500


def one_line(text: str) -> str:
    """Text that can stand in a message: without line breaks and control codes, and not endless."""
    if text.isprintable() and len(text) <= _LONGEST:
        return text
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in _cut(text)))


def _cut(text: str) -> str:
    half = _LONGEST // 2 - 10
    return text if len(text) <= _LONGEST else f"{text[:half]} [...] {text[-half:]}"


class SpatialError(Exception):
    """Base of every error that onnx-spatial raises on purpose.

    The message is one line for a person: what is wrong, where, and what to do about it.
    """

    exit_code = 3

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class UsageError(SpatialError):
    """The call itself is wrong: an unknown mode, an output that equals the input, a bad option."""

    exit_code = 2


class ModelFileError(SpatialError):
    """The model cannot be read or written: no such file, not a protobuf, missing external data."""

    exit_code = 2


class OperatorError(SpatialError, ValueError):
    """An operator breaks its own rules: a negative padding, a batch that the block does not divide."""


class ConversionError(SpatialError):
    """Operators are there that cannot be converted; the message names each node and the reason."""

    #: The `Inspection` of the model, where the error speaks of a whole model.
    inspection: object = None


class VerificationError(SpatialError):
    """Original and converted model do not agree (or could not be compared where that was required)."""

    exit_code = 1

    def __init__(self, message: str, verification: object = None) -> None:
        super().__init__(message)
        #: The `Verification` that holds the figures, if one was made.
        self.verification = verification
