"""Export TensorFlow models: handlers for tf2onnx, and the command with TensorFlow as reference."""

from __future__ import annotations

import sys
import zipfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import structure

import onnx_spatial
from onnx_spatial.cli.main import run
from onnx_spatial.tf2onnx import DOMAIN, OP_TYPES, export, extra_opset, handlers
from onnx_spatial.tf2onnx import programs as module

# What can be seen without TensorFlow


def test_handlers_keep_operators_and_import_their_domain():
    graph = SimpleNamespace(extra_opset=None)
    node = SimpleNamespace(domain="")
    keep, arguments = handlers()["SpaceToBatchND"]
    assert keep(graph, node, "site", arguments) is node
    assert node.domain == DOMAIN
    assert graph._extra_opset == extra_opset() == [onnx.helper.make_opsetid(DOMAIN, 1)]
    graph = SimpleNamespace(extra_opset=[onnx.helper.make_opsetid("my.domain", 3)])
    keep, _ = handlers("my.domain")["ExtractImagePatches"]
    keep(graph, node, "site", [])
    assert node.domain == "my.domain" and not hasattr(graph, "_extra_opset")


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(onnx_spatial.UsageError, match=r"pip install 'onnx-spatial\[tf2onnx\]'"):
        export(tmp_path)
    assert run(["export", str(tmp_path), "-o", str(tmp_path / "o.onnx")]) == 2
    assert "onnx-spatial[tf2onnx]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none", None, "no such file"),
        ("text.keras", b"no model", "is no SavedModel folder, Keras file or TFLite file"),
        ("m.onnx", b"\x08\x08", "ONNX models are for onnx-spatial convert"),
        ("frozen.pb", b"\x0a\x08", "is a TensorFlow graph"),
    ],
)
def test_other_files_are_refused_before_tensorflow_is_imported(
    name, content, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert run(["export", str(tmp_path / name), "-o", str(tmp_path / "o.onnx")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_signature_is_for_saved_models(tmp_path):
    (tmp_path / "m.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(onnx_spatial.UsageError, match="is a TFLite model; only SavedModels"):
        export(tmp_path / "m.tflite", signature="serving_default")


def test_outputs_are_checked_first_and_models_of_tensorflow_stay(tmp_path):
    model = tmp_path / "m.tflite"
    model.write_bytes(b"\x1c\0\0\0TFL3")
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(onnx_spatial.UsageError, match="is a TFLite model, which must stay"):
        export(model, model)
    with pytest.raises(onnx_spatial.UsageError, match="is a TensorFlow SavedModel"):
        export(model, tmp_path / "saved_model.pb")
    with pytest.raises(onnx_spatial.UsageError, match="both the model and its record"):
        export(model, tmp_path / "o.npz", record=True)
    with pytest.raises(onnx_spatial.ModelFileError, match="there is no folder"):
        export(model, tmp_path / "none" / "o.onnx")


# The real hosts


@pytest.fixture(scope="module")
def tf() -> Any:
    reason = "needs tensorflow and tf2onnx (pip install 'onnx-spatial[tf2onnx]')"
    pytest.importorskip("tf2onnx", reason=reason)
    return pytest.importorskip("tensorflow", reason=reason)


@pytest.fixture(scope="module")
def net(tf: Any) -> Any:
    tf.keras.utils.set_random_seed(0)
    image = tf.keras.Input((12, 12, 3), name="image")
    x = tf.keras.layers.Conv2D(4, 3, dilation_rate=2, padding="same", activation="relu")(image)
    y = tf.keras.layers.Conv2D(2, 3, dilation_rate=3, padding="same", name="head")(x)
    return tf.keras.Model(image, y)


def moved(tf: Any) -> Any:
    """A function with operators of both kinds."""
    return tf.function(
        lambda x: tf.image.extract_patches(
            tf.space_to_batch(x, [2, 2], [[0, 0], [2, 0]]),
            [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME",
        )
    )  # fmt: skip


def test_tf2onnx_takes_the_handlers(tf):
    import tf2onnx

    signature = [tf.TensorSpec([None, 8, 8, 3], tf.float32, name="x")]
    model, _ = tf2onnx.convert.from_function(moved(tf), signature, custom_op_handlers=handlers())
    assert structure.spatial(model) == ["SpaceToBatchND", "ExtractImagePatches"]
    assert DOMAIN in {each.domain for each in model.opset_import}
    assert onnx_spatial.convert(model).verification


def test_a_function_is_exported_converted_and_compared(tf, tmp_path):
    signature = [tf.TensorSpec([None, 8, 8, 3], tf.float32, name="x")]
    done = export(moved(tf), tmp_path / "o.onnx", signature=signature, record=True)
    assert [site.op_type for site in done.conversion.inspection.sites] == [
        "SpaceToBatchND", "ExtractImagePatches",
    ]  # fmt: skip
    assert done.conversion.verification and done.comparison.status == "passed"
    assert done.message == "passed: 1 output compared with TensorFlow, equal"
    recorded = np.load(tmp_path / "o.npz")
    assert {*recorded} == {"x", *(value.name for value in done.conversion.model.graph.output)}
    assert run(["validate", str(tmp_path), "-q"]) == 0


@pytest.mark.parametrize("kind", ["object", "saved_model", "keras", "tflite"])
def test_models_of_every_kind(tf, net, kind, tmp_path):
    source = tmp_path / {"keras": "net.keras", "tflite": "net.tflite"}.get(kind, "net")
    if kind == "saved_model":
        net.export(source, verbose=False)
    elif kind == "keras":
        net.save(source)
    elif kind == "tflite":
        source.write_bytes(tf.lite.TFLiteConverter.from_keras_model(net).convert())
    else:
        source = net
    done = export(source, tmp_path / "o.onnx", opset=17)
    assert done.comparison.status == "passed"
    assert "1 output compared with TensorFlow" in done.message
    nodes = structure.counts(onnx.load(tmp_path / "o.onnx"))
    assert nodes["Conv"] == 2 and not nodes.keys() & {*OP_TYPES}


def test_a_result_that_differs_from_tensorflow_is_not_written(tf, net, tmp_path, monkeypatch):
    load = module.load

    def wrong(*arguments: Any) -> module.Program:
        program = load(*arguments)
        shifted = lambda feeds: {k: v + 1 for k, v in program.run(feeds).items()}  # noqa: E731
        return module.Program(program.name, program.to_onnx, shifted)

    monkeypatch.setattr(module, "load", wrong)
    with pytest.raises(onnx_spatial.VerificationError, match="differs from TensorFlow"):
        export(net, tmp_path / "o.onnx")
    assert [*tmp_path.iterdir()] == []


def test_operators_that_tf2onnx_leaves_are_named(tf, tmp_path):
    function = tf.function(lambda x: tf.math.bessel_i0(tf.space_to_batch(x, [2], [[0, 0]])))
    signature = [tf.TensorSpec([2, 8, 3], tf.float32, name="x")]
    with pytest.raises(onnx_spatial.ConversionError, match="BesselI0"):
        export(function, tmp_path / "o.onnx", signature=signature)
    assert [*tmp_path.iterdir()] == []


def test_inputs_that_tensorflow_refuses_are_named(tf, tmp_path):
    def checked(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(x, -100.0)]):
            return tf.space_to_batch(x, [2], [[0, 0]])

    signature = [tf.TensorSpec([2, 8, 3], tf.float32, name="x")]
    with pytest.raises(onnx_spatial.UsageError, match=r"cannot run it on x \[2, 8, 3\]"):
        export(tf.function(checked), tmp_path / "o.onnx", signature=signature)


def test_the_command(tf, net, tmp_path, capsys):
    net.export(tmp_path / "net", verbose=False)
    out = tmp_path / "o.onnx"
    assert run(["export", str(tmp_path / "net"), "-o", str(out), "--record"]) == 0
    shown = capsys.readouterr().out
    assert "PASSED  1 output compared with TensorFlow" in shown
    assert f"wrote {out}" in shown and out.with_suffix(".npz").exists()


def test_a_file_that_tensorflow_cannot_read(tf, tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "bad.keras", "w") as file:
        file.writestr("config.json", "no model")
    assert run(["export", str(tmp_path / "bad.keras"), "-o", str(tmp_path / "o.onnx")]) == 2
    assert "TensorFlow cannot read it" in " ".join(capsys.readouterr().err.split())


def test_a_signature_that_is_missing_and_those_that_are_there(tf, net, tmp_path):
    net.export(tmp_path / "net", verbose=False)
    with pytest.raises(onnx_spatial.UsageError, match="no signature 'x'; choose one of: "):
        export(tmp_path / "net", signature="x")
    tf.saved_model.save(tf.Module(), tmp_path / "empty")
    with pytest.raises(onnx_spatial.UsageError, match="'serving_default', and no other"):
        export(tmp_path / "empty" / "saved_model.pb")
