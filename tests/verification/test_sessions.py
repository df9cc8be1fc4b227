"""Sessions: errors of one clear line, progress before native code, and an end in any case."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import parser

from onnx_spatial.verification import child, limits
from onnx_spatial.verification.run.sessions import CONVERTED, RunError, Session, first_line

ENDLESS = """<ir_version: 8, opset_import: ["" : 17]>
    f (float[N] x) => (float[M] y) {
        go = Constant<value = bool {1}>()
        y = Loop<body = b (int64 i, bool c, float[K] a) => (bool d, float[K] e) {
            d = Identity(c) e = Sin(a)
        }>("", go, x)
    }"""


def session(text: str, **arguments: object) -> Session:
    return Session(parser.parse_model(text).SerializeToString(), **arguments)


def adding(b: str = "M") -> str:
    return f"""<ir_version: 8, opset_import: ["" : 17]>
        f (float[N] a, float[{b}] b) => (float[K] y) <float zero = {{0}}>
        {{ [sum] c = Add(a, b) y = Add(c, zero) }}"""


def array(size: int) -> np.ndarray:
    return np.ones(size, np.float32)


def test_each_load_and_run_is_reported_before_it_begins(monkeypatch):
    told = []
    monkeypatch.setattr(child, "report", lambda *each: told.append(each))
    model = session(adding(), of=CONVERTED, optimise=True)
    assert told == [("the converted model loads with optimisations on", CONVERTED)]
    assert list(model.run({"a": array(2), "b": array(1)})) == ["y"]
    line = "the converted model runs on a [2], b [1] (optimisations on)"
    assert told[1:] == [(line, CONVERTED)]


def test_a_model_that_does_not_load_says_so_in_one_line():
    with pytest.raises(RunError, match="Foo") as caught:
        session('<ir_version: 8, opset_import: ["" : 17]> f (float x) => (float y) { y = Foo(x) }')
    assert caught.value.stage == "load" and caught.value.lacks_kernel
    assert "\n" not in str(caught.value)
    with pytest.raises(RunError) as caught:
        Session(b"this is no model")
    assert caught.value.stage == "load" and not caught.value.lacks_kernel


def test_data_that_does_not_fit_names_the_node():
    model = session(adding())
    with pytest.raises(RunError, match="2 by 3") as caught:
        model.run({"a": array(2), "b": array(3)})
    assert (caught.value.stage, caught.value.node) == ("run", "sum")
    assert not caught.value.out_of_memory
    with pytest.raises(RunError, match="b"):
        model.run({"a": array(2)})


def test_memory_that_runs_out_is_told_apart():
    text = """<ir_version: 8, opset_import: ["" : 17]>
        f (int64[N] n) => (float[A,B] y) { y = ConstantOfShape(n) }"""
    with pytest.raises(RunError) as caught:
        session(text).run({"n": np.full(2, 2**24, np.int64)})
    assert caught.value.stage == "run" and caught.value.out_of_memory


def test_a_loop_that_does_not_end_is_stopped_by_the_time_limit():
    model, start = session(ENDLESS), time.monotonic()
    with (
        pytest.raises(
            limits.TimeLimitError, match=r"after 0.1 s, at 'the original runs on x .3. .*'"
        ),
        limits.allowing_time(0.1),
    ):
        model.run({"x": array(3)})
    assert time.monotonic() - start < 30
    with pytest.raises(limits.TimeLimitError), limits.allowing_time(-1):
        session(adding())


@pytest.mark.parametrize(("clock", "processor", "seconds"), [(50, 4, 4), (3, 12, 3)])
def test_neither_a_busy_machine_nor_many_threads_use_the_time_up(
    monkeypatch, clock, processor, seconds
):
    times = {"monotonic": 100, "process_time": 7}
    for name in times:
        monkeypatch.setattr(time, name, lambda name=name: times[name])
    stopwatch = limits.Stopwatch()
    times.update(monotonic=100 + clock, process_time=7 + processor)
    assert stopwatch.seconds == seconds


def test_runs_in_time_are_not_touched():
    with limits.allowing_time(60):
        model = session(adding())
        for _ in range(3):
            np.testing.assert_array_equal(model.run({"a": array(2), "b": array(2)})["y"], [2, 2])


SOURCE = "/onnxruntime_src/onnxruntime/core"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (
            f"[ONNXRuntimeError] : 1 : FAIL : {SOURCE}/graph/model.cc:256 onnxruntime::Model::Model("
            "onnx::ModelProto&&, const onnxruntime::PathString&, const onnxruntime::Options&) "
            "Unsupported model IR version: 99, max supported IR version: 13",
            "Unsupported model IR version: 99, max supported IR version: 13",
        ),
        (
            f"[ONNXRuntimeError] : 1 : FAIL : {SOURCE}/graph/utils.h:46 void onnxruntime::utils::Check("
            "const std::unordered_map<std::__cxx11::basic_string<char>, int>&, bool, int) Opset 999",
            "Opset 999",
        ),
        (
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
            f"Add node. Name:'a' Status Message: {SOURCE}/framework/bfc_arena.cc:359 void* "
            "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to "
            "allocate memory for requested buffer of size 40",
            "running Add node. Name:'a' Failed to allocate memory for requested buffer of size 40",
        ),
        (
            f"{SOURCE}/a.cc:1 bool onnxruntime::Has(std::function<void(int)>) const Nothing (at all)",
            "Nothing (at all)",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: "
            f"{SOURCE}/providers/cpu/text/string_normalizer.cc:235 onnxruntime::StringNormalizer::Locale"
            "::Locale(const std::string&)::<lambda()> Failed to construct locale with name:en_US.UTF-8",
            "Exception during initialization: Failed to construct locale with name:en_US.UTF-8",
        ),
        (
            f"Exception during initialization: {SOURCE}/providers/cpu/rnn/rnn.h:48 onnxruntime::RNN<T>"
            "::RNN(const onnxruntime::OpKernelInfo&) [with T = float] layout_ == 0 was false.",
            "Exception during initialization: layout_ == 0 was false.",
        ),
        ("Load model failed: nobody knows onnxruntime::Op", None),
    ],
)
def test_source_locations_and_signatures_are_left_out(said: str, kept: str | None) -> None:
    assert first_line(RuntimeError(said)) == (said if kept is None else kept)
