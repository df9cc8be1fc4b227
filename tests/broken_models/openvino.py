"""Define nodes that break a rule, in OpenVINO's spellings and in that of mode custom-op."""

from __future__ import annotations

from broken_models.case import Case, one_node

PLANES = "float[4,3,4,6]"


def _rule(wrong: str, *says: str, call: str, x: str = PLANES, constants: str = "") -> Case:
    return Case(wrong, "conversion", ("'broken'", *says), one_node(call, x, constants))


def _blocks(wrong: str, *says: str, op_type: str, x: str = PLANES, **changed: list[int]) -> Case:
    given = {"block": [1, 1, 2, 2], "begins": [0] * 4, "ends": [0] * 4, **changed}
    constants = ", ".join(
        f"int64[{len(values)}] {name} = {{{', '.join(map(str, values))}}}"
        for name, values in given.items()
    )
    return _rule(
        wrong, *says, call=f"OV.{op_type}(x, block, begins, ends)", x=x, constants=constants
    )


def _patches(wrong: str, *says: str, **changed: str) -> Case:
    attributes = {"sizes": "[2, 2]", "strides": "[1, 1]", "rates": "[1, 1]"}
    attributes = {**attributes, "auto_pad": '"valid"', **changed}
    listed = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    return _rule(wrong, *says, call=f"OV.ExtractImagePatches <{listed}> (x)")


CASES = {
    "pads_of_batch": _blocks(
        "OpenVINO's SpaceToBatch: the batch is padded",
        *("pads_begin[0] is 1", "batch", "must be 0"),
        op_type="SpaceToBatch",
        begins=[1, 0, 0, 0],
    ),
    "pads_negative": _blocks(
        "OpenVINO's SpaceToBatch: a padding is negative",
        *("pads_begin[2] is -1", "not be negative"),
        op_type="SpaceToBatch",
        begins=[0, 0, -1, 0],
    ),
    "block_of_batch": _blocks(
        "OpenVINO's SpaceToBatch: the batch is cut into blocks",
        *("block_shape[0] is 2", "batch", "must be 1"),
        op_type="SpaceToBatch",
        block=[2, 1, 2, 2],
    ),
    "pads_end_too_short": _blocks(
        "OpenVINO's SpaceToBatch: pads_end has an entry less than the others",
        *("pads_end has 3 entries", "4"),
        op_type="SpaceToBatch",
        ends=[0, 0, 0],
    ),
    "block_without_batch": _blocks(
        "OpenVINO's BatchToSpace: parameters without the entry of the batch",
        *("block_shape has 3 entries", "rank 4", "[4, 3, 4, 6]"),
        op_type="BatchToSpace",
        **{name: [1, 2, 2] if name == "block" else [0] * 3 for name in ("block", "begins", "ends")},
    ),
    "crops_of_batch": _blocks(
        "OpenVINO's BatchToSpace: the batch is cropped",
        *("crops_end[0] is 1", "batch", "must be 0"),
        op_type="BatchToSpace",
        ends=[1, 0, 0, 0],
    ),
    "crops_exceed": _blocks(
        "OpenVINO's BatchToSpace: more is cropped than there is",
        *("axis 3", "7 + 6", "6 * 2 = 12"),
        op_type="BatchToSpace",
        begins=[0, 0, 0, 7],
        ends=[0, 0, 0, 6],
    ),
    "auto_pad_explicit": _patches(
        "OpenVINO's ExtractImagePatches: an auto_pad that it has not",
        *("auto_pad must be valid, same_upper or same_lower", "'explicit'"),
        auto_pad='"explicit"',
    ),
    "size_zero": _patches(
        "OpenVINO's ExtractImagePatches: a window of no elements",
        *("sizes[1] is 0", "at least 1"),
        sizes="[2, 0]",
    ),
    "prepared_parameters": _rule(
        "the form of mode custom-op: its parameters are no JSON object",
        *("attribute parameters", "ExtractPatches"),
        call='OURS.ExtractPatches <site = "patches", parameters = "kernel=2,2"> (x)',
    ),
}
