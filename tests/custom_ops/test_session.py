"""`onnx_spatial.InferenceSession` is onnxruntime's, for models that onnxruntime does not load."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import running
import sessions
from building import one_node
from definitions import space_to_batch
from onnx import helper, numpy_helper

import onnx_spatial
from onnx_spatial import (
    ConversionError,
    InferenceSession,
    ModelFileError,
    OperatorError,
    UsageError,
)

ZOO = Path(__file__).parents[2] / "models"
MODES = ("lower", "custom-op")
FOLDER = "session.model_external_initializers_file_folder_path"

X = np.arange(4 * 4 * 6 * 3, dtype=np.float32).reshape(4, 4, 6, 3)
BLOCK, PADS = np.array([2, 2]), np.array([[1, 1], [0, 2]])
EXPECTED = space_to_batch(X, [2, 2], [(1, 1), (0, 2)])

pytest.importorskip("onnxruntime_extensions")


def spatial(**options: object) -> onnx.ModelProto:
    """SpaceToBatchND from x to y."""
    return one_node("SpaceToBatchND", (X, BLOCK, PADS), **options)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    file.write_bytes(spatial().SerializeToString())
    return file


def tensor(file: Path) -> np.ndarray:
    return numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes()))


# Models


@pytest.mark.parametrize("name", sorted(p.parent.name for p in ZOO.glob("*/model.onnx")))
def test_every_model_of_the_zoo_gives_its_recorded_outputs(name, mode):
    session = InferenceSession(ZOO / name / "model.onnx", sessions.options(), mode=mode)
    data = ZOO / name / "test_data_set_0"
    feeds = {v.name: tensor(data / f"input_{i}.pb") for i, v in enumerate(session.get_inputs())}
    outputs = session.run(None, feeds)
    assert outputs
    for index, output in enumerate(outputs):
        wanted = tensor(data / f"output_{index}.pb")
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["wavenet", "raft", "video", "openvino_style"])
def test_models_of_the_zoo_are_verified_in_python(name):
    model = ZOO / name / "model.onnx"
    assert onnx_spatial.verify(model, onnx_spatial.custom_ops.prepare(model))


def test_a_model_is_a_path_a_string_bytes_or_a_message(path, mode):
    for given in (path, str(path), path.read_bytes(), onnx.load(path)):
        (y,) = InferenceSession(given, mode=mode).run(None, {"x": X})
        assert running.same_bits(y, EXPECTED)


def test_a_message_that_is_given_stays_as_it_was(mode):
    model = spatial()
    before = model.SerializeToString()
    InferenceSession(model, mode=mode)
    assert model.SerializeToString() == before


def test_a_model_without_spatial_operators_is_opened_as_it_is(tmp_path, mode):
    model = spatial()
    model.graph.node[0].CopyFrom(helper.make_node("Relu", ["x"], ["y"]))
    del model.opset_import[1:]
    file = tmp_path / "plain.onnx"
    file.write_bytes(model.SerializeToString())
    session = InferenceSession(file, mode=mode)
    assert session._model_path == str(file)  # onnxruntime's own: it was given the file
    assert running.same_bits(session.run(None, {"x": X})[0], X)


def test_a_prepared_model_opens_in_every_mode(mode):
    session = InferenceSession(onnx_spatial.custom_ops.prepare(spatial()), mode=mode)
    assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)


def test_files_in_onnxruntimes_own_format_are_left_to_it(tmp_path, mode):
    options = sessions.options()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(onnx_spatial.convert(spatial()).model.SerializeToString(), options)
    for given in (tmp_path / "model.ort", (tmp_path / "model.ort").read_bytes()):
        session = InferenceSession(given, mode=mode)
        assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)


def with_weights(folder: Path) -> Path:
    """A model whose weight lies in another file: y = spatial(x) + weight."""
    folder.mkdir()
    model = spatial()
    model.graph.node[0].output[0] = "moved"
    model.graph.node.append(helper.make_node("Add", ["moved", "weight"], ["y"]))
    weight = np.arange(3000, dtype=np.float32).reshape(1000, 3)[:1]
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    onnx.save(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return folder / "model.onnx"


def test_external_weights_are_found_beside_the_model(tmp_path, mode, monkeypatch):
    file = with_weights(tmp_path / "deep")
    monkeypatch.chdir(tmp_path)
    for given in (file, Path("deep/model.onnx"), "deep/model.onnx"):
        for options in (None, sessions.options()):
            (y,) = InferenceSession(given, options, mode=mode).run(None, {"x": X})
            assert running.same_bits(y, EXPECTED + np.float32([0, 1, 2]))


def test_bytes_say_in_the_options_where_their_weights_are(tmp_path, mode):
    file = with_weights(tmp_path / "deep")
    options = sessions.options()
    options.add_session_config_entry(FOLDER, str(file.parent))
    (y,) = InferenceSession(file.read_bytes(), options, mode=mode).run(None, {"x": X})
    assert running.same_bits(y, EXPECTED + np.float32([0, 1, 2]))
    with pytest.raises(ModelFileError, match="give the model as a path"):
        InferenceSession(file.read_bytes(), mode=mode)


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


def test_onnxruntime_has_nothing_to_warn_of(mode, capfd):
    model = spatial()
    model.graph.node[0].output[0] = "moved"
    model.graph.node.append(helper.make_node("Identity", ["moved"], ["y"]))
    session = InferenceSession(model, mode=mode)
    assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)
    assert not capfd.readouterr().err


def test_initializers_that_others_read_stay(mode):
    model = spatial()
    model.graph.node.append(helper.make_node("Identity", ["p1"], ["block"]))
    model.graph.output.append(helper.make_tensor_value_info("block", 7, [2]))
    model.graph.output.append(helper.make_tensor_value_info("p2", 7, [2, 2]))
    y, block, pads = InferenceSession(model, mode=mode).run(None, {"x": X})
    assert running.same_bits(y, EXPECTED)
    assert (block.tolist(), pads.tolist()) == (BLOCK.tolist(), PADS.tolist())


def test_domains_of_the_users_own(mode):
    model = spatial(domain="com.mine")
    with pytest.raises(ConversionError, match=r"'site' .* use domains=\['com\.mine'\]"):
        InferenceSession(model, sessions.options(), mode=mode)
    session = InferenceSession(model, mode=mode, domains=["com.mine"])
    assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)


# Options


def test_signatures_are_onnxruntimes():
    assert issubclass(InferenceSession, onnxruntime.InferenceSession)
    theirs = inspect.signature(onnxruntime.InferenceSession.__init__).parameters
    ours = inspect.signature(InferenceSession.__init__).parameters
    assert [n for n in theirs if n != "kwargs"] == list(ours)[: len(theirs) - 1]
    own = [p.kind for name, p in inspect.signature(InferenceSession).parameters.items()][4:-1]
    assert {*own} == {inspect.Parameter.KEYWORD_ONLY}


def test_methods_have_the_signatures_and_documentation_of_onnxruntime():
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
        ((sessions.options(), [cpu], [{}]), {}),
        ((), {"providers": [(cpu, {})]}),
        ((), {"providers": [cpu], "provider_options": [{}]}),
        ((), {"sess_options": sessions.options(), "disabled_optimizers": ["ConstantFolding"]}),
    ]
    for positional, named in arguments:
        session = InferenceSession(spatial(), *positional, mode=mode, **named)
        assert session.get_providers() == [cpu]
        session.set_providers([cpu])
        assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)


def test_options_are_followed_and_stay_as_they_were(tmp_path, mode):
    file = with_weights(tmp_path / "deep")
    options = sessions.options()
    options.intra_op_num_threads = 3
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
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


def test_options_of_ours_can_be_given_to_the_library_afterwards():
    import onnxruntime_extensions

    options = sessions.options()
    InferenceSession(spatial(), options, mode="custom-op")
    options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    prepared = onnx_spatial.custom_ops.prepare(spatial()).SerializeToString()
    session = onnxruntime.InferenceSession(prepared, options)
    assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)


def test_what_a_model_says_of_itself(mode):
    model = spatial(run_time=())
    model.producer_name, model.graph.doc_string = "me", "a graph"
    model.metadata_props.add(key="task", value="none")
    model.graph.input.append(helper.make_tensor_value_info("p2", 7, [2, 2]))  # overridable
    session = InferenceSession(model, mode=mode)
    assert [(v.name, v.shape) for v in session.get_inputs()] == [("x", [4, 4, 6, 3])]
    assert [v.name for v in session.get_outputs()] == ["y"]
    assert [v.name for v in session.get_overridable_initializers()] == ["p2"]
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.custom_metadata_map) == ("me", {"task": "none"})
    assert running.same_bits(session.run(None, {"x": X})[0], EXPECTED)
    other = np.array([[0, 2], [2, 0]])
    (y,) = session.run(["y"], {"x": X, "p2": other})
    assert running.same_bits(y, space_to_batch(X, [2, 2], other.tolist()))


# onnxruntime's own examples


def test_run_with_ort_values(mode):
    session = InferenceSession(spatial(), mode=mode)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    assert value.device_name() == "cpu"
    (result,) = session.run_with_ort_values(["y"], {"x": value})
    assert running.same_bits(result.numpy(), EXPECTED)


def test_io_binding_of_arrays(mode):
    session = InferenceSession(spatial(), mode=mode)
    io_binding = session.io_binding()
    io_binding.bind_cpu_input("x", X)
    io_binding.bind_output("y")
    session.run_with_iobinding(io_binding)
    y = io_binding.copy_outputs_to_cpu()[0]
    assert running.same_bits(y, EXPECTED)


def test_io_binding_of_memory_that_is_there(mode):
    session = InferenceSession(spatial(), mode=mode)
    x_value = onnxruntime.OrtValue.ortvalue_from_numpy(X, "cpu", 0)
    y_value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
        list(EXPECTED.shape), np.float32, "cpu", 0
    )
    io_binding = session.io_binding()
    io_binding.bind_input(
        name="x",
        device_type=x_value.device_name(),
        device_id=0,
        element_type=np.float32,
        shape=x_value.shape(),
        buffer_ptr=x_value.data_ptr(),
    )
    io_binding.bind_output(
        name="y",
        device_type=y_value.device_name(),
        device_id=0,
        element_type=np.float32,
        shape=y_value.shape(),
        buffer_ptr=y_value.data_ptr(),
    )
    session.run_with_iobinding(io_binding)
    assert running.same_bits(y_value.numpy(), EXPECTED)


class Waiting:
    """Takes what a run without waiting gives."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.outputs: list[np.ndarray] = []
        self.error = ""

    def fill(self, outputs: list[np.ndarray], error: str) -> None:
        self.outputs, self.error = outputs, error
        self.event.set()


