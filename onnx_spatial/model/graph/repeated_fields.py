"""Remove messages from repeated protobuf fields, which have no such method."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any


def remove_where(field: Any, condition: Callable[[Any], bool]) -> list[Any]:
    """Remove the messages that fulfil a condition from a repeated field; return them in order."""
    positions = [index for index, message in enumerate(field) if condition(message)]
    removed = [field[index] for index in positions]
    for index in reversed(positions):
        del field[index]
    return removed


def remove_named(field: Any, names: Collection[str]) -> list[str]:
    """Remove the messages with these names from a repeated field; return their names in order."""
    return [message.name for message in remove_where(field, lambda m: m.name in names)]
