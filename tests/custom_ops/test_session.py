"""`onnx_spatial.InferenceSession` is onnxruntime's, for models that onnxruntime does not load."""

import inspect
import logging
import queue
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import parsing
import programs
import pytest
import running
from building import one_node
from definitions import space_to_batch
from onnx import external_data_helper, helper, numpy_helper

import onnx_spatial
from onnx_spatial import (
    ConversionError,
    InferenceSession,
    ModelFileError,
    OperatorError,
    UsageError,
    VerificationError,
)

FOLDER = "session.model_external_initializers_file_folder_path"

pytest.importorskip("onnxruntime_extensions")

MODES = ("lower", "function", "custom-op")
X = np.arange(4 * 4 * 6 * 3, dtype=np.float32).reshape(4, 4, 6, 3)
BLOCK, PADS = np.array([2, 2]), np.array([[1, 1], [0, 2]])
EXPECTED = space_to_batch(X, [2, 2], [(1, 1), (0, 2)])
RUN_TIME = {"p1": BLOCK, "p2": PADS}
GOOD = {"x": X, **RUN_TIME}
WRONG = {**GOOD, "p2": PADS - 1}
SAID = r"^SpaceToBatchND 'site' in main graph: SpaceToBatch: paddings\[1\]\[0\] is -1"


def spatial(**options: object) -> onnx.ModelProto:
    """SpaceToBatchND from x to y."""
    return one_node("SpaceToBatchND", (X, BLOCK, PADS), **options)


def added() -> onnx.ModelProto:
    """y = spatial(x) + weight, all parameters initializers."""
    model = spatial()
    model.graph.node[0].output[0] = "moved"
    model.graph.node.append(helper.make_node("Add", ["moved", "weight"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(np.float32([7, 8, 9]), "weight"))
    return model


SUM = EXPECTED + np.float32([7, 8, 9])


def stored(folder: Path, *, only: str = "") -> tuple[Path, bytes]:
    """The model of a sum with its initializers, or one of them, in the file w.bin; and those bytes."""
    model, data = added(), b""
    for tensor in model.graph.initializer:
        raw = numpy_helper.to_array(tensor).tobytes()
        if only in ("", tensor.name):
            external_data_helper.set_external_data(tensor, "w.bin", len(data), len(raw))
            tensor.ClearField("raw_data")
        data += raw
    folder.mkdir(exist_ok=True)
    (folder / "w.bin").write_bytes(data)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx", data


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    file.write_bytes(spatial().SerializeToString())
    return file


# Models


def test_a_model_is_a_path_a_string_bytes_or_a_message_which_stays_as_it_was(path, mode):
    prepared = onnx_spatial.custom_ops.prepare(path)
    for given in (path, str(path), path.read_bytes(), onnx.load(path), prepared):
        before = given.SerializeToString() if isinstance(given, onnx.ModelProto) else None
        (y,) = InferenceSession(given, mode=mode).run(None, {"x": X})
        assert running.same_bits(y, EXPECTED)
        assert before is None or given.SerializeToString() == before


def test_a_model_without_spatial_operators_is_opened_as_it_is(tmp_path, mode):
    model = spatial()
    model.graph.node[0].CopyFrom(helper.make_node("Relu", ["x"], ["y"]))
    del model.opset_import[1:]
    file = tmp_path / "plain.onnx"
    file.write_bytes(model.SerializeToString())
    session = InferenceSession(file, mode=mode)
    assert session._model_path == str(file)  # onnxruntime's own: it was given the file
    assert running.same_bits(session.run(None, {"x": X})[0], X)


def test_files_in_onnxruntimes_own_format_are_left_to_it(tmp_path, mode):
    options = programs.options()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(onnx_spatial.convert(spatial()).model.SerializeToString(), options)
    for given in (tmp_path / "model.ort", (tmp_path / "model.ort").read_bytes()):
        session = InferenceSession(given, mode=mode)
        assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)


def test_external_weights_are_found_beside_the_model_or_where_the_options_say(
    tmp_path, mode, monkeypatch
):
    file, _ = stored(tmp_path / "deep")
    monkeypatch.chdir(tmp_path)
    elsewhere = programs.options()
    elsewhere.add_session_config_entry(FOLDER, str(file.parent))
    for given, options in (
        (file, None),
        (file, programs.options()),
        ("deep/model.onnx", None),
        (file.read_bytes(), elsewhere),
    ):
        (y,) = InferenceSession(given, options, mode=mode).run(None, {"x": X})
        assert running.same_bits(y, SUM)
    with pytest.raises(ModelFileError, match="give the model as a path"):
        InferenceSession(file.read_bytes(), mode=mode)
    (file.parent / "w.bin").unlink()
    with pytest.raises(ModelFileError, match=r"'w\.bin' is missing.*put it beside"):
        InferenceSession(file, programs.options(), mode=mode)


@pytest.mark.skipif(
    not hasattr(onnxruntime.SessionOptions, "add_external_initializers_from_files_in_memory"),
    reason="this onnxruntime takes no files in memory",
)
@pytest.mark.parametrize(
    ("only", "by_name"), [("", False), ("weight", False), ("", True), ("weight", True)]
)
def test_external_data_may_be_given_in_memory(tmp_path, mode, only, by_name):
    file, data = stored(tmp_path, only=only)
    (tmp_path / "w.bin").write_bytes(bytes(len(data)))  # what is in memory goes before it
    options = programs.options()
    arrays = {t.name: numpy_helper.to_array(t) for t in added().graph.initializer}
    names = [name for name in arrays if only in ("", name)]
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(arrays[name]) for name in names]
    if by_name:
        options.add_external_initializers(names, values)
    else:
        options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [len(data)])
    for form in (file.read_bytes(), onnx.load(file, load_external_data=False), file):
        session = InferenceSession(form, options, mode=mode)
        assert running.same_bits(session.run(None, {"x": X})[0], SUM)


