"""Define the rows of the grid: every operator in every spelling."""

from __future__ import annotations

from grid.blocks import BlockRow
from grid.reorganised import ReorgRow
from grid.windows import PatchRow

Row = BlockRow | PatchRow

TF = "ai.onnx.converters.tensorflow"
OPENVINO = "org.openvinotoolkit"
PREPARED = "onnx_spatial.ops"
#: Domains that the cells of a row take in turn.
_ANY = (TF, "ai.onnx.contrib", "", "com.microsoft", "onnx_spatial", "ai.onnx")
_OPENVINO = (OPENVINO, "com.microsoft", OPENVINO, "", "onnx_spatial")
_DEFAULT = ("", "", "", "ai.onnx")

#: Types of parameters. In pairs: an operator of TensorFlow has two of them at most.
_INT = ("int32", "int32", "int64", "int64")
_INTEGERS = ("int64", "int32", "uint8", "int16", "uint64", "int8", "uint32", "uint16")


def _both(
    name: str,
    about: str,
    op_types: tuple[str, str],
    style: str,
    dialect: str,
    domains: tuple[str, ...] = _ANY,
    types: tuple[str, ...] = _INT,
    *,
    attributes: bool = False,
) -> tuple[Row, Row]:
    """Return a spelling of SpaceToBatch and of BatchToSpace; {} in the name is the operator's."""
    forward, backward = (
        BlockRow(
            name.format(operator), about, op_type, operator == "space_to_batch", style, dialect,
            domains, types, attributes,
        )
        for operator, op_type in zip(("space_to_batch", "batch_to_space"), op_types, strict=True)
    )  # fmt: skip
    return forward, backward


_PLAIN = ("SpaceToBatch", "BatchToSpace")
_ND = ("SpaceToBatchND", "BatchToSpaceND")
_DEPTH = ("SpaceToDepth", "DepthToSpace")
_TF_4D = "TensorFlow's first operators: an attribute block_size, four dims"
_TF_ND = "TensorFlow's: block_shape and a table of pairs"
_TF_IMAGE = "TensorFlow's: channels last, ksizes and padding"
_OV_BLOCKS = "OpenVINO's: begins and ends, with an entry for each axis"
_OV_IMAGE = "OpenVINO's: channels first, sizes and auto_pad"
_AS_ATTRIBUTES = "; parameters are INTS attributes as far as the form allows"

ROWS: tuple[Row, ...] = (
    *_both("tf_{}", _TF_4D, _PLAIN, "size", "tensorflow-4d"),
    *_both(
        "tf_{}_attributes", _TF_4D + _AS_ATTRIBUTES, _PLAIN, "size", "tensorflow-4d",
        attributes=True,
    ),
    *_both("tf_{}_nd", _TF_ND, _ND, "nd", "tensorflow-nd"),
    *_both(
        "tf_{}_nd_attributes", _TF_ND + _AS_ATTRIBUTES, _ND, "nd", "tensorflow-nd",
        attributes=True,
    ),
    *_both("tf_{}_no_suffix", f"{_TF_ND}, without the suffix ND", _PLAIN, "nd", "tensorflow-nd"),
    *_both(
        "tf2onnx_{}", f"{_TF_ND}, renamed by tf2onnx and left so", _DEPTH, "nd", "tensorflow-leftover",
        _DEFAULT,
    ),
    *_both("openvino_{}", _OV_BLOCKS, _PLAIN, "axes", "openvino", _OPENVINO, _INTEGERS),
    *_both(
        "openvino_{}_attributes", _OV_BLOCKS + _AS_ATTRIBUTES, _PLAIN, "axes", "openvino", _OPENVINO,
        _INTEGERS, attributes=True,
    ),
    *_both(
        "prepared_{}", "this project's, for Python operators", _PLAIN, "prepared", "prepared",
        (PREPARED,), ("int64",),
    ),
    *(
        PatchRow(
            f"tf_extract_image_patches_{padding.lower()}", f"{_TF_IMAGE} {padding}",
            "ExtractImagePatches", "ExtractImagePatches", padding, "tf", "tensorflow", (2,), _ANY,
        )
        for padding in ("VALID", "SAME")
    ),
    *(
        PatchRow(
            f"openvino_extract_image_patches_{padding}", f"{_OV_IMAGE} {padding}",
            "ExtractImagePatches", "ExtractImagePatches", padding, "openvino", "openvino", (2,),
            _OPENVINO,
        )
        for padding in ("valid", "same_upper", "same_lower")
    ),
    *(
        PatchRow(
            f"tf_extract_volume_patches_{padding.lower()}", f"{_TF_IMAGE} {padding}",
            "ExtractVolumePatches", "ExtractVolumePatches", padding, "tf", "tensorflow", (3,), _ANY,
        )
        for padding in ("VALID", "SAME")
    ),
    PatchRow(
        "prepared_extract_patches",
        "this project's, for Python operators: parameters are a JSON object, every padding and layout",
        "ExtractPatches", "ExtractImagePatches", "", "prepared", "prepared", (2, 1, 3), (PREPARED,),
    ),
    ReorgRow(
        "openvino_reorg_yolo", "OpenVINO's: channels first, stride is an integer",
        "ReorgYolo", "ReorgYolo", "valid", "openvino", "openvino", (2,), _OPENVINO,
    ),
    ReorgRow(
        "openvino_reorg_yolo_list", "OpenVINO's: stride is a list, and cells leave a channel over",
        "ReorgYolo", "ReorgYolo", "valid", "openvino", "openvino", (2,), _OPENVINO,
        channels=5, in_list=True,
    ),
    ReorgRow(
        "prepared_reorg_yolo", "this project's, for Python operators: the stride is in a JSON object",
        "ReorgYolo", "ReorgYolo", "valid", "prepared", "prepared", (2,), (PREPARED,),
    ),
)  # fmt: skip
