"""Define the exception for inputs that an oracle cannot judge."""

from __future__ import annotations


class Silent(Exception):
    """An oracle lacks a kernel for this type or rank, or is known to be wrong."""