def test_conversion_in_memory_reads_no_weights(tmp_path):
    path, _ = stored(tmp_path, only="weight")
    (tmp_path / "w.bin").unlink()
    for given in (onnx.load(path, load_external_data=False), path):
        assert onnx_spatial.convert(given, verify=False).changed
        for output, verify in ((None, True), (tmp_path / "out.onnx", False)):
            with pytest.raises(ModelFileError, match=r"w\.bin"):
                onnx_spatial.convert(given, output, verify=verify)


def test_what_is_no_model_or_breaks_a_rule_is_said_in_one_line(tmp_path, mode):
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelFileError, match="is not an ONNX model"):
        InferenceSession(tmp_path / "bad.onnx", mode=mode)
    with pytest.raises(ModelFileError, match="cannot be read"):
        InferenceSession(tmp_path / "none.onnx", mode=mode)
    model = one_node("SpaceToBatchND", (X, BLOCK, PADS - 1))
    with pytest.raises(ConversionError, match=r"'site' in main graph.*must not be negative"):
        InferenceSession(model, mode=mode)
    with pytest.raises(UsageError, match="mode must be one of"):
        InferenceSession(model, mode="faster")
    with pytest.raises(TypeError, match=r"argument 'mod'.*did you mean 'mode'"):
        InferenceSession(model, mod=mode)
    with pytest.raises(TypeError, match="argument 'zzz'") as caught:
        InferenceSession(model, zzz=mode)
    assert "did you mean" not in str(caught.value)
    for wrong in ({}, {"model": spatial(), "path_or_bytes": spatial()}):
        with pytest.raises(TypeError, match="takes one model"):
            InferenceSession(**wrong)
    (y,) = InferenceSession(model=spatial(), mode=mode).run(None, {"x": X})
    assert running.same_bits(y, EXPECTED)
    model = spatial(domain="com.mine")
    with pytest.raises(ConversionError, match=r"'site' .* use domains=\['com\.mine'\]"):
        InferenceSession(model, programs.options(), mode=mode)
    (y,) = InferenceSession(model, mode=mode, domains="com.mine").run(None, {"x": X})
    assert running.same_bits(y, EXPECTED)


# Options


