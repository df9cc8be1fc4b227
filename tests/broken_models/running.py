"""Define models that cannot be verified, and models that crash or block their process."""

from __future__ import annotations

from broken_models.case import BLOCK, Case, files

S2B = "TF.SpaceToBatchND(x, block, amounts)"


def _unverified(wrong: str, *says: str, graph: str) -> Case:
    return Case(wrong, "unverified", says, files(graph), "unverified")


UNVERIFIED = {
    "foreign_operator_alone": _unverified(
        "an operator of somebody else, and nothing to convert",
        *("Magic", "somebody.else"),
        graph="net (float[4] x) => (float[4] y) { [magic] y = somebody.else.Magic(x) }",
    ),
    "no_legal_sizes": _unverified(
        "sizes that no input satisfies: the width is a multiple of 3, and 7",
        *("no legal sizes were found for N, W", "--shape x=SIZE", "--shape a=SIZE"),
        graph="net (float[N,4,W,3] x, float[W] a, float[7] b) => (float[?,?,?,?] y, float[?] z) "
        f"<{BLOCK}> {{ [s2b] y = {S2B} [add] z = Add(a, b) }}",
    ),
    "sizes_from_data": _unverified(
        "data of which nobody knows what it may be: it says where to cut",
        *("no legal values were found for 'shape'", "Reshape", "'cut'", "test_data_set_0"),
        graph=f"net (float[2,4,6,3] x, int64[2] shape) => (float[?,?] z) <{BLOCK}> "
        f"{{ [s2b] y = {S2B} [cut] z = Reshape(y, shape) }}",
    ),
}

PROCESSES = {
    "crash": Case(
        "onnxruntime divides the least integer by -1, which x86 answers with a signal",
        "crash",
        ("the process ends with SIGFPE",),
        files(
            f"net (float[2,4,6,3] x, int64[1] i) => (float[?,?,?,?] y, int64[1] j) "
            f"<{BLOCK}, int64[1] low = {{-9223372036854775808}}, int64[1] one = {{-1}}> "
            f"{{ [s2b] y = {S2B} [divide] d = Div(low, one) j = Add(i, d) }}"
        ),
        status="unverified",
    ),
    "hang": Case(
        "a node of 5,000,000,000,000 comparisons",
        "timeout",
        ("the process takes longer than", "(--timeout"),
        files(
            "net (float[1,1,3000,3000] x) => (float[?,?,?,?] y) "
            "{ [pool] y = MaxPool <kernel_shape = [1500, 1500]> (x) }"
        ),
        status="unverified",
    ),
    "memory": Case(
        "a constant of 4 GB",
        "memory",
        ("needs more than", "of memory (--memory"),
        files(
            "net (float[4] x) => (float[4] y) <int64[1] n = {1000000000}> "
            "{ [fill] z = ConstantOfShape(n) s = ReduceSum(z) y = Add(x, s) }"
        ),
        status="unverified",
    ),
}

CASES = {**UNVERIFIED, **PROCESSES}
