"""What is proven of each operator: kept in the report, counted on the screen, required on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hand_lowered import batch_to_space, space_to_batch, space_to_batch_lowered

import onnx_spatial
from onnx_spatial.cli.main import run
from onnx_spatial.errors import UsageError, VerificationError
from onnx_spatial.verification import Counterexample, verify
from onnx_spatial.verification.checks import proof
from onnx_spatial.verification.checks.proof import Proof
from onnx_spatial.verification.report import SiteResult, count_proofs

ALL = Proof("all sizes", ("H + 2 is divisible by 2", "sizes are below 2^31"))
THESE = Proof("these sizes")
SAMPLED = Proof("sampled", reason="no rule for Einsum")
COUNTEREXAMPLE = Counterexample(
    {"x": np.zeros((2, 14, 5, 1), np.float32), "pads": np.array([[0, 1], [0, 0]], np.int64)},
    {"pads": [[0, 1], [0, 0]]},
    (0, 3, 0, 0),
    "is x[0, 4, 1, 0] instead of x[0, 3, 1, 0]",
)
DIFFERS = (
    "for x [2, 14, 5, 1], pads = [[0, 1], [0, 0]], element [0, 3, 0, 0] of the output "
    "is x[0, 4, 1, 0] instead of x[0, 3, 1, 0]"
)
#: Of the node of `space_to_batch`, not proven because of SAMPLED.
UNPROVEN = "is not proven, only compared at sampled sizes: no rule for Einsum"


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch) -> Callable[[Proof | Counterexample], None]:
    """Replace the prover by one that always comes to the same result."""

    def replace(result: Proof | Counterexample) -> None:
        monkeypatch.setattr(proof, "_prove", lambda operator, context: result)

    return replace


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str]:
    """Files of an original and its conversion."""
    names = (str(tmp_path / "original.onnx"), str(tmp_path / "converted.onnx"))
    for name, model in zip(names, (space_to_batch(), space_to_batch_lowered()), strict=True):
        onnx.save(model, name)
    return names


@pytest.mark.parametrize("result", [ALL, THESE, SAMPLED])
def test_a_proof_is_part_of_the_report(result, prove) -> None:
    prove(result)
    found = verify(space_to_batch(), space_to_batch_lowered())
    assert found.status == "passed"
    (site,) = json.loads(json.dumps(found.to_dict()))["sites"]
    kept = (site["proven"], tuple(site["assumptions"]), site["proof_reason"])
    assert kept == (result.scope, result.assumptions, result.reason)
    assert site["counterexample"] is None
    assert found.unproven == ([found.sites[0].unproven] if result is SAMPLED else [])


def test_a_counterexample_is_a_failure(prove) -> None:
    prove(COUNTEREXAMPLE)
    found = verify(space_to_batch(), space_to_batch_lowered())
    assert found.status == "failed"
    assert found.message == f"failed: {found.sites[0].label}: {DIFFERS}"
    assert found.sites[0].passed is False
    difference = found.first_difference
    assert difference is not None
    assert (difference.kind, difference.inputs) == ("site", COUNTEREXAMPLE.inputs)
    (site,) = json.loads(json.dumps(found.to_dict()))["sites"]
    assert site["proven"] is None
    assert site["counterexample"] == {
        "inputs": {
            "x": {"dtype": "float32", "shape": [2, 14, 5, 1]},
            "pads": {"dtype": "int64", "shape": [2, 2]},
        },
        "parameters": {"pads": [[0, 1], [0, 0]]},
        "element": [0, 3, 0, 0],
        "reason": "is x[0, 4, 1, 0] instead of x[0, 3, 1, 0]",
    }


def test_a_counterexample_may_be_of_the_shape() -> None:
    found = Counterexample({"x": np.zeros((2, 3))}, {}, None, "has shape [6] instead of [5]")
    assert found.message == "for x [2, 3], the output has shape [6] instead of [5]"


def test_an_operator_that_differs_is_not_proven(prove) -> None:
    prove(ALL)
    found = verify(space_to_batch(), space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5"))
    assert (found.status, found.sites[0].proven) == ("failed", None)


def test_an_operator_that_was_not_compared_is_not_sampled(prove) -> None:
    prove(SAMPLED)
    model = batch_to_space()
    model.graph.node[0].domain = "somebody.else"
    model.opset_import.append(onnx.helper.make_opsetid("somebody.else", 1))
    found = verify(model, model)
    assert not any(site.compared or site.end_to_end for site in found.sites)
    assert [site.proven for site in found.sites] == [None] * len(found.sites)


@pytest.mark.parametrize(
    ("scopes", "line"),
    [
        (["all sizes"], "proven for all sizes: 1 of 1 operator"),
        (["all sizes"] * 12, "proven for all sizes: 12 of 12 operators"),
        (
            ["sampled", "all sizes", "these sizes", "sampled", None],
            "proven for all sizes: 1 of 5 operators; these sizes: 1; sampled: 2; not compared: 1",
        ),
    ],
)
def test_the_line_of_the_screen(scopes, line) -> None:
    assert count_proofs(scopes) == line


def test_a_site_says_why_it_is_not_proven() -> None:
    site = SiteResult("s2b", "main graph", "SpaceToBatchND", "", reason="no legal sizes")
    assert site.unproven == "SpaceToBatchND node 's2b' (main graph) is not proven: no legal sizes"
    site.proven = "these sizes"
    assert site.unproven is None


def test_the_screen_says_what_is_proven(paths, prove, tmp_path, capsys) -> None:
    original, converted = paths
    commands = (["verify", original, converted], ["convert", original, "-o", str(tmp_path / "o")])
    for command in commands:
        prove(ALL)
        assert run(command) == 0
        assert "\n  proven for all sizes: 1 of 1 operator\n" in capsys.readouterr().out
        assert run([*command, "-v"]) == 0
        line = f"is proven for all sizes if {'; '.join(ALL.assumptions)}\n"
        assert line in capsys.readouterr().out
        prove(SAMPLED)
        assert run([*command, "-v"]) == 0
        out = capsys.readouterr().out
        assert "\n  proven for all sizes: 0 of 1 operator; sampled: 1\n" in out
        assert "is not proven: no rule for Einsum\n" in out


@pytest.mark.parametrize("result", [ALL, THESE, SAMPLED])
def test_strict_proof_fails_what_is_only_sampled(result, paths, prove, tmp_path, capsys) -> None:
    prove(result)
    original, converted = paths
    out = tmp_path / "out.onnx"
    code = 1 if result is SAMPLED else 0
    assert run(["verify", original, converted, "--strict-proof"]) == code
    assert (UNPROVEN in capsys.readouterr().err) == (result is SAMPLED)
    assert run(["convert", original, "-o", str(out), "--strict-proof"]) == code
    error = capsys.readouterr().err
    assert out.exists() == (result is not SAMPLED)
    if result is SAMPLED:
        (line,) = error.splitlines()[-1:]
        assert line.startswith(f"error: {original}: SpaceToBatchND node ") and UNPROVEN in line


def test_strict_proof_in_json(paths, prove, capsys) -> None:
    prove(SAMPLED)
    assert run(["verify", *paths, "--strict-proof", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["verification"]["status"]) == (1, "passed")
    assert UNPROVEN in document["error"]


def test_strict_proof_of_the_function(prove) -> None:
    prove(SAMPLED)
    with pytest.raises(VerificationError, match=UNPROVEN) as failure:
        onnx_spatial.convert(space_to_batch(), strict_proof=True)
    assert failure.value.verification.status == "passed"
    prove(ALL)
    assert onnx_spatial.convert(space_to_batch(), strict_proof=True).changed
    with pytest.raises(UsageError, match="strict_proof requires verify"):
        onnx_spatial.convert(space_to_batch(), strict_proof=True, verify=False)


def test_strict_proof_needs_a_verification(paths, capsys) -> None:
    assert run(["convert", paths[0], "--dry-run", "--strict-proof", "--no-verify"]) == 2
    assert "--strict-proof and --no-verify cannot be combined" in capsys.readouterr().err