def test_methods_have_the_signatures_and_documentation_of_onnxruntime():
    assert issubclass(InferenceSession, onnxruntime.InferenceSession)
    theirs = inspect.signature(onnxruntime.InferenceSession.__init__).parameters
    ours = inspect.signature(InferenceSession.__init__).parameters
    assert [n for n in theirs if n != "kwargs"] == list(ours)[: len(theirs) - 1]
    methods = inspect.getmembers(onnxruntime.InferenceSession, inspect.isfunction)
    names = [name for name, _ in methods if not name.startswith("_")]
    assert {"run", "run_async", "run_with_iobinding", "io_binding", "get_inputs"} <= {*names}
    for name, theirs in methods:
        if name in names:
            ours = getattr(InferenceSession, name)
            assert inspect.signature(ours) == inspect.signature(theirs), name
            assert ours.__doc__ == theirs.__doc__


def test_providers_by_position_and_by_name_and_later(mode):
    cpu = "CPUExecutionProvider"
    arguments = [
        ((None, [cpu]), {}),
        ((programs.options(), [cpu], [{}]), {}),
        ((), {"providers": [(cpu, {})]}),
        ((), {"providers": [cpu], "provider_options": [{}]}),
        ((), {"sess_options": programs.options(), "disabled_optimizers": ["ConstantFolding"]}),
    ]
    for positional, named in arguments:
        session = InferenceSession(spatial(), *positional, mode=mode, **named)
        assert session.get_providers() == [cpu]
        session.set_providers([cpu])
        assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)


def test_options_are_followed_and_stay_as_they_were(tmp_path, mode):
    file, _ = stored(tmp_path / "deep")
    options = programs.options()
    options.intra_op_num_threads = 3
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = InferenceSession(file, options, mode=mode)
    session.run(None, {"x": X})
    assert session.get_session_options().intra_op_num_threads == 3
    assert Path(session.end_profiling()).parent == tmp_path
    assert len(list(tmp_path.glob("profile*"))) == 1
    written = onnx.load(tmp_path / "optimized.onnx", load_external_data=False)
    assert "Add" in {n.op_type for n in written.graph.node}
    assert options.enable_profiling
    assert options.optimized_model_filepath == str(tmp_path / "optimized.onnx")
    with pytest.raises(RuntimeError):
        options.get_session_config_entry(FOLDER)


def test_verify_verifies_it_first(mode, monkeypatch):
    found = InferenceSession(spatial(), mode=mode, verify=True).conversion.verification
    assert found and InferenceSession(spatial(), mode=mode).conversion.verification is None
    failed = replace(found, status="failed")
    monkeypatch.setattr("onnx_spatial.api.verify_conversion", lambda *_, **__: failed)
    with pytest.raises(VerificationError):
        InferenceSession(spatial(), mode=mode, verify=True)


@pytest.mark.parametrize(
    ("op_type", "options", "line"),
    [
        ("SpaceToBatchND", {}, "model: 1 operator became 4 standard nodes"),
        ("SpaceToBatchND", {"verify": True}, "model: 1 operator became 4 standard nodes; passed"),
        ("Relu", {"static": {"N": 4}}, "model: nothing to convert"),
    ],
)
def test_a_session_logs_one_line_and_dims_may_be_fixed(op_type, options, line, caplog):
    model = spatial(shape=["N", 4, 6, 3])
    if op_type == "Relu":
        model.graph.node[0].CopyFrom(helper.make_node("Relu", ["x"], ["y"]))
    caplog.set_level(logging.INFO, "onnx_spatial")
    session = InferenceSession(model, **options)
    (record,) = (r for r in caplog.records if r.levelno == logging.INFO)
    assert record.getMessage().startswith(line)
    assert session.get_inputs()[0].shape == [4 if "static" in options else "N", 4, 6, 3]


# Every way to run


def ways(session: InferenceSession, feeds: dict[str, np.ndarray]) -> Iterator[Callable[[], object]]:
    """Functions that run a session, each in another way."""
    values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(v) for n, v in feeds.items()}

    def bound() -> np.ndarray:
        binding = session.io_binding()
        for name, value in feeds.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()[0]

    options = onnxruntime.RunOptions()  # shared by two of them
    yield lambda: session.run(None, feeds)[0]
    yield lambda: session.run(["y"], feeds, run_options=options)[0]
    yield lambda: session.run(["y"], feeds, options)[0]
    yield lambda: session.run_with_ort_values(["y"], values)[0].numpy()
    yield bound


