"""Every operator in every spelling: the numbers that a node is about, and how a file writes them.

    row.spelled(numbers, ..)  ->  Call: the shape of the data, parameters, attributes

`grid` spells numbers that are written down, `graphs` those that are drawn.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from building import OPENVINO, TF
from vocabulary import PYTHON_DOMAIN

IMAGE, VOLUME, REORG = "ExtractImagePatches", "ExtractVolumePatches", "ReorgYolo"


@dataclass(frozen=True)
class Blocks:
    """Blocks, and how many of them there are along each axis, the amounts included.

    Attributes:
        block, begins, ends, cells: one number for each blocked axis.
        rest: sizes of the axes that are not blocked.
        batch: of the image.
    """

    block: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    cells: tuple[int, ...]
    rest: tuple[int, ...]
    batch: int = 2

    @property
    def image(self) -> tuple[int, ...]:
        """Sizes of the image along the blocked axes, without the amounts."""
        axes = zip(self.cells, self.block, self.begins, self.ends, strict=True)
        return tuple(c * b - begin - end for c, b, begin, end in axes)


@dataclass(frozen=True)
class Windows:
    """Windows on an image; of ReorgYolo the kernel is the stride."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    rates: tuple[int, ...]
    sizes: tuple[int, ...]
    channels: int
    padding: str
    batch: int = 2


