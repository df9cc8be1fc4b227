"""Estimate the time of nodes that move data, and say which rewriting of them pays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.chains.chain_map import ChainMap
from onnx_spatial.chains.one_hot import COPYING
from onnx_spatial.chains.paths import Path
from onnx_spatial.errors import ConversionError, OperatorError
from onnx_spatial.lowering import Request, cost_model, lower, rank
from onnx_spatial.lowering.emitter import TYPICAL_DIM
from onnx_spatial.lowering.request import itemsize_of
from onnx_spatial.maps.polynomial import FLOOR, Atom, Polynomial
from onnx_spatial.operators import Dim, Rearrange
from onnx_spatial.operators.spellings import FixedCall, InputFacts, NodeFacts
from onnx_spatial.operators.spellings.call import TYPICAL_FACTOR

#: A rewriting takes at most this share of the time of the nodes that it replaces, and saves this many
#: microseconds: estimates are not better than that.
MARGIN, LEAST_GAIN = 0.8, 1.2

#: The same for one with more nodes: onnxruntime merges Transposes with others in a net, which no
#: estimate of a part of it knows.
MARGIN_OF_MORE, LEAST_GAIN_OF_MORE = 0.5, 6.0

#: The most nodes by which a rewriting exceeds those that it replaces.
MAX_MORE = 8

#: Sizes of an unknown batch and of other unknown dims; a rewriting has to pay with both.
TYPICAL, SMALL = (TYPICAL_FACTOR, TYPICAL_DIM), (1, 16)

#: The most elements that unknown dims are taken to give together, apart from the batch.
_MAX_ELEMENTS = 1 << 16

#: Microseconds of a Conv in onnxruntime with one thread: for the node, for an image, for an element of
#: the windows that it gathers, and for a multiplication and addition. Fitted to 16 one-hot Convs of 5 to
#: 7,000 microseconds, within 20 %, and scaled to the machine of `lowering.cost_model`.
_CONV, _IMAGE, _GATHERED, _PRODUCT = 1.5, 0.05, 0.00018, 0.000006


def is_worthwhile(before: float, after: float, nodes_before: int, nodes_after: int) -> bool:
    """Return whether a rewriting is clearly better by its price.

    Args:
        before, after: estimated times in microseconds.
        nodes_before, nodes_after: numbers of nodes.
    """
    more = nodes_after > nodes_before
    if nodes_after > nodes_before + MAX_MORE:
        return False
    margin, gain = (MARGIN_OF_MORE, LEAST_GAIN_OF_MORE) if more else (MARGIN, LEAST_GAIN)
    return after <= margin * before and before - after >= gain


class PricedLowering(NamedTuple):
    """The name, estimated microseconds and number of nodes of a lowering."""

    name: str
    cost: float
    nodes: int


class Prices:
    """Estimated times, in microseconds, of chains with data of one type.

    Args:
        element_type: ONNX element type.
        opset: version of the default domain.
        max_rank: largest rank of a tensor; None for any.
    """

    def __init__(self, element_type: int, opset: int, max_rank: int | None) -> None:
        self._type, self._opset, self._max_rank = element_type, opset, max_rank
        self._itemsize = itemsize_of(element_type)

    def price_removed(
        self, path: Path, gone: Sequence[onnx.NodeProto], dims: Mapping[str, Sequence[int]]
    ) -> tuple[float, int]:
        """Return time and number of the nodes that go with a path, apart from its functions.

        Nodes that compute parameters take no time: runtimes fold many of them when they load.

        Args:
            path: the path.
            gone: the nodes that nobody needs without it.
            dims: of the values of the path.
        """
        functions = {id(n) for step in path.steps if step.changes for n in step.nodes}
        counted = {id(n): n for n in gone if n.op_type != "Constant" and id(n) not in functions}
        time = sum(
            price_node(step.last, dims[before], dims[after], self._itemsize)
            for step, before, after in zip(path.steps, path.values, path.values[1:], strict=False)
            if id(step.last) in counted
        )
        return time, len(counted)

    def lower_rearrange(
        self, operator: Rearrange, shape: Sequence[Dim], only: str | None = None
    ) -> PricedLowering | str:
        """Lower a Rearrange, or return why that is not possible.

        Args:
            operator: the operator.
            shape: of its input.
            only: name of the lowering; None for the cheapest.
        """
        try:
            request = _rearrange_request(operator, shape, self._type, self._opset)
            ranking = rank(request, max_rank=self._max_rank, only=only)
            if not ranking.fitting:
                lower(request, max_rank=self._max_rank, only=only)  # raises, and says why
        except (ConversionError, OperatorError) as error:
            return str(error)
        best = ranking.fitting[0]
        return PricedLowering(best.lowering, best.estimated_us, ranking.nodes)

    def price_resized(
        self,
        operator: Rearrange,
        done: PricedLowering,
        typical: Sequence[int],
        small: Sequence[int],
    ) -> float:
        """Return the price of a lowering for other sizes of its input.

        Args:
            operator: the operator.
            done: the lowering, for sizes that are unknown.
            typical: the sizes of the input for which it is priced.
            small: the other sizes.
        """
        each = [self.lower_rearrange(operator, dims, done.name) for dims in (typical, small)]
        first, second = (done.cost if isinstance(one, str) else one.cost for one in each)
        return done.cost - first + second


def price_node(
    node: onnx.NodeProto, dims: Sequence[int], result: Sequence[int], itemsize: int
) -> float:
    """Return the estimated microseconds of a node that moves data; of a Reshape for other operators.

    Args:
        node: the node; a one-hot Conv as a node of `one_hot.COPYING`.
        dims: of its data.
        result: dims of its output.
        itemsize: bytes of an element.
    """
    count, perm = math.prod(dims), _perm_of(node, len(dims))
    work = cost_model.small()
    if node.op_type == "Transpose" and sorted(perm) == list(range(len(dims))):
        # A dim of 1 may make it faster, but is no reason to rewrite what runtimes fuse with others.
        work = cost_model.best_transpose(tuple(dims), perm, itemsize, math.inf) or work
    elif node.op_type in ("DepthToSpace", "SpaceToDepth") and len(dims) == 4:
        block, to_depth = _integer_attribute(node, "blocksize", 1), node.op_type == "SpaceToDepth"
        inner = max(1, dims[3] // block if to_depth else block)
        work = cost_model.depth(count, count * itemsize, inner, to_depth=to_depth)
    elif node.op_type == "Gather" and len(result) > len(dims):
        count = math.prod(result)
        row = math.prod(dims[_integer_attribute(node, "axis", 0) % len(dims) + 1 :])
        work = cost_model.copies("gather", count // max(1, row), count * itemsize)
    elif (node.domain, node.op_type) == COPYING:
        known = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        outputs = int(math.prod(known["kernel_shape"]) * known["channels"] // known["group"])
        windows = (_GATHERED + _PRODUCT * outputs) * math.prod(result)
        return float(_CONV + _IMAGE * result[0] * known["group"] + windows)
    return work.nanoseconds / 1000


def _rearrange_request(
    operator: Rearrange, shape: Sequence[Dim], element_type: int, opset: int
) -> Request:
    facts = InputFacts(analysis.dtype_name(element_type), tuple(shape))
    call, values = FixedCall(operator, "chains"), (ir.Value(name="x"),)
    node = NodeFacts(operator.name, "", (facts,))
    return Request.of(call, node, values, frozenset({element_type}), opset)


def _perm_of(node: onnx.NodeProto, rank: int) -> tuple[int, ...]:
    perms = [tuple(a.ints) for a in node.attribute if a.name == "perm"]
    return perms[0] if perms else tuple(reversed(range(rank)))


def _integer_attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def estimate_dims(
    dims: Sequence[Dim], scale: tuple[int, int], operator: Rearrange | None = None
) -> tuple[int, ...]:
    """Return dims with sizes for a batch and other dims that are unknown.

    Args:
        dims: the dims.
        scale: size of the batch and of other dims, as `TYPICAL`.
        operator: what reads the dims; each is a multiple of its known factors.
    """
    unknown = sum(not isinstance(dim, int) for dim in dims[1:])
    side = min(scale[1], int(_MAX_ELEMENTS ** (1 / max(1, unknown))))
    sizes = []
    for axis, dim in enumerate(dims):
        part = operator.multiple(axis) if operator is not None else 1
        guess = part * max(1, side // part) if axis else part * scale[0]
        sizes.append(dim if isinstance(dim, int) else guess)
    return tuple(sizes)


def dims_for_sizes(
    chain: ChainMap, path: Path, sizes: Sequence[int], other: int
) -> dict[str, list[int]]:
    """Return the dims of the values of a chain, at least 1, for these sizes of its data.

    Args:
        chain: the map of the chain, in one case.
        path: the chain.
        sizes: dims of its data.
        other: the value of what follows from none of them.
    """
    values: dict[Atom, Fraction] = {}
    for dim, size in zip(chain.x.dims, sizes, strict=False):
        if len(dim.terms) == 1 and dim.constant is None:
            ((atoms, factor),) = dim.terms.items()
            if len(atoms) == 1:
                values[atoms[0]] = Fraction(size, factor)
    return {
        name: [
            max(1, round(_evaluate_polynomial(dim, values, other))) for dim in chain.dims_of(name)
        ]
        for name in path.values
    }


def _evaluate_polynomial(p: Polynomial, values: Mapping[Atom, Fraction], other: int) -> Fraction:
    total = Fraction(0)
    for atoms, factor in p.terms.items():
        total += factor * math.prod(_evaluate_atom(atom, values, other) for atom in atoms)
    return total


def _evaluate_atom(atom: Atom, values: Mapping[Atom, Fraction], other: int) -> Fraction:
    key = atom.operation
    if atom in values or key.operator != FLOOR:
        return values.get(atom, Fraction(other))
    dividend, divisor = (_evaluate_polynomial(each, values, other) for each in key.operands)
    return dividend / max(Fraction(1), divisor)
