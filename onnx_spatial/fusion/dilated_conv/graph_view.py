"""Read-only views of a graph and its nodes for the rules of a region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.analysis import attributes
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.symbolic.bounds import bounds
from onnx_spatial.model.symbolic.polynomial import Atom, quotient
from onnx_spatial.model.symbolic.symbolic_values import Polynomial, SymbolicValues
from onnx_spatial.operators.spellings import Conflict
from onnx_spatial.operators.spellings.call import AttributeValue

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class GraphView:
    """Types, sizes and known values of one graph, by name.

    Attributes:
        scope: types and known values.
        sizes: sizes as polynomials.
        opset: version of the default domain.
        undivided: dividend and divisor of each quotient that is a size behind a SpaceToBatch: there
            is no remainder in a legal run.
    """

    scope: constant_folding.ConstantScope
    sizes: SymbolicValues
    opset: int
    undivided: dict[Atom, tuple[Polynomial, int]] = field(default_factory=dict)

    def value(self, name: str) -> Array | None:
        """Return the elements of a small tensor that is known before the model runs."""
        return self.scope.value(name)

    def dims(self, name: str) -> tuple[Polynomial, ...] | None:
        """Return the dims of a value; None if not even the rank is known."""
        return self.sizes.dims(name)

    def lengths(self, name: str, axes: Sequence[int]) -> list[int | None]:
        """Return the lengths of some axes of a value, None where unknown."""
        dims = self.dims(name)
        return [None if dims is None else dims[axis].constant for axis in axes]

    def attributes(self, message: onnx.NodeProto) -> dict[str, AttributeValue]:
        """Return the attributes of a node; those of its function have the value that all calls give."""
        if message.output and any(a.ref_attr_name for a in message.attribute):
            known = self.scope.producer(message.output[0])
            if known is not None and known.op_type == message.op_type:
                message = known
        return attributes(message)

    def divided(self, size: Polynomial, block: int) -> Polynomial:
        """Divide the padded size of an axis by its block, as SpaceToBatch does."""
        result = quotient(size, Polynomial.of(block))
        if result.lone_atom is not None:
            self.undivided[result.lone_atom] = (size, block)
        return result

    def are_equal(self, a: Polynomial, b: Polynomial, block: int) -> bool:
        """Return whether two sizes of an axis of blocks are provably equal.

        block * (a - b) is a multiple of the block. It is 0 if it is smaller.
        """
        difference = (a - b) * block
        # The youngest first: what was divided may hold older quotients.
        for atom in sorted(self.undivided, key=lambda atom: -atom.serial):
            size, divisor = self.undivided[atom]
            factor = difference.terms.get((atom,), 0)
            if factor and factor % divisor == 0:
                difference += size * (factor // divisor) - Polynomial({(atom,): factor})
        least, most = bounds(difference)
        return least is not None and most is not None and -block < least and most < block

    def element_types(self, name: str) -> frozenset[int]:
        """Return the ONNX element type of a value; empty if it is unknown."""
        known = shape_inference.element_type(self.scope.type(name))
        return frozenset() if known is None else frozenset({known})


@dataclass(frozen=True)
class NodeView:
    """A node of the original model.

    Attributes:
        message: the node.
        view: the graph that holds it.
    """

    message: onnx.NodeProto
    view: GraphView

    @cached_property
    def attributes(self) -> dict[str, AttributeValue]:
        """The attributes as Python values; one that differs between calls of a function is no number."""
        return self.view.attributes(self.message)

    @property
    def differing(self) -> list[str]:
        """Names of the attributes without a common value in all calls of the function.

        Those of type FLOAT are left out: rules need no value of theirs, or ask for it themselves.
        """
        values, floats = self.attributes, onnx.AttributeProto.FLOAT
        attributes = (a for a in self.message.attribute if a.type != floats)
        return [a.name for a in attributes if isinstance(values.get(a.name), Conflict)]

    @property
    def op_type(self) -> str:
        """The operator type."""
        return str(self.message.op_type)

    def input(self, index: int) -> str:
        """Return the name of an input; "" if it is missing."""
        return self.message.input[index] if index < len(self.message.input) else ""

    def known(self, index: int) -> Array | None:
        """Return the elements of an input; None if they are unknown."""
        name = self.input(index)
        return self.view.value(name) if name else None

    def integer(self, name: str, default: int) -> int | None:
        """Return an INT attribute; None if it is of another type."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else None

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an INTS attribute; None if it is of another type."""
        value = self.attributes.get(name, default)
        if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
            return tuple(int(v) for v in value)
        return None

    def axes(self, index: int) -> tuple[int, ...] | None:
        """Return the axes of a Squeeze, Unsqueeze or reduction: an attribute, later input `index`.

        None if they are unknown or missing.
        """
        if "axes" in self.attributes:
            return self.integers("axes", ())
        known = self.known(index)
        return None if known is None else tuple(int(v) for v in known.reshape(-1))
