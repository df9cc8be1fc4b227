"""Choosing by measured times: what is measured, when, with which data, and what is then taken."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import asking
import numpy as np
import onnx
import pytest
from asking import Figures
from building import one_node
from converting import plan
from onnx import parser

import onnx_spatial
from onnx_spatial.errors import UsageError
from onnx_spatial.lowering import Candidate
from onnx_spatial.model.io import reader
from onnx_spatial.tuning import Cache, Effort, Sizes, Tuner
from onnx_spatial.tuning.tuner import fastest

TF = "ai.onnx.converters.tensorflow"
HEAD = f'<ir_version: 8, opset_import: ["" : 17, "{TF}" : 1]>'
CONSTANTS = "<int32[2] b = {2, 2}, int32[2,2] p = {0, 0, 0, 0}>"
TWICE = f"""{HEAD}
g (float[2,4,6,3] x, float[2,4,6,3] y) => (s, t) {CONSTANTS} {{
    [first] s = {TF}.SpaceToBatchND(x, b, p)
    [second] t = {TF}.SpaceToBatchND(y, b, p)
}}
"""
OPEN = f"""{HEAD}
g (float[N,H,W,3] x) => (t) {CONSTANTS} {{
    r = Relu(x)
    [site] s = {TF}.SpaceToBatchND(r, b, p)
    t = Neg(s)
}}
"""
INNER = f"""{HEAD}
g (bool c, float[2,4,6,3] x) => (y) {CONSTANTS} {{
    y = If (c) <
        then_branch = g () => (float[8,2,3,3] t) {{ [then] t = {TF}.SpaceToBatchND(x, b, p) }},
        else_branch = g () => (float[8,2,3,3] e) {{
            z = Neg(x)
            [else] e = {TF}.SpaceToBatchND(z, b, p)
        }}
    >
}}
"""
FUNCTION = f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1, "{TF}" : 1]>
g (float[2,4,6,3] x) => (y) {{ y = local.down(x) }}
<domain: "local", opset_import: ["" : 17, "{TF}" : 1]>
down (x) => (y) {{
    b = Constant <value_ints: ints = [2, 2]> ()
    c = Cast <to = 6> (b)
    p = Constant <value = int32[2,2] {{0, 0, 0, 0}}> ()
    [inside] y = {TF}.SpaceToBatchND(x, c, p)
}}
"""


