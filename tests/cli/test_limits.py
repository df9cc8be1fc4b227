"""`--max-rank`: which nodes do not fit, what is said of them, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import write

import onnx_spatial

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


@pytest.fixture(autouse=True)
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
def test_what_is_said_and_the_exit_code(words, code, lines, cli):
    done = cli(f"optimize --dry-run {words}")
    assert done.code == code
    at = [done.lines.index(line) for line in lines]
    assert at == sorted(at)
    assert "nothing to gain" not in done.out
    assert ("Sin: " in cli(f"optimize --dry-run {words} -v").out) == words.startswith("many")


def test_the_result_is_written_and_said_in_one_line_or_as_json(cli):
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
