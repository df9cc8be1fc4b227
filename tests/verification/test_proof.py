"""What is proven of each operator: kept in the report, counted on the screen, required on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import grid
import numpy as np
import onnx
import pytest
from adapter import run, verify
from fused_by_hand import PLAIN, filled
from hand_lowered import (
    batch_to_space,
    batch_to_space_lowered,
    model,
    patches,
    patches_lowered,
    space_to_batch,
    space_to_batch_lowered,
)

import onnx_spatial
from onnx_spatial import VerificationError
from onnx_spatial.verification import Counterexample
from onnx_spatial.verification.checks import proof
from onnx_spatial.verification.checks.proof import Proof
from onnx_spatial.verification.report import OperatorResult, count_proofs

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
    for name, each in zip(names, (space_to_batch(), space_to_batch_lowered()), strict=True):
        onnx.save(each, name)
    return names


@pytest.mark.parametrize("result", [ALL, THESE, SAMPLED])
def test_a_proof_is_part_of_the_report(result, prove) -> None:
    prove(result)
    found = verify(space_to_batch(), space_to_batch_lowered())
    assert found.status == "passed"
    (site,) = json.loads(json.dumps(found.to_dict()))["operators"]
    kept = (site["proven"], tuple(site["assumptions"]), site["proof_reason"])
    assert kept == (result.scope, result.assumptions, result.reason)
    assert site["counterexample"] is None
    assert found.unproven == ([found.operators[0].unproven] if result is SAMPLED else [])


def test_a_counterexample_is_a_failure(prove) -> None:
    prove(COUNTEREXAMPLE)
    found = verify(space_to_batch(), space_to_batch_lowered())
    assert found.status == "failed"
    assert found.message == f"failed: {found.operators[0].label}: {DIFFERS}"
    assert found.operators[0].passed is False
    difference = found.first_difference
    assert difference is not None
    assert (difference.kind, difference.inputs) == ("operator", COUNTEREXAMPLE.inputs)
    (site,) = json.loads(json.dumps(found.to_dict()))["operators"]
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
    assert (found.status, found.operators[0].proven) == ("failed", None)


def test_an_operator_that_was_not_compared_is_not_sampled(prove) -> None:
    prove(SAMPLED)
    model = batch_to_space()
    model.graph.node[0].domain = "somebody.else"
    model.opset_import.append(onnx.helper.make_opsetid("somebody.else", 1))
    found = verify(model, model)
    assert not any(site.checks or site.end_to_end for site in found.operators)
    assert [site.proven for site in found.operators] == [None] * len(found.operators)


@pytest.mark.parametrize(
    ("scopes", "line"),
    [
        (["all sizes"], "proven for all sizes: 1 of 1 operator"),
        (["all sizes"] * 12, "proven for all sizes: 12 of 12 operators"),
        (
            ["sampled", "all sizes", "these sizes", "sampled", None],
            "proven for all sizes: 1 of 5 operators; these sizes: 1; sampled: 2; not compared: 1",
        ),
        (
            ["sampled", "these sizes", "these sizes"],
            "proven for these sizes: 2 of 3 operators; sampled: 1",
        ),
    ],
)
def test_the_line_of_the_screen(scopes, line) -> None:
    assert count_proofs(scopes) == line


def test_a_site_says_why_it_is_not_proven() -> None:
    site = OperatorResult("s2b", "main graph", "SpaceToBatchND", "", reason="no legal sizes")
    assert site.unproven == "SpaceToBatchND node 's2b' (main graph) is not proven: no legal sizes"
    site.proven = "these sizes"
    assert site.unproven is None


def test_the_screen_says_what_is_proven(paths, prove, tmp_path, capsys) -> None:
    original, converted = paths
    commands = (
        ["verify", original, converted],
        ["convert", original, "-o", str(tmp_path / "o.onnx")],
    )
    for command in commands:
        prove(ALL)
        assert run(command) == 0
        assert "\n  proven for all sizes: 1 of 1 operator\n" in capsys.readouterr().out
        assert run([*command, "-v"]) == 0
        out = capsys.readouterr().out
        assert all(f"\n  assumed: {assumption}\n" in out for assumption in ALL.assumptions)
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
        onnx_spatial.convert(space_to_batch(), verify=onnx_spatial.VerifyOptions(strict_proof=True))
    assert failure.value.verification.status == "passed"
    prove(ALL)
    assert onnx_spatial.convert(
        space_to_batch(), verify=onnx_spatial.VerifyOptions(strict_proof=True)
    ).changed


def test_strict_proof_needs_a_verification(paths, capsys) -> None:
    assert run(["convert", paths[0], "--dry-run", "--strict-proof", "--no-verify"]) == 2
    assert "--strict-proof and --no-verify cannot be combined" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (space_to_batch(), onnx_spatial.convert(space_to_batch(), verify=False).model),
        (batch_to_space(), batch_to_space_lowered()),
        (patches(), patches_lowered()),
    ],
)
def test_open_sizes_are_proven_and_run_once(
    before: onnx.ModelProto, after: onnx.ModelProto
) -> None:
    found = verify(before, after)
    assert found.status == "passed"
    (site,) = found.operators
    assert (site.proven, site.proof_reason) == ("all sizes", None)
    assert set(proof.STANDING) <= set(site.assumptions)
    assert len({run.inputs["x"]["shape"] for run in found.runs}) == 1
    assert {c.optimised for c in site.checks if c.how == "isolated"} == {False, True}
    # One usual size, and no images, which no proof is about.
    assert sum(shape[0] > 0 for shape in {c.shape for c in site.checks if c.how == "isolated"}) == 1


def test_an_operator_that_is_not_proven_runs_at_several_sizes(prove) -> None:
    prove(SAMPLED)
    found = verify(space_to_batch(), space_to_batch_lowered())
    assert len({run.inputs["x"]["shape"] for run in found.runs}) > 1
    assert len({c.shape for c in found.operators[0].checks if c.how == "isolated"}) > 2


def test_a_changed_rest_runs_at_several_sizes() -> None:
    """The proof is about the operator; what the conversion has no reason to change is sampled."""
    text = """
        g (float[N,4,6,2] x) => (float[A,B] y) <int64[2] flat = {0, -1}>
        { BODY y = Reshape(p, flat) }
    """
    site = """p = tf.ExtractImagePatches<ksizes = [1, 2, 2, 1], strides = [1, 2, 2, 1],
                  rates = [1, 1, 1, 1], padding = "VALID">(a)"""
    before = model(text.replace("BODY", f"a = Neg(x) {site}"))
    same = onnx_spatial.convert(before, verify=False).model
    other = onnx_spatial.convert(
        model(text.replace("BODY", f"b = Neg(x) c = Neg(b) a = Neg(c) {site}"))
    ).model
    runs = [len(verify(before, after).runs) for after in (same, other)]
    assert runs[0] < runs[1]


def test_static_sizes_are_proven() -> None:
    found = verify(space_to_batch(shape="2,5,6,3"), space_to_batch_lowered(shape="2,5,6,3"))
    (site,) = found.operators
    assert (site.proven, site.assumptions) == ("these sizes", ())


@pytest.mark.parametrize(
    ("element_type", "scope"),
    [
        ("float", "these sizes"),
        ("int64", "these sizes"),
        ("float16", "these sizes"),
        ("int8", "sampled"),  # not enough values
    ],
)
def test_static_sizes_are_proven_by_a_run_where_the_prover_gives_up(
    element_type: str, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "MAX_SECONDS", 0.0)
    arguments = (element_type, "2,5,6,3")
    found = verify(space_to_batch(*arguments), space_to_batch_lowered(*arguments))
    assert (found.status, found.operators[0].proven) == ("passed", scope)
    wrong = verify(
        space_to_batch(*arguments), space_to_batch_lowered(*arguments, perm="4, 2, 0, 1, 3, 5")
    )
    assert (wrong.status, wrong.operators[0].proven) == ("failed", None)


def test_nodes_that_look_at_the_data_are_not_proven_by_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Right for every number but 77."""
    monkeypatch.setattr(proof, "MAX_SECONDS", 0.0)
    before, after = (m("float", "2,5,6,3") for m in (space_to_batch, space_to_batch_lowered))
    more = model(
        "g (float[1] y0) => (float[1] y) <float k = {77.0}, float z = {0.0}>"
        "{ e = Equal(y0, k) y = Where(e, z, y0) }"
    ).graph
    after.graph.node[-1].output[0] = "y0"
    after.graph.node.extend(more.node)
    after.graph.initializer.extend(more.initializer)
    assert verify(before, after).operators[0].proven == "sampled"