@pytest.mark.parametrize("level", running.LEVELS, ids=["plain", "optimised"])
@pytest.mark.parametrize("parallel", [False, True])
def test_every_way_to_run_gives_the_output_or_an_exception_that_names_the_node(
    mode, level, parallel
):
    options = programs.options(level)
    if parallel:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    session = InferenceSession(spatial(run_time=(1, 2)), options, mode=mode)
    for run, wrong in zip(ways(session, GOOD), ways(session, WRONG), strict=True):
        assert running.same_bits(run(), EXPECTED)
        if mode == "custom-op":
            with pytest.raises(OperatorError, match=SAID) as caught:
                wrong()
            assert caught.value.exit_code == 3 and "\n" not in str(caught.value)
            assert running.same_bits(run(), EXPECTED)


@pytest.mark.parametrize("chain", ["S", "Relu S Relu", "S Reshape", "Relu S Reshape Reshape"])
def test_no_optimisation_swallows_an_error(chain):
    # onnxruntime merges Reshapes that follow each other; the way out for errors is one.
    nodes, names = chain.split(), "xabcd"
    calls = {"S": "[site] {1} = M.SpaceToBatchND({0}, block, p2)"}
    body = " ".join(
        calls.get(op, f"{{1}} = {op}({{0}}{', s' * (op == 'Reshape')})").format(*names[i : i + 2])
        for i, op in enumerate(nodes)
    )
    model = parsing.model(f"""g (float[4,4,6,3] x, int64[2,2] p2) => (float[?,?,?,?] {names[len(nodes)]})
        <int64[2] block = {{2, 2}}, int64[4] s = {{{str(EXPECTED.shape)[1:-1]}}}> {{ {body} }}""")
    for level in running.LEVELS:
        session = programs.opened(model, level)
        assert running.same_bits(session.run(None, {"x": X, "p2": PADS})[0], EXPECTED)
        for wrong in (PADS - 1, PADS + np.eye(2, dtype=int), PADS + 2**40):
            with pytest.raises((OperatorError, MemoryError), match="'site' in main graph"):
                session.run(None, {"x": X, "p2": wrong})


def test_a_program_with_sessions_of_its_own_gets_an_exception_and_may_ask_why(caplog):
    session = programs.own(onnx_spatial.custom_ops.prepare(spatial(run_time=(1, 2))))
    with pytest.raises(Exception, match=r"Reshape node. Name:'site/Reshape'") as caught:
        session.run(None, WRONG)
    assert "SpaceToBatchND 'site' in main graph: SpaceToBatch: paddings" in caplog.text
    reason = onnx_spatial.custom_ops.explain(caught.value)
    assert isinstance(reason, OperatorError) and re.match(SAID, str(reason))
    assert onnx_spatial.custom_ops.explain(caught.value) is None  # only once
    assert onnx_spatial.custom_ops.explain(ValueError("something else")) is None
    with pytest.raises(OperatorError, match=SAID), onnx_spatial.custom_ops.raising():
        session.run(None, WRONG)
    assert running.same_bits(session.run(None, GOOD)[0], EXPECTED)


def test_run_async_hands_the_output_or_the_reason_to_the_callback(mode):
    options = programs.options()
    options.intra_op_num_threads = 2
    session = InferenceSession(spatial(run_time=(1, 2)), options, mode=mode)
    answers: queue.Queue[tuple[list[np.ndarray], str]] = queue.Queue()
    for turn in range(20):
        feeds = WRONG if mode == "custom-op" and turn % 2 else GOOD
        session.run_async(
            ["y"], feeds, lambda outputs, data, error: data.put((outputs, error)), answers
        )
        outputs, error = answers.get(timeout=20)
        if feeds is GOOD:
            assert not error and running.same_bits(outputs[0], EXPECTED)
        else:
            assert error.startswith("SpaceToBatchND 'site' in main graph: SpaceToBatch: paddings")