def read(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def tuned(
    model: onnx.ModelProto,
    figures: Figures,
    cache: Cache | None = None,
    max_rank: int | None = None,
    threads: int = 1,
    **sizes,
):
    """A plan, made with figures that nobody measured."""
    tuner = Tuner(
        Sizes(reader.read(model), **sizes),
        max_rank=max_rank,
        effort=Effort(threads),
        cache=cache,
        measure=figures,
    )
    return plan(model, choose=tuner.choose)


def test_the_fastest_is_taken_and_said_to_be_measured():
    (site, _) = tuned(read(TWICE), Figures("row-gather")).sites
    assert (site.strategy, site.measured_us) == ("row-gather", 1.0)
    assert {c.strategy: c.measured_us for c in site.candidates} == {
        c.strategy: 1.0 if c.strategy == "row-gather" else 2.0 for c in site.candidates
    }
    described = site.to_dict()
    assert described["candidates"][0] == vars(site.candidates[0])
    json.dumps(described)


def test_without_measuring_times_are_estimated():
    (site, _) = plan(read(TWICE)).sites
    assert site.measured_us is None and site.estimated_us == site.candidates[0].estimated_us
    times = [c.estimated_us for c in site.candidates]
    assert all(b > a - 0.1 for a, b in pairwise(times))  # less makes no difference
    assert len(site.candidates) > 1


def test_other_forms_have_no_times():
    for mode in ("function", "custom-op"):
        (site, _) = onnx_spatial.convert(read(TWICE), mode=mode, verify=False).inspection.sites
        assert (site.estimated_us, site.measured_us, site.candidates) == (None, None, ())


@pytest.mark.parametrize(
    ("measured", "taken"),
    [
        ((2.0, 1.0), "b"),
        ((200.0, 180.0), "b"),
        ((200.0, 195.0), "a"),
        ((0.4, 0.1), "a"),
        ((1.0, 2.0), "a"),
        ((None, 2.0), "b"),
        ((2.0, None), "a"),
        ((None, None), "a"),
    ],
)
def test_noise_does_not_choose(measured, taken):
    there = [Candidate(n, i, us) for i, (n, us) in enumerate(zip("ab", measured, strict=True))]
    assert fastest(there).strategy == taken


def test_equal_requests_are_measured_once():
    figures = Figures()
    tuned(read(TWICE), figures)
    assert len(figures.asked) == 1


def test_what_is_in_the_cache_is_not_measured(tmp_path):
    path = tmp_path / "tune.json"
    first = tuned(read(TWICE), Figures("row-gather"), Cache(path))
    figures = Figures("transpose")
    second = tuned(read(TWICE), figures, Cache(path))
    assert figures.asked == []
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert second.sites[0].strategy == "row-gather"


def test_all_that_matters_is_measured_anew(tmp_path):
    path = tmp_path / "tune.json"
    tuned(read(TWICE), Figures(), Cache(path))
    other = TWICE.replace('"" : 17', '"" : 18')
    for changed, options in (
        (other, {}),
        (TWICE.replace("[2,4,6,3]", "[2,4,6,5]"), {}),
        (TWICE.replace("float[2,4,6,3]", "double[2,4,6,3]"), {}),
        (TWICE.replace("p = {0, 0, 0, 0}", "p = {0, 0, 1, 1}"), {}),
        (TWICE, {"threads": 2}),
        (TWICE, {"max_rank": 4}),
    ):
        figures = Figures()
        tuned(read(changed), figures, Cache(path), **options)
        assert len(figures.asked) == 1, (changed, options)


def test_a_strategy_that_is_new_or_gone_is_measured_anew(tmp_path):
    path = tmp_path / "tune.json"
    tuned(read(TWICE), Figures("row-gather"), Cache(path))
    document = json.loads(path.read_text())
    for entry in document["entries"].values():
        entry["measured_us"] = {"gone": 0.1}
    path.write_text(json.dumps(document))
    figures = Figures("row-gather")
    (site, _) = tuned(read(TWICE), figures, Cache(path)).sites
    assert len(figures.asked) == 1
    assert site.strategy == "row-gather"


def test_a_limit_to_the_rank_holds():
    for site in tuned(read(TWICE), Figures("transpose"), max_rank=4).sites:
        assert site.strategy != "transpose"


def test_the_models_own_sizes_and_those_of_the_user():
    figures = Figures()
    tuned(read(TWICE), figures)
    tuned(read(OPEN), figures, shapes={"x": [3, 8, 10, 3]})
    x = np.zeros((1, 2, 4, 3), np.float32)
    tuned(read(OPEN), figures, inputs={"x": x})
    assert [given.shape for given in figures.asked] == [(2, 4, 6, 3), (3, 8, 10, 3), (1, 2, 4, 3)]


def test_sizes_that_verification_would_take():
    figures = Figures()
    tuned(read(OPEN), figures)
    (given,) = figures.asked
    n, h, w, c = given.shape
    assert n >= 1 and h % 2 == w % 2 == 0 and h * w > 0 and c == 3


def test_without_memory_for_the_model_each_site_gets_sizes_of_its_own(monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr("onnx_spatial.tuning.sizes.reference_runs.find", full)
    figures = Figures()
    tuned(read(OPEN), figures)
    assert len(figures.asked) == 1
    sizes = Sizes(reader.read(read(OPEN)))
    assert sizes.feeds() is None and "memory" in sizes.obstacle


def test_sites_in_branches_and_functions():
    for text, count in ((INNER, 2), (FUNCTION, 1)):
        figures = Figures("row-gather")
        made = tuned(read(text), figures)
        assert [s.strategy for s in made.sites] == ["row-gather"] * count
        assert {g.shape for g in figures.asked} == {(2, 4, 6, 3)}


def test_parameters_that_come_at_run_time():
    inputs = [
        np.zeros((2, 4, 6, 3), np.float32),
        np.array([2, 3], np.int64),
        np.zeros((2, 2), np.int64),
    ]
    model = one_node("SpaceToBatchND", inputs, run_time={1, 2})
    figures = Figures()
    (site,) = tuned(model, figures, inputs={"x": inputs[0], "p1": inputs[1], "p2": inputs[2]}).sites
    assert site.measured_us == 2.0
    assert figures.asked[0].parameters[0].tolist() == [2, 3]
    tuned(model, figures)  # made up, and legal
    assert len(figures.asked) == 2


def test_what_holds_no_data_is_not_measured():
    model = one_node(
        "SpaceToBatchND",
        [np.zeros((0, 4, 6, 3), np.float32), np.array([2, 2]), np.zeros((2, 2), np.int64)],
    )
    figures = Figures()
    (site,) = tuned(model, figures).sites
    assert figures.asked == [] and site.measured_us is None and site.estimated_us is not None


@pytest.mark.parametrize("data", [np.zeros((2, 4, 6, 10**6), np.int8), None])
def test_what_is_too_large_to_make_up_is_not_measured(data):
    if data is None:
        data = np.full((2, 4, 6, 2000), "text", object)
    model = one_node("SpaceToBatchND", [data, np.array([2, 2]), np.zeros((2, 2), np.int64)])
    figures = Figures()
    tuned(model, figures)
    assert figures.asked == []


def test_what_did_not_run_at_all_is_not_remembered(tmp_path):
    class Broken(Figures):
        def __call__(self, *arguments):
            super().__call__(*arguments)
            return [None for _ in arguments[1]]

    class Full(Figures):
        def __call__(self, *arguments):
            super().__call__(*arguments)
            raise MemoryError

    for figures in (Broken(), Full(), Full()):
        first, second = tuned(read(TWICE), figures, Cache(tmp_path / "tune.json")).sites
        assert first.strategy == plan(read(TWICE)).sites[0].strategy
        assert first.measured_us is second.measured_us is None
        assert len(figures.asked) == 2


def test_a_site_that_cannot_be_lowered_stays_refused():
    data = np.zeros((2, 4, 6, 3), np.complex64)
    model = one_node("SpaceToBatchND", [data, np.array([2, 2]), np.zeros((2, 2), np.int64)])
    (site,) = tuned(model, Figures()).sites
    assert site.action == "refuse" and "complex" in site.reason


def test_real_measurements_leave_the_request_alone():
    """Two measured conversions that choose the same are the same file as one by estimates."""
    model = read(TWICE)
    ((request, info), _) = asking.requests(model)
    tuner = Tuner(Sizes(reader.read(model)), effort=Effort(1, rounds=1))
    found = tuner.candidates(request, info)
    assert all(c.measured_us is not None for c in found)
    made = tuned(model, Figures(plan(model).sites[0].strategy))
    assert made.model.SerializeToString() == plan(model).model.SerializeToString()


# As users call it


@pytest.fixture
def quick(monkeypatch):
    """One run of each lowering is enough."""
    monkeypatch.setattr("onnx_spatial.api.Effort", partial(Effort, rounds=1))


def test_convert_gives_the_same_file_for_the_same_cache(quick, tmp_path: Path):
    cache = tmp_path / "tune.json"
    outputs = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    for output in outputs:
        result = onnx_spatial.convert(read(OPEN), output, tune=True, tune_cache=cache)
        assert result.verification
        (site,) = result.inspection.sites
        assert site.measured_us is not None
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    (entry,) = json.loads(cache.read_text())["entries"].values()
    assert {"operator", "shape", "opset", "onnxruntime", "processor", "threads"} <= set(
        entry["request"]
    )


def test_convert_keeps_figures_in_the_users_folder(quick, tmp_path, monkeypatch):
    monkeypatch.setattr("onnx_spatial.api.default_path", lambda: tmp_path / "c" / "t.json")
    onnx_spatial.convert(read(TWICE), tune=True, verify=False)
    assert (tmp_path / "c" / "t.json").exists()


def test_the_output_is_not_the_cache(tmp_path):
    path = tmp_path / "both"
    with pytest.raises(UsageError, match="output and tune_cache must be different files"):
        onnx_spatial.convert(read(TWICE), path, tune=True, tune_cache=path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune": True, "mode": "function"}, "not 'function'"),
        ({"tune": True, "strategy": "transpose"}, "strategy and tune cannot be combined"),
        ({"tune": True, "tune_threads": -1}, "0 or more, not -1"),
        ({"tune_cache": "x.json"}, "require tune=True"),
        ({"tune_threads": 2}, "require tune=True"),
        ({"tune": True, "shapes": {"x": [1, 2]}}, "must have shape"),
        ({"tune": True, "shapes": {"z": [1, 2]}}, "no input 'z'"),
    ],
)
def test_what_makes_no_sense(options, message):
    with pytest.raises(UsageError, match=message):
        onnx_spatial.convert(read(OPEN), **options)
