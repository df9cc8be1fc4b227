"""Results and data without elements before opset 14, where no Reshape can say a size of 0."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import sampling
from adapter import convert
from building import OPENVINO
from sampling import Form, Sample
from vocabulary import LOWERINGS

import onnx_spatial

NAMES = list(LOWERINGS)
OPSETS = (11, 12, 13)


def forms(sample: Sample) -> list[Form]:
    """All, none and every second of the sizes known, parameters known and not."""
    shape = sample.inputs[0].shape
    names = tuple(f"d{i}" for i in range(len(shape)))
    mixed = [
        tuple(n if i % 2 == odd else d for i, (d, n) in enumerate(zip(shape, names, strict=True)))
        for odd in (0, 1)
    ]
    parameters = frozenset(range(1, len(sample.inputs)))
    left = [*((known, frozenset[int]()) for known in (shape, *mixed, names)), (None, parameters)]
    return [Form(known, run_time, opset, 8, None) for known, run_time in left for opset in (11, 13)]


def cropped(axis: int) -> Sample:
    """BatchToSpace whose crops take all of one axis."""
    data = np.arange(27 * 12, dtype=np.float32).reshape(27, 3, 4, 1)
    crops = np.zeros((2, 2), np.int32)
    crops[axis, 0] = data.shape[1 + axis] * 3
    return Sample("tf4d", "BatchToSpace", sampling.TF, (data, crops), {"block_size": 3})


def beyond(axis: int) -> Sample:
    """OpenVINO's patches of a window that is larger than the image along one axis."""
    data = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    sizes, ones = [2, 2], [1, 1]
    sizes[axis] = 7
    given = {"sizes": sizes, "strides": ones, "rates": ones, "auto_pad": "valid"}
    return Sample("image-openvino", "ExtractImagePatches", OPENVINO, (data,), given)


def images(count: int, forward: bool) -> Sample:
    """A batch of none."""
    data = np.zeros((count, 4, 6, 2), np.float32)
    name = "SpaceToBatchND" if forward else "BatchToSpaceND"
    table = np.array([[1, 1], [0, 2]])
    return Sample("tfnd", name, sampling.TF, (data, np.array([2, 2]), table))


KNOWN = {
    "all rows cropped": cropped(0),
    "all columns cropped": cropped(1),
    "no window down": beyond(0),
    "no window across": beyond(1),
    "no image": images(0, True),
    "no image back": images(0, False),
}


#: Each with the strategies for its kind of operator, and the cheapest.
EACH = [
    (name, strategy)
    for name, sample in KNOWN.items()
    for strategy in (
        None,
        *(NAMES[7:] if sample.op_type == "ExtractImagePatches" else NAMES[2:9]),
    )
]


@pytest.mark.parametrize(("name", "strategy"), EACH)
def test_one_size_of_0_is_said_at_every_opset(name, strategy):
    sample = KNOWN[name]
    for form in forms(sample):
        sampling.check(sample, form, convert(form.model(sample), prefer=strategy))


@pytest.mark.parametrize("opset", OPSETS)
def test_random_ones(opset):
    """Two sizes of 0 at once, which only the run knows, may be refused in it."""
    for seed in range(60):
        rng = Random(f"empty {opset} {seed}")
        sample = sampling.SPELLINGS[rng.choice(list(sampling.SPELLINGS))](rng)
        data, *parameters = sample.inputs
        zeros = max(data.shape.count(0), sample.expected.shape.count(0))
        if zeros != 1 or (data.dtype.name == "bfloat16" and opset < 13):
            continue
        shape = tuple(rng.choice((d, f"d{i}")) for i, d in enumerate(data.shape))
        run_time = frozenset(i + 1 for i in range(len(parameters)) if rng.random() < 0.3)
        strategy = rng.choice((None, *NAMES))
        form = Form(rng.choice((shape, None)), run_time, opset, 8, strategy)
        sampling.check(sample, form, convert(form.model(sample), prefer=strategy))


def test_crops_of_the_run_from_an_axis_without_elements():
    """The estimated crops exceed the axis: an estimated time is no root of a negative number."""
    model = onnx.parser.parse_model("""
        <ir_version: 7, opset_import: ["" : 12, "org.openvinotoolkit" : 1]>
        g (float[a,b,c,3,0,2] x, int8[6] ends) => (float[d,e,f,g,h,i] y)
        <int8[6] block = {1, 1, 2, 4, 1, 1}, int8[6] begins = {0, 0, 1, 0, 0, 0}> {
            y = org.openvinotoolkit.BatchToSpace(x, block, begins, ends)
        }""")
    made = onnx_spatial.convert(model, verify=False).model
    x = np.zeros((8, 4, 3, 3, 0, 2), np.float32)
    feeds = {"x": x, "ends": np.array([0, 0, 1, 4, 0, 0], np.int8)}
    (y,) = ort.InferenceSession(made.SerializeToString()).run(None, feeds)
    assert y.shape == (1, 4, 4, 8, 0, 2)
