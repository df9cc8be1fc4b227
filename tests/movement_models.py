"""Models whose nodes only move data: space to depth, windows, patches, channel shuffles and others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from chain_models import Net

Shape = Sequence[int | str]


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


def moved(
    shape: Shape, split: Sequence[int], perm: Sequence[int], joined: Sequence[int], *,
    function: str = "", opset: int = 17, type_: int = 1,
) -> onnx.ModelProto:  # fmt: skip
    """Reshape, Transpose, Reshape; maybe a function between."""
    net = Net(opset)
    x = net("Transpose", net("Reshape", "x", split), perm=perm)
    if function:
        x = net(function, x, *([np.float32(2)] if function in ("Mul", "Sub") else []))
    return finished(net, shape, net("Reshape", x, joined), len(joined), type_)


def pixel_unshuffle(**options: Any) -> onnx.ModelProto:
    """For a batch of any size."""
    split, joined = [-1, 4, 16, 2, 24, 2], [-1, 16, 16, 24]
    return moved(("n", 4, 32, 48), split, [0, 1, 3, 5, 2, 4], joined, **options)


def computed_unshuffle(shape: Shape = ("n", "c", "h", "w"), r: int = 2) -> onnx.ModelProto:
    """The same for any sizes, which the run computes."""
    net = Net()
    n, c, h, w = net("Split", net("Shape", "x"), outputs=4)
    rows, columns = net("Div", h, [r]), net("Div", w, [r])
    x = net("Reshape", "x", net("Concat", n, c, rows, [r], columns, [r], axis=0))
    x = net("Transpose", x, perm=[0, 1, 3, 5, 2, 4])
    deep = net("Mul", c, [r * r])
    return finished(net, shape, net("Reshape", x, net("Concat", n, deep, rows, columns, axis=0)))


def depth(**attributes: object) -> onnx.ModelProto:
    """DepthToSpace by two."""
    net = Net()
    return finished(net, ("n", 8, 32, 48), net("DepthToSpace", "x", blocksize=2, **attributes))


def windows() -> onnx.ModelProto:
    """Cut images into windows."""
    return moved(("n", 28, 28, 8), [-1, 4, 7, 4, 7, 8], [0, 1, 3, 2, 4, 5], [-1, 7, 7, 8])


def unpatchify() -> onnx.ModelProto:
    """b (h w) (p q c) -> b c (h p) (w q)."""
    return moved(("n", 256, 64), [-1, 16, 16, 4, 4, 4], [0, 5, 1, 3, 2, 4], [-1, 4, 64, 64])


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


MANY = ("m", 4, 4, 8)  # windows of three by four in an image; -1 is the number of images
#: Models by name; all are better rewritten, with a rank limit of 4 at least.
FORMS = {
    "pixel unshuffle": pixel_unshuffle(),
    "computed sizes": computed_unshuffle(),
    "function between": pixel_unshuffle(function="Relu"),
    "number between": pixel_unshuffle(function="Sub"),
    "axes of one": with_axes_of_one(),
    "DepthToSpace": depth(),
    "DepthToSpace, columns first": depth(mode="CRD"),
    "windows": windows(),
    "from windows": moved(MANY, [-1, 3, 4, 4, 4, 8], [0, 1, 3, 2, 4, 5], [-1, 12, 16, 8]),
    "from windows, channels first": moved(
        MANY, [-1, 3, 4, 4, 4, 8], [0, 5, 1, 3, 2, 4], [-1, 8, 12, 16]
    ),
    "unpatchify": unpatchify(),
    # b c (h p) (w q) -> b (h w) (p q c)
    "patchify": moved(("n", 4, 64, 64), [-1, 4, 16, 4, 16, 4], [0, 2, 4, 3, 5, 1], [-1, 256, 64]),
    "channel shuffle": moved(("n", 16, 8, 12), [-1, 4, 4, 8, 12], [0, 2, 1, 3, 4], [-1, 16, 8, 12]),
    # MobileViT: two by two positions of each cell to the batch
    "unfold": moved((1, 8, 32, 48), [-1, 8, 16, 2, 24, 2], [3, 5, 0, 2, 4, 1], [4, 384, 8]),
    "there and back": there_and_back(),
}


def largest_rank(model: onnx.ModelProto) -> int:
    """The largest rank of a value, as inference knows it."""
    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    return max(len(v.type.tensor_type.shape.dim) for v in values)
