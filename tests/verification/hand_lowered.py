"""Small models in ONNX text, and what stands for their spatial nodes, written by hand."""

import numpy as np
import onnx
from parsing import model

from onnx_spatial.model import traversal


def space_to_batch(shape: str = "N,5,6,3") -> onnx.ModelProto:
    """SpaceToBatchND with blocks 2, 3 and pads 1 2, 0 3 between nothing."""
    return model(f"""
        g (float[{shape}] x) => (float[P,Q,R,S] y)
          <int32[2] block = {{2, 3}}, int32[2,2] pads = {{1, 2, 0, 3}}>
        {{ [site] y = tf.SpaceToBatchND(x, block, pads) }}
    """)


def space_to_batch_lowered(
    shape: str = "N,5,6,3", *, perm: str = "2, 4, 0, 1, 3, 5", split: str = "-1, 4, 2, 3, 3, 3"
) -> onnx.ModelProto:
    """Pad, Reshape, Transpose, Reshape; right unless told otherwise."""
    return model(f"""
        g (float[{shape}] x) => (float[P,Q,R,S] y)
          <int64[8] pads = {{0, 1, 0, 0, 0, 2, 3, 0}}, int64[6] split = {{{split}}},
           int64[4] merged = {{-1, 4, 3, 3}}>
        {{
            padded = Pad(x, pads)
            cells = Reshape(padded, split)
            moved = Transpose<perm = [{perm}]>(cells)
            y = Reshape(moved, merged)
        }}
    """)


def batch_to_space() -> onnx.ModelProto:
    """BatchToSpaceND with blocks 2, 3 and crops 1 2, 0 3."""
    return model("""
        g (float[N,4,3,3] x) => (float[P,Q,R,S] y)
          <int32[2] block = {2, 3}, int32[2,2] crops = {1, 2, 0, 3}>
        { [site] y = tf.BatchToSpaceND(x, block, crops) }
    """)


def batch_to_space_lowered(starts: str = "1, 0", ends: str = "-2, -3") -> onnx.ModelProto:
    """Reshape, Transpose, Reshape, Slice; right unless told otherwise."""
    return model(f"""
        g (float[N,4,3,3] x) => (float[P,Q,R,S] y)
          <int64[6] split = {{2, 3, -1, 4, 3, 3}}, int64[4] merged = {{-1, 8, 9, 3}},
           int64[2] starts = {{{starts}}}, int64[2] ends = {{{ends}}}, int64[2] axes = {{1, 2}}>
        {{
            cells = Reshape(x, split)
            moved = Transpose<perm = [2, 3, 0, 4, 1, 5]>(cells)
            whole = Reshape(moved, merged)
            y = Slice(whole, starts, ends, axes)
        }}
    """)


def dilated() -> onnx.ModelProto:
    """SpaceToBatchND, Conv, BatchToSpaceND between two Negs; blocks of 2, 3 show swapped axes."""
    made = model("""
        g (float[N,H,W,3] x) => (float[A,B,C,D] z)
          <int32[2] block = {2, 3}, int32[2,2] pads = {2, 3, 1, 2}, int32[2,2] crops = {1, 0, 0, 2}>
        {
            u = Neg(x)
            [in] s = tf.SpaceToBatchND(u, block, pads)
            t = Transpose<perm = [0, 3, 1, 2]>(s)
            [conv] c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(t, w, b)
            r = Transpose<perm = [0, 2, 3, 1]>(c)
            [out] y = tf.BatchToSpaceND(r, block, crops)
            z = Neg(y)
        }""")
    rng = np.random.default_rng(5)
    for name, shape in (("w", (4, 3, 3, 3)), ("b", (4,))):
        array = rng.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def with_wrong_transpose(converted: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose first Transpose that moves block offsets exchanges two axes, wherever it is."""
    wrong = onnx.ModelProto.FromString(converted.SerializeToString())
    perms = (
        attribute.ints
        for _, _, node in traversal.nodes(wrong)
        for attribute in node.attribute
        if node.op_type == "Transpose" and len(attribute.ints) > 4
    )
    perm = next(perms)
    perm[0], perm[1] = perm[1], perm[0]
    return wrong
