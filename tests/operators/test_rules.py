"""Every operator: worked examples, what is known of its output, rules of parameters and sizes."""

import definitions
import graphs
import ml_dtypes
import numpy as np
import pytest
import running
from building import OPENVINO, one_node
from hypothesis import given
from parsing import image, model
from vocabulary import BatchToSpace, ExtractPatches, Rearrange, ReorgYolo, SpaceToBatch

import onnx_spatial
from onnx_spatial import OperatorError

#: n c (h 2) (w 2) -> n (c 2 2) h w
UNSHUFFLE = Rearrange((-1, -1, -1, 2, -1, 2), (1, 1, 2, 2), (0, 1, 3, 5, 2, 4), (1, 3, 1, 1))


def windows(*fields: object) -> ExtractPatches:
    """Patches of a line: kernel, stride, rate and padding."""
    *numbers, padding = fields
    return ExtractPatches(*((n,) for n in numbers), padding)


def line(values: range) -> list[list[list[int]]]:
    """One image of one row and one channel, as a 1-D operator sees it."""
    return [[[v] for v in values]]


@pytest.mark.parametrize(
    ("operator", "x", "expected"),
    [
        # Offset 0 of both sequences, then offset 1 of both.
        (SpaceToBatch((2,), ((0, 0),)), [[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 3], [5, 7], [2, 4], [6, 8]]),
        (SpaceToBatch((1,), ((2, 1),)), [[1, 2, 3]], [[0, 0, 1, 2, 3, 0]]),
        (SpaceToBatch((2,), ((0, 0),)), [[[1, 2], [3, 4]]], [[[1, 2]], [[3, 4]]]),
        (BatchToSpace((2,), ((1, 2),)), [[0, 2, 4], [1, 3, 5]], [[1, 2, 3]]),
        (windows(2, 3, 1, "valid"), line(range(1, 8)), [[[1, 2], [4, 5]]]),
        (windows(3, 1, 2, "valid"), line(range(1, 7)), [[[1, 3, 5], [2, 4, 6]]]),
        (windows(2, 1, 1, "same_upper"), line(range(1, 4)), [[[1, 2], [2, 3], [3, 0]]]),
        (windows(2, 1, 1, "same_lower"), line(range(1, 4)), [[[0, 1], [1, 2], [2, 3]]]),
        # What a large stride leaves over.
        (windows(1, 5, 1, "same_upper"), line(range(10)), [[[0], [5]]]),
        (windows(1, 5, 1, "same_unclamped"), line(range(10)), [[[2], [7]]]),
        # Channels are minor and positions major in both layouts: (kh*KW + kw)*C + c.
        (ExtractPatches((2, 2), (1, 1), (1, 1), "valid"),
         np.arange(12).reshape(1, 2, 2, 3), [[[[*range(12)]]]]),
        (ExtractPatches((2, 2), (1, 1), (1, 1), "valid", "channels_first"),
         np.arange(12).reshape(1, 2, 2, 3).transpose(0, 3, 1, 2), [[[[v]] for v in range(12)]]),
        # No SpaceToDepth of its axes: all sixteen elements are one image of 4 rows, and the first
        # channel holds its even rows and columns.
        (ReorgYolo(2), np.arange(16).reshape(1, 4, 2, 2),
         [[[[v]] for v in (0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15)]]),
        (UNSHUFFLE, np.arange(8).reshape(1, 1, 2, 4), [[[[0, 2]], [[1, 3]], [[4, 6]], [[5, 7]]]]),
    ],
)  # fmt: skip
def test_examples(operator, x, expected):
    assert operator(np.array(x)).tolist() == expected


