"""Prove that a chain of nodes is a spatial operator, in every run that succeeds.

The maps of the two are compared in all cases of sizes. What the operator's definition assumes of them
(that blocks divide sizes, that crops leave something) has to hold wherever the chain runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from onnx_spatial.chains.chain_map import ChainMap
from onnx_spatial.chains.exact_division import Division, runs_only_divided
from onnx_spatial.chains.formulas import Formula
from onnx_spatial.chains.reading import Blocks
from onnx_spatial.maps import expressions, operators
from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.compare import compare
from onnx_spatial.maps.expressions import show
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.rules_reshape import transposed
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.operators import BatchToSpace, SpaceToBatch


def is_operator(
    blocks: Blocks[Formula], chain: Callable[[Case], ChainMap], case: Callable[[], Case]
) -> bool:
    """Return whether a chain is provably an operator.

    Args:
        blocks: the operator.
        chain: returns the map of the chain in a case.
        case: returns an empty case for a comparison.
    """

    def maps(now: Case) -> tuple[Tensor, Tensor]:
        mapped = chain(now)
        parameters = _parameters(now, mapped, blocks)
        for amount in (*parameters[1], *parameters[2]):
            now.require(amount, "a pad or crop may be negative")
        x = transposed(now, mapped.x, blocks.before)
        if blocks.kind is BatchToSpace:
            blocked = expressions.product(parameters[0])
            what = f"{show(x.dims[0])} is divisible by {show(blocked)}"
            now.divide(x.dims[0], blocked, what)
            if not mapped.runs():
                return x, x  # there is nothing to compare
            _check_crops(now, x, mapped, blocks, *parameters)
        y = operators.apply(now, blocks.kind, None, x, *parameters)
        return (transposed(now, y, blocks.behind), mapped.y) if mapped.runs() else (x, x)

    comparison = compare(case(), maps)
    # BatchToSpace assumes that its batch is a multiple of the blocks. It only fuses with the
    # SpaceToBatch that has made the batch.
    if blocks.kind is SpaceToBatch and comparison.equal and comparison.assumptions:
        return runs_only_divided(chain, partial(_padded, blocks), case())
    return comparison.equal


def _padded(blocks: Blocks[Formula], case: Case, chain: ChainMap) -> list[Division]:
    """Return the padded sizes of a SpaceToBatch, and their blocks."""
    _, begins, ends = _parameters(case, chain, blocks)
    sizes = [chain.x.dims[axis] for axis in blocks.before[1:]]
    each = zip(sizes, begins, ends, blocks.block, strict=False)
    return [(size + begin + end, block) for size, begin, end, block in each if block > 1]


def _check_crops(
    case: Case,
    x: Tensor,
    chain: ChainMap,
    blocks: Blocks[Formula],
    block: Sequence[Polynomial],
    begins: Sequence[Polynomial],
    ends: Sequence[Polynomial],
) -> None:
    """Require that crops leave what the chain gives: BatchToSpace assumes that they leave something.

    Where they leave nothing, which is illegal, the chain has to give an empty tensor.

    Raises:
        UndecidedError: that is not known.
    """
    for axis, (b, begin, end) in enumerate(zip(block, begins, ends, strict=True), 1):
        size = chain.y.dims[blocks.behind.index(axis)]
        left = x.dims[axis] * b - begin - end
        if case.decide(left - 1):
            case.require_equal(left, size, "a crop may differ")
        else:
            case.require(-size, "the operator gives nothing, but the chain does")
            case.assume(left - 1)


def _parameters(
    case: Case, chain: ChainMap, blocks: Blocks[Formula]
) -> tuple[list[Polynomial], list[Polynomial], list[Polynomial]]:
    """Return the block, the begins and the ends of an operator in a case."""
    sizes = operators.CaseArithmetic(case)
    begins, ends = (
        [sizes.polynomial(amount.compute(sizes, chain.size)) for amount in amounts]
        for amounts in (blocks.begins, blocks.ends)
    )
    return [Polynomial.of(b) for b in blocks.block], begins, ends