@dataclass(frozen=True)
class Call:
    """Shape of the data, parameters by their names, and attributes of a node."""

    shape: tuple[int, ...]
    parameters: dict[str, np.ndarray]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One spelling of an operator.

    Attributes:
        name: of the row.
        operator: the operator that the node is.
        op_type: of the node.
        dialect: who defines this spelling, as `inspect` calls it.
        style: "size" (a block_size), "nd" (a table of pairs), "axes" (an entry for each axis),
            "prepared" (this project's), "tf" or "openvino" (patches).
        domains, types: of the node and of its parameters, taken in turn.
        padding: of patches, or "" if it varies.
        attributes: whether parameters are attributes, as far as the form allows.
        dims: numbers of axes that are blocked or have windows.
        channels, in_list: of ReorgYolo.
    """

    name: str
    operator: str
    op_type: str
    dialect: str
    style: str
    domains: tuple[str, ...]
    types: tuple[str, ...] = ("int64",)
    padding: str = ""
    attributes: bool = False
    dims: tuple[int, ...] = (2, 1, 3)
    channels: int = 8
    in_list: bool = False

    @property
    def is_block(self) -> bool:
        """Whether it is SpaceToBatch or BatchToSpace, which have parameters."""
        return self.operator in ("SpaceToBatch", "BatchToSpace")

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters."""
        forward = self.operator == "SpaceToBatch"
        amounts = ["paddings" if forward else "crops"]
        if self.style == "axes":
            amounts = [f"{'pads' if forward else 'crops'}_{end}" for end in ("begin", "end")]
        return amounts if self.style == "size" else ["block_shape", *amounts]

    def blocks(
        self,
        given: Blocks,
        types: Iterable[str],
        *,
        front: int,
        fixed: Collection[str] = (),
        image: tuple[int, ...] = (),
    ) -> Call:
        """Spell blocks.

        Args:
            given: what is spelled.
            types: of the parameters.
            front: axes with an entry of their own: none, the batch, or the batch and the rest.
            fixed: parameters that are attributes.
            image: sizes of the image, where the amounts follow from them.
        """
        forward = self.operator == "SpaceToBatch"
        values = [
            np.array((neutral,) * front + numbers, np.int64)
            for neutral, numbers in ((1, given.block), (0, given.begins), (0, given.ends))
        ]
        tables = values[1:] if self.style == "axes" else [np.stack(values[1:], axis=1)]
        tables = tables if self.style == "size" else [values[0], *tables]
        attributes: dict[str, Any] = {"block_size": given.block[0]} if self.style == "size" else {}
        if self.style == "prepared":
            attributes = {"site": "a cell of the grid", "batch_entry": int(front > 0)}
        parameters = {}
        for name, table, dtype in zip(self.parameters, tables, types, strict=False):
            if name in fixed:
                attributes[name] = table.reshape(-1).tolist()
            else:
                parameters[name] = table.astype(dtype)
        batch = given.batch if forward else given.batch * prod(given.block)
        sizes = (image or given.image) if forward else given.cells
        axes = (*given.rest, *sizes) if front == 2 else (*sizes, *given.rest)
        return Call((batch, *axes), parameters, attributes)

    def windows(self, given: Windows, *, first: bool) -> Call:
        """Spell windows on an image whose channels come first, or last."""
        attributes: dict[str, Any]
        if self.operator == REORG:
            (stride, *_), first = given.kernel, True
            attributes = fields = {"stride": [stride] if self.in_list else stride}
        elif self.style == "tf":
            named = {"ksizes": given.kernel, "strides": given.strides, "rates": given.rates}
            attributes = {name: [1, *values, 1] for name, values in named.items()}
            attributes["padding"] = given.padding
            if self.operator == VOLUME:
                del attributes["rates"]
        else:
            attributes = {"sizes": given.kernel, "strides": given.strides, "rates": given.rates}
            attributes["auto_pad"] = given.padding
            fields = {**attributes, "clamp_negative": False, "kernel": attributes["sizes"]}
            fields["layout"] = "channels_first" if first else "channels_last"
            del fields["sizes"]
        if self.style == "prepared":
            attributes = {"parameters": json.dumps(fields), "site": "a cell of the grid"}
        sizes = (given.channels, *given.sizes) if first else (*given.sizes, given.channels)
        return Call((given.batch, *sizes), {}, attributes)


_ANY = (TF, "ai.onnx.contrib", "", "com.microsoft", "onnx_spatial", "ai.onnx")
_OV = (OPENVINO, "com.microsoft", OPENVINO, "", "onnx_spatial")
_INT = ("int32", "int32", "int64", "int64")  # in pairs: TensorFlow's have two of them at most
_INTEGERS = ("int64", "int32", "uint8", "int16", "uint64", "int8", "uint32", "uint16")
_PLAIN, _ND = ("SpaceToBatch", "BatchToSpace"), ("SpaceToBatchND", "BatchToSpaceND")
_LEFTOVER = ("SpaceToDepth", "DepthToSpace")
_BLOCK_SPELLINGS: tuple[tuple[Any, ...], ...] = (
    ("tf_{}", _PLAIN, "tensorflow-4d", "size", _ANY, _INT, ("", "_attributes")),
    ("tf_{}_nd", _ND, "tensorflow-nd", "nd", _ANY, _INT, ("", "_attributes")),
    ("tf_{}_no_suffix", _PLAIN, "tensorflow-nd", "nd", _ANY, _INT, ("",)),
    ("tf2onnx_{}", _LEFTOVER, "tensorflow-leftover", "nd", ("", "", "", "ai.onnx"), _INT, ("",)),
    ("openvino_{}", _PLAIN, "openvino", "axes", _OV, _INTEGERS, ("", "_attributes")),
    ("prepared_{}", _PLAIN, "prepared", "prepared", (PYTHON_DOMAIN,), ("int64",), ("",)),
)
_PATCH_SPELLINGS = (
    ("tf", "image", IMAGE, "tensorflow", _ANY, (2,), ("VALID", "SAME")),
    ("openvino", "image", IMAGE, "openvino", _OV, (2,), ("valid", "same_upper", "same_lower")),
    ("tf", "volume", VOLUME, "tensorflow", _ANY, (3,), ("VALID", "SAME")),
)
_OWN = ("prepared", "prepared", (PYTHON_DOMAIN,))
ROWS = (
    *(
        Row(
            *(name.format(word) + end, operator, op_type, dialect, style, domains, types),
            attributes=bool(end),
            dims=(2,) if style == "size" else (2, 1, 2, 3),
        )
        for name, op_types, dialect, style, domains, types, ends in _BLOCK_SPELLINGS
        for end in ends
        for word, operator, op_type in zip(
            ("space_to_batch", "batch_to_space"), _PLAIN, op_types, strict=True
        )
    ),
    *(
        Row(
            *(f"{style}_extract_{kind}_patches_{padding.lower()}", op_type, op_type, dialect),
            *(style, domains),
            padding=padding,
            dims=dims,
        )
        for style, kind, op_type, dialect, domains, dims, paddings in _PATCH_SPELLINGS
        for padding in paddings
    ),
    Row("prepared_extract_patches", IMAGE, "ExtractPatches", *_OWN),
    Row("openvino_reorg_yolo", REORG, REORG, "openvino", "openvino", _OV, dims=(2,)),
    Row(
        *("openvino_reorg_yolo_list", REORG, REORG, "openvino", "openvino", _OV),
        dims=(2,),
        channels=5,
        in_list=True,
    ),
    Row("prepared_reorg_yolo", REORG, REORG, *_OWN, dims=(2,)),
)


def numpy_type(name: str) -> np.dtype[Any]:
    """Return the type of arrays by the name of an element type."""
    return np.dtype({"bfloat16": ml_dtypes.bfloat16, "string": object}.get(name, name))
