"""Export models with tf2onnx, record data and check the result, for all builders of the zoo.

Every folder of the zoo has a ``build.py`` that makes one model and its recorded data, and that
ends with :func:`record`. Nothing here uses the package under test: the expected outputs come from
TensorFlow or OpenVINO, and so does the arithmetic of the spatial nodes in the final check. The
zoo can therefore contradict the package, which is what it is for.

Import this module before TensorFlow: it settles how TensorFlow computes and how much it prints.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# tf2onnx walks sets of names in the order of their hashes, which Python draws anew for each run;
# with a fixed seed a rebuild names and orders the nodes as the last one did.
if Path(sys.argv[0]).name == "build.py" and os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

# oneDNN's kernels sum in an order that depends on the processor; the plain ones keep a rebuild
# close to the recorded files wherever it runs.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import onnx
import onnx.inliner
import tensorflow as tf
import tf2onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from tf2onnx.graph import Node

logging.getLogger("tensorflow").setLevel(logging.ERROR)
logging.getLogger("tf2onnx").setLevel(logging.ERROR)

Array = np.ndarray[Any, Any]

#: The domain that ``tf2onnx --custom-ops`` writes when the user names none.
CONVERTER_DOMAIN = "ai.onnx.converters.tensorflow"
OPENVINO_DOMAIN = "org.openvinotoolkit"
OPSET = 17
#: The IR version that tf2onnx pairs with opset 17; the hand-built models follow it.
IR_VERSION = 8

SPATIAL_OPS = (
    "SpaceToBatch",
    "BatchToSpace",
    "SpaceToBatchND",
    "BatchToSpaceND",
    "ExtractImagePatches",
    "ExtractVolumePatches",
)
#: tf2onnx renames these two before it finds out that it cannot convert them.
RENAMED_OPS = {"SpaceToDepth": "SpaceToBatchND", "DepthToSpace": "BatchToSpaceND"}

#: Recorded outputs and the checked model run through different convolution kernels. Seven layers
#: of them differ by 1e-6 or so; a batch or a patch in the wrong place differs by about 1.
TOLERANCE = 2e-5


# ---------------------------------------------------------------- export


def export_function(
    function: Callable[..., Any],
    signature: Sequence[tf.TensorSpec],
    *,
    custom: Sequence[str] = SPATIAL_OPS,
) -> onnx.ModelProto:
    """Return what ``tf2onnx.convert --custom-ops <custom>`` writes for a ``tf.function``."""
    _fix_order()
    model, _ = tf2onnx.convert.from_function(function, signature, **_options(custom))
    return model


def export_keras(model: keras.Model, signature: Sequence[tf.TensorSpec]) -> onnx.ModelProto:
    """Return what ``tf2onnx.convert --custom-ops`` writes for a Keras model."""
    _fix_order()
    exported, _ = tf2onnx.convert.from_keras(model, signature, **_options(SPATIAL_OPS))
    return exported


def _fix_order() -> None:
    """Order tf2onnx's sets of nodes by age instead of by address in memory.

    Nothing but the order of nodes and the numbers in made-up names depends on it.
    """
    ages = itertools.count()
    created = Node.__init__

    def __init__(self: Node, *args: Any, **kwargs: Any) -> None:
        self.age = next(ages)
        created(self, *args, **kwargs)

    Node.__init__ = __init__
    Node.__hash__ = lambda self: self.age


def _options(custom: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {"opset": OPSET}
    if custom:
        # The command line adds the opset by itself; the Python interface wants to be told.
        options["custom_ops"] = dict.fromkeys(custom, CONVERTER_DOMAIN)
        options["extra_opset"] = [tf2onnx.utils.make_opsetid(CONVERTER_DOMAIN, 1)]
    return options


def seed_weights(model: keras.Model, rng: np.random.Generator) -> None:
    """Draw every weight from `rng`, kernels scaled so that activations keep their size.

    Keras's own initializers would leave batch normalization at the identity, and then a bias or
    a mean that ends up on the wrong side of a BatchToSpace could not be seen.
    """
    for variable in model.weights:
        shape = tuple(variable.shape)
        if variable.name in ("gamma", "moving_variance"):
            value = rng.uniform(0.5, 1.5, shape)
        elif variable.name == "kernel":
            depthwise = variable.path.split("/")[-2].startswith("depthwise")
            value = kernel(rng, shape, fan_in=int(np.prod(shape[: 2 if depthwise else -1])))
        else:
            value = rng.uniform(-0.5, 0.5, shape)
        variable.assign(value.astype(np.float32))


def kernel(rng: np.random.Generator, shape: Sequence[int], *, fan_in: int = 0) -> Array:
    """Draw float32 weights of variance 2 / fan_in (default: the product of all dims but the last)."""
    fan_in = fan_in or int(np.prod(shape[:-1]))
    return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)


# ---------------------------------------------------------------- record


def record(
    build_file: str,
    model: onnx.ModelProto,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    expect: Mapping[str, int],
) -> None:
    """Write ``model.onnx`` and ``test_data_set_0`` beside `build_file`, once they agree.

    `inputs` and `outputs` are in the order of the graph's; `expect` says how many nodes of each
    spatial operator the model must hold, so that a new converter version that folds them away
    is noticed here and not in an empty test.
    """
    folder = Path(build_file).resolve().parent
    found: dict[str, int] = {}
    for node in spatial_nodes(model):
        name = f"{node.domain}:{node.op_type}" if node.domain else node.op_type
        found[name] = found.get(name, 0) + 1
    if found != dict(expect):
        raise SystemExit(f"{folder.name}: expected {dict(expect)}, the model holds {found}")

    worst = _check(model, inputs, outputs)
    if worst > TOLERANCE:
        raise SystemExit(f"{folder.name}: the model and its recorded outputs differ by {worst:.1e}")

    data = folder / "test_data_set_0"
    data.mkdir(exist_ok=True)
    for old in data.glob("*.pb"):
        old.unlink()
    for kind, values, arrays in (
        ("input", model.graph.input, inputs),
        ("output", model.graph.output, outputs),
    ):
        for index, (value, array) in enumerate(zip(values, arrays, strict=True)):
            (data / f"{kind}_{index}.pb").write_bytes(recorded(value, array, folder.name))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))

    print(f"{folder.name}: {path.stat().st_size} bytes, {found}, differs by at most {worst:.1e}")


def recorded(value: onnx.ValueInfoProto, array: Array, name: str) -> bytes:
    """Return the file that holds an input or output of the model called `name`."""
    tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), value.name)
    if tensor.data_type != value.type.tensor_type.elem_type:
        raise SystemExit(f"{name}: {value.name} is recorded in another type")
    return tensor.SerializeToString(deterministic=True)


def spatial_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every spatial node of the main graph, of the subgraphs and of the local functions."""
    yield from (node for node in all_nodes(model.graph.node) if _spatial_name(node))
    for function in model.functions:
        yield from (node for node in all_nodes(function.node) if _spatial_name(node))


