"""What an oracle raises where it cannot tell."""

from __future__ import annotations

#: Oracles that there are, and the packages that hold them.
NAMES = {"tensorflow": "tensorflow-cpu", "openvino": "openvino"}


class Silent(Exception):
    """An oracle lacks the operator for this type or rank, or is known to be wrong here."""
