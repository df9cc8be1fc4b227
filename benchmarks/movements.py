"""Measure chains of Reshape, Transpose and Reshape before and after `optimize --max-rank 4`.

python -m benchmarks.movements             rank, nodes, and milliseconds of a run with one thread
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial
from benchmarks.chains import session

ROUNDS = 31

#: Name, rearrangement in the notation of einops, and sizes of the factors.
CHAINS: tuple[tuple[str, str, dict[str, int]], ...] = (
    (
        "PixelUnshuffle 2, 1x16x256x256",
        "n c (h p) (w q) -> n (c p q) h w",
        {"n": 1, "c": 16, "h": 128, "p": 2, "w": 128, "q": 2},
    ),
    (
        "PixelUnshuffle 4, 1x3x512x512",
        "n c (h p) (w q) -> n (c p q) h w",
        {"n": 1, "c": 3, "h": 128, "p": 4, "w": 128, "q": 4},
    ),
    (
        "PixelShuffle 2, 1x256x64x64",
        "n (c p q) h w -> n c (h p) (w q)",
        {"n": 1, "c": 64, "p": 2, "q": 2, "h": 64, "w": 64},
    ),
    (
        "Swin window partition, 1x56x56x96",
        "n (h p) (w q) c -> (n h w) p q c",
        {"n": 1, "h": 8, "p": 7, "w": 8, "q": 7, "c": 96},
    ),
    (
        "Swin window reverse, 1x56x56x96",
        "(n h w) p q c -> n (h p) (w q) c",
        {"n": 1, "h": 8, "p": 7, "w": 8, "q": 7, "c": 96},
    ),
    (
        "SwinIR window reverse, 1x180x64x64",
        "(n h w) (p q) c -> n c (h p) (w q)",
        {"n": 1, "h": 8, "p": 8, "w": 8, "q": 8, "c": 180},
    ),
    (
        "Swin patch merging, 1x56x56x96",
        "n (h p) (w q) c -> n h w (q p c)",
        {"n": 1, "h": 28, "p": 2, "w": 28, "q": 2, "c": 96},
    ),
    (
        "DiT unpatchify, 1x8x64x64",
        "n (h w) (p q c) -> n c (h p) (w q)",
        {"n": 1, "h": 32, "p": 2, "w": 32, "q": 2, "c": 8},
    ),
    (
        "Flux unpack, 1x16x128x128",
        "n (h w) (c p q) -> n c (h p) (w q)",
        {"n": 1, "h": 64, "p": 2, "w": 64, "q": 2, "c": 16},
    ),
    (
        "Flux pack, 1x16x128x128",
        "n c (h p) (w q) -> n (h w) (c p q)",
        {"n": 1, "h": 64, "p": 2, "w": 64, "q": 2, "c": 16},
    ),
    (
        "ViT patchify 16, 1x3x224x224",
        "n c (h p) (w q) -> n (h w) (p q c)",
        {"n": 1, "h": 14, "p": 16, "w": 14, "q": 16, "c": 3},
    ),
    (
        "MobileViT unfold, 1x144x32x32",
        "n c (h p) (w q) -> (p q n) (h w) c",
        {"n": 1, "h": 16, "p": 2, "w": 16, "q": 2, "c": 144},
    ),
    (
        "MobileViT fold, 1x144x32x32",
        "(p q n) (h w) c -> n c (h p) (w q)",
        {"n": 1, "h": 16, "p": 2, "w": 16, "q": 2, "c": 144},
    ),
    (
        "channel shuffle, 1x116x28x28",
        "n (g c) h w -> n (c g) h w",
        {"n": 1, "g": 2, "c": 58, "h": 28, "w": 28},
    ),
)


def axes(side: str) -> list[list[str]]:
    """Return the factors of each axis of one side of a rearrangement."""
    return [part.strip("()").split() for part in re.findall(r"\([^)]*\)|\S+", side)]


def model(rearrangement: str, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """Build the Reshape to the factors, their Transpose and the Reshape to the axes of the result."""
    inputs, outputs = map(axes, rearrangement.split("->"))
    before, after = ([f for axis in side for f in axis] for side in (inputs, outputs))

    def dims(groups: Sequence[Sequence[str]]) -> list[int]:
        return [math.prod(sizes[f] for f in group) for group in groups]

    nodes = [
        helper.make_node("Reshape", ["x", "factors"], ["split"]),
        helper.make_node("Transpose", ["split"], ["moved"], perm=[before.index(f) for f in after]),
        helper.make_node("Reshape", ["moved", "shape"], ["y"]),
    ]
    stored = [
        numpy_helper.from_array(np.array([sizes[f] for f in before]), "factors"),
        numpy_helper.from_array(np.array(dims(outputs)), "shape"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims(inputs))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims(outputs))
    graph = helper.make_graph(nodes, "chain", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rank(chain: onnx.ModelProto) -> int:
    """Return the largest rank of a value."""
    inferred = onnx.shape_inference.infer_shapes(chain).graph
    values = (*inferred.value_info, *inferred.input, *inferred.output)
    return max(len(v.type.tensor_type.shape.dim) for v in values)


def measure(before: onnx.ModelProto, after: onnx.ModelProto) -> tuple[float, float]:
    """Return the median milliseconds of two models, which run in turn; their results must be equal."""
    dims = [d.dim_value for d in before.graph.input[0].type.tensor_type.shape.dim]
    data = {"x": np.random.default_rng(0).random(dims, np.float32)}
    sessions = [session(each) for each in (before, after)]
    first, second = (each.run(None, data)[0] for each in sessions)
    if first.tobytes() != second.tobytes():
        raise click.ClickException("the results differ")
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for each, row in zip(sessions, times, strict=True):
            start = time.perf_counter()
            each.run(None, data)
            row.append(time.perf_counter() - start)
    one, two = (float(np.median(row)) * 1e3 for row in times)
    return one, two


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
def main() -> None:
    """Print a row for each chain."""
    print("| chain | rank | nodes | ms | times faster |\n|---|---|---|---|---|")
    for name, rearrangement, sizes in CHAINS:
        before = model(rearrangement, sizes)
        after = onnx_spatial.optimize(before, max_rank=4, verify=False).model
        one, two = measure(before, after)
        counts = f"{len(before.graph.node)} -> {len(after.graph.node)}"
        ranks = f"{rank(before)} -> {rank(after)}"
        print(f"| {name} | {ranks} | {counts} | {one:.3f} -> {two:.3f} | {one / two:.1f} |")


if __name__ == "__main__":
    main()
