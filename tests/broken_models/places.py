"""Define broken nodes outside the main graph, and nodes that no standard operator can express."""

from __future__ import annotations

from broken_models.case import BLOCK, OPENVINO, TENSORFLOW, Case, files, one_node

BROKEN = "TF.SpaceToBatchND(v, block, amounts)"
LAYERS = f'<domain: "my.layers", opset_import: ["" : 17, "{TENSORFLOW}" : 1, "{OPENVINO}" : 1]>\n'


def _refused(wrong: str, *says: str, made: dict[str, bytes], convert: int | None = None) -> Case:
    return Case(wrong, "conversion", says, made, convert=convert, inspect=convert)


IN_LOOP = f"""net (float[2,4,7,3] x, int64 turns) => (float[?,?,?,?] y) <{BLOCK}, bool yes = {{1}}> {{
    [steps] y = Loop <body = step (int64 i, bool on, float[2,4,7,3] v) => (bool go, float[2,4,7,3] w) {{
        go = Identity(on)
        [broken] p = {BROKEN}
        w = Identity(v)
    }}> (turns, yes, x)
}}"""
IN_BRANCH = f"""net (float[2,4,7,3] v, bool asked) => (float[?,?,?,?] y) <{BLOCK}> {{
    [either] y = If (asked) <
        then_branch = cut () => (float[?,?,?,?] a) {{ [broken] a = {BROKEN} }},
        else_branch = keep () => (float[?,?,?,?] b) {{ b = Identity(v) }}
    >
}}"""
IN_FUNCTION = """net (float[2,4,7,3] x) => (float[?,?,?,?] y) { [layer] y = my.layers.Cut(x) }
"""
CUT = f"""{LAYERS}
Cut (v) => (w) {{
    block = Constant <value_ints = [2, 3]> ()
    amounts = Constant <value = int32[2,2] {{0, 0, 0, 0}}> ()
    [broken] w = {BROKEN}
}}"""
DISAGREEING = """net (float[2,4,6,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {
    [fine] y = my.layers.Patches <size = [1, 2, 2, 1]> (x)
    [coarse] z = my.layers.Patches <size = [1, 3, 3, 1]> (x)
}
"""
PATCHES = f"""{LAYERS}
Patches <size> (v) => (w) {{
    [broken] w = TF.ExtractImagePatches <ksizes: ints = @size, strides = [1, 1, 1, 1],
        rates = [1, 1, 1, 1], padding = "VALID"> (v)
}}"""
CALL = "TF.SpaceToBatchND(x, block, amounts)"

CASES = {
    "in_loop": _refused(
        "the block does not divide the width, in the body of a Loop",
        *("'broken'", "main graph > Loop y.body", "axis 2: size 7", "its block, 3"),
        made=files(IN_LOOP),
    ),
    "in_branch": _refused(
        "the block does not divide the width, in one branch of an If",
        *("'broken'", "main graph > If y.then_branch", "axis 2: size 7", "its block, 3"),
        made=files(IN_BRANCH),
    ),
    "in_function": _refused(
        "the block does not divide the width, in a local function",
        *("'broken'", "function my.layers:Cut", "size 7", "its block, 3"),
        made=files(IN_FUNCTION, functions=CUT),
    ),
    "function_calls_disagree": _refused(
        "a function whose calls give different window sizes",
        *("'broken'", "function my.layers:Patches", "ksizes", "inline the function first"),
        made=files(DISAGREEING, functions=PATCHES),
    ),
    "opset_6": _refused(
        "opset 6, older than anything that onnxruntime runs",
        *("'broken'", "opset is 6", "needs 7", "export the model again"),
        made=files(
            f"net (float[2,4,6,3] x) => (float[?,?,?,?] y) <{BLOCK}> {{ [broken] y = {CALL} }}",
            opset=6,
        ),
    ),
    "complex_numbers": _refused(
        "complex data, which onnxruntime has not",
        *("'broken'", "complex64"),
        made=one_node(CALL, "complex64[2,4,6,3]", BLOCK),
    ),
    "bfloat16_opset_12": _refused(
        "bfloat16 data in opset 12, in which no standard operator takes it",
        *("'broken'", "opset is 12", "bfloat16 needs 13", "export the model again"),
        made=files(
            f"net (bfloat16[2,4,6,3] x) => (bfloat16[?,?,?,?] y) <{BLOCK}> "
            f"{{ [broken] y = {CALL} }}",
            opset=12,
        ),
    ),
    "blocked_axes_unknown": _refused(
        "a block shape that is an input of unknown length",
        *("'broken'", "block_shape", "length is unknown", "--static"),
        made=files(
            "net (float[2,4,6,3] x, int32[m] block, int32[m,2] amounts) => (float[?,?,?,?] y) "
            f"{{ [broken] y = {CALL} }}"
        ),
    ),
    "unknown_domain": _refused(
        "the operator in a domain that nobody knows; without --strict it is unverified",
        *("'broken'", "'somebody.else'", "--domain somebody.else"),
        made=one_node("somebody.else.SpaceToBatchND(x, block, amounts)", "float[2,4,6,3]", BLOCK),
        convert=0,
    ),
}
