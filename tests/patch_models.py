"""Models in which standard nodes spell ExtractPatches: one-hot Convs, and Gathers of windows."""

from collections.abc import Sequence

import numpy as np
import onnx
from chain_models import Net
from onnx import TensorProto, helper

Shape = Sequence[int | str | None]


def one_hot(kernel: Sequence[int], channels: int, *, major: str = "place", group: bool = False):
    """Return the kernel of a Conv that copies windows, [places * channels, channels, kernel..]."""
    places = int(np.prod(kernel))
    if group:
        eye = np.eye(places).reshape(places, 1, *kernel)
        return np.tile(eye, (channels, *[1] * (len(kernel) + 1))).astype(np.float32)
    if major == "channel":
        eye = np.eye(places * channels).reshape(-1, channels, *kernel)
    else:
        eye = np.eye(places * channels).reshape(-1, *kernel, channels)
        eye = np.moveaxis(eye, -1, 1)
    return np.ascontiguousarray(eye, np.float32)


def channels_first(weight, shape: Shape, opset: int = 17, **attributes) -> onnx.ModelProto:
    """A one-hot Conv, as of torch."""
    net = Net(opset)
    return net.model(shape, net("Conv", "x", weight, **attributes))


def channels_last(weight, shape: Shape, **attributes) -> onnx.ModelProto:
    """A one-hot Conv between Transposes, as of Keras 3."""
    net, rank = Net(), len(shape)
    t = net("Transpose", "x", perm=[0, rank - 1, *range(1, rank - 1)])
    t = net("Conv", t, weight, **attributes)
    return net.model(shape, net("Transpose", t, perm=[0, *range(2, rank), 1]))


def tf2onnx(
    shape: Shape, kernel: int = 3, stride: int = 1, channels: int = 3, rate: int = 1
) -> onnx.ModelProto:
    """ExtractImagePatches as of tf2onnx, whose shapes hold -1 times the channels for a batch of None."""
    sizes = [d if isinstance(d, int) else -1 for d in shape]
    n, h, w, _ = sizes
    extent, k = (kernel - 1) * rate + 1, kernel * kernel
    rows, columns = (-1 if d < 0 else (d - extent) // stride + 1 for d in (h, w))
    net = Net()
    t = net("Transpose", "x", perm=[0, 3, 1, 2])
    t = net("Reshape", t, [n * channels, h, w, 1])
    t = net("Transpose", t, perm=[0, 3, 1, 2])
    eye = net("EyeLike", net("ConstantOfShape", [k, k]))
    weight = net("Transpose", net("Reshape", eye, [kernel, kernel, 1, k]), perm=[3, 2, 0, 1])
    t = net("Conv", t, weight, strides=[stride] * 2, dilations=[rate] * 2)
    t = net("Transpose", t, perm=[0, 2, 3, 1])
    t = net("Reshape", t, [n, channels, rows, columns, k])
    t = net("Transpose", t, perm=[0, 2, 3, 4, 1])
    return net.model(shape, net("Reshape", t, [n, rows, columns, k * channels]))


def tf2onnx_same(shape: Shape, stride: int = 1, channels: int = 3) -> onnx.ModelProto:
    """ExtractImagePatches 3x3 with SAME as of tf2onnx, which stops before it adds pads to the Conv."""
    n, h, w, _ = (d if isinstance(d, int) else -1 for d in shape)
    rows, columns = (-1 if d < 0 else -(-d // stride) for d in (h, w))
    net = Net()
    t = net("Transpose", "x", perm=[0, 3, 1, 2])
    t = net("Reshape", t, [n * channels, h, w, 1])
    eye = net("EyeLike", net("ConstantOfShape", [9, 9]))
    t = net("Conv", t, net("Reshape", eye, [3, 3, 1, 9]), strides=[stride] * 2)
    t = net("Reshape", t, [n, channels, rows, columns, 9])
    t = net("Transpose", t, perm=[0, 2, 3, 4, 1])
    return net.model(shape, net("Reshape", t, [n, rows, columns, 9 * channels]))


def im2col(
    shape: Shape, kernel: int = 3, stride: int = 1, pad: int = 0, rate: int = 1, *, computed: bool
) -> onnx.ModelProto:
    """torch.nn.Unfold as Gathers by grids of indices, which are constants or computed in the run."""
    net = Net()
    value = net("Pad", "x", [0, 0, pad, pad, 0, 0, pad, pad]) if pad else "x"
    taps = np.arange(kernel) * rate
    for axis, size_axis in ((2, 2), (4, 3)):
        if computed:
            size = net("Gather", net("Shape", "x"), np.array(size_axis))
            count = net("Add", size, np.array(2 * pad - rate * (kernel - 1)))
            starts = net("Range", np.array(0), count, np.array(stride))
            grid = net("Add", net("Unsqueeze", starts, [0]), taps[:, None])
        else:
            size = shape[size_axis] + 2 * pad - rate * (kernel - 1)
            grid = np.arange(0, size, stride)[None] + taps[:, None]
        value = net("Gather", value, grid, axis=axis)
    value = net("Transpose", value, perm=[0, 1, 2, 4, 3, 5])
    model = net.model(shape, net("Reshape", value, [0, shape[1] * kernel * kernel, -1]))
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info(model.graph.output[0].name, TensorProto.FLOAT, [None] * 3)
    )
    return model
