"""Define files that are not models, inconsistent models, and models that no runtime loads."""

from __future__ import annotations

from onnx import TensorProto

from broken_models.case import BLOCK, MODEL, Case, files, parsed, serialized

GOOD = f"""net (float[2,4,6,3] x) => (float[?,?,?,?] y) <{BLOCK}> {{
    [s2b] y = TF.SpaceToBatchND(x, block, amounts)
}}"""
SCALED = f"""net (float[2,4,6,3] x) => (float[?,?,?,?] y)
<{BLOCK}, float[1,1,1,3] factor = {{1, 2, 3}}> {{
    [scale] z = Mul(x, factor)
    [s2b] y = TF.SpaceToBatchND(z, block, amounts)
}}"""


def _with_external(location: str, **held: bytes) -> dict[str, bytes]:
    """Store the weight `factor`, 12 bytes, in another file."""
    model = parsed(SCALED)
    (factor,) = (t for t in model.graph.initializer if t.name == "factor")
    for field in ("raw_data", "float_data"):
        factor.ClearField(field)
    factor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", "12")):
        factor.external_data.add(key=key, value=value)
    return {MODEL: serialized(model), **{f"{name}.bin": data for name, data in held.items()}}


def _short_tensor() -> dict[str, bytes]:
    model = parsed(GOOD)
    (block,) = (t for t in model.graph.initializer if t.name == "block")
    block.ClearField("int32_data")
    block.raw_data = b"\2\0\0\0"
    return {MODEL: serialized(model)}


def _changed(**fields: int) -> dict[str, bytes]:
    model = parsed("net (float[2,4] x) => (float[2,4] y) { [act] y = Relu(x) }")
    model.ir_version = fields.get("ir_version", model.ir_version)
    model.opset_import[0].version = fields.get("opset", model.opset_import[0].version)
    return {MODEL: serialized(model)}


def _unreadable(wrong: str, *says: str, made: dict[str, bytes] | bytes) -> Case:
    return Case(wrong, "unreadable", says, {MODEL: made} if isinstance(made, bytes) else made)


def _flow(body: str) -> dict[str, bytes]:
    return files(f"net (float[2,4,6,3] x) => (float[?,?,?,?] y) <{BLOCK}> {{ {body} }}")


UNREADABLE = {
    "empty_file": _unreadable(
        "a file without a byte", "is not an ONNX model: it is empty", made=b""
    ),
    "truncated": _unreadable(
        "a model whose download broke off",
        *("is not an ONNX model, or was cut off", "bytes"),
        made=serialized(parsed(GOOD))[:-20],
    ),
    "git_lfs_pointer": _unreadable(
        "the pointer that git leaves where Git LFS is not installed",
        *("pointer of Git LFS", "git lfs pull"),
        made=b"version https://git-lfs.github.com/spec/v1\n"
        b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n",
    ),
    "external_missing": _unreadable(
        "weights in a file that was not copied along",
        *("'weights.bin'", "missing", "'factor'", "put it beside the model"),
        made=_with_external("weights.bin"),
    ),
    "external_too_short": _unreadable(
        "weights in a file that was cut off",
        *("'factor'", "needs 12 bytes", "'weights.bin'", "only 8"),
        made=_with_external("weights.bin", weights=bytes(8)),
    ),
    "external_outside": _unreadable(
        "weights in a file outside the model's folder",
        *("'factor'", "'../weights.bin'", "leaves the model's folder"),
        made=_with_external("../weights.bin"),
    ),
    "cycle": _unreadable(
        "two nodes that read each other's outputs",
        "'s2b' in main graph is part of a cycle: s2b, back",
        made=_flow("[s2b] y = TF.SpaceToBatchND(w, block, amounts) [back] w = Neg(y)"),
    ),
    "given_twice": _unreadable(
        "two nodes with an output of one name",
        *("'y' in main graph has two producers", "'s2b'", "'again'"),
        made=_flow("[s2b] y = TF.SpaceToBatchND(x, block, amounts) [again] y = Neg(x)"),
    ),
    "given_by_nothing": _unreadable(
        "a node that reads a value without a producer",
        *("'s2b'", "main graph", "'w'", "which no node, input or initializer produces"),
        made=_flow("[s2b] y = TF.SpaceToBatchND(w, block, amounts)"),
    ),
}

DO_NOT_RUN = {
    "block_cut_off": Case(
        "the tensor of the block shape holds one number of two",
        "conversion",
        ("'s2b'", "'block'", "int32[2]"),
        _short_tensor(),
    ),
    "weights_do_not_fit": Case(
        "a MatMul whose weights do not fit its data, and nothing to convert",
        "does-not-run",
        ("onnxruntime does not load it", "Node (dense)", "MatMul"),
        files(
            "net (float[2,4] x) => (float[2,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}> "
            "{ [dense] y = MatMul(x, w) }"
        ),
    ),
    "ir_version_unknown": Case(
        "an IR version of the future",
        "does-not-run",
        ("Unsupported model IR version: 99",),
        _changed(ir_version=99),
    ),
    "opset_unknown": Case(
        "an opset of the future", "does-not-run", ("Opset 999",), _changed(opset=999)
    ),
    "conv_pads_twice": Case(
        "a dilated Conv with both auto_pad and pads; without --strict it does not run",
        "conversion",
        ("'dilated' in main graph", "both auto_pad and pads", "contradict"),
        files(
            "net (float[1,1,8,8] x) => (float[?,?,?,?] y) <float[1,1,2,2] w = {1, 2, 3, 4}> "
            '{ [dilated] y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 2], '
            "pads = [1, 1, 1, 1]> (x, w) }"
        ),
        convert=0,
        inspect=0,
    ),
}

CASES = {**UNREADABLE, **DO_NOT_RUN}
