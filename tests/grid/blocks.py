"""Define the rows of SpaceToBatch and BatchToSpace: how each spelling writes its parameters.

A row says which parameters a node has and whether each is an input or an attribute; where the
values of the inputs come from is the form's affair (`forms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from grid.columns import CONSTANT, RUN_TIME
from grid.values import PREPARED_TYPES, Array


@dataclass(frozen=True)
class Blocks:
    """What is done to each blocked axis.

    Attributes:
        block: sizes of the blocks.
        begins, ends: what is padded or cropped.
        channels: whether the channels are the first of these axes.
    """

    block: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    channels: bool = False

    def image(self, cells: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes before padding or after cropping, for these numbers of blocks."""
        axes = zip(cells, self.block, self.begins, self.ends, strict=True)
        return tuple(c * b - begin - end for c, b, begin, end in axes)


#: By the number of blocked axes: the parameters that are recorded, how many blocks, channels.
STANDARD = {
    1: (Blocks((3,), (1,), (4,)), (4,), 3),
    2: (Blocks((2, 3), (1, 0), (2, 1)), (3, 2), 2),
    3: (Blocks((2, 1, 3), (1, 0, 0), (0, 1, 2)), (2, 3, 2), 1),
}
#: Of a second call, and the defaults of parameters that a caller overrides.
OTHER = {
    1: (Blocks((2,), (0,), (1,)), (3,), 1),
    2: (Blocks((3, 2), (0, 2), (1, 0)), (2, 2), 1),
    3: (Blocks((1, 2, 2), (0, 1, 1), (1, 0, 0)), (2, 1, 2), 1),
}
_SQUARE = (Blocks((2, 2), (1, 0), (0, 1)), (3, 2), 2)
_OTHER_SQUARE = (Blocks((2, 2), (0, 1), (1, 2)), (2, 4), 1)


@dataclass(frozen=True)
class Table:
    """A parameter of a node.

    Attributes:
        name: of the attribute, or of the value that is the input.
        values: as the node wants them.
        attribute: whether it is one; else it is an input.
    """

    name: str
    values: Array
    attribute: bool


@dataclass(frozen=True)
class BlockRow:
    """SpaceToBatch or BatchToSpace in one spelling.

    Attributes:
        name: of the folder.
        about: the spelling, in words.
        op_type: of the node.
        forward: SpaceToBatch; else BatchToSpace.
        style: "size" (one attribute block_size), "nd" (a table of pairs), "axes" (begins and ends
            with an entry for each axis) or "prepared".
        dialect: what `onnx_spatial.inspect` calls it.
        domains: that its cells take in turn.
        types: that its parameters take in turn.
        attributes: whether parameters are attributes, as far as the form allows.
    """

    name: str
    about: str
    op_type: str
    forward: bool
    style: str
    dialect: str
    domains: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    attributes: bool = False

    @property
    def operator(self) -> str:
        """The operator that the node stands for."""
        return "SpaceToBatch" if self.forward else "BatchToSpace"

    def takes(self, dtype: str) -> bool:
        """Return whether the node can have data of a type."""
        return self.style != "prepared" or dtype in PREPARED_TYPES

    def missing(self, form: str) -> str | None:
        """Return why the row has no such form."""
        if self.style == "size" and form in ("static_1d", "static_3d"):
            return "the 4-D operators block two axes, neither more nor less"
        if self.style == "size" and self.attributes and form in RUN_TIME:
            return "all parameters are attributes, which no run can set"
        return None

    def standard(self, axes: int, *, other: bool = False) -> tuple[Blocks, tuple[int, ...], int]:
        """Return parameters, blocks along each axis and channels of a cell."""
        if self.style == "size":
            return _OTHER_SQUARE if other else _SQUARE
        return (OTHER if other else STANDARD)[axes]

    def entry_for_each_axis(self, form: str) -> bool:
        """Return whether the tables begin with entries for batch and channels."""
        return self.style == "axes" or (
            self.style == "prepared" and form in ("static_2d", "run_time", "subgraph_loop")
        )

    def shape(
        self, form: str, blocks: Blocks, batch: int, cells: Sequence[int], channels: int
    ) -> tuple[int, ...]:
        """Return the shape of the data."""
        sizes = blocks.image(cells) if self.forward else tuple(cells)
        rows = batch if self.forward else batch * prod(blocks.block)
        rest = () if blocks.channels else (channels,)
        return (rows, *rest, *sizes) if self.entry_for_each_axis(form) else (rows, *sizes, *rest)

    def output_shape(
        self, form: str, blocks: Blocks, batch: int, cells: Sequence[int], channels: int
    ) -> tuple[int, ...]:
        """Return the shape of the output, which is the input of the inverse operator."""
        inverse = BlockRow("", "", "", not self.forward, self.style, "")
        return inverse.shape(form, blocks, batch, cells, channels)

    def tables(self, form: str, blocks: Blocks) -> tuple[Table, ...]:
        """Return the parameters, in the order of the inputs."""
        front = 2 - blocks.channels if self.entry_for_each_axis(form) else 0
        block, begins, ends = (
            np.array((neutral,) * front + values, np.int64)
            for neutral, values in ((1, blocks.block), (0, blocks.begins), (0, blocks.ends))
        )
        both = "paddings" if self.forward else "crops"
        half = "pads" if self.forward else "crops"
        if self.style == "axes":
            found = {"block_shape": block, f"{half}_begin": begins, f"{half}_end": ends}
        else:
            found = {"block_shape": block, both: np.stack([begins, ends], axis=1)}
        if self.style == "size":
            del found["block_shape"]
        kept = self._attributes(form, list(found))
        return tuple(Table(name, values, name in kept) for name, values in found.items())

    def _attributes(self, form: str, names: list[str]) -> set[str]:
        """Return the parameters that are attributes."""
        if not self.attributes:
            return set()
        if form in CONSTANT or self.style == "size":
            return set(names)
        block, *amounts = names
        if self.style == "axes":
            begins = amounts[0]
            return {
                "run_time": {begins},
                "computed": {block, begins},
                "overridable": {block},
            }.get(form, set(amounts))
        return set(amounts) if form == "run_time" and self.forward else {block}

    def fixed(self, form: str, axes: int) -> dict[str, str]:
        """Return the attributes that are not tables, as ONNX text."""
        if self.style == "prepared":
            return {
                "site": '"a cell of the grid"',
                "batch_entry": str(int(self.entry_for_each_axis(form))),
            }
        if self.style == "size":
            index = {"Tidx": "3"} if form in ("static_2d", "run_time", "quantised") else {}
            return {"block_size": str(_SQUARE[0].block[0]), **index}
        return {}
