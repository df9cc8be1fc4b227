"""List the traits of ONNX's standard operators, and read domains and opset versions.

`_TABLE` is the one table. Callers ask for a trait and do not name operators:

    op_traits.having(Trait.UNARY)      names of all operators with the trait
    op_traits.is_bitwise(node)         a trait that also depends on attributes

To add an operator, put its name into the rows of its traits. A trait holds for every version of an
operator and every element type, unless `Trait` says otherwise. A missing trait claims nothing: callers
must be correct, if less precise, without it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping
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


#: Traits that come with another one.
_IMPLIED = {
    Trait.SAME_SHAPE: Trait.SAME_RANK,
    Trait.UNARY: Trait.SAME_SHAPE | Trait.SAME_RANK,
    Trait.WINDOWS: Trait.SAME_RANK,
    Trait.SIZES: Trait.BITWISE,
    Trait.TRUTH: Trait.BITWISE,
}

#: The operators with each trait that does not come with another one; NONE: those without any.
_TABLE = {
    Trait.SAME_SHAPE: (
        "BatchNormalization Bernoulli CausalConvWithState CumProd CumSum DequantizeLinear "
        "DynamicQuantizeLinear EyeLike GroupNormalization Hardmax InstanceNormalization LRN "
        "LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization PRelu "
        "QuantizeLinear RMSNormalization RandomNormalLike RandomUniformLike ReverseSequence "
        "RotaryEmbedding Scatter ScatterElements ScatterND Softmax SwiGLU TensorScatter Trilu"
    ),
    Trait.SAME_RANK: (
        "CenterCropPad DepthToSpace GatherElements GlobalAveragePool GlobalLpPool GlobalMaxPool "
        "GridSample MaxUnpool Multinomial Pad Resize Slice SpaceToDepth Split Tile TopK Transpose "
        "Upsample"
    ),
    Trait.BROADCASTS: (
        "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
        "LessOrEqual Max Mean Min Mod Mul Or PRelu Pow StringConcat Sub Sum SwiGLU Where Xor"
    ),
    Trait.UNARY: (
        "Abs Acos Acosh Asin Asinh Atan Atanh BitCast BitwiseNot Cast CastLike Ceil Celu Clip Cos "
        "Cosh Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu "
        "Log Mish Neg Not Reciprocal RegexFullMatch Relu Round Selu Shrink Sigmoid Sign Sin Sinh "
        "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
    ),
    Trait.REDUCES: (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    Trait.WINDOWS: (
        "AveragePool Conv ConvInteger ConvTranspose DeformConv LpPool MaxPool QLinearConv"
    ),
    Trait.ACROSS: (
        "AffineGrid AveragePool CausalConvWithState CenterCropPad Col2Im Conv ConvInteger "
        "ConvTranspose CumProd CumSum DFT DeformConv DepthToSpace DynamicQuantizeLinear "
        "GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample GroupNormalization "
        "InstanceNormalization LpPool MaxPool MaxRoiPool MaxUnpool MeanVarianceNormalization Pad "
        "QLinearConv Resize ReverseSequence RoiAlign STFT SpaceToDepth Tile Upsample"
    ),
    Trait.SIZES: "Shape Size",
    Trait.BITWISE: (
        "ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike "
        "CenterCropPad Compress Concat ConcatFromSequence Constant ConstantOfShape DepthToSpace "
        "Expand EyeLike Flatten Gather GatherElements GatherND Identity NonZero OneHot Optional "
        "OptionalGetElement Pad Reshape ReverseSequence Scatter ScatterElements ScatterND "
        "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
        "Slice SpaceToDepth Split SplitToSequence Squeeze StringConcat StringNormalizer "
        "StringSplit TensorScatter Tile Transpose Trilu Unsqueeze Where"
    ),
    Trait.EXACT: (
        "Abs Clip Dropout GlobalMaxPool Max MaxPool MaxRoiPool MaxUnpool Min Neg ReduceMax "
        "ReduceMin Relu ThresholdedRelu"
    ),
    Trait.STEPS: (
        "ArgMax ArgMin BitCast Cast CastLike Ceil DynamicQuantizeLinear Equal Floor Greater "
        "GreaterOrEqual Hardmax Less LessOrEqual Mod NonMaxSuppression NonZero QuantizeLinear "
        "Round Sign TopK Unique"
    ),
    Trait.TRUTH: (
        "And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not OptionalHasElement Or "
        "RegexFullMatch Xor"
    ),
    Trait.RANDOM: (
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    ),
    Trait.KEEPS_ZERO: (
        "Abs Add Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseOr BitwiseXor Ceil Celu Dropout "
        "Elu Erf Floor Gelu HardSwish Identity LeakyRelu Max Mean Min Mish Mul PRelu Relu Round "
        "Selu Sign Sin Sinh Softsign Sqrt Sub Sum SwiGLU Swish Tan Tanh ThresholdedRelu"
    ),
    Trait.PRODUCTS: "Conv ConvTranspose DeformConv Einsum GRU Gemm LSTM MatMul RNN",
    Trait.NONE: (
        "Attention BlackmanWindow Det HammingWindow HannWindow If ImageDecoder LinearAttention "
        "Loop MatMulInteger MelWeightMatrix NegativeLogLikelihoodLoss QLinearMatMul Range Scan "
        "SequenceMap SoftmaxCrossEntropyLoss TfIdfVectorizer"
    ),
}

_WEIGHTS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "DeformConv": 1, "QLinearConv": 3}


def _all_traits() -> Iterator[tuple[str, OpTraits]]:
    rows = [(t | _IMPLIED.get(t, Trait.NONE), names.split()) for t, names in _TABLE.items()]
    for name in sorted({name for _, names in rows for name in names}):
        each = (traits for traits, names in rows if name in names)
        yield name, OpTraits(functools.reduce(operator.or_, each), _WEIGHTS.get(name))


#: Traits of each operator of the standard domain, by name.
OPERATORS: Mapping[str, OpTraits] = MappingProxyType(dict(_all_traits()))
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
    return is_standard(node) and node.op_type in _BITWISE and _scatter_reduction(node) == b"none"


def _scatter_reduction(node: onnx.NodeProto) -> bytes:
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
