"""The maps of convolutions and other computing operators, and the proofs of what fusion merged."""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import pytest
from adapter import convert, prove
from maps import maps
from onnx import numpy_helper
from parsing import model

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.compare import Comparison
from onnx_spatial.maps.elements import CONSTANT, PRODUCTS
from onnx_spatial.maps.polynomial import ELEMENT, OperationKey, Polynomial
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.maps.values import evaluate, grid_of
from onnx_spatial.verification.prove.prover import Proof


def weights(*shape: int) -> np.ndarray:
    """Distinct numbers that are exact in float32, sums of products too."""
    return (np.arange(np.prod(shape)).reshape(shape) % 61 - 30).astype(np.float32)


# Maps against runs


def total(make: Callable[[Case], Tensor], inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Sum up what a map of sums of products says, over all indices, in every case."""
    case, dims = Case(), tuple[int, ...]()
    result = np.zeros(0)

    def value(p: Polynomial, grid: dict) -> np.ndarray | float:
        atom = p.lone_atom
        if atom is None or not isinstance(atom.key, OperationKey):
            assert p.constant == 0, "only fill is a number"
            return 0.0
        key = atom.key
        if key.operator == "op:Add":
            return sum(value(q, grid) for q in key.operands)
        places = tuple(evaluate(i, grid) for i in key.operands if key.operator != PRODUCTS)
        if key.operator == CONSTANT:
            return key.details[0].array[places]
        if key.operator == ELEMENT:
            return inputs[key.details[0]][places]
        raise AssertionError(key.operator)

    def add() -> None:
        nonlocal dims, result
        tensor = case.once("map", lambda: make(case))
        index = tensor.index()
        element = tensor.at(index)
        if not dims:
            dims = tuple(d.constant for d in tensor.dims)
            result = np.zeros(dims)
        key = element.lone_atom.key
        added, summed = None, key
        if key.operator == "op:Add":
            summed, added = key.operands[0].lone_atom.key, key.operands[1]
        assert summed.operator == PRODUCTS
        factor, data, *extents = summed.operands
        counts = [e.constant for e in extents]
        bases = {a for a in case.extents if a not in case._replaced}
        grid = grid_of(bases, case.extents, case.facts)
        assert grid is not None
        places = tuple(
            np.broadcast_to(evaluate(i, grid), len(next(iter(grid.values())))) for i in index
        )
        products = value(factor, grid) * value(data, grid)
        # The grid holds every place once for each value of the indices of the sum.
        more = 0.0 if added is None else value(added, grid) / np.prod(counts)
        np.add.at(result, places, products + more)

    for _ in case.all(add):
        pass
    return result


@pytest.mark.parametrize(
    ("image", "kernel", "node"),
    [
        ((1, 2, 5, 4), (3, 2, 3, 2), "Conv <pads = [1, 0, 2, 1]> (x, w)"),
        ((1, 2, 6, 5), (2, 2, 3, 2), "Conv <strides = [2, 1], dilations = [1, 3]> (x, w)"),
        ((1, 4, 5, 4), (6, 2, 2, 1), "Conv <group = 2, pads = [0, 1, 1, 0]> (x, w)"),
        (
            (1, 3, 7, 6),
            (3, 1, 3, 3),
            'Conv <group = 3, auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)',
        ),
        ((1, 2, 3, 3, 2), (2, 2, 2, 1, 2), "Conv <pads = [1, 0, 0, 0, 0, 1]> (x, w)"),
        ((2, 3, 4), (4, 5), "MatMul(x, w)"),
        ((3, 4), (5, 4), "Gemm <transB = 1> (x, w)"),
        ((4, 3), (4, 5), "Gemm <transA = 1> (x, w, c)"),
        ((2, 3, 4), (4, 5), 'Einsum <equation = "nij,jk->ink"> (x, w)'),
        ((1, 4, 5), (4, 2, 2), "ConvTranspose <group = 2> (x, w)"),
        ((1, 2, 4), (2, 3, 3), "ConvTranspose <strides = [2], dilations = [2]> (x, w)"),
        (
            (1, 2, 3, 2),
            (2, 2, 3, 2),
            "ConvTranspose <strides = [3, 2], pads = [1, 0, 0, 1], output_padding = [2, 1]> (x, w)",
        ),
    ],
)
def test_the_map_of_a_sum_is_what_it_computes(image, kernel, node) -> None:
    x, arrays = weights(*image)[..., ::-1].copy(), {"w": weights(*kernel), "b": weights(kernel[0])}
    text = f"g (float{list(image)} x) => (y) {{ y = {node} }}"
    made = model(text, **arrays, c=weights(kernel[-1]))
    assert np.array_equal(
        total(partial(maps.mapped, model=made), {"x": x}), maps.run(made, {"x": x})
    )


# Pairs of graphs

PADDED = "pads = Constant <value = int64[6] {0, 0, 1, 0, 0, 2}> () "
NUMBERS = {
    "zero": np.zeros(1, np.float32),
    "minus_zero": np.float32(-0.0),
    "low": np.float32(-1),
    "high": np.float32(6),
    "six": np.float32(6),
    "five": np.float32(5),
    "slopes": weights(3, 1) + 40,
    "downwards": weights(3, 1) - 40,
    "scale": weights(3) + 40,
    "mean": weights(3),
    "step": np.float32(0.5),
    "point": np.int8(3),
    "kernel": weights(2, 3, 3),
    "bias": weights(2),
    "biases": weights(2, 1),
    "square": weights(3, 3),
    "transposed": weights(3, 2, 3),
    "halves": np.full((3, 1, 2), 0.5, np.float32),
    "halves3": np.full((3, 1, 3), 0.5, np.float32),
    "two": np.array([2]),
    "last": np.array(-1),
    "middle": np.array(1),
    "minus_infinity": np.float32(-np.inf),
    "crop": np.array([0, 0, -1, 0, 0, -1]),
}


def read(table: str) -> list[list[str]]:
    """Read pairs of a table: nodes --> other nodes."""
    return [row.split(" --> ") for row in table.strip().replace("\n    ", " ").splitlines()]


EQUAL = read("""
p = Pad(x, pads) y = Relu(p) --> r = Relu(x) y = Pad(r, pads)
p = Pad(x, pads) y = Mul(p, slopes) --> r = Mul(x, slopes) y = Pad(r, pads)
p = Pad(x, pads) y = PRelu(p, slopes) --> r = PRelu(x, slopes) y = Pad(r, pads)
p = Pad(x, pads) y = QuantizeLinear(p, step, point) --> r = QuantizeLinear(x, step, point) y =
    Pad(r, pads, point)
p = Pad(x, pads) m = MatMul(square, p) y = QuantizeLinear(m, step, point) --> m = MatMul(square,
    x) q = QuantizeLinear(m, step, point) y = Pad(q, pads, point)
p = Pad(x, pads) y = Conv(p, kernel) --> y = Conv <pads = [1, 2]> (x, kernel)
c = Conv(x, kernel) y = Add(c, biases) --> y = Conv(x, kernel, bias)
t = Transpose <perm = [0, 2, 1]> (x) s = Softmax(t) y = Transpose <perm = [0, 2, 1]> (s) --> y =
    Softmax <axis = 1> (x)
p = Pad(x, pads, minus_infinity) y = MaxPool <kernel_shape = [3], dilations = [2]> (p) --> y =
    MaxPool <kernel_shape = [3], dilations = [2], pads = [1, 2]> (x)
p = Pad(x, pads) y = AveragePool <kernel_shape = [3]> (p) --> y = AveragePool <kernel_shape = [3],
    pads = [1, 2], count_include_pad = 1> (x)
y = AveragePool <kernel_shape = [2], dilations = [2]> (x) --> y = Conv <group = 3, dilations =
    [2]> (x, halves)
c = ConvTranspose <dilations = [2]> (x, transposed) y = Pad(c, crop) --> y = ConvTranspose
    <dilations = [2], pads = [1, 1]> (x, transposed)
t = Transpose <perm = [0, 2, 1]> (x) y = Einsum <equation = "nwc,cd->nwd"> (t, square) --> t =
    Transpose <perm = [0, 2, 1]> (x) y = MatMul(t, square)
t = Transpose <perm = [0, 2, 1]> (x) s = CumSum(t, last) y = Transpose <perm = [0, 2, 1]> (s) -->
    y = CumSum(x, middle)
t = Transpose <perm = [0, 2, 1]> (x) s = MeanVarianceNormalization <axes = [2]> (t) y = Transpose
    <perm = [0, 2, 1]> (s) --> y = MeanVarianceNormalization <axes = [1]> (x)
""")

DIFFERENT = read("""
y = Conv(x, kernel, bias) --> y = Conv(x, kernel)
y = Clip(x, , six) --> y = Clip(x, six)
y = Clip(x, low, six) --> y = Clip(x, low, five)
y = Clip(x, low, six) --> y = Clip(x, minus_zero, six)
y = Floor(x) --> y = Ceil(x)
y = Conv(x, kernel) --> y = Conv <dilations = [2], pads = [1, 1]> (x, kernel)
y = Sub(x, slopes) --> y = Sub(slopes, x)
p = Pad(x, pads) y = Sigmoid(p) --> r = Sigmoid(x) y = Pad(r, pads)
p = Pad(x, pads) y = Mul(p, downwards) --> r = Mul(x, downwards) y = Pad(r, pads)
p = Pad(x, pads) y = Clip(p, low, minus_zero) --> r = Clip(x, low, minus_zero) y = Pad(r, pads)
p = Pad(x, pads) y = QuantizeLinear(p, step, point) --> r = QuantizeLinear(x, step, point) y =
    Pad(r, pads)
y = CumSum(x, last) --> y = CumSum(x, middle)
y, i = TopK <axis = 1> (x, two) --> v, y = TopK <axis = 1> (x, two)
y, i = TopK <axis = 1> (x, two) --> y, i = TopK <axis = 1, largest = 0> (x, two)
p = Pad(x, pads) y = MaxPool <kernel_shape = [3]> (p) --> y = MaxPool <kernel_shape = [3], pads =
    [1, 2]> (x)
y = AveragePool <kernel_shape = [3], pads = [1, 2]> (x) --> y = AveragePool <kernel_shape = [3],
    pads = [1, 2], count_include_pad = 1> (x)
y = AveragePool <kernel_shape = [3]> (x) --> y = Conv <group = 3> (x, halves3)
y = ConvTranspose <dilations = [2], pads = [1, 1]> (x, transposed) --> y = ConvTranspose <pads =
    [0, 0]> (x, transposed)
y = MatMul(square, x) --> t = Transpose <perm = [1, 0]> (square) y = MatMul(t, x)
y = Add(x, slopes) --> y = BatchNormalization(x, bias, bias, bias, bias)
""")


def compared(first: str, second: str) -> Comparison:
    """Compare two graphs on a float tensor [N, 3, W]."""
    text = f"g (float[N, 3, W] x) => (float[A, B, C] y) {{ {PADDED} {{}} }}"
    pair = (model(text.replace("{}", nodes), one=[1], **NUMBERS) for nodes in (first, second))
    return maps.compare(*pair)


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_equal_graphs_are_proven(first, second) -> None:
    comparison = compared(first, second)
    assert comparison.equal, comparison.reason


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_different_graphs_are_not_proven(first, second) -> None:
    assert compared(first, first).equal
    assert not compared(first, second).equal


# Proofs of regions


def dilated(layers: str, **arrays: np.ndarray) -> onnx.ModelProto:
    """SpaceToBatch and BatchToSpace by 2, with the pads of SAME, around nodes from `s` to `c`."""
    text = f"""
        g (float[N, H, W, 4] x) => (float[N, P, Q, M] y)
        {{
            shape = Shape(x)
            sizes = Slice(shape, one, three)
            negative = Neg(sizes)
            end = Mod(negative, block)
            ends = Add(end, begin)
            rows = Concat <axis = 0> (begin, ends)
            table = Reshape(rows, two_two)
            pads = Transpose(table)
            left = Concat <axis = 0> (none, end)
            lefts = Reshape(left, two_two)
            crops = Transpose(lefts)
            b = tf.SpaceToBatchND(x, block, pads)
            s = Transpose <perm = [0, 3, 1, 2]> (b)
            {layers}
            t = Transpose <perm = [0, 2, 3, 1]> (c)
            y = tf.BatchToSpaceND(t, block, crops)
        }}"""
    known = {"block": [2, 2], "begin": [2, 2], "none": [0, 0], "one": [1], "three": [3]}
    known |= {"two_two": [2, 2]}
    return model(text, **known, **arrays)


def region(original: onnx.ModelProto, changed: onnx.ModelProto | None = None) -> Proof:
    """Return what is proven of the only region that a conversion merges, of a changed one if given."""
    ((part, proof),) = prove(original, changed or convert(original)).parts
    assert len(part.before.nodes) > 1, "nothing was merged"
    return proof


WEIGHTS = {
    "w": weights(4, 4, 3, 3),
    "d": weights(4, 1, 3, 3),
    "l": weights(4, 4, 1, 3),
    "bias": weights(4),
    "channels": weights(4, 1, 1),
    "scale": weights(4) + 40,
    "mean": weights(4),
    "variance": weights(4) + 40,
    "matrix": weights(4, 5),
    "step": np.float32(0.5),
    "point": np.int8(3),
}

LAYERS = {
    "conv": "c = Conv(s, w)",
    "bias added": "a = Conv(s, w) c = Add(a, channels)",
    "depthwise": "c = Conv <group = 4> (s, d)",
    "own dilation": "c = Conv <dilations = [1, 1], pads = [0, 1, 0, 1]> (s, l)",
    "two": "a = Conv <pads = [1, 1, 1, 1]> (s, w) e = Relu(a) c = Conv(e, d2)",
    "normalised": "a = Conv(s, w) c = BatchNormalization(a, scale, bias, mean, variance)",
    "quantised": "a = Conv(s, w) e = QuantizeLinear(a, step, point) "
    "c = DequantizeLinear(e, step, point)",
    "split": "a, e = Split <axis = 1> (s) f = Concat <axis = 1> (e, a) c = Conv(f, w)",
    "products": "a = Conv(s, w) e = Transpose <perm = [0, 2, 3, 1]> (a) f = MatMul(e, matrix) "
    "c = Transpose <perm = [0, 3, 1, 2]> (f)",
}
EXTRA = {"d2": weights(4, 4, 1, 1), "low": np.float32(-1), "high": np.float32(6)}


@pytest.mark.parametrize("name", LAYERS)
def test_a_dilated_convolution_is_proven_for_all_sizes(name) -> None:
    proof = region(dilated(LAYERS[name], **WEIGHTS, **EXTRA))
    assert proof.scope == "all sizes", proof.reason


def test_a_weight_that_is_fed_is_assumed_to_be_finite() -> None:
    original = dilated("c = Conv(s, w)")
    original.graph.input.append(
        onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4, 4, 3, 3])
    )
    proof = region(original)
    assert proof.scope == "all sizes", proof.reason
    assert "weights are finite" in proof.assumptions


def test_the_same_kernel_in_another_order_is_equal_bit_for_bit() -> None:
    original = dilated("c = Conv(s, w)", **WEIGHTS)
    turned = WEIGHTS["w"].transpose(1, 0, 2, 3)

    def with_kernel(kernel: np.ndarray) -> onnx.ModelProto:
        made = convert(original)
        (conv,) = (node for node in made.graph.node if node.op_type == "Conv")
        conv.input[1] = "turned"
        back = onnx.helper.make_node("Transpose", ["other"], ["turned"], perm=[1, 0, 2, 3])
        made.graph.node.insert(0, back)
        made.graph.initializer.append(numpy_helper.from_array(kernel.copy(), "other"))
        return made

    proof = region(original, with_kernel(turned))
    assert proof.scope == "all sizes", proof.reason
    assert region(original, with_kernel(turned[..., ::-1])).scope is None
    other = turned.copy()
    other.reshape(-1)[77] += 1
    assert region(original, with_kernel(other)).scope is None


@pytest.mark.parametrize("place", [0, 4])
def test_an_index_that_takes_one_value_is_not_that_of_an_inner_sum(place) -> None:
    """A table that is no formula is read value by value: the inner sum still takes all its places."""
    text = """g (float[1, 3, 2] x) => (float[A, B, C] y)
        { c = Conv(x, inner) g = Gather <axis = 1> (c, order) y = Conv(g, outer) }"""
    other = weights(3, 3, 1)
    other.reshape(-1)[place] += 1
    order = np.array([2, 0, 1])
    first, same, second = (
        model(text, inner=inner, outer=weights(3, 3, 1), order=order)
        for inner in (weights(3, 3, 1), weights(3, 3, 1), other)
    )

    assert maps.compare(first, same).equal
    assert not maps.compare(first, second).equal