@given(rng=graphs.randoms)
def test_batch_to_space_undoes_space_to_batch(rng):
    block = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 4)))
    pads = tuple((rng.randint(0, 3), rng.randint(0, 3)) for _ in block)
    least = [-(-sum(pad) // b) for b, pad in zip(block, pads, strict=True)]
    sizes = [b * rng.randint(n, n + 3) - sum(p) for b, p, n in zip(block, pads, least, strict=True)]
    x = graphs.array(rng, "uint32", (rng.randint(0, 3), *sizes, *[2] * rng.randint(0, 2)))
    assert running.same_bits(BatchToSpace(block, pads)(SpaceToBatch(block, pads)(x)), x)


@pytest.mark.parametrize(
    ("dtype", "nothing"),
    [(object, ""), (np.bool_, False), (ml_dtypes.bfloat16, 0.0), (np.uint64, 0)],
)
def test_padding_is_the_element_types_nothing(dtype, nothing):
    x = np.ones((1, 1), dtype) if dtype is not object else np.array([["text"]], object)
    out = SpaceToBatch((2,), ((1, 0),))(x)
    assert (out.dtype, out[0, 0], out[1, 0]) == (x.dtype, nothing, x[0, 0])


PATCHES = {"kernel": (2, 2), "strides": (1, 1), "rates": (1, 1), "auto_pad": "valid"}


@pytest.mark.parametrize(
    ("kind", "fields", "rule"),
    [
        (SpaceToBatch, ((2, -1), ((0, 0),) * 2), r"block_shape\[1\] is -1; it must be at least 1"),
        (SpaceToBatch, ((2,), ((0, -2),)), r"paddings\[0\]\[1\] is -2; it must not be negative"),
        (SpaceToBatch, ((2,), ((0, 0, 0),)), r"paddings must have shape \[1, 2\]"),
        (SpaceToBatch, ((2.5,), ((0, 0),)), "block_shape must be a list of integers"),
        (SpaceToBatch, (2, ((0, 0),)), "block_shape must be a list of integers"),
        (SpaceToBatch, ((2**40,) * 2, ((0, 0),) * 2), "the product of block_shape .* overflows"),
        (ExtractPatches, {"kernel": (0, 1)}, r"kernel\[0\] is 0; it must be at least 1"),
        (ExtractPatches, {"strides": (1, 0)}, r"strides\[1\] is 0; it must be at least 1"),
        (ExtractPatches, {"rates": (-1, 1)}, r"rates\[0\] is -1; it must be at least 1"),
        (ExtractPatches, {"rates": (1,)}, "rates has 1 entries, kernel 2"),
        (ExtractPatches, {"auto_pad": "SAME"}, "unknown padding 'SAME'"),
        (ExtractPatches, {"layout": "NHWC"}, "unknown layout 'NHWC'"),
        (Rearrange, ((2,), (), (0,), (1,)), "splits is empty"),
        (Rearrange, ((2, 3), (1,), (0, 1), (2,)), r"splits \[1\] must be numbers of factors, 2 "),
        (Rearrange, ((2, 3), (2,), (0, 0), (2,)), r"order \[0, 0\] is no permutation of 2 factors"),
        (Rearrange, ((0, 3), (2,), (0, 1), (2,)), r"sizes \[0, 3\] must be at least 1"),
        (Rearrange, ((-1, -1), (2,), (0, 1), (2,)), "axis 0 has two factors of unknown size"),
        *((ReorgYolo, (stride,), "stride is") for stride in (0, -1, 2.0, "2", True, None, 2**31)),
    ],
)  # fmt: skip
def test_rules_of_the_parameters(kind, fields, rule):
    named = {**PATCHES, **fields} if isinstance(fields, dict) else {}
    with pytest.raises((OperatorError, TypeError), match=rule):
        kind(*(() if named else fields), **named)


PADDED, CROPPED = SpaceToBatch((2,), ((1, 1),)), BatchToSpace((2, 2), ((1, 2), (0, 0)))
JOINED = Rearrange((-1, 5), (1, 0, 1), (0, 1), (0, 2))


@pytest.mark.parametrize(
    ("operator", "shape", "rule"),
    [
        (PADDED, (1, 5, 4), r"axis 1: size 5 \+ paddings 1 \+ 1 = 7 is not divisible by .*, 2"),
        (PADDED, (1 << 62, 6, 1), "overflow"),
        (PADDED, (1 << 60, 6, 64), "element count .* overflows int64"),
        (CROPPED, (6, 2, 2), r"batch 6 is not divisible by 4, the product of block_shape \[2, 2\]"),
        (CROPPED, ("N", 1, 2), r"axis 1: crops 1 \+ 2 exceed the size 1 \* 2 = 2"),
        (windows(7, 1, 1, "valid"), (1, 4, 1), "window of 7 elements on size 4 .* output size -2"),
        (JOINED, (4, 2, 5), r"axis 1: size 2 is not the product of .* 1"),
        (UNSHUFFLE, (2, 3, 4), "the input must have rank 4, not"),
        (UNSHUFFLE, (2, 3, 5, 6), r"axis 2: size 5 is not divisible by .* 2"),
        (ReorgYolo(2), (2**40, 2**40, 2, 2), "overflows int64"),
    ],
)
def test_rules_of_the_shape(operator, shape, rule):
    with pytest.raises(OperatorError, match=f"{operator.name}: .*{rule}"):
        operator.output_shape(shape)


@pytest.mark.parametrize(
    ("operator", "shape", "expected"),
    [
        (SpaceToBatch((2, 3), ((1, 1), (0, 3))), (5, 4, 6, 7), (30, 3, 3, 7)),
        (SpaceToBatch((2,), ((0, 0),)), (None, "W", "C"), (None, None, "C")),
        (SpaceToBatch((1, 2), ((0, 0), (0, 0))), (1, "H", "W", 3), (2, "H", None, 3)),
        (SpaceToBatch((4,), ((4, 0),)), (0, 0, 0), (0, 1, 0)),
        (BatchToSpace((2, 3), ((1, 1), (0, 3))), (30, 3, 3, 7), (5, 4, 6, 7)),
        (BatchToSpace((2,), ((0, 0),)), ("N", 4, "C"), (None, 8, "C")),
        (windows(3, 2, 1, "same_upper"), ("N", 7, 2), ("N", 4, 6)),
        (windows(3, 1, 1, "same_upper"), (1, "W", "C"), (1, "W", None)),
        (windows(3, 2, 1, "same_upper"), (1, "W", 2), (1, None, 6)),
        (windows(1, 1, 9, "valid"), (1, "W", "C"), (1, "W", "C")),
        (ExtractPatches((7,), (1,), (1,), "valid", clamp_negative=True), (1, 4, 2), (1, 0, 14)),
        (UNSHUFFLE, ("N", 3, "H", 6), ("N", 12, None, 3)),
        (UNSHUFFLE, (None, "C", 4, 6), (None, None, 2, 3)),
        (JOINED, (4, 1, 5), (1, 20)),
        (ReorgYolo(2), ("N", None, 6, "W"), ("N", None, 3, None)),
        (ReorgYolo(1), ("N", None, 6, "W"), ("N", None, 6, "W")),
    ],
)
def test_output_shape(operator, shape, expected):
    assert operator.output_shape(shape) == expected


def test_a_rearrangement_that_moves_no_more_than_a_1_is_the_identity():
    assert Rearrange((-1, 2, 1), (2, 1), (0, 1, 2), (2, 1)).is_identity
    assert Rearrange((-1, 1, 5), (2, 1), (1, 0, 2), (2, 1)).is_identity  # a 1 moves
    assert not Rearrange((-1, 2), (1, 1), (0, 1), (2,)).is_identity
    assert not Rearrange((2, 2), (1, 1), (1, 0), (1, 1)).is_identity


# ReorgYolo in models


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_reorg_yolo_is_converted_and_verified_in_subgraphs_and_functions(mode):
    made = model(f"""g (float[N, 5, 4, 4] x, bool[1] turn) => (float[a, b, c, d] y) {{
            f = local.Reorg <s = 2> (x)
            y = If (turn) <
                then_branch = g1 () => (float[?, ?, ?, ?] p) {{
                    q = local.Reorg <s = 2> (x) p = Neg (q) }},
                else_branch = g2 () => (float[?, ?, ?, ?] r) {{
                    v = {OPENVINO}.ReorgYolo <stride = 2> (x) r = Add (v, f) }}> }}
        <domain: "local", opset_import: ["" : 17, "{OPENVINO}" : 1]>
        Reorg <s> (u) => (w) {{ w = {OPENVINO}.ReorgYolo <stride : int = @s> (u) }}""")
    done = onnx_spatial.convert(made, mode=mode)
    assert done.verification.status == "passed"
    x = image(3, 5, 4, 4)
    session = onnx_spatial.InferenceSession(done.model.SerializeToString())
    for turn, factor in ((True, -1), (False, 2)):
        (y,) = session.run(None, {"x": x, "turn": np.array([turn])})
        assert np.array_equal(y, factor * definitions.reorg_yolo(x, 2))


@pytest.mark.parametrize("opset", [7, 21])
@pytest.mark.parametrize("shape", [(1, 3, 4, 4), (1, 4, 3, 4), (2, 5, 3, 6), (1, 0, 2, 2)])
def test_runs_that_break_a_rule_of_reorg_yolo_fail(shape, opset):
    declared = (1, shape[1], "H", "W") if shape[1] == 4 else ("N", "C", "H", "W")
    legal = one_node(
        "ReorgYolo", (image(1, 4, 4, 4),), domain=OPENVINO, shape=declared, stride=2,
        opset=max(opset, 9 if "C" in declared else 7),
    )  # fmt: skip
    converted = onnx_spatial.convert(legal, verify=False).model
    opened = running.session(converted, running.LEVELS[0])
    with pytest.raises(Exception, match=r"Reshape|Gather"):
        running.run_session(opened, {"x": image(*shape)})
