"""Know the operators of the ONNX standard: what each one does to its inputs, and in which version.

`OPERATORS` is the one table of facts; whoever asks names a trait, not operators:

    op_traits.having(Trait.UNARY)      names of all operators with the trait
    op_traits.is_bitwise(node)         facts that also depend on attributes

A fact holds for every version of an operator and every element type, unless its trait says otherwise.
A missing trait claims nothing: readers must be right, if less sharp, without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from types import MappingProxyType
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    import onnx_ir as ir

_DOMAINS = ("", "ai.onnx")
#: The newest opset that runtimes agree on, by the first IR version that goes with it.
_OPSET_OF_IR = ((8, 17), (7, 13), (0, 11))


class Trait(Flag):
    """A fact about an operator; of its first output unless it says otherwise.

    Shape:
        SAME_SHAPE: it has the shape of the first input.
        SAME_RANK: it has as many axes as the first input.
        BROADCASTS: it has the shape that the inputs broadcast to, since opset 7 as in numpy; each of
            its elements is a function of the elements there, the same everywhere.
        UNARY: each of its elements is a function of that element of the first input, the same
            everywhere; other inputs are parameters for all elements.
        REDUCES: axes become 1 or, without `keepdims`, vanish.
        RESHAPES: it has the elements of the first input in the same row-major order.
        WINDOWS: windows given by kernel_shape, strides, dilations and pads slide along the spatial
            axes of [N, C, spatial..].
        ACROSS: elements move or mix along axes other than that of the channels.
        SIZES: it tells the sizes of the input, whatever its values.

    Values:
        MOVES: each element of every output is one of the inputs `data`, bit for bit, or a constant.
        BITWISE: its bits follow from those of the inputs: no rounding, order of summation or sign of
            zero is left to the implementation.
        EXACT: it does not round, but the sign of zero or NaNs may be left to the implementation.
        STEPS: where real numbers go in, the last digit of one may decide which whole number, or
            which element, comes out.
        TRUTH: it is of type bool.
        RANDOM: it is drawn at random.
        KEEPS_ZERO: if the inputs are 0 (of numbers, and not -0) it is 0.
        SHRINKS: it is no larger than the first input, and where it does not jump, an error of the
            input does not grow by more than a factor of 2.
        SHRINKS_TO_ONE: the same for 1 + the absolute value of the input.
        PRODUCTS: it sums up products of elements of the first two inputs.
    """

    NONE = 0
    SAME_SHAPE = auto()
    SAME_RANK = auto()
    BROADCASTS = auto()
    UNARY = auto()
    REDUCES = auto()
    RESHAPES = auto()
    WINDOWS = auto()
    ACROSS = auto()
    SIZES = auto()
    MOVES = auto()
    BITWISE = auto()
    EXACT = auto()
    STEPS = auto()
    TRUTH = auto()
    RANDOM = auto()
    KEEPS_ZERO = auto()
    SHRINKS = auto()
    SHRINKS_TO_ONE = auto()
    PRODUCTS = auto()


@dataclass(frozen=True)
class Operator:
    """What is known of an operator.

    Attributes:
        traits: see `Trait`.
        data: inputs whose elements it moves; None for all of them. Others are sizes and places.
        weight: which input of a convolution holds the weight; None for other operators.
    """

    traits: Trait = Trait.NONE
    data: tuple[int, ...] | None = (0,)
    weight: int | None = None


_N = Trait.NONE
_SHAPE = Trait.SAME_SHAPE | Trait.SAME_RANK
_RANK = Trait.SAME_RANK
_UNARY = Trait.UNARY | _SHAPE
_MANY = Trait.BROADCASTS
_MOVE = Trait.MOVES | Trait.BITWISE
_BITS = Trait.BITWISE
_EXACT = Trait.EXACT
_STEP = Trait.STEPS
_TRUTH = Trait.TRUTH | Trait.BITWISE
_ZERO = Trait.KEEPS_ZERO
_SMALL = Trait.SHRINKS
_SMALL1 = Trait.SHRINKS_TO_ONE
_REDUCE = Trait.REDUCES
_WINDOWS = Trait.WINDOWS | _RANK
_ACROSS = Trait.ACROSS
_RANDOM = Trait.RANDOM
_PRODUCTS = Trait.PRODUCTS
_FLAT = Trait.RESHAPES | _MOVE

_TABLE = {
    # Functions of one element
    "Abs": Operator(_UNARY | _EXACT | _ZERO | _SMALL),
    "Acos": Operator(_UNARY),
    "Acosh": Operator(_UNARY),
    "Asin": Operator(_UNARY | _ZERO),
    "Asinh": Operator(_UNARY | _ZERO),
    "Atan": Operator(_UNARY | _ZERO),
    "Atanh": Operator(_UNARY | _ZERO),
    "BitCast": Operator(_UNARY | _BITS | _STEP),
    "BitwiseNot": Operator(_UNARY | _BITS),
    "Cast": Operator(_UNARY | _BITS | _STEP),
    "CastLike": Operator(_UNARY | _BITS | _STEP),
    "Ceil": Operator(_UNARY | _STEP | _ZERO),
    "Celu": Operator(_UNARY | _ZERO | _SMALL),
    "Clip": Operator(_UNARY | _EXACT | _SMALL),
    "Cos": Operator(_UNARY),
    "Cosh": Operator(_UNARY),
    "Elu": Operator(_UNARY | _ZERO | _SMALL),
    "Erf": Operator(_UNARY | _ZERO | _SMALL),
    "Exp": Operator(_UNARY),
    "Floor": Operator(_UNARY | _STEP | _ZERO),
    "Gelu": Operator(_UNARY | _ZERO | _SMALL),
    "HardSigmoid": Operator(_UNARY | _SMALL1),
    "HardSwish": Operator(_UNARY | _ZERO | _SMALL),
    "Identity": Operator(_UNARY | _FLAT | _ZERO),
    "IsInf": Operator(_UNARY | _TRUTH),
    "IsNaN": Operator(_UNARY | _TRUTH),
    "LeakyRelu": Operator(_UNARY | _ZERO | _SMALL),
    "Log": Operator(_UNARY),
    "Mish": Operator(_UNARY | _ZERO | _SMALL),
    "Neg": Operator(_UNARY | _EXACT | _SMALL),
    "Not": Operator(_UNARY | _TRUTH),
    "Reciprocal": Operator(_UNARY),
    "RegexFullMatch": Operator(_UNARY | _TRUTH),
    "Relu": Operator(_UNARY | _EXACT | _ZERO | _SMALL),
    "Round": Operator(_UNARY | _STEP | _ZERO),
    "Selu": Operator(_UNARY | _ZERO | _SMALL),
    "Shrink": Operator(_UNARY),
    "Sigmoid": Operator(_UNARY | _SMALL1),
    "Sign": Operator(_UNARY | _STEP | _ZERO),
    "Sin": Operator(_UNARY | _ZERO),
    "Sinh": Operator(_UNARY | _ZERO),
    "Softplus": Operator(_UNARY | _SMALL1),
    "Softsign": Operator(_UNARY | _ZERO | _SMALL),
    "Sqrt": Operator(_UNARY | _ZERO),
    "Swish": Operator(_UNARY | _ZERO | _SMALL),
    "Tan": Operator(_UNARY | _ZERO),
    "Tanh": Operator(_UNARY | _ZERO | _SMALL),
    "ThresholdedRelu": Operator(_UNARY | _EXACT | _ZERO | _SMALL),
    # Functions of elements of several inputs
    "Add": Operator(_MANY | _ZERO),
    "And": Operator(_MANY | _TRUTH),
    "BitShift": Operator(_MANY | _BITS | _ZERO),
    "BitwiseAnd": Operator(_MANY | _BITS | _ZERO),
    "BitwiseOr": Operator(_MANY | _BITS | _ZERO),
    "BitwiseXor": Operator(_MANY | _BITS | _ZERO),
    "Div": Operator(_MANY),
    "Equal": Operator(_MANY | _TRUTH | _STEP),
    "Greater": Operator(_MANY | _TRUTH | _STEP),
    "GreaterOrEqual": Operator(_MANY | _TRUTH | _STEP),
    "Less": Operator(_MANY | _TRUTH | _STEP),
    "LessOrEqual": Operator(_MANY | _TRUTH | _STEP),
    "Max": Operator(_MANY | _EXACT | _ZERO),
    "Mean": Operator(_MANY | _ZERO),
    "Min": Operator(_MANY | _EXACT | _ZERO),
    "Mod": Operator(_MANY | _STEP),
    "Mul": Operator(_MANY | _ZERO),
    "Or": Operator(_MANY | _TRUTH),
    "PRelu": Operator(_MANY | _SHAPE | _ZERO),
    "Pow": Operator(_MANY),
    "StringConcat": Operator(_MANY | _BITS),
    "Sub": Operator(_MANY | _ZERO),
    "Sum": Operator(_MANY | _ZERO),
    "SwiGLU": Operator(_MANY | _SHAPE | _ZERO),
    "Where": Operator(_MANY | _MOVE, data=(1, 2)),
    "Xor": Operator(_MANY | _TRUTH),
    # Data movement
    "CenterCropPad": Operator(_MOVE | _RANK | _ACROSS),
    "Compress": Operator(_MOVE),
    "Concat": Operator(_MOVE, data=None),  # onnxruntime passes over empty vectors of any rank
    "ConcatFromSequence": Operator(_MOVE),
    "DepthToSpace": Operator(_MOVE | _RANK | _ACROSS),
    "Expand": Operator(_MOVE),
    "Flatten": Operator(_FLAT),
    "Gather": Operator(_MOVE),
    "GatherElements": Operator(_MOVE | _RANK),
    "GatherND": Operator(_MOVE),
    "OneHot": Operator(_MOVE, data=(2,)),
    "Optional": Operator(_MOVE),
    "OptionalGetElement": Operator(_MOVE),
    "Pad": Operator(_MOVE | _RANK | _ACROSS, data=(0, 2)),
    "Reshape": Operator(_FLAT),
    "ReverseSequence": Operator(_MOVE | _SHAPE | _ACROSS),
    "Scatter": Operator(_MOVE | _SHAPE, data=(0, 2)),
    "ScatterElements": Operator(_MOVE | _SHAPE, data=(0, 2)),
    "ScatterND": Operator(_MOVE | _SHAPE, data=(0, 2)),
    "SequenceAt": Operator(_MOVE),
    "SequenceConstruct": Operator(_MOVE, data=None),
    "SequenceErase": Operator(_MOVE),
    "SequenceInsert": Operator(_MOVE, data=(0, 1)),
    "Slice": Operator(_MOVE | _RANK),
    "SpaceToDepth": Operator(_MOVE | _RANK | _ACROSS),
    "Split": Operator(_MOVE | _RANK),
    "SplitToSequence": Operator(_MOVE),
    "Squeeze": Operator(_FLAT),
    "TensorScatter": Operator(_MOVE | _SHAPE, data=(0, 1)),
    "Tile": Operator(_MOVE | _RANK | _ACROSS),
    "Transpose": Operator(_MOVE | _RANK),
    "Trilu": Operator(_MOVE | _SHAPE),
    "Unsqueeze": Operator(_FLAT),
    # Constants, sizes, positions, strings
    "ArgMax": Operator(_REDUCE | _BITS | _STEP),
    "ArgMin": Operator(_REDUCE | _BITS | _STEP),
    "Constant": Operator(_BITS),
    "ConstantOfShape": Operator(_BITS),
    "EyeLike": Operator(_BITS | _SHAPE),
    "NonMaxSuppression": Operator(_STEP),
    "NonZero": Operator(_BITS | _STEP),
    "OptionalHasElement": Operator(_TRUTH),
    "Range": Operator(_N),
    "SequenceEmpty": Operator(_BITS),
    "SequenceLength": Operator(_BITS),
    "Shape": Operator(_BITS | Trait.SIZES),
    "Size": Operator(_BITS | Trait.SIZES),
    "StringNormalizer": Operator(_BITS),
    "StringSplit": Operator(_BITS),
    "TfIdfVectorizer": Operator(_N),
    "TopK": Operator(_STEP | _RANK),
    "Unique": Operator(_STEP),
    # Reductions
    "ReduceL1": Operator(_REDUCE),
    "ReduceL2": Operator(_REDUCE),
    "ReduceLogSum": Operator(_REDUCE),
    "ReduceLogSumExp": Operator(_REDUCE),
    "ReduceMax": Operator(_REDUCE | _EXACT),
    "ReduceMean": Operator(_REDUCE),
    "ReduceMin": Operator(_REDUCE | _EXACT),
    "ReduceProd": Operator(_REDUCE),
    "ReduceSum": Operator(_REDUCE),
    "ReduceSumSquare": Operator(_REDUCE),
    # Products, convolutions and pools
    "AveragePool": Operator(_WINDOWS | _ACROSS),
    "CausalConvWithState": Operator(_SHAPE | _ACROSS),
    "Col2Im": Operator(_ACROSS),
    "Conv": Operator(_WINDOWS | _ACROSS | _PRODUCTS, weight=1),
    "ConvInteger": Operator(_WINDOWS | _ACROSS, weight=1),
    "ConvTranspose": Operator(_WINDOWS | _ACROSS | _PRODUCTS, weight=1),
    "DeformConv": Operator(_WINDOWS | _ACROSS | _PRODUCTS, weight=1),
    "Det": Operator(_N),
    "Einsum": Operator(_PRODUCTS),
    "Gemm": Operator(_PRODUCTS),
    "GlobalAveragePool": Operator(_RANK | _ACROSS),
    "GlobalLpPool": Operator(_RANK | _ACROSS),
    "GlobalMaxPool": Operator(_RANK | _ACROSS | _EXACT),
    "LpPool": Operator(_WINDOWS | _ACROSS),
    "MatMul": Operator(_PRODUCTS),
    "MatMulInteger": Operator(_N),
    "MaxPool": Operator(_WINDOWS | _ACROSS | _EXACT),
    "MaxRoiPool": Operator(_ACROSS | _EXACT),
    "MaxUnpool": Operator(_RANK | _ACROSS | _EXACT),
    "QLinearConv": Operator(_WINDOWS | _ACROSS, weight=3),
    "QLinearMatMul": Operator(_N),
    # Sampling and signals
    "AffineGrid": Operator(_ACROSS),
    "BlackmanWindow": Operator(_N),
    "DFT": Operator(_ACROSS),
    "GridSample": Operator(_RANK | _ACROSS),
    "HammingWindow": Operator(_N),
    "HannWindow": Operator(_N),
    "ImageDecoder": Operator(_N),
    "MelWeightMatrix": Operator(_N),
    "Resize": Operator(_RANK | _ACROSS),
    "RoiAlign": Operator(_ACROSS),
    "STFT": Operator(_ACROSS),
    "Upsample": Operator(_RANK | _ACROSS),
    # Normalisation, quantisation, and others along axes
    "BatchNormalization": Operator(_SHAPE),
    "CumProd": Operator(_SHAPE | _ACROSS),
    "CumSum": Operator(_SHAPE | _ACROSS),
    "DequantizeLinear": Operator(_SHAPE),
    "Dropout": Operator(_UNARY | _EXACT | _ZERO),
    "DynamicQuantizeLinear": Operator(_SHAPE | _STEP | _ACROSS),
    "GroupNormalization": Operator(_SHAPE | _ACROSS),
    "Hardmax": Operator(_SHAPE | _STEP),
    "InstanceNormalization": Operator(_SHAPE | _ACROSS),
    "LRN": Operator(_SHAPE),
    "LayerNormalization": Operator(_SHAPE),
    "LogSoftmax": Operator(_SHAPE),
    "LpNormalization": Operator(_SHAPE),
    "MeanVarianceNormalization": Operator(_SHAPE | _ACROSS),
    "QuantizeLinear": Operator(_SHAPE | _STEP),
    "RMSNormalization": Operator(_SHAPE),
    "Softmax": Operator(_SHAPE),
    # Random numbers
    "Bernoulli": Operator(_RANDOM | _SHAPE),
    "Multinomial": Operator(_RANDOM | _RANK),
    "RandomNormal": Operator(_RANDOM),
    "RandomNormalLike": Operator(_RANDOM | _SHAPE),
    "RandomUniform": Operator(_RANDOM),
    "RandomUniformLike": Operator(_RANDOM | _SHAPE),
    # Networks, losses and control flow
    "Attention": Operator(_N),
    "GRU": Operator(_PRODUCTS),
    "If": Operator(_N),
    "LSTM": Operator(_PRODUCTS),
    "LinearAttention": Operator(_N),
    "Loop": Operator(_N),
    "NegativeLogLikelihoodLoss": Operator(_N),
    "RNN": Operator(_PRODUCTS),
    "RotaryEmbedding": Operator(_SHAPE),
    "Scan": Operator(_N),
    "SequenceMap": Operator(_N),
    "SoftmaxCrossEntropyLoss": Operator(_N),
}

#: What is known of each operator of ONNX's own domain, by name.
OPERATORS: Mapping[str, Operator] = MappingProxyType(_TABLE)
_UNKNOWN = Operator()


def having(*traits: Trait) -> frozenset[str]:
    """Return the names of the operators with at least one of some traits."""
    return frozenset(n for n, o in OPERATORS.items() if any(t in o.traits for t in traits))


def of(node: onnx.NodeProto | ir.Node) -> Operator:
    """Return what is known of a node's operator; nothing for operators of other domains."""
    return OPERATORS.get(node.op_type, _UNKNOWN) if is_standard(node) else _UNKNOWN