def test_equal_operators_are_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        g (float[N,H,W,3] x, float[N,H,W,3] z) => (float[A,B,C,D] y, float[E,F,G,I] u)
          <int32[2] block = {2, 3}, int32[2,2] pads = {1, 1, 0, 3}, int32[2,2] more = {1, 1, 0, 0}>
        { y = tf.SpaceToBatchND(x, block, pads) u = tf.SpaceToBatchND(z, block, PADS) }
    """
    attempts: list[object] = []
    attempt = proof.index_maps.prove
    monkeypatch.setattr(proof.index_maps, "prove", lambda *a: attempts.append(a) or attempt(*a))
    for pads, count in (("pads", 1), ("more", 2)):
        before = model(text.replace("PADS", pads))
        for node, name in zip(before.graph.node, ("first", "second"), strict=True):
            node.name = name
        attempts.clear()
        found = verify(before, onnx_spatial.convert(before, verify=False).model)
        assert [site.proven for site in found.operators] == ["all sizes"] * 2
        assert len(attempts) == count


def conversion_with(nodes: str, constants: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model, and its conversion with nodes from the operator's output `whole` to y."""
    before = model("""
        g (float[N,H,W,C] x, int32[2,2] pads) => (float[P,Q,R,S] y) <int32[2] block = {2, 2}>
        { y = tf.SpaceToBatchND(x, block, pads) }
    """)
    after = onnx_spatial.convert(before, verify=False).model
    more = model(
        f"g (float[A,B,C,D] whole) => (float[P,Q,R,S] y) <{constants}> {{ {nodes} }}"
    ).graph
    for node in after.graph.node:
        node.output[:] = ["whole" if name == "y" else name for name in node.output]
    after.graph.node.extend(more.node)
    after.graph.initializer.extend(more.initializer)
    return before, after


