"""Every operator in prepared models: what these look like, where, that they run and are read again."""

from random import Random

import definitions
import graphs
import holders
import numpy as np
import onnx
import programs
import pytest
import reference
import running
import structure
from building import ELEMENT_TYPES, TF, feeds_of, one_node
from definitions import batch_to_space, space_to_batch
from onnx import helper
from parsing import image, model
from test_cases import NEGATIVE, ids
from test_subgraphs_and_functions import changing_loop, two_types
from vocabulary import ORIGIN, PYTHON_DOMAIN

import onnx_spatial
from onnx_spatial import ConversionError, OperatorError, custom_ops
from onnx_spatial.python_ops import kernels

extensions = pytest.importorskip("onnxruntime_extensions")


def prepare(made: onnx.ModelProto) -> onnx.ModelProto:
    """The prepared model; what was given stays as it was, what comes out is valid."""
    before = made.SerializeToString(deterministic=True)
    prepared = custom_ops.prepare(made)
    assert made.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(prepared)
    return prepared


def assert_agree(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Prepared, it gives the reference's outputs in a program's own session."""
    prepared = prepare(made)
    for each in feeds:
        expected = reference.run(made, each)
        for level in running.LEVELS:
            results = running.run_session(programs.own(prepared, level), each)
            for result, wanted in zip(results, expected, strict=True):
                assert running.same_bits(result, np.asarray(wanted))
    return prepared


def constant(prepared: onnx.ModelProto, name: str) -> list[int]:
    (tensor,) = (t for t in prepared.graph.initializer if t.name == name)
    return onnx.numpy_helper.to_array(tensor).tolist()


SPACE_TO_BATCH = """g (float[2,3,W,C] x) => (float[8,2,?,C] y)
    <int32[2] block = {2, 2}, int32[2,2] pads = {1, 0, 0, 0}> {
        [aspp] y = M.SpaceToBatchND(x, block, pads)
    }"""


def test_a_node_becomes_one_of_ours_and_a_reshape_that_lets_errors_out():
    made = model(SPACE_TO_BATCH)
    made.graph.node[0].doc_string = "atrous"
    made.graph.node[0].metadata_props.add(key="owner", value="me")
    prepared = assert_agree(made, {"x": image(2, 3, 4, 3)})
    told = [{p.key: p.value for p in node.metadata_props} for node in prepared.graph.node]
    assert [each[ORIGIN] for each in told] == ["SpaceToBatchND aspp"] * 2
    assert (told[1]["owner"], prepared.graph.node[-1].doc_string) == ("me", "atrous")
    site, check = prepared.graph.node
    assert (site.domain, site.op_type) == (PYTHON_DOMAIN, "SpaceToBatch")
    assert site.name == "aspp/SpaceToBatch"
    assert (check.op_type, list(check.output)) == ("Reshape", ["y"])
    attributes = {a.name: helper.get_attribute_value(a) for a in site.attribute}
    assert attributes == {"site": b"SpaceToBatchND 'aspp' in main graph", "batch_entry": 0}
    assert constant(prepared, site.input[1]) == [2, 2]
    assert constant(prepared, site.input[2]) == [[1, 0], [0, 0]]
    assert constant(prepared, check.input[1]) == [8, 2, 0, 0]  # 0: as it comes
    imports = {o.domain: o.version for o in prepared.opset_import}
    assert imports == {"": 17, PYTHON_DOMAIN: 1}


@pytest.mark.parametrize(
    ("dtype", "opset", "expected"),
    [
        ("float32", 17, "BatchToSpace Reshape"),
        ("float16", 17, "Shape ReduceProd Range Reshape BatchToSpace Reshape Reshape Gather"),
        ("float16", 26, "BitCast BatchToSpace Reshape BitCast"),
    ],
)
def test_elements_that_cannot_enter_python_stay_outside(dtype, opset, expected):
    if opset > running.newest_opset():
        pytest.skip("BitCast came with opset 26")
    inputs = (image(4, 2, 2, 1).astype(dtype), np.array([2, 2]), np.zeros((2, 2), int))
    made = one_node("BatchToSpaceND", inputs, opset=opset, ir_version=running.ir_version_of(opset))
    prepared = assert_agree(made, {"x": inputs[0]})
    assert structure.ops(prepared) == expected.split()
    again = custom_ops.prepare(prepared)
    assert again is prepared
    strict = onnx_spatial.VerifyOptions(strict=True)
    done = onnx_spatial.convert(prepared, mode="custom-op", verify=strict)
    assert not done.changed
    assert [(s.action, s.lowering) for s in done.operators] == [("leave", None)]


# Places


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
@pytest.mark.parametrize(("opset", "shape"), [(11, "[?,?,?,?]"), (17, "[1,4,4,1]")])
@pytest.mark.parametrize(
    ("pads", "declared"), [("0, 0, 0, 0", ""), ("1, 1, 0, 2", ", string[?] m")]
)
def test_behind_an_operator_of_onnxruntime_extensions_whose_type_onnx_does_not_know(
    mode, opset, shape, pads, declared
):
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}, "ai.onnx.contrib" : 1, "com.microsoft" : 1]>
        g (string{shape} words) => (string[?,?,?,?] y)
        <int64[2] block = {{2, 2}}, int64[2,2] table = {{{pads}}}{declared}> {{
            x = ai.onnx.contrib.StringUpper(words)
            m = com.microsoft.SpaceToBatchND(x, block, table)
            y = Identity(m)
        }}"""
    )
    for value in made.graph.value_info:
        value.type.tensor_type.ClearField("shape")
    options = programs.options()
    if mode != "custom-op":
        options.register_custom_ops_library(extensions.get_library_path())
    session = onnx_spatial.InferenceSession(made, options, mode=mode)
    words = np.array([*"abcdefghijklmnop"], object).reshape(1, 4, 4, 1)
    (y,) = session.run(None, {"words": words})
    table = np.array(pads.split(", "), int).reshape(2, 2).tolist()
    numbers = space_to_batch(np.arange(1, 17).reshape(1, 4, 4, 1), [2, 2], table)
    assert y.tolist() == np.array(["", *"ABCDEFGHIJKLMNOP"], object)[numbers].tolist()


