"""Read what other tools write as what they read: constants that they fold, names, blocks of channels.

    original    w -> [Transpose] -> t -> [Slice] -> u        w is an initializer: u is one, too

    original    x -> [If] -> a -> [Identity] -> y        converted    x -> [If] -> y
                                                         read as      x -> [If] -> a -> [Identity] -> y

    original    x -> [Conv] -> b -> [Relu] -> c -> [Conv] ->        the second Conv of both reads c
    converted   x -> [FusedConv] -> v -> [FusedConv] ->             read as  v -> [Identity]

Values are matched by name, and those of a branch by the name of the first output of its If. Names are
hints: a value that is not the same is not proven, and is taken for another one then.

    in memory    x[n, c/B, h, w, c%B]     B = 8 or 16 channels in a block, as the processor demands
    by name      x[n, c, h, w]            c is below the number of channels; the rest only fills a block

    ReorderInput, ReorderOutput    Reshape to the same sizes, by which the number of channels is checked
    Conv of com.microsoft.nchwc    Conv or FusedConv; weights in the order of [O, I, H, W]
    pools of the same domain       the pools
    other nodes                    the same, if they treat all channels alike

What fills a block is multiplied by weights that are 0, which is checked, or cut off. So the standard
nodes compute the same of finite data. A graph with any other use of blocks is left as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper, reference, shape_inference

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.options import Array
from onnx_spatial.verification.values import constant_value

# Constants that are folded

#: They move elements, compare them, or are rounded to the nearest number as IEEE 754 demands.
_MOVE = frozenset(
    "Concat Expand Flatten Gather Identity Reshape Slice Squeeze Tile Transpose Unsqueeze "
    "Where".split()
)
_COMPUTE = frozenset(
    "Add And Equal Greater GreaterOrEqual Less LessOrEqual Mul Not Or Sub Xor".split()
)
#: Types whose arithmetic numpy and runtimes have in common.
_DTYPES = {np.dtype(t) for t in (np.bool_, np.int32, np.int64, np.float32, np.float64)}
#: The most elements of a result, and of an input whose values onnx's inference looks at.
_MAX_ELEMENTS, _FEW = 1 << 24, 64


def is_foldable(node: onnx.NodeProto) -> bool:
    """Tell whether a node of constants may be evaluated."""
    return (
        op_traits.is_standard(node)
        and node.op_type in _MOVE | _COMPUTE
        and not any(a.ref_attr_name for a in node.attribute)
    )


def folded(
    node: onnx.NodeProto, arrays: Mapping[str, Array], opsets: Mapping[str, int]
) -> Sequence[onnx.TensorProto]:
    """Return the outputs of a node for the values of its inputs; nothing if they are not known."""
    if node.op_type in _COMPUTE and not {a.dtype for a in arrays.values()} <= _DTYPES:
        return []
    if (
        node.op_type in ("Expand", "Tile")
        and np.prod(arrays[node.input[1]], dtype=float) > _MAX_ELEMENTS
    ):
        return []
    names = [name for name in node.output if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    small = {name for name, array in arrays.items() if array.size <= _FEW}  # axes, shapes, pads
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in arrays.items()
        if n not in small
    ]
    stored = [numpy_helper.from_array(np.asarray(arrays[name]), name) for name in small]
    graph = helper.make_graph([node], "fold", inputs, outputs, stored)
    opset = min(opsets.get("", opsets.get("ai.onnx", 1)), onnx.defs.onnx_opset_version())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The evaluator also computes what runtimes refuse, such as an axis listed twice.
            shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
            results = reference.ReferenceEvaluator(model).run(
                None, {i.name: arrays[i.name] for i in inputs}
            )
        if not all(isinstance(r, np.ndarray) and r.size <= _MAX_ELEMENTS for r in results):
            return []
        return [numpy_helper.from_array(r, n) for r, n in zip(results, names, strict=True)]
    except Exception:  # of any type: the values stay unknown
        return []


# Names

_LANDMARKS = op_traits.having(Trait.PRODUCTS, Trait.WINDOWS) | {"GlobalAveragePool"}
_JOINS, _READS_SIZES = frozenset({"Add", "Sum"}), op_traits.having(Trait.SIZES)


def with_names_of(original: onnx.ModelProto, converted: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of the converted model that also has the names of the original's values.

    If no value is known to be one of the original, return the model itself.
    """
    names = {
        name
        for _, _, node in traversal.nodes(converted)
        for names_of_node in (node.input, node.output)
        for name in names_of_node
    }
    for _, graph in traversal.graphs(converted):
        names.update(traversal.value_names((*graph.input, *graph.output)))
        names.update(traversal.stored_names(graph))
    if all(names.issuperset(node.output) for _, _, node in traversal.nodes(original)):
        return converted
    result = onnx.ModelProto()
    result.CopyFrom(converted)
    count = len(names)
    _add_names(original.graph, result.graph, names)
    return result if len(names) > count else converted