@pytest.mark.parametrize(
    ("nodes", "constants", "at_least"),
    [
        # Rows beyond 4,000 are lost, which no sampled size reaches.
        ("y = Slice(whole, zero, end, one)",
         "int64[1] zero = {0}, int64[1] end = {2000}, int64[1] one = {1}", 2001),
        # An element is taken from its neighbour.
        ("s = Slice(whole, one, end, three) l = Slice(whole, zero, one, three) "
         "y = Concat<axis = 3>(s, l)",
         "int64[1] zero = {0}, int64[1] end = {9223372036854775807}, int64[1] one = {1}, "
         "int64[1] three = {3}", 1),
    ],
)  # fmt: skip
def test_what_is_wrong_at_some_size_is_disproved(nodes: str, constants: str, at_least: int) -> None:
    found = verify(*conversion_with(nodes, constants))
    assert found.status == "failed"
    (site,) = found.operators
    assert site.proven is None
    counterexample = site.counterexample
    assert counterexample is not None
    assert counterexample.message in found.message
    assert max(counterexample.inputs["x"].shape) >= at_least
    assert set(counterexample.parameters) == {"block", "pads"}


def test_a_counterexample_names_the_elements() -> None:
    nodes = "s = Slice(whole, one, end, one) l = Slice(whole, zero, one, one) y = Concat<axis = 1>(s, l)"
    constants = "int64[1] zero = {0}, int64[1] end = {9223372036854775807}, int64[1] one = {1}"
    found = verify(*conversion_with(nodes, constants))
    counterexample = found.operators[0].counterexample
    assert counterexample is not None and counterexample.element is not None
    x, value = counterexample.inputs["x"], counterexample.reason
    assert value.startswith("is ") and " instead of " in value and "x[" in value
    assert x.size < 200