@pytest.mark.parametrize("holder", holders.HOLDERS)
def test_in_other_places(holder):
    x = image(2, 4, 4, 3)
    site = one_node("SpaceToBatchND", (x, np.array([2, 2]), np.array([[1, 1], [0, 0]])))
    made = holders.HOLDERS[holder](site)
    feeds = [{"x": np.stack([x, -x])}] if holder == "scan" else [{"x": x}]
    if holder == "branch":
        feeds = [{"x": x, "take": np.array(take)} for take in (True, False)]
    inlined = onnx.inliner.inline_local_functions(assert_agree(made, *feeds))
    assert not structure.spatial(onnx_spatial.convert(inlined, verify=False).model)


@pytest.mark.parametrize("kind", ["double", "int64"])
def test_a_function_of_two_types_and_a_loop_whose_state_changes_its_shape(kind):
    feeds = {"a": image(2, 4, 4, 1), "b": image(2, 4, 4, 1).astype(kind)}
    assert_agree(two_types(kind), feeds)
    assert_agree(changing_loop(), {"x": image(1, 16, 1, 2), "n": np.array(3)})


# Reading it again


def test_a_prepared_model_is_lowered_to_what_the_original_is():
    b2s = (image(4, 2, 3, 1), np.array([2, 2]), np.array([[1, 0]] * 2))
    s2b = (image(2, 4, 4, 1, dtype=np.float16), np.array([2, 2]), np.array([[1, 1]] * 2))
    named = one_node("BatchToSpaceND", b2s), one_node("SpaceToBatchND", s2b)
    for given in (*named, model(SPACE_TO_BATCH)):
        again = onnx_spatial.convert(prepare(given), verify=False)
        wanted = onnx_spatial.convert(given, verify=False).model
        assert structure.ops(again.model) == structure.ops(wanted)
        assert not {o.domain for o in again.model.opset_import} & {PYTHON_DOMAIN, TF}
        assert [s.dialect for s in again.operators] == ["prepared"]


def test_conversion_verifies_a_prepared_model_by_running_it(monkeypatch):
    result = onnx_spatial.convert(model(SPACE_TO_BATCH), mode="custom-op")
    assert [(s.action, s.lowering) for s in result.operators] == [("custom-op", "direct")]
    assert result.verification
    assert [output.optimised for output in result.verification.outputs] == [False, True]
    assert all(o.equal_bits for o in result.verification.outputs)
    wrong = onnx.ModelProto.FromString(result.model.SerializeToString())
    (table,) = (t for t in wrong.graph.initializer if list(t.dims) == [2, 2] and t.data_type == 7)
    table.CopyFrom(onnx.numpy_helper.from_array(np.array([[0, 1], [0, 0]]), table.name))
    assert onnx_spatial.verify(model(SPACE_TO_BATCH), wrong).status == "failed"
    monkeypatch.setattr(kernels, "_run_plan", lambda plan, x: np.roll(plan.run(x, 0), 1))
    with pytest.raises(onnx_spatial.VerificationError, match="instead of x"):
        onnx_spatial.convert(model(SPACE_TO_BATCH), mode="custom-op")


@pytest.mark.parametrize(("op_type", "inverse"), [("SpaceToBatch", False), ("BatchToSpace", True)])
def test_tables_of_the_run_with_an_entry_for_the_batch_are_lowered(op_type, inverse):
    x = image(*((12, 3, 4) if inverse else (2, 5, 7)))
    block, table = np.array([1, 2, 3]), np.array([[0, 0], [1, 2], [0, 2]])
    given = one_node(
        op_type, (x, block, table), domain=PYTHON_DOMAIN, run_time=(1, 2), batch_entry=1
    )
    converted = onnx_spatial.convert(given, verify=False).model
    run = batch_to_space if inverse else space_to_batch
    expected = run(x, [2, 3], table[1:].tolist())
    feeds = {"x": x, "p1": block, "p2": table}
    for level in running.LEVELS:
        (result,) = running.run(converted, feeds, level)
        assert running.same_bits(result, expected)
    assert onnx_spatial.verify(given, converted)


