"""Define the rows of ReorgYolo: cells that tile the image, as adjacent windows of patches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from grid.windows import PatchRow, Windows


@dataclass(frozen=True)
class ReorgRow(PatchRow):
    """ReorgYolo in one spelling.

    Attributes:
        channels: of the data; 4, the elements of a cell, divide them or not.
        in_list: whether the stride is a list.
    """

    operators = "reorganising operators"

    channels: int = 8
    in_list: bool = False

    def windows(self, axes: int, form: str) -> Windows:
        """Return the windows of a cell."""
        return Windows((2, 2), (2, 2), (1, 1), (4, 6), self.channels)

    def legal(self, sizes: Sequence[int], channels: int) -> tuple[tuple[int, ...], int]:
        """Return other legal sizes and channels, derived from the given ones."""
        return tuple(2 * size for size in sizes), channels + 3

    def entry_for_each_axis(self, form: str) -> bool:
        """Return whether the channels come first."""
        return True

    def fixed(self, form: str, axes: int) -> dict[str, str]:
        """Return the attributes as ONNX text."""
        if self.style == "prepared":
            packed = json.dumps(json.dumps({"stride": 2}, separators=(",", ":")))
            return {"parameters": packed, "site": '"a cell of the grid"'}
        return {"stride": "[2]" if self.in_list else "2"}
