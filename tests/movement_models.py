"""Models whose nodes only move data: space to depth, windows, patches, channel shuffles and others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from chain_models import Net
from onnx import TensorProto

Shape = Sequence[int | str]

#: Sizes of the symbolic dims of the models.
SIZES = {"n": 2, "h": 8, "w": 12, "c": 3, "m": 24}


def finished(net: Net, shape: Shape, output: str, rank: int = 4, type_: int = 1) -> onnx.ModelProto:
    """The model, whose output has a rank and a type."""
    model = net.model(shape, output)
    dims = model.graph.output[0].type.tensor_type.shape.dim
    del dims[:]
    for _ in range(rank):
        dims.add()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = type_
    return model


def pixel_unshuffle(
    shape: Shape = ("n", 4, 32, 48),
    r: int = 2,
    *,
    function: str = "",
    opset: int = 17,
    **kinds: int,
) -> onnx.ModelProto:
    """Reshape to six dims, Transpose, Reshape, for a batch of any size; maybe a function between."""
    net = Net(opset)
    _, c, h, w = shape
    x = net("Reshape", "x", [-1, c, h // r, r, w // r, r])
    x = net("Transpose", x, perm=[0, 1, 3, 5, 2, 4])
    if function:
        x = net(function, x, *([np.float32(2)] if function in ("Mul", "Sub") else []))
    x = net("Reshape", x, [-1, c * r * r, h // r, w // r])
    return finished(net, shape, x, **kinds)


def computed_unshuffle(shape: Shape = ("n", "c", "h", "w"), r: int = 2) -> onnx.ModelProto:
    """The same for any sizes, which the run computes."""
    net = Net()
    n, c, h, w = net("Split", net("Shape", "x"), outputs=4)
    rows, columns = net("Div", h, [r]), net("Div", w, [r])
    x = net("Reshape", "x", net("Concat", n, c, rows, [r], columns, [r], axis=0))
    x = net("Transpose", x, perm=[0, 1, 3, 5, 2, 4])
    deep = net("Mul", c, [r * r])
    return finished(net, shape, net("Reshape", x, net("Concat", n, deep, rows, columns, axis=0)))


def inferred_batch(shape: Shape = ("n", 3, "h", 48), r: int = 2) -> onnx.ModelProto:
    """The same with a -1 for the batch, which may take up what is left of an odd height."""
    net = Net()
    rows = net("Div", net("Slice", net("Shape", "x"), [2], [3]), [r])
    channels, half = [shape[1]], [shape[3] // r]
    x = net("Reshape", "x", net("Concat", [-1], channels, rows, [r], half, [r], axis=0))
    x = net("Transpose", x, perm=[0, 1, 3, 5, 2, 4])
    deep = [shape[1] * r * r]
    return finished(net, shape, net("Reshape", x, net("Concat", [-1], deep, rows, half, axis=0)))


def depth(kind: str, shape: Shape = ("n", 8, 32, 48), **attributes: object) -> onnx.ModelProto:
    """SpaceToDepth or DepthToSpace by two."""
    net = Net()
    return finished(net, shape, net(kind, "x", blocksize=2, **attributes))


def windows(shape: Shape = ("n", 28, 28, 8), w: int = 7) -> onnx.ModelProto:
    """Cut images into windows."""
    net = Net()
    _, h, width, c = shape
    x = net("Reshape", "x", [-1, h // w, w, width // w, w, c])
    x = net("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    return finished(net, shape, net("Reshape", x, [-1, w, w, c]))


def from_windows(channels_first: bool = False, w: int = 4) -> onnx.ModelProto:
    """Put windows together to images of three by four windows; -1 is the number of images."""
    net = Net()
    x = net("Reshape", "x", [-1, 3, 4, w, w, 8])
    x = net("Transpose", x, perm=[0, 5, 1, 3, 2, 4] if channels_first else [0, 1, 3, 2, 4, 5])
    image = [8, 3 * w, 4 * w] if channels_first else [3 * w, 4 * w, 8]
    return finished(net, ("m", w, w, 8), net("Reshape", x, [-1, *image]))


def unpatchify(g: int = 16, p: int = 4, c: int = 4) -> onnx.ModelProto:
    """b (h w) (p q c) -> b c (h p) (w q)."""
    net = Net()
    x = net("Reshape", "x", [-1, g, g, p, p, c])
    x = net("Transpose", x, perm=[0, 5, 1, 3, 2, 4])
    return finished(net, ("n", g * g, p * p * c), net("Reshape", x, [-1, c, g * p, g * p]))


def patchify(g: int = 16, p: int = 4, c: int = 4) -> onnx.ModelProto:
    """b c (h p) (w q) -> b (h w) (p q c)."""
    net = Net()
    x = net("Reshape", "x", [-1, c, g, p, g, p])
    x = net("Transpose", x, perm=[0, 2, 4, 3, 5, 1])
    return finished(net, ("n", c, g * p, g * p), net("Reshape", x, [-1, g * g, p * p * c]), 3)


def channel_shuffle(shape: Shape = ("n", 16, 8, 12), groups: int = 4) -> onnx.ModelProto:
    """[n, g, c / g, h, w] -> [n, c / g, g, h, w]."""
    net = Net()
    _, c, h, w = shape
    x = net("Reshape", "x", [-1, groups, c // groups, h, w])
    x = net("Transpose", x, perm=[0, 2, 1, 3, 4])
    return finished(net, shape, net("Reshape", x, [-1, c, h, w]))


def mobile_unfold() -> onnx.ModelProto:
    """MobileViT: two by two positions of each cell to the batch."""
    net = Net()
    x = net("Reshape", "x", [-1, 8, 16, 2, 24, 2])
    x = net("Transpose", x, perm=[3, 5, 0, 2, 4, 1])
    return finished(net, (1, 8, 32, 48), net("Reshape", x, [4, 16 * 24, 8]), 3)


def with_axes_of_one() -> onnx.ModelProto:
    """The same as `pixel_unshuffle` with axes that come and go."""
    net = Net()
    x = net("Unsqueeze", "x", [0, 5])
    x = net("Reshape", net("Squeeze", x, [5]), [1, -1, 4, 16, 2, 24, 2])
    x = net("Transpose", x, perm=[0, 1, 2, 4, 6, 3, 5])
    x = net("Flatten", net("Squeeze", net("Identity", x), [0]))
    return finished(net, ("n", 4, 32, 48), net("Reshape", x, [0, 16, 16, 24]))


def there_and_back() -> onnx.ModelProto:
    """Two Transposes that undo each other, with functions between."""
    net = Net()
    x = net("Transpose", "x", perm=[0, 2, 3, 1])
    x = net("Mul", net("Relu", x), np.float32(0.5))
    return finished(net, ("n", 3, 8, 12), net("Transpose", x, perm=[0, 3, 1, 2]))


def queries_keys_values(
    kind: str = "Gather", tokens: int | str = 16, batch: int | str = "n"
) -> onnx.ModelProto:
    """Attention whose queries, keys and values are parts of one tensor of rank 5."""
    net = Net()
    weight = np.random.default_rng(0).standard_normal((32, 96)).astype(np.float32)
    x = net("Reshape", net("MatMul", "x", weight), [0, 0, 3, 4, 8])
    x = net("Transpose", x, perm=[2, 0, 3, 1, 4])
    if kind == "Gather":
        q, k, v = (net("Gather", x, np.array(i), axis=0) for i in range(3))
    elif kind == "Slice":  # as tf2onnx writes x[0], x[1], x[2]
        parts = (net("Slice", x, [i], [i + 1], [0]) for i in range(3))
        q, k, v = (net("Squeeze", part, [0]) for part in parts)
    else:
        q, k, v = (net("Squeeze", part, [0]) for part in net("Split", x, outputs=3, axis=0))
    q, k = net("Mul", q, np.float32(0.25)), net("Transpose", k, perm=[0, 1, 3, 2])
    y = net("MatMul", net("Softmax", net("MatMul", q, k), axis=-1), v)
    y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, 32])
    return finished(net, (batch, tokens, 32), y, 3)


#: Models by name; all are better rewritten, with a rank limit of 4 at least.
FORMS = {
    "pixel unshuffle": pixel_unshuffle(),
    "computed sizes": computed_unshuffle(),
    "function between": pixel_unshuffle(function="Relu"),
    "number between": pixel_unshuffle(function="Sub"),
    "axes of one": with_axes_of_one(),
    "DepthToSpace": depth("DepthToSpace"),
    "DepthToSpace, columns first": depth("DepthToSpace", mode="CRD"),
    "windows": windows(),
    "from windows": from_windows(),
    "from windows, channels first": from_windows(channels_first=True),
    "unpatchify": unpatchify(),
    "patchify": patchify(),
    "channel shuffle": channel_shuffle(),
    "unfold": mobile_unfold(),
    "there and back": there_and_back(),
}


def feeds(model: onnx.ModelProto, scale: int = 1) -> dict[str, np.ndarray]:
    """Data of the declared type, with `scale` times the usual batch, height and width."""
    (x,) = model.graph.input
    type_ = x.type.tensor_type
    shape = [d.dim_value or SIZES[d.dim_param] * scale for d in type_.shape.dim]
    numbers = np.arange(np.prod(shape)).reshape(shape)
    if type_.elem_type == TensorProto.STRING:
        return {"x": numbers.astype(str).astype(object)}
    return {"x": numbers.astype(onnx.helper.tensor_dtype_to_np_dtype(type_.elem_type))}


def largest_rank(model: onnx.ModelProto) -> int:
    """The largest rank of a value, as inference knows it."""
    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    return max(len(v.type.tensor_type.shape.dim) for v in values)
