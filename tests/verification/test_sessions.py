"""What onnxruntime says when it fails, without what only its authors can read."""

from __future__ import annotations

import pytest

from onnx_spatial.verification.runtime.sessions import first_line

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
