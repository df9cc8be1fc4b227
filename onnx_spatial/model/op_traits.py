"""List the traits of ONNX's standard operators, and read domains and opset versions.

`_ROWS` is the one table: operators with the same traits share a row. Callers ask for a trait and do
not name operators:

    op_traits.having(Trait.UNARY)      names of all operators with the trait
    op_traits.is_bitwise(node)         a trait that also depends on attributes

To add an operator, put its name into the row with its traits, or add a row. A trait holds for every
version of an operator and every element type, unless `Trait` says otherwise. A missing trait claims
nothing: callers must be correct, if less precise, without it.
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
    """Property of an operator's first output, unless its description names other outputs.

    Shape:
        SAME_SHAPE: the shape of the first input.
        SAME_RANK: the rank of the first input.
        BROADCASTS: elementwise on several inputs, which are broadcast to each other (since opset 7
            as in numpy).
        UNARY: elementwise on the first input, the same function at every position; other inputs are
            parameters of that function.
        REDUCES: axes become 1 or, without `keepdims`, are removed.
        WINDOWS: windows given by kernel_shape, strides, dilations and pads slide along the spatial
            axes of [N, C, spatial..].
        ACROSS: elements move or mix along axes other than the channel axis.
        SIZES: depends on the shape of the input only, not on its values.

    Values:
        BITWISE: fully determined, bit for bit, by the inputs: no rounding, order of summation or
            sign of zero is left to the implementation.
        EXACT: no rounding, but the sign of zero or NaNs may be left to the implementation.
        STEPS: discontinuous: the last digit of a real input may decide which integer, or which
            element, is the output.
        TRUTH: of type bool.
        RANDOM: random numbers.
        KEEPS_ZERO: 0 if the inputs are 0 (numeric, and not -0).
        PRODUCTS: sums of products of elements of the first two inputs.
    """

    NONE = 0
    SAME_SHAPE = auto()
    SAME_RANK = auto()
    BROADCASTS = auto()
    UNARY = auto()
    REDUCES = auto()
    WINDOWS = auto()
    ACROSS = auto()
    SIZES = auto()
    BITWISE = auto()
    EXACT = auto()
    STEPS = auto()
    TRUTH = auto()
    RANDOM = auto()
    KEEPS_ZERO = auto()
    PRODUCTS = auto()


@dataclass(frozen=True)
class OpTraits:
    """Traits of an operator.

    Attributes:
        traits: see `Trait`.
        weight: position of a convolution's weight; None for other operators.
    """

    traits: Trait = Trait.NONE
    weight: int | None = None


_SHAPE = Trait.SAME_SHAPE | Trait.SAME_RANK
_RANK = Trait.SAME_RANK
_UNARY = Trait.UNARY | _SHAPE
_BROADCAST = Trait.BROADCASTS
_BITS = Trait.BITWISE
_EXACT = Trait.EXACT
_STEP = Trait.STEPS
_TRUTH = Trait.TRUTH | Trait.BITWISE
_ZERO = Trait.KEEPS_ZERO
_REDUCE = Trait.REDUCES
_WINDOWS = Trait.WINDOWS | _RANK
_ACROSS = Trait.ACROSS
_RANDOM = Trait.RANDOM
_PRODUCTS = Trait.PRODUCTS

_ROWS: tuple[tuple[str, OpTraits], ...] = (
    # Functions of one element
    ("Abs Relu ThresholdedRelu", OpTraits(_UNARY | _EXACT | _ZERO)),
    ("Acos Acosh Cos Cosh Exp Log Reciprocal Shrink", OpTraits(_UNARY)),
    ("Asin Asinh Atan Atanh Sin Sinh Sqrt Tan", OpTraits(_UNARY | _ZERO)),
    ("BitCast Cast CastLike", OpTraits(_UNARY | _BITS | _STEP)),
    ("BitwiseNot", OpTraits(_UNARY | _BITS)),
    ("Ceil Floor Round Sign", OpTraits(_UNARY | _STEP | _ZERO)),
    (
        "Celu Elu Erf Gelu HardSwish LeakyRelu Mish Selu Softsign Swish Tanh",
        OpTraits(_UNARY | _ZERO),
    ),
    ("Clip Neg", OpTraits(_UNARY | _EXACT)),
    ("HardSigmoid Sigmoid Softplus", OpTraits(_UNARY)),
    ("Identity", OpTraits(_UNARY | _BITS | _ZERO)),
    ("IsInf IsNaN Not RegexFullMatch", OpTraits(_UNARY | _TRUTH)),
    # Functions of elements of several inputs
    ("Add Mean Mul Sub Sum", OpTraits(_BROADCAST | _ZERO)),
    ("And Or Xor", OpTraits(_BROADCAST | _TRUTH)),
    ("BitShift BitwiseAnd BitwiseOr BitwiseXor", OpTraits(_BROADCAST | _BITS | _ZERO)),
    ("Div Pow", OpTraits(_BROADCAST)),
    ("Equal Greater GreaterOrEqual Less LessOrEqual", OpTraits(_BROADCAST | _TRUTH | _STEP)),
    ("Max Min", OpTraits(_BROADCAST | _EXACT | _ZERO)),
    ("Mod", OpTraits(_BROADCAST | _STEP)),
    ("PRelu SwiGLU", OpTraits(_BROADCAST | _SHAPE | _ZERO)),
    ("StringConcat", OpTraits(_BROADCAST | _BITS)),
    ("Where", OpTraits(_BROADCAST | _BITS)),
    # Data movement
    ("CenterCropPad DepthToSpace SpaceToDepth Tile", OpTraits(_BITS | _RANK | _ACROSS)),
    (
        "Compress ConcatFromSequence Expand Gather GatherND Optional OptionalGetElement "
        "SequenceAt SequenceErase SplitToSequence",
        OpTraits(_BITS),
    ),
    ("Concat SequenceConstruct", OpTraits(_BITS)),
    ("Flatten Reshape Squeeze Unsqueeze", OpTraits(_BITS)),
    ("GatherElements Slice Split Transpose", OpTraits(_BITS | _RANK)),
    ("OneHot", OpTraits(_BITS)),
    ("Pad", OpTraits(_BITS | _RANK | _ACROSS)),
    ("ReverseSequence", OpTraits(_BITS | _SHAPE | _ACROSS)),
    ("Scatter ScatterElements ScatterND", OpTraits(_BITS | _SHAPE)),
    ("SequenceInsert", OpTraits(_BITS)),
    ("TensorScatter", OpTraits(_BITS | _SHAPE)),
    ("Trilu", OpTraits(_BITS | _SHAPE)),
    # Constants, sizes, positions, strings
    ("ArgMax ArgMin", OpTraits(_REDUCE | _BITS | _STEP)),
    (
        "Constant ConstantOfShape SequenceEmpty SequenceLength StringNormalizer StringSplit",
        OpTraits(_BITS),
    ),
    ("EyeLike", OpTraits(_BITS | _SHAPE)),
    ("NonMaxSuppression Unique", OpTraits(_STEP)),
    ("NonZero", OpTraits(_BITS | _STEP)),
    ("OptionalHasElement", OpTraits(_TRUTH)),
    ("Range TfIdfVectorizer", OpTraits()),
    ("Shape Size", OpTraits(_BITS | Trait.SIZES)),
    ("TopK", OpTraits(_STEP | _RANK)),
    # Reductions
    (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum "
        "ReduceSumSquare",
        OpTraits(_REDUCE),
    ),
    ("ReduceMax ReduceMin", OpTraits(_REDUCE | _EXACT)),
    # Products, convolutions and pools
    ("AveragePool LpPool", OpTraits(_WINDOWS | _ACROSS)),
    ("CausalConvWithState", OpTraits(_SHAPE | _ACROSS)),
    ("Col2Im", OpTraits(_ACROSS)),
    ("Conv ConvTranspose DeformConv", OpTraits(_WINDOWS | _ACROSS | _PRODUCTS, weight=1)),
    ("ConvInteger", OpTraits(_WINDOWS | _ACROSS, weight=1)),
    ("Det MatMulInteger QLinearMatMul", OpTraits()),
    ("Einsum Gemm MatMul", OpTraits(_PRODUCTS)),
    ("GlobalAveragePool GlobalLpPool", OpTraits(_RANK | _ACROSS)),
    ("GlobalMaxPool MaxUnpool", OpTraits(_RANK | _ACROSS | _EXACT)),
    ("MaxPool", OpTraits(_WINDOWS | _ACROSS | _EXACT)),
    ("MaxRoiPool", OpTraits(_ACROSS | _EXACT)),
    ("QLinearConv", OpTraits(_WINDOWS | _ACROSS, weight=3)),
    # Sampling and signals
    ("AffineGrid DFT RoiAlign STFT", OpTraits(_ACROSS)),
    ("BlackmanWindow HammingWindow HannWindow ImageDecoder MelWeightMatrix", OpTraits()),
    ("GridSample Resize Upsample", OpTraits(_RANK | _ACROSS)),
    # Normalisation, quantisation, and others along axes
    (
        "BatchNormalization DequantizeLinear LRN LayerNormalization LogSoftmax LpNormalization "
        "RMSNormalization Softmax",
        OpTraits(_SHAPE),
    ),
    (
        "CumProd CumSum GroupNormalization InstanceNormalization MeanVarianceNormalization",
        OpTraits(_SHAPE | _ACROSS),
    ),
    ("Dropout", OpTraits(_UNARY | _EXACT | _ZERO)),
    ("DynamicQuantizeLinear", OpTraits(_SHAPE | _STEP | _ACROSS)),
    ("Hardmax QuantizeLinear", OpTraits(_SHAPE | _STEP)),
    # Random numbers
    ("Bernoulli RandomNormalLike RandomUniformLike", OpTraits(_RANDOM | _SHAPE)),
    ("Multinomial", OpTraits(_RANDOM | _RANK)),
    ("RandomNormal RandomUniform", OpTraits(_RANDOM)),
    # Networks, losses and control flow
    (
        "Attention If LinearAttention Loop NegativeLogLikelihoodLoss Scan SequenceMap "
        "SoftmaxCrossEntropyLoss",
        OpTraits(),
    ),
    ("GRU LSTM RNN", OpTraits(_PRODUCTS)),
    ("RotaryEmbedding", OpTraits(_SHAPE)),
)

#: Traits of each operator of the standard domain, by name.
OPERATORS: Mapping[str, OpTraits] = MappingProxyType(
    {name: operator for names, operator in _ROWS for name in names.split()}
)
_UNKNOWN = OpTraits()


def having(*traits: Trait) -> frozenset[str]:
    """Return the names of the operators with at least one of some traits."""
    return frozenset(n for n, o in OPERATORS.items() if any(t in o.traits for t in traits))


def of(node: onnx.NodeProto | ir.Node) -> OpTraits:
    """Return the traits of a node's operator; none for operators of other domains."""
    return OPERATORS.get(node.op_type, _UNKNOWN) if is_standard(node) else _UNKNOWN


_BITWISE = having(Trait.BITWISE)


def is_bitwise(node: onnx.NodeProto) -> bool:
    """Tell whether the inputs of a standard node determine its outputs bit for bit."""
    return is_standard(node) and node.op_type in _BITWISE and _reduction(node) == b"none"


def _reduction(node: onnx.NodeProto) -> bytes:
    scatters = node.op_type in ("ScatterElements", "ScatterND")
    reductions = (a.s for a in node.attribute if scatters and a.name == "reduction")
    return next(reductions, b"none")


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
    versions: dict[str, int] = {}
    for imported in imports:
        versions.setdefault(canonical_domain(imported.domain), imported.version)
    return versions


def opset_of(imports: Iterable[onnx.OperatorSetIdProto]) -> int | None:
    """Return the version of ONNX's own operators; None if they are not imported."""
    return opsets_of(imports).get("")


def assumed_opset(ir_version: int) -> int:
    """Return the version of ONNX's own operators in a model that does not import them."""
    return next((opset for first, opset in _OPSET_OF_IR if ir_version >= first), 11)
