"""Define a cell of the grid: a row in a form, with its element types and opset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grid.blocks import BlockRow, Table
from grid.spellings import Row
from grid.windows import PatchRow

#: The IR version that goes with each opset; 8 at least, which local functions need (mode "function").
IR_VERSIONS = {11: 8, 12: 8, 13: 8, 15: 8, 17: 8, 18: 8, 19: 9, 21: 10, 23: 11}


@dataclass(frozen=True)
class Cell:
    """What its model is made of.

    Attributes:
        row, form: where it stands in the grid.
        dtype: element type of the node's data.
        stored: type of the quantised data, in the two quantised forms.
        axes: how many axes are blocked, or have windows.
        types: element types of the parameters, in their order.
        opset, ir_version: of the model.
        domain: of the node.
        imported: whether the model says that it uses that domain.
    """

    row: Row
    form: str
    dtype: str
    stored: str
    axes: int
    types: tuple[str, ...]
    opset: int
    ir_version: int
    domain: str
    imported: bool

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.row.name}/{self.form}"

    def tables(self, *, other: bool = False) -> tuple[Table, ...]:
        """Return the parameters of the node besides `fixed`, by default the recorded ones."""
        if isinstance(self.row, PatchRow):
            return ()
        blocks, _, _ = self.row.standard(self.axes, other=other)
        return self.row.tables(self.form, blocks)

    def type_of(self, table: Table) -> str:
        """Return the element type of a parameter that is an input."""
        return self.types[[t.name for t in self.tables()].index(table.name)]

    def inputs(self) -> tuple[Table, ...]:
        """Return the parameters that are inputs."""
        return tuple(t for t in self.tables() if not t.attribute)

    def shapes(self, *, other: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the recorded shapes of data and output.

        Args:
            other: of the second call; with the same parameters where these are attributes.
        """
        if isinstance(self.row, BlockRow):
            blocks, cells, channels = self.row.standard(self.axes, other=other)
            if other and any(table.attribute for table in self.tables()):
                blocks, cells, _ = self.row.standard(self.axes)
                cells = tuple(c + 1 for c in cells)
            given = (self.form, blocks, 2, cells, channels)
            return self.row.shape(*given), self.row.output_shape(*given)
        windows = self.row.windows(self.axes, self.form)
        if not other:
            return self.patch_shapes(2, windows.sizes, windows.channels)
        sizes = tuple(d + 2 - i for i, d in enumerate(windows.sizes))
        return self.patch_shapes(2, *self.row.legal(sizes, windows.channels + 1))

    def patch_shapes(
        self, batch: int, sizes: Sequence[int], channels: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of data and output of a patch operator."""
        assert isinstance(self.row, PatchRow)
        windows = self.row.windows(self.axes, self.form)
        valid = self.row.kind(self.axes, self.form).lower() == "valid"
        positions = 1
        for k in windows.kernel:
            positions *= k
        return (
            self.row.shape(self.form, batch, sizes, channels),
            self.row.shape(
                self.form, batch, windows.counts(sizes, valid=valid), channels * positions
            ),
        )