def done(outputs: list[np.ndarray], waiting: Waiting, error: str) -> None:
    waiting.fill(outputs, error)


def test_run_async(mode):
    options = sessions.options()
    options.intra_op_num_threads = 2
    session = InferenceSession(spatial(), options, mode=mode)
    for _ in range(20):
        waiting = Waiting()
        session.run_async(["y"], {"x": X}, done, waiting)
        assert waiting.event.wait(20)
        assert not waiting.error
        assert running.same_bits(waiting.outputs[0], EXPECTED)


# What goes wrong in an operator


RUN_TIME = {"p1": BLOCK, "p2": PADS}
WRONG = {"x": X, "p1": BLOCK, "p2": PADS - 1}
SAID = r"^SpaceToBatchND 'site' in main graph: SpaceToBatch: paddings\[1\]\[0\] is -1"


@pytest.mark.parametrize("level", running.LEVELS, ids=["plain", "optimised"])
@pytest.mark.parametrize(
    "execution", [onnxruntime.ExecutionMode.ORT_SEQUENTIAL, onnxruntime.ExecutionMode.ORT_PARALLEL]
)
def test_every_way_to_run_raises_one_exception_that_names_the_node(level, execution):
    options = sessions.options(level)
    options.execution_mode = execution
    session = InferenceSession(spatial(run_time=(1, 2)), options, mode="custom-op")
    values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(v) for n, v in WRONG.items()}

    def bound() -> None:
        binding = session.io_binding()
        for name, value in WRONG.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("y")
        session.run_with_iobinding(binding)

    for run in (
        lambda: session.run(None, WRONG),
        lambda: session.run(["y"], WRONG, run_options=onnxruntime.RunOptions()),
        lambda: session.run_with_ort_values(None, values),
        bound,
    ):
        with pytest.raises(OperatorError, match=SAID) as caught:
            run()
        assert caught.value.exit_code == 3
        assert "\n" not in str(caught.value)
        (y,) = session.run(None, {"x": X, **RUN_TIME})
        assert running.same_bits(y, EXPECTED)


