"""Make the inputs of a cell: the recorded data, and legal inputs of other sizes.

Nothing here asks the package which sizes are legal: a cell knows by itself.
"""

from __future__ import annotations

import zlib
from math import prod

import numpy as np

from grid.blocks import BlockRow, Blocks
from grid.cells import Cell
from grid.columns import STATIC
from grid.forms import TURNS
from grid.values import Array, Rng, array, reals

Feeds = dict[str, Array]


def recorded_inputs(cell: Cell) -> Feeds:
    """Return the recorded inputs of a cell, in the order of the graph's inputs."""
    rng = np.random.default_rng(zlib.crc32(cell.name.encode()))
    shape, _ = cell.shapes()
    found = _data(cell, rng, shape)
    if cell.form in ("run_time", "overridable"):
        found |= _parameters(cell, cell.row.standard(cell.axes)[0])  # type: ignore[union-attr]
    if cell.form == "subgraph_if":
        found["take"] = np.array(True)
    return found


def feeds(cell: Cell, rng: Rng) -> Feeds:
    """Yield legal inputs; sizes, parameters and branches vary as far as the model allows."""
    given: Feeds = {}
    if isinstance(cell.row, BlockRow):
        blocks = cell.row.standard(cell.axes)[0]
        if cell.form == "run_time" or (cell.form == "overridable" and rng.random() < 0.7):
            blocks = _drawn(cell, rng, blocks)
            given = _parameters(cell, blocks)
        elif cell.form == "overridable":
            blocks = _defaults(cell)
        shape = _block_shape(cell, rng, blocks)
    else:
        shape = _patch_shape(cell, rng)
    found = _data(cell, rng, shape) | given
    if cell.form == "subgraph_if":
        found["take"] = np.array(bool(rng.integers(4)))
    return found


def _data(cell: Cell, rng: Rng, shape: tuple[int, ...]) -> Feeds:
    """Return the inputs that hold elements."""
    if cell.form == "quantised":
        return {"x": array(rng, cell.stored, shape)}
    if cell.form == "quantised_integers":
        return {"x": reals(rng, cell.stored, shape)}
    if cell.form == "subgraph_scan":
        shape = (TURNS, *shape)
    found = {"x": array(rng, cell.dtype, shape, extremes=cell.form in STATIC)}
    if cell.form == "function":
        found["more"] = array(rng, cell.dtype, cell.shapes(other=True)[0])
    return found


def _parameters(cell: Cell, blocks: Blocks) -> Feeds:
    """Return the parameters that are graph inputs or override initializers."""
    assert isinstance(cell.row, BlockRow)
    tables = cell.row.tables(cell.form, blocks)
    return {t.name: t.values.astype(cell.type_of(t)) for t in tables if not t.attribute}


def _drawn(cell: Cell, rng: Rng, blocks: Blocks) -> Blocks:
    """Draw other values of the parameters that the graph leaves open."""
    assert isinstance(cell.row, BlockRow)
    channels = cell.row.entry_for_each_axis(cell.form)
    if channels:  # which can be blocked as well
        blocks = Blocks((1, *blocks.block), (0, *blocks.begins), (0, *blocks.ends), channels)
    open_ = {t.name for t in cell.inputs()}
    both = bool({"paddings", "crops"} & open_)

    def draw(is_open: bool, old: tuple[int, ...], low: int, high: int) -> tuple[int, ...]:
        return tuple(int(v) for v in rng.integers(low, high, len(old))) if is_open else old

    return Blocks(
        draw("block_shape" in open_, blocks.block, 1, 4 if len(blocks.block) < 3 else 3),
        draw(both or bool({"pads_begin", "crops_begin"} & open_), blocks.begins, 0, 3),
        draw(both or bool({"pads_end", "crops_end"} & open_), blocks.ends, 0, 3),
        channels,
    )


def _defaults(cell: Cell) -> Blocks:
    """Return the parameters that apply if no caller overrides them."""
    assert isinstance(cell.row, BlockRow)
    usual, other = (cell.row.standard(cell.axes, other=o)[0] for o in (False, True))
    kept = {t.name for t in cell.tables() if t.attribute}
    return Blocks(
        usual.block if "block_shape" in kept else other.block,
        other.begins,
        other.ends,
    )


def _block_shape(cell: Cell, rng: Rng, blocks: Blocks) -> tuple[int, ...]:
    row = cell.row
    assert isinstance(row, BlockRow)
    recorded_shape, _ = cell.shapes()
    batch = int(rng.integers(1, 4))
    if cell.form == "subgraph_scan":
        rows = batch if row.forward else batch * prod(blocks.block)
        return (rows, *recorded_shape[1:])
    if cell.form in _FIXED:
        return recorded_shape
    channels = int(rng.integers(1, 4))
    axes = zip(blocks.block, blocks.begins, blocks.ends, strict=True)
    most = 4 if len(blocks.block) < 3 else 2
    least = [(begin + end) // b + 1 for b, begin, end in axes]
    cells = [low + int(rng.integers(most)) for low in least]
    if cell.form == "computed":  # any size is legal: the rest is filled up, or cropped
        sizes = [int(d) for d in rng.integers(1, 6, cell.axes)]
        if row.forward:
            free = Blocks((1,) * cell.axes, (0,) * cell.axes, (0,) * cell.axes)
            return row.shape(cell.form, free, batch, sizes, channels)
        cells = sizes
    return row.shape(cell.form, blocks, batch, cells, channels)


def _patch_shape(cell: Cell, rng: Rng) -> tuple[int, ...]:
    row, (shape, _) = cell.row, cell.shapes()
    assert not isinstance(row, BlockRow)
    if cell.form == "subgraph_scan":
        return (int(rng.integers(1, 4)), *shape[1:])
    if cell.form in _FIXED:
        return shape
    windows = row.windows(cell.axes, cell.form)
    valid = row.kind(cell.axes, cell.form).lower() == "valid"
    least = windows.spans() if valid else (1,) * cell.axes
    sizes = [low + int(rng.integers(7)) for low in least]
    batch, channels = (int(d) for d in rng.integers(1, 4, 2))
    return cell.patch_shapes(batch, *row.legal(sizes, channels))[0]


#: Forms whose sizes are all said in the model.
_FIXED = frozenset({*STATIC, "subgraph_loop", "function", "quantised_integers"})
