"""Write standard operators: nodes, constants, and run-time arithmetic on the sizes of tensors.

A `Size` is one dim: an int if it is known, else a 1-D int64 value of one element. Everything that is
known is folded here and now, so that static facts become constants and only what is unknown is
computed at run time. Nothing that would be a no-op is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.errors import ConversionError

Size = int | ir.Value

INT64_MAX = 2**63 - 1

#: Ranges up to this many elements are constants; longer ones are made at run time.
_LARGEST_RANGE = 1 << 14


@dataclass(frozen=True)
class Tensor:
    """A value and its dims as far as they can be told, at least at run time."""

    value: ir.Value
    dims: tuple[Size, ...]

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
        max_rank: the largest rank of any tensor handled so far.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[ir.Node] = []
        self.constants: list[tuple[ir.Value, str]] = []
        self.max_rank = 0
        self._constant_of: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._result_of: dict[tuple[object, ...], ir.Value] = {}

    # Nodes and constants

    def op(
        self, op_type: str, *inputs: ir.Value | None, **attributes: int | Sequence[int] | ir.Attr
    ) -> ir.Value:
        """One node of the default domain with one output; the same node twice is one node."""
        key = (
            op_type,
            *map(id, inputs),
            *(
                (k, id(v) if isinstance(v, ir.Attr) else v if isinstance(v, int) else tuple(v))
                for k, v in attributes.items()
            ),
        )
        if key not in self._result_of:
            node = ir.node(op_type, inputs, attributes)
            self.nodes.append(node)
            self._result_of[key] = node.outputs[0]
        return self._result_of[key]

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
            if node.outputs[0] in needed:
                needed.update(v for v in node.inputs if v is not None)
        dead = [node for node in self.nodes if node.outputs[0] not in needed]
        for node in dead:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        self.nodes = [node for node in self.nodes if node.outputs[0] in needed]
        self.constants = [(value, hint) for value, hint in self.constants if value in needed]

    # Sizes

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
        return self.op("Add", self.size(a), self.size(b))

    def sub(self, a: Size, b: Size) -> Size:
        """a - b"""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if same(b, 0):
            return a
        return 0 if same(a, b) else self.op("Sub", self.size(a), self.size(b))

    def mul(self, a: Size, b: Size) -> Size:
        """a * b"""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if same(a, 1) or same(b, 1):
            return b if same(a, 1) else a
        return self.op("Mul", self.size(a), self.size(b))

    def div(self, a: Size, b: Size) -> Size:
        """a / b truncated like C; b is never 0"""
        if isinstance(a, int) and isinstance(b, int):
            return a // b if (a >= 0) == (b > 0) else -(-a // b)
        return a if same(b, 1) else self.op("Div", self.size(a), self.size(b))

    def max(self, a: Size, b: Size) -> Size:
        """The larger of two; before opset 12 Max has no int64."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        if self.opset >= 12:
            return self.op("Max", self.size(a), self.size(b))
        # max(a, b) = (a + b + |a - b|) / 2
        distance = self.op("Abs", self.size(self.sub(a, b)))
        return self.div(self.add(self.add(a, b), distance), 2)

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

    def tensor(self, value: ir.Value, dims: Sequence[Size]) -> Tensor:
        """Note a tensor's rank and return it."""
        self.max_rank = max(self.max_rank, len(dims))
        return Tensor(value, tuple(dims))

    def reshape(self, x: Tensor, dims: Sequence[Size]) -> Tensor:
        """Reshape to `dims`, with as little arithmetic as zero-sized tensors allow.

        A literal 0 copies the input's dim unless allowzero is set (opset 14); -1 fails beside a
        zero-sized dim, so it stands only where every other dim is known and not 0.
        """
        if len(dims) == x.rank and all(map(same, dims, x.dims)):
            return x
        unknown = [i for i, d in enumerate(dims) if not isinstance(d, int)]
        zero_free = all(d != 0 for d in dims if isinstance(d, int))
        copied = all(i < x.rank and same(dims[i], x.dims[i]) for i in unknown)
        allow_zero = False
        if not unknown:
            literal = [d for d in dims if isinstance(d, int)]
            copies = [i < x.rank and same(x.dims[i], 0) for i, d in enumerate(literal) if d == 0]
            allow_zero = not all(copies)
            if allow_zero and self.opset < 14:
                raise ConversionError(f"a Reshape to {literal} needs allowzero, opset 14")
            shape = self.ints(literal, "shape")
        elif zero_free and len(unknown) == 1:
            shape = self.ints([d if isinstance(d, int) else -1 for d in dims], "shape")
        elif zero_free and copied:
            shape = self.ints([d if isinstance(d, int) else 0 for d in dims], "shape")
        else:
            allow_zero = self.opset >= 14
            shape = self.vector(dims, "shape")
        extra = {"allowzero": 1} if allow_zero else {}
        return self.tensor(self.op("Reshape", x.value, shape, **extra), dims)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Permute the axes."""
        if list(perm) == sorted(perm):
            return x
        value = self.op("Transpose", x.value, perm=list(perm))
        return self.tensor(value, [x.dims[p] for p in perm])

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
        inputs = [self.vector(starts, "starts"), self.vector(ends, "ends"), self.ints(axes, "axes")]
        if steps is not None and any(step != 1 for step in steps):
            inputs.append(self.ints(steps, "steps"))
        return self.tensor(self.op("Slice", x.value, *inputs), dims)

    def gather(self, x: Tensor, indices: ir.Value, index_dims: Sequence[Size], axis: int) -> Tensor:
        """Gather along `axis`; the dims of the indices replace it."""
        value = self.op("Gather", x.value, indices, axis=axis)
        return self.tensor(value, (*x.dims[:axis], *index_dims, *x.dims[axis + 1 :]))

    def range(self, count: Size, step: int = 1) -> ir.Value:
        """0, step, .. (count elements) as a 1-D int64 value."""
        if isinstance(count, int) and count <= _LARGEST_RANGE:
            return self.ints([i * step for i in range(count)], "index")
        scalar = self.ints([], "scalar_shape")
        limit = self.op("Reshape", self.size(self.mul(count, step)), scalar)
        zero = self.constant(np.array(0, np.int64), "start")
        return self.op("Range", zero, limit, self.constant(np.array(step, np.int64), "delta"))