@pytest.mark.parametrize("case", **ids([c for c in NEGATIVE if not c.may_accept]))
def test_broken_rules_are_refused_before_the_run_or_in_it(case):
    with pytest.raises(ConversionError, match="'site' in main graph"):
        custom_ops.prepare(case.model())
    model = case.model(symbolic=True, run_time_parameters=True)
    with pytest.raises((ConversionError, OperatorError), match="'site' in main graph"):
        programs.opened(model).run(None, case.feeds(run_time_parameters=True))


@pytest.mark.parametrize("count", [4, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("spelling", graphs.SPELLINGS)
def test_random_nodes_in_random_models(spelling, count):
    # Opsets 11 and newer, static, symbolic and unknown shapes and ranks, empty tensors, all types.
    for number in range(count):
        case = graphs.build(Random(f"custom-op {spelling} {number}"), spelling)
        (result,) = programs.run(case.model, case.feeds)
        assert running.same_bits(result, case.expected["y"]), case.about


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize(
    ("op_type", "shape"), [("SpaceToBatchND", (4, 3, 2, 3)), ("BatchToSpaceND", (4, 3, 2, 0))]
)
def test_every_bit_of_every_type_survives(dtype, op_type, shape):
    x = graphs.array(Random(dtype), dtype, shape)
    inputs = (x, np.array([2, 2]), np.array([[1, 0], [1, 1]]))
    expected = definitions.node(op_type, inputs, {})
    declarations = (shape, ("n", "h", "w", "c"), None)
    for opset, declared in zip((13, 17, running.newest_opset()), declarations, strict=True):
        ir = running.ir_version_of(opset)
        model = one_node(op_type, inputs, shape=declared, opset=opset, ir_version=ir)
        (result,) = programs.run(model, {"x": x})
        assert running.same_bits(result, expected)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_opsets_older_than_lowering_knows(dtype):
    x = graphs.array(Random(0), dtype, (4, 2, 2, 3))
    inputs = (x, np.array([2, 2], np.int32), np.array([[1, 0], [0, 1]], np.int32))
    for opset, ir_version in ((7, 3), (9, 4), (10, 5)):
        ir = {"opset": opset, "ir_version": ir_version}
        model = one_node("BatchToSpaceND", inputs, run_time=(2,), **ir)
        (result,) = programs.run(model, feeds_of(model, inputs))
        assert running.same_bits(result, definitions.node("BatchToSpaceND", inputs, {}))


@pytest.mark.parametrize(("dtype", "opset"), [("float32", 5), ("float16", 10), ("bfloat16", 12)])
def test_opsets_that_are_too_old_are_refused(dtype, opset):
    x = graphs.array(Random(0), dtype, (4, 2, 2, 3))
    inputs = (x, np.array([2, 2]), np.zeros((2, 2), int))
    model = one_node("BatchToSpaceND", inputs, opset=opset, ir_version=4)
    with pytest.raises(ConversionError, match=f"the model's opset is {opset}"):
        custom_ops.prepare(model)


def test_the_batch_entry_of_openvinos_spelling_is_checked_in_the_run():
    x = graphs.array(Random(0), "float32", (4, 4, 4, 3))
    good = (x, np.array([1, 2, 2, 1]), np.zeros(4, int), np.zeros(4, int))
    model = one_node(
        "SpaceToBatch", good, domain="org.openvinotoolkit", shape=list("nhwc"), run_time=(1, 2, 3)
    )
    session = programs.opened(model)
    (result,) = session.run(None, feeds_of(model, good))
    assert running.same_bits(result, definitions.node("SpaceToBatch", good, {}))
    for number, wrong in ((1, [2, 2, 2, 1]), (2, [1, 0, 0, 0]), (3, [2, 0, 0, 0])):
        inputs = [*good[:number], np.array(wrong), *good[number + 1 :]]
        with pytest.raises(OperatorError, match="the entry of the batch axis must be"):
            session.run(None, feeds_of(model, inputs))


def test_strings_keep_what_python_operators_would_lose():
    # onnxruntime-extensions cuts strings at a zero byte and aborts on bytes that are no UTF-8.
    inputs = (np.array([["a", "b"]] * 4, object), np.array([2]), np.zeros((1, 2), int))
    model = one_node("BatchToSpaceND", inputs)
    model.graph.input.pop(0)
    stored = model.graph.initializer.add(name="x", data_type=8, dims=[4, 2])
    stored.string_data.extend([b"\xff\xfe", b"a\0b", b"", b"c"] * 2)
    prepared = custom_ops.prepare(model)
    prepared.graph.output[0].name = "same"
    prepared.graph.node.add(op_type="Equal", input=["y", "y"], output=["same"])
    prepared.graph.output[0].type.tensor_type.elem_type = 9
    prepared.opset_import[0].version = 19
    (same,) = programs.own(prepared).run(None, {})
    assert same.shape == (2, 4)
    assert same.all()
