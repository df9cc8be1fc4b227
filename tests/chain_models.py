"""Models in which standard nodes spell SpaceToBatch and BatchToSpace around a convolution."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial


class Net:
    """A graph that grows node by node; a list or an array as an input is an initializer."""

    def __init__(self, opset: int = 17, name: str = "net") -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self.opset, self._name = opset, name

    def __call__(self, op_type: str, *inputs: object, outputs: int = 1, **attributes: object):
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        results = [f"{self._name}_{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op_type, names, results, f"n{len(self.nodes)}", **attributes)
        self.nodes.append(node)
        return results[0] if outputs == 1 else results

    def constant(self, value: object) -> str:
        array = np.asarray(value)
        array = array.astype(np.int64) if array.dtype.kind == "i" else array
        name = f"{self._name}_c{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(array, name))
        return name

    def graph(self, shape: Sequence[int | str | None], output: str) -> onnx.GraphProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, [None] * len(shape))
        return helper.make_graph(self.nodes, self._name, [x], [y], self.stored)

    def model(self, shape: Sequence[int | str | None], output: str) -> onnx.ModelProto:
        opset = helper.make_opsetid("", self.opset)
        return helper.make_model(self.graph(shape, output), opset_imports=[opset], ir_version=8)


def weights(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.standard_normal(shape).astype(np.float32)


def conv(net: Net, x: str, rank: int = 4, channels: int = 3) -> str:
    """Convolve channels-last data with a kernel of 3 along each axis."""
    first = [0, rank - 1, *range(1, rank - 1)]
    t = net("Transpose", x, perm=first)
    t = net("Relu", net("Conv", t, weights(4, channels, *[3] * (rank - 2))))
    return net("Transpose", t, perm=[0, *range(2, rank), 1])


def six_dims(shape=(2, 8, 12, 3), pads=(2, 2), d=2) -> onnx.ModelProto:
    """Channels last, by Reshapes to six dims; unknown dims are read by Shape."""
    net = Net()
    x = net("Pad", "x", [0, pads[0], pads[0], 0, 0, pads[1], pads[1], 0])
    blocked = to_batch(net, x, shape, sum(pads), d)
    return net.model(shape, to_space(net, conv(net, blocked), d, crops=None))


def to_batch(net: Net, x: str, shape, padded: int, d: int) -> str:
    """SpaceToBatch without pads, of data whose height and width are `padded` larger than `shape`."""
    known = all(isinstance(s, int) for s in shape)
    if known:
        n, h, w, c = shape[0], shape[1] + padded, shape[2] + padded, shape[3]
        x = net("Reshape", x, [n, h // d, d, w // d, d, c])
        x = net("Transpose", x, perm=[2, 4, 0, 1, 3, 5])
        return net("Reshape", x, [d * d * n, h // d, w // d, c])
    n, h, w, c = net("Split", net("Shape", x), outputs=4)
    rows, columns = net("Div", h, [d]), net("Div", w, [d])
    x = net("Reshape", x, net("Concat", n, rows, [d], columns, [d], c, axis=0))
    x = net("Transpose", x, perm=[2, 4, 0, 1, 3, 5])
    return net("Reshape", x, net("Concat", net("Mul", n, [d * d]), rows, columns, c, axis=0))


def to_space(net: Net, x: str, d: int, crops: Sequence[int] | None, channels: int = 4) -> str:
    """BatchToSpace of channels-last data whose sizes are read by Shape."""
    _, h, w, _ = net("Split", net("Shape", x), outputs=4)
    x = net("Reshape", x, net("Concat", [d, d, -1], h, w, [channels], axis=0))
    x = net("Transpose", x, perm=[2, 3, 0, 4, 1, 5])
    size = net("Concat", [-1], net("Mul", h, [d]), net("Mul", w, [d]), [channels], axis=0)
    x = net("Reshape", x, size)
    if crops is not None:
        x = net("Slice", x, list(crops[:2]), [-c or 2**31 - 1 for c in crops[2:]], [1, 2])
    return x


def depth_to_space(shape=("n", "h", "w", 3), d=2) -> onnx.ModelProto:
    """As tf2onnx writes it: SpaceToDepth and DepthToSpace of the batch, pads computed in the run."""
    net = Net(13)
    return net.model(shape, _by_depth(net, "x", d, shape[-1]))


def stacked(shape=("n", "h", "w", 3), rates=(2, 3)) -> onnx.ModelProto:
    """Convolutions with nothing between their chains."""
    net, x, channels = Net(13), "x", shape[-1]
    for d in rates:
        x, channels = _by_depth(net, x, d, channels), 4
    return net.model(shape, x)


def _by_depth(net: Net, x: str, d: int, channels: int) -> str:
    size = net("Slice", net("Shape", x), [1], [3], [0])
    over = net("Mod", net("Add", size, [2 * d, 2 * d]), [d, d])
    more = net("Mod", net("Sub", [d, d], over), [d, d])
    after = net("Add", more, [d, d])
    x = net("Pad", x, net("Concat", [0, d, d, 0, 0], after, [0], axis=0))
    x = net("Transpose", x, perm=[3, 0, 1, 2])
    x = net("SpaceToDepth", x, blocksize=d)
    x = net("Transpose", x, perm=[1, 0, 2, 3])
    x = net("Conv", x, weights(4, channels, 3, 3))
    x = net("Transpose", x, perm=[1, 0, 2, 3])
    x = net("DepthToSpace", x, blocksize=d)
    none = net("Cast", net("Equal", more, [0, 0]), to=TensorProto.INT64)
    ends = net("Add", net("Neg", more), net("Mul", none, [2**31 - 1] * 2))
    return net("Transpose", net("Slice", x, [0, 0], ends, [2, 3]), perm=[1, 2, 3, 0])


def channels_first(shape=(1, 3, 9, 15), d=3) -> onnx.ModelProto:
    """Channels first, without pads."""
    net = Net()
    n, c, h, w = shape
    x = net("Reshape", "x", [n, c, h // d, d, w // d, d])
    x = net("Transpose", x, perm=[3, 5, 0, 1, 2, 4])
    x = net("Reshape", x, [d * d * n, c, h // d, w // d])
    x = net("Conv", x, weights(4, c, 3, 3), pads=[1, 1, 1, 1])
    x = net("Reshape", x, [d, d, n, 4, h // d, w // d])
    x = net("Transpose", x, perm=[2, 3, 4, 0, 5, 1])
    return net.model(shape, net("Reshape", x, [n, 4, h, w]))


def one_dim(shape=("n", "t", 3), d=2) -> onnx.ModelProto:
    """One spatial axis, with an axis of size 1 around the convolution."""
    net = Net()
    x = net("Pad", "x", [0, 2 * d, 0, 0, 0, 0])
    n, t, c = net("Split", net("Shape", x), outputs=3)
    cells = net("Div", t, [d])
    x = net("Reshape", x, net("Concat", n, cells, [d], c, axis=0))
    x = net("Transpose", x, perm=[2, 0, 1, 3])
    x = net("Reshape", x, net("Concat", net("Mul", n, [d]), cells, c, axis=0))
    x = net("Transpose", net("Unsqueeze", x, [1]), perm=[0, 3, 1, 2])
    x = net("Conv", x, weights(4, 3, 1, 3))
    x = net("Transpose", net("Squeeze", x, [2]), perm=[0, 2, 1])
    m, u, e = net("Split", net("Shape", x), outputs=3)
    x = net("Reshape", x, net("Concat", [d], net("Div", m, [d]), u, e, axis=0))
    x = net("Transpose", x, perm=[1, 2, 0, 3])
    x = net("Reshape", x, net("Concat", net("Div", m, [d]), net("Mul", u, [d]), e, axis=0))
    return net.model(shape, x)


def uneven(shape=(2, 8, 6, 3), d=2) -> onnx.ModelProto:
    """Blocks of one axis only."""
    net = Net()
    n, h, w, c = shape
    x = net("Pad", "x", [0, 2, 1, 0, 0, 2, 1, 0])
    x = net("Reshape", x, [n, (h + 4) // d, d, w + 2, c])
    x = net("Transpose", x, perm=[2, 0, 1, 3, 4])
    x = conv(net, net("Reshape", x, [d * n, (h + 4) // d, w + 2, c]))
    x = net("Reshape", x, [d, n, h // d, w, 4])
    x = net("Transpose", x, perm=[1, 2, 0, 3, 4])
    return net.model(shape, net("Reshape", x, [n, h, w, 4]))


def volume(shape=(1, 4, 6, 8, 3), d=2) -> onnx.ModelProto:
    """Three spatial axes."""
    net = Net()
    n, *sizes, c = shape
    x = net("Pad", "x", [0, 2, 2, 2, 0] * 2)
    cells = [s // d + 2 for s in sizes]
    x = net("Reshape", x, [n, *(v for s in cells for v in (s, d)), c])
    x = net("Transpose", x, perm=[2, 4, 6, 0, 1, 3, 5, 7])
    x = conv(net, net("Reshape", x, [d**3 * n, *cells, c]), rank=5)
    cells = [s // d for s in sizes]
    x = net("Reshape", x, [d, d, d, n, *cells, 4])
    x = net("Transpose", x, perm=[3, 4, 0, 5, 1, 6, 2, 7])
    return net.model(shape, net("Reshape", x, [n, *sizes, 4]))


def lowered(lowering: str, shape=(2, 8, 12, 3), end: int = 2) -> onnx.ModelProto:
    """What `convert` writes without fusion, without the metadata."""
    domain = "ai.onnx.converters.tensorflow"
    net = Net()
    x = net("SpaceToBatchND", "x", [2, 2], [[2, end], [2, end]], domain=domain)
    crops = [[0, end - 2], [0, end - 2]]
    x = net("BatchToSpaceND", conv(net, x), [2, 2], crops, domain=domain)
    named = net.model(shape, x)
    named.opset_import.append(helper.make_opsetid(domain, 1))
    model = onnx_spatial.convert(named, fuse=False, prefer=lowering, verify=False).model
    for node in model.graph.node:
        del node.metadata_props[:]
    return model