_BITWISE = having(Trait.BITWISE)
_NO_ROUNDING = having(Trait.BITWISE, Trait.EXACT, Trait.STEPS)
#: Of the scatter operators, `reduction` and whether it rounds; without one they only move.
_REDUCTIONS = {b"none": False, b"max": False, b"min": False, b"add": True, b"mul": True}


def is_bitwise(node: onnx.NodeProto) -> bool:
    """Tell whether the bits of a standard node's outputs follow from those of its inputs."""
    return is_standard(node) and node.op_type in _BITWISE and _reduction(node) == b"none"


def is_exact(node: onnx.NodeProto) -> bool:
    """Tell whether a standard node gives numbers of its inputs, or whole ones, without rounding."""
    exact = is_standard(node) and node.op_type in _NO_ROUNDING
    return exact and not _REDUCTIONS.get(_reduction(node), True)


def moved_inputs(node: onnx.NodeProto) -> tuple[int, ...]:
    """Return which inputs a standard node's outputs consist of; none if it computes anything."""
    known = of(node)
    if Trait.MOVES not in known.traits or not is_bitwise(node):
        return ()
    return tuple(range(len(node.input))) if known.data is None else known.data


def _reduction(node: onnx.NodeProto) -> bytes:
    scatters = node.op_type in ("ScatterElements", "ScatterND")
    found = (a.s for a in node.attribute if scatters and a.name == "reduction")
    return next(found, b"none")


def is_standard_domain(domain: str) -> bool:
    """Tell whether a domain is ONNX's own, in either of its two spellings."""
    return domain in _DOMAINS


def is_standard(node: onnx.NodeProto | ir.Node) -> bool:
    """Tell whether a node's operator is of ONNX's own domain."""
    return node.domain in _DOMAINS


def canonical_domain(domain: str) -> str:
    """Return the one spelling under which domains are compared: "" for ONNX's own."""
    return "" if domain in _DOMAINS else domain


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Return the imported versions by canonical domain; the first import of a domain counts."""
    found: dict[str, int] = {}
    for imported in imports:
        found.setdefault(canonical_domain(imported.domain), imported.version)
    return found


def opset_of(imports: Iterable[onnx.OperatorSetIdProto]) -> int | None:
    """Return the version of ONNX's own operators; None if they are not imported."""
    return opsets_of(imports).get("")


def assumed_opset(ir_version: int) -> int:
    """Return the version of ONNX's own operators in a model that does not import them."""
    return next((opset for first, opset in _OPSET_OF_IR if ir_version >= first), 11)
