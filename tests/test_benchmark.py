"""What a model costs: the whole in its forms, each site in each way."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import onnx
import pytest
from asking import Figures
from building import one_node
from onnx import parser

import onnx_spatial
from onnx_spatial import benchmark
from onnx_spatial.benchmark import bench
from onnx_spatial.custom_ops import available
from onnx_spatial.errors import ConversionError, UsageError
from onnx_spatial.tuning import Tuner

TF = "ai.onnx.converters.tensorflow"
CONSTANTS = "<int32[2] b = {2, 2}, int32[2,2] p = {0, 0, 0, 0}>"
MODEL = f"""<ir_version: 8, opset_import: ["" : 17, "{TF}" : 1]>
g (float[N,H,W,3] x) => (t) {CONSTANTS} {{
    r = Relu(x)
    [site] s = {TF}.SpaceToBatchND(r, b, p)
    t = Neg(s)
}}
"""
FORMS = ["original", "converted"]


@pytest.fixture
def model() -> onnx.ModelProto:
    return parser.parse_model(MODEL)


def test_the_whole_model_and_every_lowering(model):
    before = model.SerializeToString(deterministic=True)
    found = bench(model, threads=[1, 2], runs=2, shapes={"x": [1, 4, 6, 3]})
    assert model.SerializeToString(deterministic=True) == before
    assert {(m.form, m.threads) for m in found.models} >= {(f, t) for f in FORMS for t in (1, 2)}
    for whole in found.models:
        if whole.form != "original" or available():
            assert whole.time_us > 0 and whole.reason is None
    (site,) = found.sites
    assert site.given.shape == (1, 4, 6, 3)
    assert [w.strategy for w in site.ways] == [c.strategy for c in site.site.candidates]
    assert site.site.strategy == site.ways[0].strategy
    assert all(set(w.measured_us) == {1, 2} for w in site.ways)
    assert all(us >= 0 for w in site.ways for us in w.measured_us.values())


def test_the_document(model):
    document = bench(model, threads=[1], runs=1).to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["version"] == 1
    assert set(document["machine"]) == {"processor", "cores", "system", "onnxruntime"}
    assert document["inputs"]["x"]["dtype"] == "float32"
    assert [set(m) for m in document["models"][:1]] == [{"form", "threads", "time_us", "reason"}]
    (site,) = document["sites"]
    assert (site["node"], site["graph"], site["op_type"]) == (
        "site",
        "main graph",
        "SpaceToBatchND",
    )
    assert site["element_type"] == "float32"
    assert set(site["candidates"][0]) == {"strategy", "estimated_us", "measured_us"}
    assert set(site["candidates"][0]["measured_us"]) == {"1"}


def test_what_measuring_would_choose_is_timed_where_it_is_something_else(model, monkeypatch):
    def forms(favourite: str) -> list[str]:
        monkeypatch.setattr(benchmark, "Tuner", partial(Tuner, measure=Figures(favourite)))
        return [m.form for m in bench(model, threads=[1], runs=1).models]

    assert forms("row-gather") == [*FORMS, "tuned"]
    assert forms(bench(model, threads=[1], runs=1).sites[0].site.strategy) == FORMS


def test_without_python_operators_the_original_is_not_run(model, monkeypatch):
    monkeypatch.setattr(benchmark, "available", lambda: False)
    original, converted, *_ = bench(model, threads=[1], runs=1).models
    assert original.time_us is None and "onnxruntime-extensions" in original.reason
    assert converted.time_us > 0


def test_a_model_with_functions_runs_as_it_is(model, monkeypatch):
    monkeypatch.setattr(benchmark, "available", lambda: False)
    wrapped = onnx_spatial.convert(model, mode="function", verify=False).model
    original, *_ = bench(wrapped, threads=[1], runs=1).models
    assert original.form == "original" and original.time_us > 0


def test_a_model_that_cannot_run_is_measured_site_by_site(model):
    (node,) = (n for n in model.graph.node if n.op_type == "Neg")
    node.domain, node.op_type = "elsewhere", "Unknown"
    model.opset_import.append(onnx.helper.make_opsetid("elsewhere", 1))
    found = bench(model, threads=[1], runs=1)
    assert all(m.time_us is None and "elsewhere:Unknown" in m.reason for m in found.models)
    (site,) = found.sites
    assert None not in [w.measured_us[1] for w in site.ways]
    assert found.inputs == {}


def test_nothing_to_measure():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Neg(x) }'
    )
    found = bench(model, runs=1)
    assert found.models == [] and found.sites == []


def test_an_operator_that_breaks_its_rules():
    data = np.zeros((2, 5, 6, 3), np.float32)
    model = one_node("SpaceToBatchND", [data, np.array([2, 2]), np.zeros((2, 2), np.int64)])
    with pytest.raises(ConversionError, match="SpaceToBatchND 'site'") as caught:
        bench(model, runs=1)
    assert caught.value.inspection.sites[0].action == "refuse"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": []}, "threads must be"),
        ({"threads": [-1]}, "threads must be"),
        ({"threads": [1, 1]}, "different numbers"),
        ({"seconds": -1}, "seconds must be"),
        ({"runs": 0}, "runs 1 or more"),
        ({"seed": -1}, "seed must be"),
        ({"shapes": {"x": [1]}}, "must have shape"),
        ({"shapes": {"x": [1, 4, 4, 3]}, "inputs": {}}, "inputs and shapes cannot be combined"),
        ({"static": {"Z": 3}}, "no symbolic dim named Z"),
    ],
)
def test_what_makes_no_sense(model, options, message):
    with pytest.raises(UsageError, match=message):
        bench(model, **options)