def _add_names(original: onnx.GraphProto, converted: onnx.GraphProto, names: set[str]) -> None:
    """Give values of a graph, and of the graphs inside of it, the names of the original.

    The node computes the value under that name, and an Identity behind it keeps the other one.
    `names` are in use; new ones are added.
    """
    producers = {name: node for node in original.node for name in node.output if name}
    copied = _copied_values(original)
    read_alike = dict(_read_alike(original, converted))
    nodes = []
    for node in converted.node:
        nodes.append(node)
        for position, name in enumerate(node.output):
            original_name = copied.get(name, "")
            producer = producers.get(original_name, onnx.NodeProto())
            if (producer.domain, producer.op_type) != (node.domain, node.op_type):
                original_name = read_alike.get(name, name)
            if original_name in names or original_name not in producers:
                continue
            names.add(original_name)
            node.output[position] = original_name
            nodes.append(helper.make_node("Identity", [original_name], [name]))
        inner = dict(traversal.subgraphs(producers.get(node.output[0], onnx.NodeProto())))
        for attribute, graph in traversal.subgraphs(node):
            if attribute in inner:
                _add_names(inner[attribute], graph, names)
    if len(nodes) > len(converted.node):
        del converted.node[:]
        converted.node.extend(nodes)


def _copied_values(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the value that each output of an Identity is a copy of, through rows of them."""
    sources: dict[str, str] = {}
    for node in traversal.in_order(graph):
        if node.op_type == "Identity" and op_traits.is_standard(node):
            sources[node.output[0]] = sources.get(node.input[0], node.input[0])
    return sources


def _read_alike(original: onnx.GraphProto, converted: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Yield names in the converted graph, each with that of the same value in the original.

    Landmarks are matched in their order; those that are alike read the same data.
    """
    before, after = (list(_landmarks(graph)) for graph in (original, converted))
    original_names = {value.name for value in original.input}
    original_names.update(name for node in original.node for name in node.output)
    if all(original_names.issuperset(_data(node)) for node, _ in after):
        return  # the comparison below takes quadratic time
    keys, other_keys = ([key for _, key in marks] for marks in (before, after))
    matcher = SequenceMatcher(None, keys, other_keys, autojunk=False)
    for start, other_start, count in matcher.get_matching_blocks():
        for offset in range(count):
            (old, _), (new, _) = before[start + offset], after[other_start + offset]
            for new_name, old_name in zip(_data(new), _data(old), strict=False):
                if new_name not in original_names:
                    yield new_name, old_name


def _landmarks(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, Hashable]]:
    """Yield products, windows, and what joins two values behind these; with what tells them apart."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    constants = ((n, a.t) for n in graph.node if n.op_type == "Constant" for a in n.attribute)
    shapes |= {node.output[0]: tuple(tensor.dims) for node, tensor in constants}
    behind: set[str] = set()
    for node in graph.node:
        joins = node.op_type in _JOINS and behind.issuperset(node.input)
        if node.input and (joins or node.op_type.removeprefix("Fused") in _LANDMARKS):
            yield node, _landmark(node, shapes)
            behind.update(node.output)
        elif node.op_type not in _READS_SIZES and not behind.isdisjoint(node.input):
            behind.update(node.output)


def _data(landmark: onnx.NodeProto) -> Sequence[str]:
    return list(landmark.input)[: 2 if landmark.op_type in _JOINS else 1]


def _landmark(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> Hashable:
    """Return what two such nodes have in common if they read the same data."""
    sizes = {a.name: [*a.ints, a.i] for a in node.attribute}
    plain = {"group": 1, "pads": 0, "strides": 1}  # as they are if they are omitted
    stated = [(n, *sizes[n]) for n, v in plain.items() if {*sizes.get(n, ())} - {0, v}]
    weights = [shapes[name] for name in node.input[1:2] if name in shapes]
    return node.op_type.removeprefix("Fused"), tuple(stated), tuple(weights)


# Blocks of channels

DOMAIN = "com.microsoft.nchwc"
_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
#: Operators on single elements.
_ALIKE_STANDARD = op_traits.having(Trait.UNARY, Trait.BROADCASTS) - {"SwiGLU"}
_ALIKE = frozenset({("com.microsoft", "QuickGelu")})
#: Channels of a block on processors with AVX-512, and on others.
_BLOCK_SIZES = (16, 8)


def assumption(size: int) -> str:
    """Return what the proof of a part with blocks assumes."""
    return f"the file is for processors that hold {size} channels in a block, and data is finite"


class _OtherUseError(Exception):
    """Blocks are used in a way that has no standard nodes."""


def without_blocks(
    model: onnx.ModelProto, folder: Path | None
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return a model with standard nodes in the place of those that read and write blocks.

    Returns:
        The model, and what a proof assumes of the nodes with these outputs.
    """
    if model.functions or not any(imported.domain == DOMAIN for imported in model.opset_import):
        return model, {}
    nodes = [node for _, _, node in traversal.nodes(model)]
    result = onnx.ModelProto()
    result.CopyFrom(model)
    names = {name for node in nodes for name in (*node.input, *node.output)}
    assumed: dict[str, str] = {}
    for _, graph in reversed(list(traversal.graphs(result))):  # a graph keeps those inside of it
        assert isinstance(graph, onnx.GraphProto)
        for size in _BLOCK_SIZES:
            try:
                blocks = _Blocks(graph, folder, size, names)
            except (_OtherUseError, ValueError):  # the weights do not fit blocks of this size
                continue
            del graph.node[:]
            graph.node.extend(blocks.nodes)
            graph.initializer.extend(blocks.stored)
            assumed |= dict.fromkeys(blocks.channels, assumption(size))
            break
    return result, assumed


