"""Export small chains of data movement as torch and tf2onnx write them: chains of rank 5 and 6.

    python tests/chains/exported/build.py torch         torch 2.13, onnxscript 0.7
    python tests/chains/exported/build.py tensorflow    tensorflow 2.21, tf2onnx 1.17

Each chain stands between two elementwise functions, as in a net. torch has two exporters: `-script` of a
name stands for TorchScript's, `-dynamo` for the newer one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

FOLDER = Path(__file__).resolve().parent


def write(name: str, model: onnx.ModelProto) -> None:
    """Write a model without what only debuggers read."""
    for node in model.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    model.ClearField("metadata_props")
    del model.graph.metadata_props[:]
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    onnx.checker.check_model(model)
    path = FOLDER / f"{name}.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{path.name}: {len(model.graph.node)} nodes, {path.stat().st_size} bytes")


def from_torch() -> None:
    """Export chains of torch, with both of its exporters."""
    import io

    import torch
    from torch.nn import functional

    def partition(x: torch.Tensor) -> torch.Tensor:
        """Cut images into windows of 4 x 4: `shifted_window_attention` of torchvision's Swin."""
        n, h, w, c = x.shape
        x = x.view(n, h // 4, 4, w // 4, 4, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(n * (h // 4) * (w // 4), 16, c)

    def reverse(x: torch.Tensor) -> torch.Tensor:
        """Put windows of 4 x 4 together to images of 8 x 12."""
        n = x.shape[0] // 6
        x = x.view(n, 2, 3, 4, 4, x.shape[-1])
        return x.permute(0, 1, 3, 2, 4, 5).reshape(n, 8, 12, x.shape[-1])

    def patchify(x: torch.Tensor) -> torch.Tensor:
        """Cut images into patches of 4 x 4, as vision transformers do."""
        x = x.reshape(x.shape[0], 3, 2, 4, 3, 4)
        return x.permute(0, 2, 4, 3, 5, 1).reshape(x.shape[0], 6, 48)

    def shuffle(x: torch.Tensor) -> torch.Tensor:
        """Shuffle channels in 2 groups: `channel_shuffle` of torchvision's ShuffleNet."""
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    def unfold(x: torch.Tensor) -> torch.Tensor:
        """Bring the pixels of patches of 2 x 2 together, as MobileViT does before its transformer."""
        x = x.reshape(2 * 4 * 4, 2, 6, 2).transpose(1, 2)
        return x.reshape(2, 4, 24, 4).transpose(1, 3).reshape(8, 24, 4)

    def fold(x: torch.Tensor) -> torch.Tensor:
        """Undo `unfold`."""
        x = x.contiguous().view(2, 4, 24, 4).transpose(1, 3).reshape(32, 6, 2, 2)
        return x.transpose(1, 2).reshape(2, 4, 8, 12)

    chains = {
        "pixel_shuffle": (lambda x: functional.pixel_shuffle(x, 2), [2, 12, 5, 4]),
        "pixel_unshuffle": (lambda x: functional.pixel_unshuffle(x, 2), [2, 3, 8, 6]),
        "swin_partition": (partition, [2, 8, 12, 6]),
        "swin_reverse": (reverse, [12, 16, 6]),
        "patchify": (patchify, [2, 3, 8, 12]),
        "channel_shuffle": (shuffle, [2, 6, 5, 7]),
        "mobilevit_unfold": (unfold, [2, 4, 8, 12]),
        "mobilevit_fold": (fold, [8, 24, 4]),
    }

    class Net(torch.nn.Module):
        def __init__(self, chain) -> None:
            super().__init__()
            self.chain = chain

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.abs(self.chain(torch.neg(x)))

    for name, (chain, shape) in chains.items():
        net, example = Net(chain).eval(), (torch.zeros(shape),)
        file = io.BytesIO()
        torch.onnx.export(net, example, file, dynamo=False, opset_version=17)
        write(f"{name}-script", onnx.load_from_string(file.getvalue()))
        program = torch.onnx.export(net, example, dynamo=True, opset_version=18, verbose=False)
        write(f"{name}-dynamo", program.model_proto)


def from_tensorflow() -> None:
    """Export chains of Keras and TensorFlow."""
    import tensorflow as tf
    import tf2onnx

    def depth(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.depth_to_space(x, 2)

    def blocks(x: tf.Tensor) -> tf.Tensor:
        """Attend along blocks and grids, as MaxViT does: blocks of 4 x 4 become a grid of them."""
        x = tf.reshape(x, [-1, 2, 4, 3, 4, 6])
        return tf.reshape(tf.transpose(x, [0, 2, 4, 1, 3, 5]), [-1, 6, 6])

    def windows(x: tf.Tensor) -> tf.Tensor:
        """Cut the frames of a clip into windows of 2 x 3 x 2, as Video Swin does."""
        x = tf.reshape(x, [-1, 2, 2, 2, 3, 2, 2, 4])
        return tf.reshape(tf.transpose(x, [0, 1, 3, 5, 2, 4, 6, 7]), [-1, 12, 4])

    chains = {
        "keras_depth_to_space": (depth, [2, 5, 4, 12]),
        "maxvit_grid": (blocks, [2, 8, 12, 6]),
        "video_windows": (windows, [4, 6, 4, 4]),
    }
    for name, (chain, shape) in chains.items():
        signature = [tf.TensorSpec(shape, name="x")]
        function = tf.function(lambda x, c=chain: tf.abs(c(-x)), input_signature=signature)
        model, _ = tf2onnx.convert.from_function(function, signature, opset=17)
        write(name, model)


if __name__ == "__main__":
    {"torch": from_torch, "tensorflow": from_tensorflow}[sys.argv[1]]()
