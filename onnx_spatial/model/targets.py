"""List what is known of runtimes for devices: ranks of tensors, operators that they do not run.

`TARGETS` is the one table. Each entry is a fact of `Target.facts` with its sources; docs/targets.md
shows them. What no source says is not claimed: an operator type that no entry names may run or not.
The entries speak of operators that move data, convolve or pool, of sizes and of control flow.

To add a target, add a `Target`, and its rows in docs/targets.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


def _types(names: str) -> frozenset[str]:
    return frozenset(names.split())


_SEQUENCES = _types(
    "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert "
    "SequenceLength SplitToSequence"
)

_ONNXRUNTIME = "https://github.com/microsoft/onnxruntime"
_COREML = f"{_ONNXRUNTIME}/blob/main/onnxruntime/core/providers/coreml/builders"
_QNN = "https://github.com/onnxruntime/onnxruntime-qnn"
_QNN_BUILDERS = f"{_QNN}/blob/main/onnxruntime/core/providers/qnn/builder"
_TENSORFLOW = "https://github.com/tensorflow/tensorflow"
_ONNX2TF = "https://github.com/PINTO0309/onnx2tf#readme"
_PARSER = "https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md"
_NCNN = "https://github.com/Tencent/ncnn/blob/master"
_PNNX = f"{_NCNN}/tools/pnnx/README.md#supported-onnx-operator-status"


@dataclass(frozen=True)
class Fact:
    """What is known of a target.

    Attributes:
        text: the fact.
        sources: where it is said: documentation, source code, issue threads.
        checked: whether `optimize` heeds it. Other facts are only documented.
    """

    text: str
    sources: tuple[str, ...]
    checked: bool = True


@dataclass(frozen=True, eq=False)
class Target:
    """A runtime for devices, and what it does not run.

    Attributes:
        name: value of `--target`.
        title: its name in sentences.
        max_rank: largest rank of a tensor.
        max_rank_of: the same for operator types with a limit of their own.
        refused: operator types that it does not run.
        avoided: operator types of which it runs some forms only; lowerings do not use them.
        constant_inputs: positions of inputs that must be constants, by operator type.
        dilated_pools: whether it runs pools with dilations.
        fixed_sizes: whether the inputs of a model must have fixed sizes.
        uncounted_batch: whether a first axis of size 1 does not count in the rank.
        facts: these facts in words.
    """

    name: str
    title: str
    max_rank: int
    facts: tuple[Fact, ...]
    max_rank_of: Mapping[str, int] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()
    constant_inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dilated_pools: bool = True
    fixed_sizes: bool = False
    uncounted_batch: bool = False


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        target.name: target
        for target in (
            Target(
                name="coreml",
                title="Core ML",
                max_rank=5,
                max_rank_of={
                    "Conv": 4,
                    "AveragePool": 4,
                    "GlobalAveragePool": 4,
                    "GlobalMaxPool": 4,
                    "MaxPool": 4,
                },
                refused=_SEQUENCES
                | _types(
                    "CenterCropPad Col2Im Compress ConstantOfShape ConvInteger Einsum EyeLike "
                    "GatherElements LpPool MaxUnpool NonZero OneHot QLinearConv "
                    "ReverseSequence ScatterElements ScatterND Size SpaceToDepth Trilu Unique"
                ),
                constant_inputs={
                    "Pad": (1, 2),
                    "Reshape": (1,),
                    "Slice": (1, 2, 3, 4),
                    "Split": (1,),
                },
                dilated_pools=False,
                facts=(
                    Fact(
                        "tensors have rank 5 at most",
                        (
                            "https://github.com/apple/coremltools/issues/1723",
                            "https://github.com/apple/coremltools/issues/2291",
                            f"{_ONNXRUNTIME}/pull/17086",
                        ),
                    ),
                    Fact(
                        "Conv is 1-D or 2-D, pools are 2-D: their tensors have rank 4 at most",
                        (
                            f"{_ONNXRUNTIME}/blob/main/tools/ci_build/github/apple/"
                            "coreml_supported_mlprogram_ops.md",
                        ),
                    ),
                    Fact(
                        "the refused operators are not in the list that onnxruntime's provider runs",
                        (
                            f"{_COREML}/op_builder_factory.cc",
                            f"{_ONNXRUNTIME}/blob/main/tools/ci_build/github/apple/"
                            "coreml_supported_mlprogram_ops.md",
                        ),
                    ),
                    Fact("no pools with dilations", (f"{_COREML}/impl/pool_op_builder.cc",)),
                    Fact(
                        "the shape of Reshape must be constant, and so must the inputs of Pad, Slice "
                        "and Split be, apart from the data",
                        (
                            f"{_COREML}/impl/reshape_op_builder.cc",
                            f"{_COREML}/impl/pad_op_builder.cc",
                            f"{_ONNXRUNTIME}/blob/main/tools/ci_build/github/apple/"
                            "coreml_supported_mlprogram_ops.md",
                        ),
                    ),
                ),
            ),
            Target(
                name="qnn",
                title="QNN",
                max_rank=5,
                max_rank_of={
                    "ArgMax": 4,
                    "ArgMin": 4,
                    "BatchNormalization": 4,
                    "GlobalMaxPool": 4,
                    "InstanceNormalization": 4,
                    "LRN": 4,
                    "MaxPool": 4,
                },
                refused=_SEQUENCES
                | _types(
                    "CenterCropPad Col2Im Compress ConstantOfShape ConvInteger EyeLike If "
                    "Loop LpPool MaxUnpool NonZero OneHot QLinearConv Range ReverseSequence "
                    "Scan Shape Size Trilu Unique"
                ),
                dilated_pools=False,
                fixed_sizes=True,
                facts=(
                    Fact(
                        "tensors have rank 5 at most",
                        (
                            f"{_ONNXRUNTIME}/pull/26338",
                            f"{_ONNXRUNTIME}/pull/26649",
                            f"{_QNN}/pull/65",
                        ),
                    ),
                    Fact(
                        "BatchNormalization, InstanceNormalization, LRN, ArgMax and ArgMin: rank 4 at "
                        "most; MaxPool and GlobalMaxPool too, on the NPU",
                        (
                            f"{_QNN_BUILDERS}/opbuilder/batchnormalization_op_builder.cc",
                            f"{_QNN_BUILDERS}/opbuilder/instancenormalization_op_builder.cc",
                            f"{_QNN_BUILDERS}/opbuilder/lrn_op_builder.cc",
                            f"{_QNN_BUILDERS}/opbuilder/argmax_argmin_op_builder.cc",
                            f"{_QNN_BUILDERS}/opbuilder/pool_op_builder.cc",
                        ),
                    ),
                    Fact(
                        "the refused operators are not in the list that onnxruntime's provider runs",
                        (
                            f"{_QNN_BUILDERS}/op_builder_factory.cc",
                            "https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html",
                        ),
                    ),
                    Fact(
                        "no pools with dilations",
                        (f"{_QNN_BUILDERS}/opbuilder/pool_op_builder.cc",),
                    ),
                    Fact(
                        "no dynamic shapes: fix them with --static",
                        (
                            "https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html",
                        ),
                    ),
                    Fact(
                        "rank 5 runs on the NPU, but slower than rank 4: use --max-rank 4 as well",
                        (f"{_QNN}/pull/505", f"{_QNN}/pull/745"),
                        checked=False,
                    ),
                ),
            ),
            Target(
                name="tflite",
                title="TFLite's GPU delegate",
                max_rank=4,
                refused=(_SEQUENCES - {"ConcatFromSequence", "SequenceEmpty", "SplitToSequence"})
                | _types(
                    "Compress ConstantOfShape GatherElements GatherND MaxUnpool NonZero Range "
                    "ReverseSequence Scan ScatterElements ScatterND Shape Size Unique"
                ),
                avoided=frozenset({"Einsum"}),
                constant_inputs={"Reshape": (1,)},
                fixed_sizes=True,
                facts=(
                    Fact(
                        "tensors have rank 4 at most",
                        (
                            f"{_TENSORFLOW}/blob/master/tensorflow/lite/delegates/gpu/common/"
                            "model_builder_helper.cc",
                            f"{_TENSORFLOW}/issues/56537",
                            "https://github.com/google-ai-edge/LiteRT/issues/2540",
                        ),
                    ),
                    Fact(
                        "what onnx2tf makes of the refused operators is not in the list that the "
                        "delegate runs",
                        (
                            f"{_TENSORFLOW}/blob/master/tensorflow/lite/tools/versioning/"
                            "gpu_compatibility.cc",
                            _ONNX2TF,
                        ),
                    ),
                    Fact(
                        "of Einsum onnx2tf converts only matrix products, and Reshape only with a "
                        "constant shape",
                        (_ONNX2TF,),
                    ),
                    Fact(
                        "no dynamic shapes: fix them with --static",
                        (f"{_TENSORFLOW}/issues/58746",),
                    ),
                    Fact(
                        "on the CPU, TRANSPOSE takes rank 6: use --max-rank 6 in the place of the "
                        "target for a model that needs no delegate",
                        (
                            f"{_TENSORFLOW}/blob/master/tensorflow/lite/kernels/transpose.cc",
                            _ONNX2TF,
                        ),
                        checked=False,
                    ),
                    Fact(
                        "slices have rank 3 or 4, pads of 3 or 4 axes",
                        (
                            f"{_TENSORFLOW}/blob/master/tensorflow/lite/tools/versioning/"
                            "gpu_compatibility.cc",
                        ),
                        checked=False,
                    ),
                ),
            ),
            Target(
                name="tensorrt",
                title="TensorRT",
                max_rank=8,
                max_rank_of={"AveragePool": 5, "MaxPool": 5},
                refused=_SEQUENCES
                | _types(
                    "CenterCropPad Col2Im Compress ConvInteger MaxUnpool QLinearConv "
                    "SequenceMap Unique"
                ),
                dilated_pools=False,
                facts=(
                    Fact(
                        "tensors have rank 8 at most (Dims::MAX_DIMS)",
                        (
                            "https://docs.nvidia.com/deeplearning/tensorrt/api/c_api/"
                            "classnvinfer1_1_1_dims64.html",
                        ),
                    ),
                    Fact("pools are 2-D or 3-D: their tensors have rank 5 at most", (_PARSER,)),
                    Fact(
                        "the parser's list says that the refused operators do not run",
                        (_PARSER,),
                    ),
                    Fact("no pools with dilations", (_PARSER,)),
                    Fact(
                        "before TensorRT 9, sizes that are computed in the run must have rank 0 or 1: "
                        "Reshape [-1, 2] of pads fails",
                        (
                            "https://github.com/NVIDIA/TensorRT/issues/2045",
                            "https://github.com/NVIDIA/TensorRT/issues/2618",
                        ),
                        checked=False,
                    ),
                ),
            ),
            Target(
                name="ncnn",
                title="ncnn",
                max_rank=4,
                max_rank_of={"Conv": 5, "ConvTranspose": 5},
                refused=_SEQUENCES
                | _types(
                    "CenterCropPad Col2Im Compress ConvInteger EyeLike GatherElements Loop "
                    "LpPool MaxUnpool NonZero OneHot QLinearConv ReverseSequence Scan "
                    "ScatterElements ScatterND Size SpaceToDepth Trilu Unique"
                ),
                avoided=frozenset({"DepthToSpace", "Gather", "GatherND"}),
                uncounted_batch=True,
                facts=(
                    Fact(
                        "tensors have rank 4 at most, beside a batch axis of 1",
                        (
                            f"{_NCNN}/tools/pnnx/src/pass_ncnn/Tensor_permute.cpp",
                            f"{_NCNN}/tools/pnnx/src/pass_ncnn/Tensor_reshape.cpp",
                        ),
                    ),
                    Fact(
                        "Conv and ConvTranspose are 3-D at most, with weights of rank 5",
                        (f"{_NCNN}/docs/developer-guide/operators.md",),
                    ),
                    Fact("the refused operators are not in pnnx's list", (_PNNX,)),
                    Fact(
                        "pnnx reads SpaceToDepth as PixelUnshuffle, whose channels have another "
                        "order; of DepthToSpace it takes only mode CRD, of Gather one constant "
                        "index or a table",
                        (
                            _PNNX,
                            f"{_NCNN}/tools/pnnx/src/pass_level2/F_pixel_unshuffle.cpp",
                            f"{_NCNN}/tools/pnnx/src/pass_level2/Tensor_select.cpp",
                        ),
                    ),
                ),
            ),
        )
    }
)