def test_run_options_that_several_runs_share_are_left_alone():
    session = InferenceSession(spatial(run_time=(1, 2)), sessions.options(), mode="custom-op")
    options = onnxruntime.RunOptions()
    with pytest.raises(OperatorError, match=SAID):
        session.run(None, WRONG, options)
    assert not options.terminate
    assert running.same_bits(session.run(None, {"x": X, **RUN_TIME}, options)[0], EXPECTED)


def test_run_async_hands_the_reason_to_the_callback():
    options = sessions.options()
    options.intra_op_num_threads = 2
    session = InferenceSession(spatial(run_time=(1, 2)), options, mode="custom-op")
    waiting = Waiting()
    session.run_async(["y"], WRONG, done, waiting)
    assert waiting.event.wait(20)
    assert waiting.error.startswith("SpaceToBatchND 'site' in main graph: SpaceToBatch: paddings")


def test_other_errors_are_onnxruntimes_own():
    session = InferenceSession(spatial(), sessions.options(), mode="custom-op")
    with pytest.raises(ValueError, match="Required inputs"):
        session.run(None, {})
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        session.run(None, {"x": X[:1]})


@pytest.mark.parametrize("before", [(), ("Relu",)])
@pytest.mark.parametrize("behind", [(), ("Relu",), ("Reshape",), ("Reshape", "Reshape")])
def test_no_optimisation_swallows_an_error(before, behind):
    # onnxruntime merges Reshapes that follow each other; the way out for errors is one.
    model = spatial(run_time=(2,))
    site = model.graph.node[0]
    model.graph.initializer.append(numpy_helper.from_array(np.array(EXPECTED.shape), "s"))
    names = [
        "x",
        *(f"a{i}" for i in range(len(before))),
        "b",
        *(f"c{i}" for i in range(len(behind))),
    ]
    nodes = []
    for op_type, source, target in zip(before, names, names[1:], strict=False):
        nodes.append(helper.make_node(op_type, [source], [target]))
    site.input[0], site.output[0] = names[len(before)], names[len(before) + 1]
    nodes.append(site)
    rest = names[len(before) + 1 :]
    for op_type, source, target in zip(behind, rest, rest[1:], strict=False):
        more = ["s"] if op_type == "Reshape" else []
        nodes.append(helper.make_node(op_type, [source, *more], [target]))
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.output[0].name = names[-1]
    for level in running.LEVELS:
        session = sessions.opened(made, level)
        assert running.same_bits(session.run(None, {"x": X, "p2": PADS})[0], EXPECTED)
        for wrong in (PADS - 1, PADS + np.eye(2, dtype=int), PADS + 2**40):
            with pytest.raises((OperatorError, MemoryError), match="'site' in main graph"):
                session.run(None, {"x": X, "p2": wrong})


def test_a_program_with_sessions_of_its_own_gets_an_exception_and_may_ask_why(caplog):
    session = sessions.own(onnx_spatial.custom_ops.prepare(spatial(run_time=(1, 2))))
    with pytest.raises(Exception, match=r"Reshape node. Name:'site/Reshape'") as caught:
        session.run(None, WRONG)
    assert "SpaceToBatchND 'site' in main graph: SpaceToBatch: paddings" in caplog.text
    reason = onnx_spatial.custom_ops.explain(caught.value)
    assert isinstance(reason, OperatorError)
    assert str(reason).startswith("SpaceToBatchND 'site' in main graph: SpaceToBatch: paddings")
    assert onnx_spatial.custom_ops.explain(caught.value) is None  # only once
    assert onnx_spatial.custom_ops.explain(ValueError("something else")) is None
    with pytest.raises(OperatorError, match=SAID), onnx_spatial.custom_ops.raising():
        session.run(None, WRONG)
    assert running.same_bits(session.run(None, {"x": X, **RUN_TIME})[0], EXPECTED)