def all_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes and those in their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from all_nodes(graph.node)


def _spatial_name(node: onnx.NodeProto) -> str | None:
    """Return the spatial operator of a node; None for a node of standard ONNX."""
    if node.op_type in RENAMED_OPS:
        return RENAMED_OPS[node.op_type] if len(node.input) == 3 else None
    return node.op_type if node.op_type in SPATIAL_OPS else None


# ---------------------------------------------------------------- check


def _check(model: onnx.ModelProto, inputs: Sequence[Array], outputs: Sequence[Array]) -> float:
    """Return the largest error, relative to the outputs, of running the file node by node.

    Standard nodes run in onnx's reference evaluator, spatial ones in TensorFlow.
    """
    # The evaluator does not look for new operators inside local functions.
    flat = onnx.inliner.inline_local_functions(model) if model.functions else model
    flat = onnx.ModelProto.FromString(flat.SerializeToString())
    for node in spatial_nodes(flat):
        # One domain for all, and out of the way of the standard operators of the same name.
        node.op_type, node.domain = _spatial_name(node) or "", CONVERTER_DOMAIN
    if all(opset.domain != CONVERTER_DOMAIN for opset in flat.opset_import):
        flat.opset_import.add(domain=CONVERTER_DOMAIN, version=1)
    evaluator = ReferenceEvaluator(flat, new_ops=[_operator(op_type) for op_type in SPATIAL_OPS])
    feeds = {value.name: array for value, array in zip(flat.graph.input, inputs, strict=True)}
    worst = 0.0
    computed = [np.asarray(output) for output in evaluator.run(None, feeds)]
    for actual, recorded in zip(computed, outputs, strict=True):
        if actual.shape != recorded.shape or actual.dtype != recorded.dtype:
            raise SystemExit(f"computed {actual.shape} {actual.dtype}, recorded {recorded.shape}")
        if recorded.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(actual, recorded) else np.inf)
        elif recorded.size:
            size = max(1.0, float(np.abs(recorded).max()))
            worst = max(worst, float(np.abs(actual - recorded).max()) / size)
    return worst


