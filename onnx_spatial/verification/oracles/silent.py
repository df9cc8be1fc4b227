"""Name the oracles, and define the exception for inputs that an oracle cannot judge."""

from __future__ import annotations

#: The oracles, and the packages that hold them.
NAMES = {"tensorflow": "tensorflow-cpu", "openvino": "openvino"}


class Silent(Exception):
    """An oracle lacks a kernel for this type or rank, or is known to be wrong."""
