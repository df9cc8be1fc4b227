"""The verdicts of docs/verification.md and limits of ranks: what is said, exit codes, and the file."""

import os
import re
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from commands import S2B, write

import onnx_spatial
from onnx_spatial import Verification, api, verification
from onnx_spatial.cli.output import PIPE_WIDTH
from onnx_spatial.verification import Counterexample, OperatorResult, Unproven

#: Nobody knows what `shape` may be.
MODEL = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
net (float[2,4,6,3] x, int64[2] shape) => (float[?,?] z)
<int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}> {
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
    [cut] z = Reshape(y, shape)
}"""
WARNING = "warning: the result is not verified; --strict makes this an error"

PART = Unproven("Relu node 'r' (main graph)", "other formula", "computes Clip(x, 0, 6)")
VERDICTS = {
    "proven": Verification("passed", "passed: proven: 1 operator for every size", "proven"),
    "sampled": Verification("passed", f"passed: sampled: {PART}", "sampled", unproven=[PART]),
    "unverified": Verification("unverified", "unverified: out of time", problems=["out of time"]),
    "failed": Verification("failed", "failed: output 'z' differs", problems=["output 'z' differs"]),
}


@pytest.fixture(autouse=True)
def model(cli):
    write(MODEL, "m.onnx")


@pytest.fixture
def says(monkeypatch):
    """Let every comparison end with a verdict."""

    def set_verdict(found: Verification) -> None:
        for room, name in ((verification, "verify"), (api, "compare")):
            monkeypatch.setattr(room, name, lambda *_, **__: replace(found))

    return set_verdict


@pytest.mark.parametrize(
    ("verdict", "option", "of_verify", "of_convert"),
    [
        ("proven", "--strict-proof", 0, 0),
        ("sampled", "--strict", 0, 0),
        ("sampled", "--strict-proof", "not-proven", 1),
        ("unverified", "-v", 1, 0),
        ("unverified", "--strict", 1, 1),
        ("unverified", "--strict-proof", "unverified", 1),
        ("failed", "-v", 1, 1),
        ("failed", "--strict-proof", "different", 1),
    ],
)
def test_exit_codes_and_errors_in_python(verdict, option, of_verify, of_convert, says, cli):
    says(VERDICTS[verdict])
    assert cli(f"verify m.onnx m.onnx {option}").code == (0 if of_verify == 0 else 1)
    done = cli(f"convert m.onnx -o out.onnx {option}")
    assert done.code == of_convert and Path("out.onnx").exists() == (of_convert == 0)
    assert of_convert == 0 or done.err.splitlines()[-1].startswith("error: ")
    assert bool(onnx_spatial.verify("m.onnx", "m.onnx")) == (verdict in ("proven", "sampled"))
    if isinstance(of_verify, str):
        options = onnx_spatial.VerifyOptions(strict_proof=True)
        with pytest.raises(onnx_spatial.VerificationError) as caught:
            onnx_spatial.verify("m.onnx", "m.onnx", options)
        assert caught.value.code == of_verify
        assert str(PART if verdict == "sampled" else VERDICTS[verdict].message) in str(caught.value)


def test_verbose_has_a_row_for_each_operator_and_every_problem(says, cli):
    known = ("main graph", "SpaceToBatchND", "tf")
    shown = Counterexample({}, {}, None, "has another shape", "y")
    operators = [
        OperatorResult("a", *known, proven="all sizes", ran=True, assumptions=("H is even",)),
        OperatorResult("b", *known, unproven=Unproven("b", "gave up", "gave up: a loop"), ran=True),
        OperatorResult("c", *known, reason="it is left as it is"),
        OperatorResult("d", *known, reason="it differs", counterexample=shown),
    ]
    problems = ["one", *"abcdefgh"]
    says(Verification("failed", "failed: one (and 8 more)", operators=operators, problems=problems))
    lines = cli("verify m.onnx m.onnx -v").lines
    rows = ["every size agrees", "not proven agrees", "it is left as it is", "DIFFERS"]
    assert [" ".join(line.split()[2:]) for line in lines[1:5]] == rows
    assert lines[5] == "FAILED  one" and "  assumed: H is even" in lines
    assert "  h" in lines and not any("more (-v" in line for line in lines)
    lines = cli("verify m.onnx m.onnx").lines
    assert "  and 2 more (-v shows them)" in lines and "  h" not in lines
    assert max(map(len, lines)) < PIPE_WIDTH


def test_an_unverified_result_is_written_with_a_warning(cli):
    done = cli("convert m.onnx -o out.onnx")
    assert "UNVERIFIED  " in done.out and WARNING in done.lines and Path("out.onnx").exists()
    done = cli("convert m.onnx -o out.onnx -q")
    assert done.out == "" and done.err == WARNING.replace("the", "m.onnx: the", 1) + "\n"
    found = cli("convert m.onnx -o out.onnx --json").document["verification"]
    assert (found["status"], found["evidence"]) == ("unverified", None)
    assert cli("convert m.onnx --in-place").code == 0  # the original keeps its second name
    assert sorted(os.listdir()) == ["m.onnx", "m.onnx.orig", "out.onnx"]


def test_a_lowering_that_differs_is_named_with_another_that_is_possible(says, cli):
    (operator,) = onnx_spatial.inspect("m.onnx").operators
    shown = Counterexample({}, {}, None, "has another shape", "y")
    wrong = OperatorResult("s2b", "main graph", "SpaceToBatchND", "tf", counterexample=shown)
    says(replace(VERDICTS["failed"], operators=[wrong], advice="convert it again"))
    done = cli("convert m.onnx -o out.onnx")
    lines = done.err.splitlines()
    (line,) = [line for line in lines if "was converted by" in line]
    others = {candidate.lowering for candidate in operator.candidates} - {operator.lowering}
    assert line.startswith(f"  's2b' was converted by lower: {operator.lowering}; try --prefer ")
    assert line.split("--prefer ")[1].split(",")[0] in others
    assert done.code == 1 and sum("output 'z' differs" in line for line in lines) == 1
    assert not any("convert it again" in line for line in lines)


@pytest.mark.parametrize("prefer", [None, "slices"])
@pytest.mark.parametrize("name", ["s2b", ""])
def test_verify_names_the_lowering_of_the_file_and_another_one(prefer, name, cli):
    original = onnx.parser.parse_model(S2B)
    original.graph.node[0].name = name
    onnx.save(original, "m.onnx")
    made = onnx_spatial.convert("m.onnx", prefer=prefer, verify=False)
    used, model = made.operators[0].lowering, made.model
    kind = "Transpose" if prefer is None else "Concat"
    node = next(node for node in model.graph.node if node.op_type == kind)
    if prefer is None:
        node.attribute[0].ints[:2] = node.attribute[0].ints[1::-1]
    else:
        node.input[0], node.input[1] = node.input[1], node.input[0]
    onnx.save(model, "wrong.onnx")
    done = cli("verify m.onnx wrong.onnx")
    label = name or "<y>"
    (line,) = [each for each in done.lines if f"'{label}' was converted by lower: {used};" in each]
    assert done.code == 1
    assert re.search(r"; try --prefer ([\w-]+), and report it$", line)[1] != used


# `--max-rank`: which nodes do not fit, and what is said of them

HEAD = '<ir_version: 8, opset_import: ["" : 17, "f" : 1]> g '
TYPES = ["Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Neg", "Relu", "Sin"]
MODELS = {
    # Its ends have rank 6, so that nothing can be rewritten.
    "six": """(float[1,2,3,4,5,6] x) => (float[1,2,3,4,5,6] y) {
        [first] a = Relu(x) [second] b = Relu(a) [third] c = Relu(b) [fourth] d = Relu(c)
        [last] y = Neg(d) }""",
    "four": "(float[1,2,3,4] x) => (float[1,2,3,4] y) { y = Relu(x) }",
    "open": """(float[2,3] x, int64[r] s) => (float y) {
        [open] a = Reshape(x, s) [sum] y = ReduceSum <keepdims = 0> (a) }""",
    "many": "(float[1,1,1,1,1] v0) => (float[1,1,1,1,1] v10) {"
    + " ".join(f"v{i + 1} = {name}(v{i})" for i, name in enumerate(TYPES))
    + "}",
    "turn": """(float[1,2,3,4,5,6] x) => (float[1,4,2,5,3,6] y) {
        [turn] y = Transpose <perm = [0, 3, 1, 4, 2, 5]> (x) }""",
    # Nodes that compute constants do not count.
    "constant": """(float[2,3] x, float[n,3] u) => (float[2,3] y, int64[2] z)
        <float[6,1] w = {1, 2, 3, 4, 5, 6}, int64[6] six = {1, 1, 1, 2, 1, 3}, int64[2] two = {2, 3}> {
        a = Reshape(w, six) b = Transpose(a) c = Reshape(b, two) s = Shape(x) z = Shape(u)
        y = Add(x, c) }""",
    "called": """(float[1,2,3,4] x, bool c) => (float[?,?,?,?] y) { [choose] y = If (c) <
        then_branch = t () => (float[?,?,?,?] o) { [called] o = f.fold(x) },
        else_branch = e () => (float[?,?,?,?] p) { [plain] p = Relu(x) }> }
        <domain: "f", opset_import: ["" : 17]> fold (a) => (b) {
            six = Constant <value_ints = [1, 1, 2, 3, 2, 2]> ()
            four = Constant <value_ints = [1, 2, 3, 4]> ()
            [split] s = Reshape(a, six) m = Softmax <axis = 5> (s) [join] b = Reshape(m, four) }""",
    # Sequences have no rank.
    "sequence": """(float[2,3] x) => (float[?,?] y) {
        s = SequenceConstruct(x) y = ConcatFromSequence <axis = 0> (s) }""",
}  # fmt: skip


@pytest.fixture
def models(cli):
    for name, text in MODELS.items():
        write(HEAD + text, f"{name}.onnx")


RELUS = "  Relu: rank 6, the limit is 5: first, second, third"
NEG = "  Neg: rank 6, the limit is 5: last"
TURN = "  Transpose: rank 6, the limit is 5: turn; the chain stays: its input 'x' has rank 6"
SAME = "six.onnx: no spatial operators, nothing was changed"
OPEN = "every other node fits rank 4; of 2 nodes a rank is unknown (-v shows them)"


@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        ("six.onnx --max-rank 5", 3, [SAME, "5 nodes do not fit rank 5:", f"{RELUS} and 1 more", NEG]),
        ("six.onnx --max-rank 6", 0, ["every node fits rank 6"]),
        ("six.onnx four.onnx --max-rank 5", 3, ["every node fits rank 5"]),
        ("four.onnx --max-rank 3", 3, ["1 node does not fit rank 3:"]),
        ("open.onnx --max-rank 4", 0, [OPEN]),
        ("many.onnx --max-rank 4", 3, ["10 nodes do not fit rank 4:",
                                       "  and 2 other reasons (-v shows all)"]),
        ("turn.onnx --max-rank 5", 3, [TURN]),
        ("constant.onnx --max-rank 5", 0, ["every node fits rank 5"]),
        ("called.onnx --max-rank 4", 3, ["3 nodes do not fit rank 4:",
                                         "  Softmax: rank 6, the limit is 4: <m>"]),
        ("sequence.onnx --max-rank 4", 0, ["every node fits rank 4"]),
    ],
)  # fmt: skip
def test_what_is_said_of_ranks_and_the_exit_code(words, code, lines, cli, models):
    done = cli(f"optimize --dry-run {words}")
    assert done.code == code
    at = [done.lines.index(line) for line in lines]
    assert at == sorted(at)
    assert "nothing to gain" not in done.out
    assert ("Sin: " in cli(f"optimize --dry-run {words} -v").out) == words.startswith("many")


def test_the_result_is_written_and_said_in_one_line_or_as_json(cli, models):
    done = cli("optimize six.onnx -o out.onnx --max-rank 5 -q")
    assert (done.code, done.out) == (3, "")
    assert done.error == "error: six.onnx: 5 nodes do not fit rank 5"
    assert Path("out.onnx").read_bytes() == Path("six.onnx").read_bytes()
    limits = cli("optimize six.onnx --dry-run --json --max-rank 5").document["limits"]
    assert limits["max_rank"] == 5 and limits["nodes"][0]["shape"] == [1, 2, 3, 4, 5, 6]
    assert [each["node"] for each in limits["nodes"]][-2:] == ["fourth", "last"]
    limits = cli("optimize open.onnx --dry-run --json --max-rank 4").document["limits"]
    assert limits["nodes"] == [] and [each["node"] for each in limits["unknown"]] == ["open", "sum"]
    assert cli("optimize six.onnx --dry-run --json").document["limits"] is None
    assert onnx_spatial.convert("six.onnx", max_rank=4).inspection.limits is None
