"""Define the rows of the patch operators; all of their parameters are attributes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from grid.columns import RUN_TIME, STATIC
from grid.values import PREPARED_TYPES


@dataclass(frozen=True)
class Windows:
    """A patch operator, and what it is given.

    Attributes:
        kernel, strides, rates: of each spatial axis.
        sizes: of the data.
        channels: of the data.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    rates: tuple[int, ...]
    sizes: tuple[int, ...]
    channels: int

    def spans(self) -> tuple[int, ...]:
        """Return the number of elements from the first to the last of a window."""
        return tuple((k - 1) * r + 1 for k, r in zip(self.kernel, self.rates, strict=True))

    def counts(self, sizes: Sequence[int], *, valid: bool) -> tuple[int, ...]:
        """Return the number of windows along each axis, at least one."""
        axes = zip(sizes, self.spans(), self.strides, strict=True)
        return tuple((d - e) // s + 1 if valid else -(-d // s) for d, e, s in axes)


#: By the number of axes and whether the windows stay inside. A stride beyond the kernel is where
#: SAME of the two operators of TensorFlow differs.
_WINDOWS = {
    (1, True): Windows((3,), (2,), (2,), (8,), 3),
    (1, False): Windows((3,), (2,), (2,), (7,), 3),
    (2, True): Windows((2, 3), (2, 1), (1, 2), (5, 6), 2),
    (2, False): Windows((3, 2), (2, 3), (1, 2), (5, 4), 2),
    (3, True): Windows((2, 1, 2), (1, 2, 1), (1, 1, 1), (3, 4, 2), 2),
    (3, False): Windows((1, 2, 2), (5, 1, 2), (1, 1, 1), (8, 2, 3), 1),
}


@dataclass(frozen=True)
class PatchRow:
    """A patch operator in one spelling with one kind of padding.

    Attributes:
        name, about, op_type, dialect, domains: as of `BlockRow`.
        operator: that the node stands for.
        padding: as TensorFlow ("SAME", "VALID") or OpenVINO ("same_lower", ...) call it; "" where
            it varies over the cells.
        style: "tf", "openvino" or "prepared".
        dims: spatial axes that it can have.
    """

    name: str
    about: str
    op_type: str
    operator: str
    padding: str
    style: str
    dialect: str
    dims: tuple[int, ...]
    domains: tuple[str, ...]

    types = ("",)
    operators = "patch operators"

    def takes(self, dtype: str) -> bool:
        """Return whether the node can have data of a type."""
        return self.style != "prepared" or dtype in PREPARED_TYPES

    def missing(self, form: str) -> str | None:
        """Return why the row has no such form."""
        if form in RUN_TIME:
            return f"{self.operators} have nothing but attributes, which no run can set"
        if form in STATIC and STATIC[form] not in self.dims:
            count = {2: "two", 3: "three"}[self.dims[0]]
            return f"{self.op_type} has {count} spatial axes, neither more nor less"
        return None

    def kind(self, axes: int, form: str) -> str:
        """Return the padding of a cell."""
        if self.padding:
            return self.padding
        if axes == 3:
            return "same_unclamped"
        turn = ("valid", "same_upper", "same_lower")
        return turn[len(form) % 3]

    def windows(self, axes: int, form: str) -> Windows:
        """Return the windows of a cell."""
        return _WINDOWS[axes, self.kind(axes, form).lower() == "valid"]

    def legal(self, sizes: Sequence[int], channels: int) -> tuple[tuple[int, ...], int]:
        """Return legal sizes and channels: the given ones if windows fit."""
        return tuple(sizes), channels

    def entry_for_each_axis(self, form: str) -> bool:
        """Return whether the channels come first."""
        return self.style == "openvino" or (self.style == "prepared" and len(form) % 2 == 0)

    def shape(self, form: str, batch: int, sizes: Sequence[int], channels: int) -> tuple[int, ...]:
        """Return the shape of the data or of the output."""
        if self.entry_for_each_axis(form):
            return (batch, channels, *sizes)
        return (batch, *sizes, channels)

    def fixed(self, form: str, axes: int) -> dict[str, str]:
        """Return the attributes as ONNX text."""
        windows, padding = self.windows(axes, form), self.kind(axes, form)
        given = {"sizes": windows.kernel, "strides": windows.strides, "rates": windows.rates}
        if self.style == "prepared":
            fields = {
                "kernel": windows.kernel,
                "strides": windows.strides,
                "rates": windows.rates,
                "auto_pad": padding,
                "layout": "channels_first" if self.entry_for_each_axis(form) else "channels_last",
                "clamp_negative": False,
            }
            packed = json.dumps(json.dumps(fields, separators=(",", ":")))
            return {"parameters": packed, "site": '"a cell of the grid"'}
        if self.style == "openvino":
            texts = {name: str(list(values)) for name, values in given.items()}
            return {**texts, "auto_pad": f'"{padding}"'}
        if self.operator == "ExtractVolumePatches":
            del given["rates"]
        given["ksizes"] = given.pop("sizes")
        texts = {name: str([1, *values, 1]) for name, values in given.items()}
        return {**texts, "padding": f'"{padding}"'}