def _operator(op_type: str) -> type[OpRun]:
    def _run(self: OpRun, *arrays: Array, **_: Any) -> tuple[Array]:
        # Read off the node: operators that ONNX does not know get no attributes passed.
        values = {a.name: onnx.helper.get_attribute_value(a) for a in self.onnx_node.attribute}
        attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}
        return (np.asarray(run_spatial(op_type, arrays, attributes)),)

    return type(op_type, (OpRun,), {"op_domain": CONVERTER_DOMAIN, "_run": _run})


def run_spatial(op: str, arrays: Sequence[Array], attributes: Mapping[str, Any]) -> tf.Tensor:
    """Run one spatial node with TensorFlow's kernels, for each spelling in the zoo."""
    x = arrays[0]
    match op:
        case "SpaceToBatchND":
            return tf.raw_ops.SpaceToBatchND(input=x, block_shape=arrays[1], paddings=arrays[2])
        case "BatchToSpaceND":
            return tf.raw_ops.BatchToSpaceND(input=x, block_shape=arrays[1], crops=arrays[2])
        case "SpaceToBatch" | "BatchToSpace" if len(arrays) == 4:
            # OpenVINO: one entry for each axis, the batch first.
            both = np.stack([arrays[2], arrays[3]], axis=1)[1:]
            return run_spatial(f"{op}ND", (x, arrays[1][1:], both), {})
        case "SpaceToBatch":
            return tf.raw_ops.SpaceToBatch(
                input=x, paddings=arrays[1], block_size=attributes["block_size"]
            )
        case "BatchToSpace":
            return tf.raw_ops.BatchToSpace(
                input=x, crops=arrays[1], block_size=attributes["block_size"]
            )
        case "ExtractImagePatches" if "sizes" in attributes:
            return _openvino_patches(x, attributes)
        case "ExtractImagePatches":
            return tf.raw_ops.ExtractImagePatches(
                images=x,
                ksizes=attributes["ksizes"],
                strides=attributes["strides"],
                rates=attributes["rates"],
                padding=attributes["padding"],
            )
        case "ExtractVolumePatches":
            return tf.raw_ops.ExtractVolumePatches(
                input=x,
                ksizes=attributes["ksizes"],
                strides=attributes["strides"],
                padding=attributes["padding"],
            )
    raise SystemExit(f"no TensorFlow kernel for {op}")


def _openvino_patches(x: Array, attributes: Mapping[str, Any]) -> tf.Tensor:
    """Extract patches as OpenVINO does: NCHW, and a SAME that can pad more in front (same_lower)."""
    sizes, strides, rates = (attributes[name] for name in ("sizes", "strides", "rates"))
    pads = [(0, 0), (0, 0)]
    for extent, k, s, r in zip(x.shape[2:], sizes, strides, rates, strict=True):
        total = max(0, (-(-extent // s) - 1) * s + (k - 1) * r + 1 - extent)
        small, large = total // 2, total - total // 2
        pads.append(
            {"valid": (0, 0), "same_upper": (small, large), "same_lower": (large, small)}[
                attributes["auto_pad"]
            ]
        )
    patches = tf.image.extract_patches(
        np.pad(x, pads).transpose(0, 2, 3, 1),
        [1, *sizes, 1],
        [1, *strides, 1],
        [1, *rates, 1],
        "VALID",
    )
    return tf.transpose(patches, [0, 3, 1, 2])