class _Blocks:
    """The nodes of a graph in standard operators.

    Attributes:
        nodes, stored: the nodes, and the initializers that they have beside those of the graph.
        channels: number of the channels of each value that lies in memory in blocks.
    """

    def __init__(
        self, graph: onnx.GraphProto, folder: Path | None, size: int, names: Collection[str]
    ) -> None:
        self._size, self._folder, self._names = size, folder, names
        self._tensors = {t.name: t for t in graph.initializer}
        for value in graph.input:  # a caller may replace it
            self._tensors.pop(value.name, None)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self.channels: dict[str, int] = {}
        #: Those that have the rank 5 of their memory: sizes of 1 are repeated along the others as usual.
        self._spread: set[str] = set()
        self._wanted: dict[str, int] = {}
        for node in reversed(graph.node):
            self._want(node)
        read = {value.name for value in graph.output}
        for node in graph.node:
            if node.domain == DOMAIN or not traversal.needs(node).isdisjoint(self.channels):
                self.nodes += self._standard(node)
            else:
                self.nodes.append(node)
                read |= traversal.needs(node)
        _need(read.isdisjoint(self.channels))

    def _want(self, node: onnx.NodeProto) -> None:
        """Note how many channels the nodes read at least of each value."""
        channels, read = self._wanted.get(node.output[0], 0) if node.output else 0, node.input
        if (node.domain, node.op_type) == (DOMAIN, "ReorderOutput"):
            channels = _integer(node, "channels", 0)
        elif (node.domain, node.op_type) == (DOMAIN, "Conv") and _integer(node, "group", 1) == 1:
            self._wanted[node.input[0]] = max(
                _used(self._ordered(node).transpose(1, 0, 2, 3)), self._wanted.get(node.input[0], 0)
            )
            read = node.input[3:]
        for name in read if node.op_type != "Concat" else ():
            self._wanted[name] = max(channels, self._wanted.get(name, 0))

    def _standard(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the standard nodes of a node that reads or writes blocks."""
        _need(len(node.output) == 1 and not any(traversal.subgraphs(node)))
        (output,) = node.output
        counts = [self.channels.get(name) for name in node.input]
        if node.domain != DOMAIN:
            result, channels = self._other(node, counts)
            self.channels[output] = channels
            return [result]
        _need(self._spread.isdisjoint(node.input))
        if node.op_type == "ReorderOutput":
            _need(counts == [_integer(node, "channels", 0)])
            return self._reordered(node, _integer(node, "channels", 0))
        if node.op_type == "ReorderInput":
            _need(counts == [None])
            self.channels[output] = self._wanted.get(output, 0)
            return self._reordered(node, self.channels[output])
        if node.op_type == "Conv":
            result, self.channels[output] = self._conv(node, counts)
            return [result]
        _need(node.op_type in _POOLS and len(counts) == 1 and counts[0] is not None)
        self.channels[output] = counts[0] or 0
        return [_copy(node, node.op_type, "")]

    def _reordered(self, node: onnx.NodeProto, channels: int) -> list[onnx.NodeProto]:
        """Return a Reshape to the same sizes: it fails if there are not as many channels."""
        _need(channels > 0)
        last, reads = bool(_integer(node, "channels_last", 0)), node.op_type == "ReorderInput"
        sizes = [0, 0, 0, channels] if last and reads else [0, channels, 0, 0]
        shape, moved = self._store(node, "shape", np.array(sizes)), f"{node.output[0]}/moved"
        output = moved if last else node.output[0]
        nodes = [helper.make_node("Reshape", [node.input[0], shape], [output])]
        if last:
            _need(moved not in self._names)
            perm = [0, 3, 1, 2] if reads else [0, 2, 3, 1]
            nodes.append(helper.make_node("Transpose", [moved], node.output, perm=perm))
        return nodes

    def _ordered(self, node: onnx.NodeProto) -> Array:
        """Return the weights of a Conv in the order of [O, I, H, W]."""
        weight, size = self._constant(node.input[1]), self._size
        _need(weight.ndim == 4)
        outputs, inputs, *kernel = weight.shape
        if inputs < size:  # of data that is not in blocks, or of each channel alone
            ordered = weight.reshape(-1, inputs, *kernel, size).transpose(0, 4, 1, 2, 3)
        else:
            ordered = weight.reshape(-1, inputs // size, *kernel, size, size)
            ordered = ordered.transpose(0, 5, 1, 4, 2, 3)
        return np.ascontiguousarray(ordered).reshape(outputs, inputs, *kernel)

    def _conv(
        self, node: onnx.NodeProto, counts: Sequence[int | None]
    ) -> tuple[onnx.NodeProto, int]:
        """Return a Conv with the weights of its channels alone, and their number."""
        weight = self._ordered(node)
        group = _integer(node, "group", 1)
        outputs, inputs = weight.shape[:2]
        channels_read = counts[0]
        bias = self._constant(node.input[2]) if len(counts) > 2 and node.input[2] else None
        _need(bias is None or bias.shape == (outputs,))
        used = max(_used(weight), 0 if bias is None else _used(bias))
        count = max(used, self._wanted.get(node.output[0], 0))
        if group != 1:
            _need(group == outputs and inputs == 1 and channels_read is not None)
            count = channels_read or 0
        elif channels_read is not None:
            # What fills the last block must be multiplied by 0.
            _need(inputs == self._filled(channels_read) and not weight[:, channels_read:].any())
            weight = weight[:, :channels_read]
        else:
            _need(inputs < self._size)
        _need(used <= count and self._filled(count) == outputs)
        fused = len(counts) > 3 or any(a.name == "activation" for a in node.attribute)
        result = _copy(node, *(("FusedConv", "com.microsoft") if fused else ("Conv", "")))
        result.input[1] = self._store(node, "weight", weight[:count])
        if bias is not None:
            result.input[2] = self._store(node, "bias", bias[:count])
        _need(len(counts) < 4 or counts[3] == count)
        for attribute in result.attribute:
            if attribute.name == "group" and group != 1:
                attribute.i = count
        return result, count

    def _other(
        self, node: onnx.NodeProto, counts: Sequence[int | None]
    ) -> tuple[onnx.NodeProto, int]:
        """Return a node of another domain that treats all channels alike, and their number."""
        read, size = counts[0] or 0, self._size
        standard, spread = op_traits.is_standard(node), [n in self._spread for n in node.input]
        if node.op_type == "Reshape" and standard and not _integer(node, "allowzero", 0):
            blocks = self._filled(read) // size
            known = [0, blocks * size, 0, 0] if spread[0] else [0, blocks, 0, 0, size]
            _need(counts[1:] == [None] and self._constant(node.input[1]).tolist() == known)
            self._spread.update(() if spread[0] else node.output)
            return helper.make_node("Identity", node.input[:1], node.output), read
        _need(None not in counts and len(set(spread)) == 1)
        self._spread.update(node.output if spread[0] else ())
        if node.op_type == "Concat" and standard:
            _need(_integer(node, "axis", 1) == 1 and not any((c or 0) % size for c in counts))
            return node, sum(c or 0 for c in counts)
        # A single channel is not repeated for all: in memory it has others beside it.
        _need(len(set(counts)) == 1 and (len(counts) == 1 or spread[0]))
        _need(
            (node.domain, node.op_type) in _ALIKE or (standard and node.op_type in _ALIKE_STANDARD)
        )
        return node, read

    def _filled(self, channels: int) -> int:
        """Return the number of channels with those that fill the last block."""
        return -(-channels // self._size) * self._size

    def _constant(self, name: str) -> Array:
        _need(name in self._tensors)
        return constant_value(self._tensors[name], self._folder)

    def _store(self, node: onnx.NodeProto, what: str, array: Array) -> str:
        name = f"{node.output[0]}/{what}"
        _need(name not in self._names and name not in self._tensors)
        self.stored.append(numpy_helper.from_array(array, name))
        return name


def _need(known: bool) -> None:
    if not known:
        raise _OtherUseError


def _used(array: Array) -> int:
    """Return how many entries along the first axis hold all that are not 0."""
    return int(np.flatnonzero(array.reshape(len(array), -1).any(1)).max(initial=-1)) + 1


def _integer(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((a.i for a in node.attribute if a.name == name), default)


def _copy(node: onnx.NodeProto, op_type: str, domain: str) -> onnx.NodeProto:
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.op_type, result.domain = op_type, domain
    return result