def test_a_region_that_became_a_convolution_is_proven_and_run_once() -> None:
    original, converted = filled(PLAIN.original), filled(PLAIN.converted)
    found = verify(original, converted)
    assert found.status == "passed"
    for site in found.operators:
        assert site.proven == "all sizes"
        checks = [c for c in site.checks if c.how == "isolated"]
        assert {c.optimised for c in checks} == {False, True}
        assert len({c.shape for c in checks}) == 1
        assert all(c.max_ulps is None for c in checks)  # no double precision is needed
    assert len(found.runs) == 1
    for mutant in PLAIN.mutants():
        wrong = verify(original, filled(mutant))
        assert (wrong.status, {s.proven for s in wrong.operators}) == ("failed", {None})


def test_a_rank_that_is_unknown() -> None:
    def reshaped(nodes: str) -> onnx.ModelProto:
        made = model(f"""
            g (float[N,H,3] x, int64[K] s) => (float[A,B,3] y)
              <int32[9] block = {{{",".join("1" * 9)}}}, int32[9,2] pads = {{{",".join("0" * 18)}}}>
            {{ r = Reshape(x, s) {nodes} }}
        """)
        made.graph.output[0].type.tensor_type.ClearField("shape")
        return made

    original = reshaped("y = tf.SpaceToBatchND(r, block, pads)")
    (site,) = verify(original, reshaped("y = Identity(r)")).operators
    assert site.proven == "all sizes"
    assert "the rank is at most 10" in site.assumptions


def test_a_counterexample_beside_large_numbers() -> None:
    before = model("""
        g (float[N,H,3] x) => (float[A,B,3] y) <int32[1] block = {2}, int32[1,2] pads = {0, 0}>
        { y = tf.SpaceToBatchND(x, block, pads) }
    """)
    after = model("""
        g (float[N,H,3] x) => (float[A,B,3] y)
          <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},
           int64[1] end = {9223372036854775807}, int64[1] large = {17179869184},
           int64[1] limit = {36028797018963968}>
        {
            s = Shape(x) n = Gather(s, zero) h = Gather(s, one) cells = Div(h, two)
            split = Concat<axis = 0>(n, cells, two, three) r = Reshape<allowzero = 1>(x, split)
            t = Transpose<perm = [2, 0, 1, 3]>(r) images = Mul(n, two)
            shape = Concat<axis = 0>(images, cells, three) whole = Reshape<allowzero = 1>(t, shape)
            b = Mul(h, large) a = Add(b, n) q = Greater(a, limit) k = Cast<to = 7>(q)
            u = Slice(whole, k, end, one) v = Slice(whole, zero, k, one) y = Concat<axis = 1>(u, v)
        }
    """)
    counterexample = verify(before, after).operators[0].counterexample
    assert counterexample is not None
    assert counterexample.inputs["x"].shape[1] >= 2**21


@pytest.mark.parametrize("name", ["openvino_batch_to_space_attributes", "tf2onnx_batch_to_space"])
def test_lowerings_with_computed_blocks_have_no_computed_tables(name):
    """A Gather by such a table is estimated to be a little faster, but its proof takes too long."""
    converted = onnx_spatial.convert(grid.model(grid.get(f"{name}/run_time")))
    (site,) = converted.operators
    assert site.lowering in ("transpose", "staged")
    assert site.candidates[0].estimated_us <= 1.2 * min(c.estimated_us for c in site.candidates)
    assert converted.verification is not None
    assert not converted.verification.unproven
