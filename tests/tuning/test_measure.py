"""Figures of lowerings and of whole models."""

from __future__ import annotations

import itertools

import asking
import numpy as np
import onnx
from building import feeds_of, one_node
from converting import convert

from onnx_spatial.lowering import candidates
from onnx_spatial.model.io import reader
from onnx_spatial.tuning import Effort, HarnessData, measure

DATA = np.arange(48, dtype=np.float32).reshape(1, 4, 6, 2)
INPUTS = [DATA, np.array([2, 3], np.int64), np.zeros((2, 2), np.int64)]


def asked():
    ((request, _),) = asking.requests(one_node("SpaceToBatchND", INPUTS))
    return request.apart(), HarnessData(DATA.shape, onnx.TensorProto.FLOAT)


def test_a_figure_for_each_lowering():
    request, given = asked()
    ways = candidates(request)
    found = measure.lowerings(request, ways, given, 4, Effort(threads=1, rounds=3))
    assert len(found) == len(ways) > 1
    assert all(us is not None and us >= 0 for us in found)


def test_the_net_itself_is_not_counted():
    request, given = asked()
    ticks = itertools.count()
    # Every run takes one tick: so does the net without the operator, and nothing is left.
    effort = Effort(threads=1, rounds=3, clock=lambda: float(next(ticks)))
    assert set(measure.lowerings(request, candidates(request), given, 4, effort)) == {0.0}


def test_what_does_not_run_has_no_figure():
    request, given = asked()
    ways = candidates(request)
    ways[0].emitted.nodes[0].op_type = "NoSuchOperator"
    first, *others = measure.lowerings(request, ways, given, 4, Effort(threads=1, rounds=1))
    assert first is None
    assert None not in others


def test_whole_models_and_why_one_does_not_run():
    model = one_node("SpaceToBatchND", INPUTS)
    sources = [reader.read(m) for m in (convert(model), model)]
    time, reason = measure.models(sources, feeds_of(model, INPUTS), Effort(threads=1, rounds=2))
    assert isinstance(time, float) and time > 0
    assert "SpaceToBatchND" in str(reason)
