"""Write standard operators: nodes, constants, and run-time arithmetic on the sizes of tensors.

A `Size` is one dim: an int if it is known, else a 1-D int64 value of one element. Everything that is
known is folded here and now, so that static facts become constants and only what is unknown is
computed at run time. Nothing that would be a no-op is written.

Every node is priced as it is written (`cost_model`), with a guess for each size that is not known.

Older opsets hold in attributes what newer ones take as inputs, and lack operators: what is known is
written as they have it, what only the run knows by way of a Gather.

    Slice             attributes, no steps, before opset 10      else Gather of the places
    Range             since opset 11                             before that NonZero of ones, opset 9
    Where             since opset 9                              before that by arithmetic
    Less of integers  since opset 9                              before that of doubles
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.cost_model import Work

Size = int | ir.Value

#: What an attribute of a node may be.
Attribute = int | str | Sequence[int] | ir.Attr

INT64_MAX = 2**63 - 1

#: Ranges up to this many elements are constants; longer ones are made at run time.
_LARGEST_RANGE = 1 << 14


#: Slice has taken its places as inputs since opset 10; Range came with 11, NonZero with 9.
_SLICE_INPUTS, _RANGE, _NON_ZERO = 10, 11, 9

#: Where came with opset 9, and Less for integers.
_WHERE, _INTEGER_LESS = 9, 9

#: What an unknown dim is taken to be where forms are compared.
TYPICAL_DIM = 64


@dataclass(frozen=True)
class Tensor:
    """A value and its dims as far as they can be told, at least at run time.

    Attributes:
        value: the value.
        dims: its shape.
        itemsize: bytes of an element, for estimates of time.
    """

    value: ir.Value
    dims: tuple[Size, ...]
    itemsize: int = 8

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.dims)


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are known to be equal."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


class Emitter:
    """Collects the nodes that one operator is lowered to.

    Attributes:
        opset: version of the default domain in force.
        nodes: written so far, in order.
        constants: values of constants, in order of first use, with a hint for their names.
        rank_limit: the largest rank that the target of the lowering admits; None for any.
        max_rank: the largest rank of any tensor handled so far.
        slices_by_gather: whether a Gather stands in the place of a Slice that the opset lacks.
    """

    def __init__(self, opset: int, rank_limit: int | None = None) -> None:
        self.opset = opset
        self.rank_limit = rank_limit
        self.nodes: list[ir.Node] = []
        self.constants: list[tuple[ir.Value, str]] = []
        self.max_rank = 0
        self.slices_by_gather = False
        self._constant_of: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._result_of: dict[tuple[object, ...], tuple[ir.Value, ...]] = {}
        self._work_of: dict[ir.Node, Work] = {}
        self._guess_of: dict[ir.Value, int] = {}
        self._folded: set[ir.Value] = set()
        self._risks: list[Work] = []

    # Nodes and constants

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        work: Work | None = None,
        **attributes: Attribute,
    ) -> ir.Value:
        """One node of the default domain with one output; the same node twice is one node.

        Args:
            op_type: of the node.
            inputs: of the node, None where one is left out.
            work: what it does; None for arithmetic on sizes.
            attributes: of the node.
        """
        return self._node(op_type, inputs, 1, work, attributes)[0]

    def _node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        outputs: int,
        work: Work | None,
        attributes: Mapping[str, Attribute],
    ) -> tuple[ir.Value, ...]:
        key = (
            op_type,
            outputs,
            *map(id, inputs),
            *(
                (
                    k,
                    id(v)
                    if isinstance(v, ir.Attr)
                    else v
                    if isinstance(v, int | str)
                    else tuple(v),
                )
                for k, v in attributes.items()
            ),
        )
        if key not in self._result_of:
            node = ir.node(op_type, inputs, attributes, num_outputs=outputs)
            self.nodes.append(node)
            self._work_of[node] = work or cost_model.small()
            if all(v is None or v.const_value is not None or v in self._folded for v in inputs):
                self._folded.update(node.outputs)  # runtimes compute it once, when they load
            self._result_of[key] = tuple(node.outputs)
        return self._result_of[key]

    @property
    def cost(self) -> float:
        """Estimated time of one run, in microseconds."""
        run = (node for node in self.nodes if node.outputs[0] not in self._folded)
        works = [*(self._work_of[node] for node in run), *self._risks]
        return sum(work.nanoseconds for work in works) / 1000

    def risk(self, work: Work) -> None:
        """Count work that the runtime's optimizer will probably add."""
        self._risks.append(work)

    def constant(self, array: npt.NDArray[np.generic], hint: str) -> ir.Value:
        """A constant tensor; equal ones are shared."""
        strings = array.dtype.kind == "O"
        data = repr(array.tolist()).encode() if strings else array.tobytes()
        key = (array.dtype.name, array.shape, data)
        if key not in self._constant_of:
            if strings:
                texts = [str(text).encode() for text in array.reshape(-1).tolist()]
                tensor: ir.TensorProtocol = ir.StringTensor(texts, shape=ir.Shape(array.shape))
            else:
                tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
            value = ir.Value(
                type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
            )
            self._constant_of[key] = value
            self.constants.append((value, hint))
        return self._constant_of[key]

    def ints(self, values: Sequence[int], hint: str) -> ir.Value:
        """A constant 1-D int64 tensor.

        Raises:
            ConversionError: one of the values is none.
        """
        if any(abs(value) > INT64_MAX for value in values):
            raise ConversionError("its sizes come to more than 64-bit integers hold")
        return self.constant(np.array(values, np.int64).reshape(-1), hint)

    def prune(self, output: ir.Value) -> None:
        """Forget what does not lead to `output`: sizes that turned out not to be needed."""
        needed = {output}
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                needed.update(v for v in node.inputs if v is not None)
        dead = [node for node in self.nodes if not needed.intersection(node.outputs)]
        for node in dead:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        self.nodes = [node for node in self.nodes if needed.intersection(node.outputs)]
        self.constants = [(value, hint) for value, hint in self.constants if value in needed]

    # Sizes

    def guess(self, size: Size) -> int:
        """A size, or what it may be."""
        return size if isinstance(size, int) else self._guess_of.get(size, TYPICAL_DIM)

    def guessed(self, value: ir.Value, guess: int) -> ir.Value:
        """Note what a value that is computed at run time may be."""
        self._guess_of.setdefault(value, guess)
        return value

    def _binary(self, op_type: str, a: Size, b: Size, guess: int) -> Size:
        return self.guessed(self.op(op_type, self.size(a), self.size(b)), guess)

    def shape_of(self, x: ir.Value) -> ir.Value:
        """The run-time shape of a value."""
        return self.op("Shape", x)

    def elements(self, vector: ir.Value, indices: Sequence[int]) -> list[ir.Value]:
        """Single elements of a 1-D int64 value."""
        return [self.op("Gather", vector, self.ints([i], "index"), axis=0) for i in indices]

    def add(self, a: Size, b: Size) -> Size:
        """a + b"""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if same(a, 0) or same(b, 0):
            return b if same(a, 0) else a
        return self._binary("Add", a, b, self.guess(a) + self.guess(b))

    def sub(self, a: Size, b: Size) -> Size:
        """a - b"""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if same(b, 0):
            return a
        if same(a, b):
            return 0
        return self._binary("Sub", a, b, self.guess(a) - self.guess(b))

    def mul(self, a: Size, b: Size) -> Size:
        """a * b"""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if same(a, 1) or same(b, 1):
            return b if same(a, 1) else a
        return self._binary("Mul", a, b, self.guess(a) * self.guess(b))

    def div(self, a: Size, b: Size) -> Size:
        """a / b truncated like C; b is never 0"""
        if isinstance(a, int) and isinstance(b, int):
            return a // b if (a >= 0) == (b > 0) else -(-a // b)
        if same(b, 1):
            return a
        return self._binary("Div", a, b, self.guess(a) // max(1, self.guess(b)))

    def quotient(self, a: Size, b: Size) -> Size:
        """a / b where b >= 1 divides a >= 0; otherwise one that no Reshape takes.

        Before allowzero a 0 is no size to be refused for, so there it is the next larger one.
        """
        if self.opset < 14 and not (isinstance(a, int) and isinstance(b, int)):
            a = self.add(a, self.sub(b, 1))
        return self.div(a, b)

    def max(self, a: Size, b: Size) -> Size:
        """The larger of two; before opset 12 Max has no int64."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        if self.opset >= 12:
            return self._binary("Max", a, b, max(self.guess(a), self.guess(b)))
        # max(a, b) = (a + b + |a - b|) / 2
        distance = self.op("Abs", self.size(self.sub(a, b)))
        return self.div(self.add(self.add(a, b), distance), 2)

    def less(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Where a < b, of int64 values; before opset 9 Less has floats only.

        They hold integers beyond 2**53 rounded, which turns no comparison with a smaller one.
        """
        if self.opset < _INTEGER_LESS:
            a, b = (self.op("Cast", value, to=int(ir.DataType.DOUBLE)) for value in (a, b))
        return self.op("Less", a, b)

    def where(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        """Of two int64 values, `yes` where the condition holds, else `no`."""
        if self.opset >= _WHERE:
            return self.op("Where", condition, yes, no)
        chosen = self.op("Cast", condition, to=int(ir.DataType.INT64))
        return self.op("Add", no, self.op("Mul", chosen, self.op("Sub", yes, no)))

    def product(self, sizes: Sequence[Size]) -> Size:
        """The product of sizes, the known ones folded together."""
        known = 1
        result: Size = 1
        for size in sizes:
            if isinstance(size, int):
                known *= size
            else:
                result = self.mul(result, size)
        return self.mul(result, known) if known != 1 else result

    def size(self, a: Size, hint: str = "size") -> ir.Value:
        """A size as a value."""
        return self.ints([a], hint) if isinstance(a, int) else a

    def vector(self, sizes: Sequence[Size], hint: str) -> ir.Value:
        """Sizes (or whole 1-D values) in one 1-D tensor; known neighbours become one constant."""
        parts: list[ir.Value] = []
        known: list[int] = []
        for size in (*sizes, None):
            if isinstance(size, int):
                known.append(size)
                continue
            if known:
                parts.append(self.ints(known, hint))
                known = []
            if size is not None:
                parts.append(size)
        if not parts:
            return self.ints([], hint)
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    # Tensors

    def tensor(self, value: ir.Value, dims: Sequence[Size], itemsize: int = 8) -> Tensor:
        """Note a tensor's rank and return it."""
        self.max_rank = max(self.max_rank, len(dims))
        return Tensor(value, tuple(dims), itemsize)

    def elements_in(self, dims: Iterable[Size]) -> int:
        """How many elements that is, or may be."""
        return min(cost_model.MOST, math.prod(max(0, self.guess(d)) for d in dims))

    def reshape(self, x: Tensor, dims: Sequence[Size], *, exact: bool = False) -> Tensor:
        """Reshape to `dims`, with as little arithmetic as zero-sized tensors allow.

        A literal 0 copies the input's dim unless allowzero is set (opset 14); -1 fails beside a
        zero-sized dim, so it stands only where every other dim is known and not 0.

        Args:
            x: what to reshape.
            dims: its new shape.
            exact: whether the run has to find that there are as many elements as `dims` say.
        """
        if len(dims) == x.rank and all(map(same, dims, x.dims)):
            return x
        unknown = [i for i, d in enumerate(dims) if not isinstance(d, int)]
        zero_free = all(d != 0 for d in dims if isinstance(d, int))
        kept = [i < x.rank and same(dims[i], x.dims[i]) for i in range(len(dims))]
        allow_zero = False
        if not unknown:
            literal = [d for d in dims if isinstance(d, int)]
            allow_zero = any(d == 0 and not copied for d, copied in zip(literal, kept, strict=True))
            if allow_zero and self.opset < 14:
                if literal.count(0) > 1:
                    raise ConversionError(f"a Reshape to {literal} needs allowzero, opset 14")
                allow_zero, literal[literal.index(0)] = False, -1
            shape = self.ints(literal, "shape")
        elif zero_free and len(unknown) == 1 and not exact:
            shape = self.ints([d if isinstance(d, int) else -1 for d in dims], "shape")
        elif zero_free and all(kept[i] for i in unknown):
            shape = self.ints([d if isinstance(d, int) else 0 for d in dims], "shape")
        else:
            sizes = [
                0 if self.opset < 14 and k and not isinstance(d, int) else d
                for d, k in zip(dims, kept, strict=True)
            ]
            value = self.reshape_exactly(x.value, sizes, kept)
            return self.tensor(value, dims, x.itemsize)
        extra: dict[str, Any] = {"allowzero": 1} if allow_zero else {}
        return self.tensor(self.op("Reshape", x.value, shape, **extra), dims, x.itemsize)

    def reshape_exactly(
        self, value: ir.Value, dims: Sequence[Size], kept: Sequence[bool] = ()
    ) -> ir.Value:
        """Reshape to sizes of which none is left to the Reshape.

        Before allowzero one of them may be 0, which is what a -1 in its place comes to.

        Args:
            value: what to reshape.
            dims: its new shape, a whole vector of sizes among them or not.
            kept: of which a 0 is also that of the input, and copied before allowzero; none by default.
        """
        shape = self.vector(dims, "shape")
        if self.opset >= 14:
            return self.op("Reshape", value, shape, allowzero=1)
        instead = self.ints([0 if k else -1 for k in kept] or [-1], "instead_of_0")
        empty = self.op("Equal", shape, self.ints([0], "zero"))
        return self.op("Reshape", value, self.where(empty, instead, shape))

    def reshape_to(self, value: ir.Value, dims: Sequence[int]) -> ir.Value:
        """Reshape to known dims, one of which may be -1, where no dim is zero that was not."""
        return self.op("Reshape", value, self.ints(dims, "shape"))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Permute the axes."""
        if list(perm) == sorted(perm):
            return x
        work = cost_model.transpose(tuple(map(self.guess, x.dims)), tuple(perm), x.itemsize)
        value = self.op("Transpose", x.value, perm=list(perm), work=work)
        return self.tensor(value, [x.dims[p] for p in perm], x.itemsize)

    def permute(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Permute the axes by a Transpose of as few as it takes, or by none where nothing moves."""
        kept = [axis for axis in perm if not same(x.dims[axis], 1)]
        if kept == sorted(kept):
            return self.reshape(x, [x.dims[axis] for axis in perm])
        groups: list[list[int]] = []
        for axis in kept:
            between = range(groups[-1][-1] + 1, axis) if groups else range(0)
            if groups and axis > groups[-1][-1] and all(same(x.dims[a], 1) for a in between):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        inner = sorted(groups)
        dims = [self.product([x.dims[axis] for axis in group]) for group in inner]
        y = self.transpose(self.reshape(x, dims), [inner.index(group) for group in groups])
        return self.reshape(y, [x.dims[axis] for axis in perm])

    def slice(
        self,
        x: Tensor,
        axes: Sequence[int],
        starts: Sequence[Size],
        ends: Sequence[Size],
        dims: Sequence[Size],
        steps: Sequence[int] | None = None,
    ) -> Tensor:
        """Slice to the dims `dims`; an end of INT64_MAX is the end of the axis."""
        if self.opset < _SLICE_INPUTS:
            return self._taken(x, axes, starts, ends, dims, steps)
        inputs = [self.vector(starts, "starts"), self.vector(ends, "ends"), self.ints(axes, "axes")]
        strided = steps is not None and any(step != 1 for step in steps)
        if strided:
            assert steps is not None
            inputs.append(self.ints(steps, "steps"))
        by_axis = dict(zip(axes, steps or [1] * len(axes), strict=True))
        inner = max(axes)
        run = self.elements_in(dims[inner + (by_axis[inner] != 1) :])
        count = self.elements_in(dims)
        single = by_axis[inner] != 1 and run == 1
        work = cost_model.take(
            count // max(run, 1), count * x.itemsize, strided=strided, single=single
        )
        return self.tensor(self.op("Slice", x.value, *inputs, work=work), dims, x.itemsize)

    def _taken(
        self,
        x: Tensor,
        axes: Sequence[int],
        starts: Sequence[Size],
        ends: Sequence[Size],
        dims: Sequence[Size],
        steps: Sequence[int] | None,
    ) -> Tensor:
        """`slice` before opset 10: attributes where they serve, else a Gather of the places."""
        literal: list[tuple[int, int, int]] = []
        for axis, start, end, step in zip(
            axes, starts, ends, steps or [1] * len(axes), strict=True
        ):
            known = isinstance(start, int) and start >= 0
            if known and isinstance(end, int) and step == 1:
                assert isinstance(start, int)
                literal.append((axis, start, end))
                continue
            # What it must give is known: so many places, from `start` on.
            first = start if not isinstance(start, int) or known else self.add(x.dims[axis], start)
            count = dims[axis]
            if isinstance(first, int) and isinstance(count, int) and count <= _LARGEST_RANGE:
                places = self.ints([first + i * step for i in range(count)], "index")
            else:
                places = self.range(count, step)
                if not same(first, 0):
                    places = self.op("Add", places, self.size(first))
            self.slices_by_gather = True
            x = self.gather(x, places, [count], axis)
        if not literal:
            return self.tensor(x.value, dims, x.itemsize)
        inner = max(axis for axis, _, _ in literal)
        count, run = self.elements_in(dims), self.elements_in(dims[inner:])
        work = cost_model.take(
            count // max(run, 1), count * x.itemsize, strided=False, single=False
        )
        value = self.op(
            "Slice",
            x.value,
            axes=[axis for axis, _, _ in literal],
            starts=[start for _, start, _ in literal],
            ends=[end for _, _, end in literal],
            work=work,
        )
        return self.tensor(value, dims, x.itemsize)

    def split(self, x: Tensor, axis: int, parts: int) -> list[Tensor]:
        """Split into equal parts along `axis`; they may have one more axis, of size 1."""
        if not isinstance(x.dims[axis], int) or x.dims[axis] == 0:
            # Where that is 0, onnxruntime does not split it any more.
            length = self.div(x.dims[axis], parts)
            x = self.reshape(x, [*x.dims[:axis], parts, length, *x.dims[axis + 1 :]])
        part = list(x.dims)
        part[axis] = self.div(x.dims[axis], parts)
        run = self.elements_in(part[axis:])
        count = self.elements_in(x.dims)
        work = cost_model.split(parts, count // max(run, 1), count * x.itemsize, single=run == 1)
        attributes = {"axis": axis} | ({"num_outputs": parts} if self.opset >= 18 else {})
        values = self._node("Split", [x.value], parts, work, attributes)
        return [self.tensor(value, part, x.itemsize) for value in values]

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Join along `axis`."""
        dims = list(parts[0].dims)
        for part in parts[1:]:
            dims[axis] = self.add(dims[axis], part.dims[axis])
        if len(parts) == 1:
            return parts[0]
        run = min(self.elements_in(part.dims[axis:]) for part in parts)
        runs = len(parts) * self.elements_in(dims[:axis])
        size = self.elements_in(dims) * parts[0].itemsize
        work = cost_model.concat(len(parts), runs, size, single=run == 1)
        value = self.op("Concat", *(part.value for part in parts), axis=axis, work=work)
        return self.tensor(value, dims, parts[0].itemsize)

    def gather(self, x: Tensor, indices: ir.Value, index_dims: Sequence[Size], axis: int) -> Tensor:
        """Gather along `axis`; the dims of the indices replace it."""
        dims = (*x.dims[:axis], *index_dims, *x.dims[axis + 1 :])
        count, row = self.elements_in(dims), self.elements_in(x.dims[axis + 1 :])
        work = cost_model.gather(count // max(row, 1), count * x.itemsize)
        value = self.op("Gather", x.value, indices, axis=axis, work=work)
        return self.tensor(value, dims, x.itemsize)

    def range(self, count: Size, step: int = 1) -> ir.Value:
        """0, step, .. (count elements) as a 1-D int64 value."""
        if isinstance(count, int) and count <= _LARGEST_RANGE:
            return self.ints([i * step for i in range(count)], "index")
        if self.opset < _RANGE:
            if self.opset < _NON_ZERO:
                raise ConversionError(f"places that only the run knows need opset {_NON_ZERO}")
            one = ir.Attr("value", ir.AttributeType.TENSOR, ir.tensor(np.ones(1, np.int64)))
            ones = self.op("ConstantOfShape", self.size(count), value=one)
            places = self.op("Squeeze", self.op("NonZero", ones), axes=[0])
            return places if step == 1 else self.op("Mul", places, self.ints([step], "step"))
        scalar = self.ints([], "scalar_shape")
        limit = self.op("Reshape", self.size(self.mul(count, step)), scalar)
        zero = self.constant(np.array(0, np.int64), "start")
        return self.op("Range", zero, limit, self.constant(np.array(step, np.int64), "delta"))
