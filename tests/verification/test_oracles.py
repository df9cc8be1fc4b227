"""Other runtimes as references for the numpy kernels themselves."""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter

import numpy as np
import pytest
from hand_lowered import (
    batch_to_space,
    batch_to_space_lowered,
    patches,
    patches_lowered,
    space_to_batch,
    space_to_batch_lowered,
)

from onnx_spatial.errors import UsageError
from onnx_spatial.operators import ExtractPatches, ReorgYolo, SpaceToBatch
from onnx_spatial.verification import Verification, oracles, verify
from onnx_spatial.verification.oracles import Silent

PAIRS = {
    "space to batch": (space_to_batch(), space_to_batch_lowered()),
    "batch to space": (batch_to_space(), batch_to_space_lowered()),
    "patches": (patches(), patches_lowered()),
}


def told(result: Verification, name: str) -> Counter[bool]:
    """How many comparisons with an oracle passed, and did not."""
    (site,) = result.sites
    return Counter(c.passed for c in site.checks if c.how == name and c.skipped is None)


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that contradicts, and one that never knows."""

    def silent(operator: object, x: np.ndarray) -> np.ndarray:
        raise Silent("it does not know")

    runners = {
        "tensorflow": lambda operator, x: np.flip(operator(x)),
        "openvino": silent,
    }
    monkeypatch.setattr(oracles, "get", lambda names: {n: runners[n] for n in names})


@pytest.mark.usefixtures("wrong")
def test_a_kernel_that_an_oracle_contradicts_fails_the_site() -> None:
    result = verify(*PAIRS["space to batch"], oracles=["tensorflow"])
    assert result.status == "failed"
    assert told(result, "tensorflow")[False] > 0
    assert result.first_difference is not None
    assert "tensorflow" in result.first_difference.message


@pytest.mark.usefixtures("wrong")
def test_what_an_oracle_cannot_tell_is_said() -> None:
    result = verify(*PAIRS["space to batch"], oracles=["openvino"])
    assert result
    (site,) = result.sites
    (check,) = [c for c in site.checks if c.how == "openvino"]
    assert check.skipped == "it does not know"
    assert "openvino" not in site.how
    documents = [c["skipped"] for c in result.to_dict()["sites"][0]["checks"]]
    assert "it does not know" in documents


def test_one_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install tensorflow-cpu"):
        verify(*PAIRS["patches"], oracles=["tensorflow"])


def test_one_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="must be tensorflow or openvino"):
        verify(*PAIRS["patches"], oracles=["torch"])


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["tensorflow", "openvino"])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_kernels_are_right(name: str, pair: str) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    result = verify(*PAIRS[pair], oracles=[name])
    assert result, result.message
    assert told(result, name)[True] >= 2
    assert name in result.sites[0].how


@pytest.mark.oracle
def test_known_mistakes_of_openvino_are_left_out() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    (run,) = oracles.get(["openvino"]).values()
    x = np.ones((1, 2, 2, 1), np.float32)
    with pytest.raises(Silent, match="neighbour"):
        run(SpaceToBatch((5, 1), ((0, 3), (0, 0))), x)
    with pytest.raises(Silent, match="int64"):
        run(SpaceToBatch((2, 1), ((0, 0), (0, 0))), x.astype(np.int64))


@pytest.mark.oracle
def test_what_tensorflow_lacks_is_left_out() -> None:
    pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    (run,) = oracles.get(["tensorflow"]).values()
    with pytest.raises(Silent, match="in front"):
        run(ExtractPatches((2, 2), (1, 1), (1, 1), "same_lower"), np.ones((1, 3, 3, 1), "f"))
    with pytest.raises(Silent, match="TensorFlow has no ReorgYolo"):
        run(ReorgYolo(2), np.ones((1, 4, 2, 2), "f"))
    with pytest.raises(Silent, match="bool"):
        run(ExtractPatches((2, 2), (1, 1), (1, 1), "valid"), np.ones((1, 3, 3, 1), bool))


@pytest.mark.parametrize("oracle", ["openvino", "tensorflow"])
def test_no_oracle_puts_channels_before_places(oracle):
    module = importlib.import_module(f"onnx_spatial.verification.oracles.{oracle}")
    operator = ExtractPatches((2, 2), (1, 1), (1, 1), "valid", "channels_first", major="channel")
    x = np.zeros((1, 2, 3, 3), np.float32)
    arguments = (operator, x) if oracle == "openvino" else (None, operator, x)
    with pytest.raises(Silent, match="places before channels"):
        module._patches(*arguments)
