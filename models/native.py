"""Write the nets of this folder by hand, with dilated convolutions in place of the spatial nodes.

Each net is what an engineer would have exported: channels first with one Transpose at each end, one
Conv with dilations, fixed pads and a bias for each atrous layer, Conv of rank 3 for sequences. Inputs,
outputs and weights are those of the exported file. What has nothing to do with dilation stays as it was
exported: the sizes for Resize, Reshape, `auto_pad` of strided layers, batch normalization as Mul and Add
behind depthwise layers.

Not here, because they have no dilated convolution: `yolov2`, `yolov2_dynamic`, `raft` and `video`
extract patches; the rate of `leftover` is an input of the model, and dilations are attributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

#: Nodes that an export has between a Conv and its bias.
_MOVES = ("Squeeze", "Transpose", "BatchToSpaceND")


class Layer(NamedTuple):
    """A convolution of an exported model: its weights, and the type of node that follows."""

    kernel: Array
    scale: Array | None
    bias: Array | None
    follower: str


class Net:
    """A net that is written node by node, with the weights of an exported model."""

    def __init__(self, exported: onnx.ModelProto) -> None:
        self._exported = exported.graph
        self._version = exported.ir_version, exported.opset_import
        self._weights = {t.name: numpy_helper.to_array(t) for t in exported.graph.initializer}
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        (self.input,) = (value.name for value in exported.graph.input)

    def weight(self, name: str) -> Array:
        """Return an initializer of the exported model."""
        return self._weights[name]

    def layers(self) -> dict[str, Layer]:
        """Return the convolutions by name, in the order of creation."""
        convs = [node for node in self._exported.node if node.op_type == "Conv"]
        # A converter that folds a node into a Conv renames the node, but not its kernel.
        named = {n.input[1] if n.name.startswith("Conv__") else n.name: n for n in convs}
        natural = sorted(named, key=lambda name: [_number(t) for t in re.split(r"(\d+)", name)])
        return {name: self._layer(named[name]) for name in natural}

    def _layer(self, conv: onnx.NodeProto) -> Layer:
        scale, bias = None, self._weights[conv.input[2]] if len(conv.input) > 2 else None
        value, follower = conv.output[0], ""
        for node in self._exported.node:
            if value not in node.input:
                continue
            constants = [self._weights[name] for name in node.input if name in self._weights]
            if node.op_type == "Mul" and constants and bias is None:
                scale = constants[0].reshape(-1)
            elif node.op_type == "Add" and constants and bias is None:
                bias = constants[0].reshape(-1)
            elif node.op_type not in _MOVES:
                follower = node.op_type
                break
            value = node.output[0]
        return Layer(self._weights[conv.input[1]], scale, bias, follower)

    def op(self, op_type: str, *inputs: str | Array, **attributes: object) -> str:
        """Write a node; arrays become initializers. Return the name of the output."""
        name = f"{op_type}_{len(self._nodes)}"
        names = []
        for position, given in enumerate(inputs):
            names.append(given if isinstance(given, str) else f"{name}_input_{position}")
            if not isinstance(given, str):
                self._initializers.append(numpy_helper.from_array(given, names[-1]))
        self._nodes.append(helper.make_node(op_type, names, [name], name, **attributes))
        return name

    def conv(
        self,
        x: str,
        kernel: Array,
        bias: Array | None = None,
        *,
        rates: Sequence[int] = (1,),
        causal: bool = False,
        **attributes: object,
    ) -> str:
        """Write a convolution that keeps the size, unless attributes say otherwise."""
        axes = kernel.ndim - 2
        rates = list(rates) * axes if len(rates) == 1 else list(rates)
        reach = [(k - 1) * rate for k, rate in zip(kernel.shape[2:], rates, strict=True)]
        pads = [*reach, *[0] * axes] if causal else [r // 2 for r in reach] * 2
        attributes = {"kernel_shape": kernel.shape[2:], "dilations": rates} | attributes
        if "auto_pad" not in attributes:
            attributes.setdefault("pads", pads)
        return self.op("Conv", x, kernel, *([] if bias is None else [bias]), **attributes)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the model: inputs and outputs as exported."""
        renamed = {o: v.name for o, v in zip(outputs, self._exported.output, strict=True)}
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]
        exported, (ir_version, imports) = self._exported, self._version
        graph = helper.make_graph(
            self._nodes, "by_hand", exported.input, exported.output, self._initializers
        )
        standard = [o for o in imports if o.domain == ""]
        return helper.make_model(graph, opset_imports=standard, ir_version=ir_version)


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def deeplab(exported: onnx.ModelProto) -> onnx.ModelProto:
    """Return DeepLab: five atrous layers among 16."""
    net = Net(exported)
    layers = net.layers()

    def named(name: str) -> Layer:
        (layer,) = (layer for key, layer in layers.items() if f"/{name}/" in key)
        return layer

    def relu6(x: str) -> str:
        return net.op("Clip", x, np.float32(0).reshape(()), np.float32(6).reshape(()))

    def dense(x: str, name: str, rate: int = 1, **attributes: object) -> str:
        kernel, scale, bias, _ = named(name)
        if scale is not None:
            kernel = kernel * scale.reshape(-1, 1, 1, 1)
        return relu6(net.conv(x, kernel, bias, rates=[rate], **attributes))

    def separable(x: str, name: str, point: str, rate: int = 1, **attributes: object) -> str:
        kernel, scale, bias, _ = named(name)
        assert scale is not None and bias is not None
        x = net.conv(x, kernel, group=len(kernel), rates=[rate], **attributes)
        x = net.op("Add", net.op("Mul", x, scale.reshape(-1, 1, 1)), bias.reshape(-1, 1, 1))
        return dense(relu6(x), point)

    def resize_like(x: str, like: str, begin: int) -> str:
        sizes = net.op("Cast", net.op("Shape", like), to=TensorProto.INT32)
        sizes = net.op("Slice", sizes, *(np.array([n]) for n in (begin, begin + 2, 0)))
        sizes = net.op("Cast", sizes, to=TensorProto.INT64)
        first = net.op("Slice", net.op("Shape", x), np.array([0]), np.array([2]))
        sizes = net.op("Concat", first, sizes, axis=0)
        return net.op("Resize", x, "", "", sizes, mode="linear")

    strided = {"strides": [2, 2], "auto_pad": "SAME_UPPER"}
    x = net.op("Transpose", net.input, perm=[0, 3, 1, 2])
    x = dense(x, "conv2d_1", **strided)
    x = separable(x, "depthwise_conv2d_1", "conv2d_1_2", **strided)
    x = net.op("Add", x, separable(x, "depthwise_conv2d_1_2", "conv2d_2_1", 2))
    x = net.op("Add", x, dense(x, "conv2d_3_1", 2))
    branches = [dense(x, "conv2d_4_1")]
    for number, rate in ((2, 2), (3, 4), (4, 6)):
        branches.append(
            separable(x, f"depthwise_conv2d_{number}_1", f"conv2d_{number + 3}_1", rate)
        )
    pooled = net.op("Reshape", net.op("GlobalAveragePool", x), np.array([-1, 16, 1, 1]))
    pooled = net.op("Reshape", dense(pooled, "conv2d_8_1"), np.array([-1, 8, 1, 1]))
    branches.append(resize_like(pooled, x, 2))
    x = dense(net.op("Concat", *branches, axis=1), "conv2d_9_1")
    kernel, _, bias, _ = named("conv2d_10_1")
    x = resize_like(net.conv(x, kernel, bias), net.input, 1)
    return net.model(net.op("Transpose", x, perm=[0, 2, 3, 1]))


