"""The reference that fusion is measured by: right by other references, and tight."""

from __future__ import annotations

from random import Random

import definitions
import interpreter
import numpy as np
import pytest
import reference
import regions
from known import given

RNG = np.random.default_rng(0)


def conv(x: np.ndarray, w: np.ndarray, **attributes: object) -> np.ndarray:
    (found,) = interpreter.evaluate("Conv", [given(x), given(w)], attributes)
    return found.value


@pytest.mark.parametrize("case", range(40))
def test_the_definitions_obey_the_rule(case):
    """SpaceToBatch(D, P) -> Conv(d, p) -> BatchToSpace(D, Q) is Conv(D * d, P - Q + D * p)."""
    rng = Random(case)
    axes = range(rng.randint(1, 2))
    block = [rng.randint(1, 3) for _ in axes]
    cells = [rng.randint(4, 6) for _ in axes]
    pads = [(rng.randint(0, 3), rng.randint(0, 3)) for _ in axes]
    size = [c * b - sum(p) for c, b, p in zip(cells, block, pads, strict=True)]
    crops = [(rng.randint(0, 2), rng.randint(0, 2)) for _ in axes]
    kernel, dilation = [rng.randint(1, 2) for _ in axes], [rng.randint(1, 2) for _ in axes]
    own = [(rng.randint(0, 2), rng.randint(0, 2)) for _ in axes]
    x = RNG.uniform(-1, 1, (2, *size, 3))
    w = RNG.uniform(-1, 1, (2, 3, *kernel))

    blocks = definitions.space_to_batch(x, block, pads)
    among = conv(
        np.moveaxis(blocks, -1, 1), w, dilations=dilation, pads=[*np.array(own).T.reshape(-1)]
    )
    expected = definitions.batch_to_space(np.moveaxis(among, 1, -1), block, crops)

    net = np.array(pads) - np.array(crops) + np.array(block)[:, None] * np.array(own)
    grown = np.pad(x, [(0, 0), *np.maximum(net, 0), (0, 0)])
    cut = [
        slice(max(0, -low), n - max(0, -high))
        for n, (low, high) in zip(grown.shape[1:-1], net, strict=True)
    ]
    image = np.moveaxis(grown[(slice(None), *cut)], -1, 1)
    found = conv(image, w, dilations=[b * d for b, d in zip(block, dilation, strict=True)])
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("number", range(8))
def test_a_model_is_evaluated_as_its_values_were_when_it_was_written(number):
    case = regions.build(1, number)
    known = interpreter.run(case.model, case.feeds)
    for name, wanted in case.expected.items():
        np.testing.assert_array_equal(known[name].value, wanted.value)


@pytest.mark.parametrize("kind", [k for k in regions.KINDS if k not in ("quantized", "cast")])
def test_the_slack_is_a_few_roundings(kind):
    """Of 30 cases, nearly all elements are held to a ten-thousandth of the largest."""
    told = []
    for number in range(30):
        for wanted in regions.build(2, number, kind).expected.values():
            if wanted.slack is not None and wanted.value.size:
                told.append((wanted.slack / max(1e-3, np.abs(wanted.value).max())).reshape(-1))
    slack = np.concatenate(told)
    assert np.median(slack) < 1e-5
    assert np.mean(slack < 1e-4) > 0.9


def test_a_result_that_is_off_is_told():
    wanted = given(np.array([1.0, 2.0, 3.0], np.float32))
    right = wanted.value.astype(np.float32)
    assert interpreter.difference(right, wanted) is None
    assert "shape (1, 3), not (3,)" in str(interpreter.difference(right[None], wanted))
    assert "1 of 3 elements differ" in str(
        interpreter.difference(np.nextafter(right, [0, 2, 3], dtype=np.float32), wanted)
    )
    assert interpreter.difference(np.full(3, np.nan, np.float32), wanted) is not None
    assert interpreter.difference(np.array([1, 2, 4]), given(np.array([1, 2, 3]))) is not None


@pytest.mark.parametrize("kind", regions.KINDS)
def test_onnx_evaluates_the_same(kind):
    """onnx's own evaluator is a third opinion on every operator."""
    for number in range(4):
        case = regions.build(3, number, kind)
        quantized = any(node.op_type == "DequantizeLinear" for node in case.model.graph.node)
        if quantized and case.model.opset_import[0].version < 19:
            continue  # the evaluator begins there
        results = reference.run(case.model, case.feeds)
        for (name, wanted), result in zip(case.expected.items(), results, strict=True):
            assert interpreter.difference(np.asarray(result), wanted) is None, name