def wavenet(exported: onnx.ModelProto, *, causal: bool = True) -> onnx.ModelProto:
    """Return a WaveNet: signal and gate of rates 1, 2, 4, ..., each with one or two 1x1 layers behind.

    The result of one 1x1 layer is added to the sum and to the signal, of two layers one to each.
    """
    net = Net(exported)
    rates = [2**layer for layer in range(sum(n.op_type == "Tanh" for n in exported.graph.node))]
    enter, *layers, leave = net.layers().values()
    each = -(-len(layers) // len(rates))

    def conv(x: str, layer: Layer, rate: int = 1) -> str:
        kernel = np.squeeze(layer.kernel, 2)
        return net.conv(x, kernel, layer.bias, rates=[rate], causal=causal)

    x = conv(net.op("Transpose", net.input, perm=[0, 2, 1]), enter)
    total = ""
    for first, rate in zip(range(0, len(layers), each), rates, strict=True):
        *pair, skip, residual = [*layers[first : first + each], None][:4]
        gate, signal = sorted(pair, key=lambda layer: layer.follower)
        tanh, sigmoid = (net.op(c.follower, conv(x, c, rate)) for c in (signal, gate))
        gated = net.op("Mul", tanh, sigmoid)
        y = conv(gated, skip)
        total = net.op("Add", total, y) if total else y
        if rate != rates[-1]:
            x = net.op("Add", x, y if residual is None else conv(gated, residual))
    x = conv(net.op("Relu", total), leave)
    return net.model(net.op("Transpose", x, perm=[0, 2, 1]))


def openvino_style(exported: onnx.ModelProto) -> onnx.ModelProto:
    """Return an atrous layer, a strided one and patches side by side, channels first."""
    net = Net(exported)
    kernel = net.weight("depthwise_weight")
    # The pads are the paddings [[1, 2], [2, 3]] less the crops [[1, 0], [0, 1]].
    x = net.conv(
        net.input,
        kernel,
        net.weight("depthwise_bias"),
        group=4,
        rates=[2, 3],
        pads=[0, 2, 2, 2],
    )
    x = net.op("Relu", x)
    project = net.weight("project_weight").reshape(8, 3, 2, 4).transpose(0, 3, 1, 2)
    strided = {"strides": [2, 3], "pads": [2, 0, 2, 0]}
    context = net.conv(x, np.ascontiguousarray(project), rates=[2, 1], **strided)
    whole = net.op("Slice", x, *(np.array(a) for a in ([0, 0], [12, 8], [2, 3])))
    return net.model(context, net.op("SpaceToDepth", whole, blocksize=4))


NETS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "deeplab": deeplab,
    "wavenet": wavenet,
    "wavenet_noncausal": partial(wavenet, causal=False),
    "openvino_style": openvino_style,
}
