"""Read a chain of nodes that move data as one Rearrange by its index map, and prove that it is one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

import onnx

from onnx_spatial.chains.chain_map import ChainMap, GraphScope
from onnx_spatial.chains.divided_sizes import DividedSizes, SizeKey
from onnx_spatial.chains.movement_paths import MOVING, MovementPath
from onnx_spatial.chains.paths import Path
from onnx_spatial.chains.pricing import SMALL, TYPICAL, estimated, evaluated, values_of
from onnx_spatial.chains.rearranging import Movements, is_rearrange, read_rearrange
from onnx_spatial.maps.budget import Budget
from onnx_spatial.maps.cases import Case, UndecidedError

#: Steps (`Budget`) for reading and proving a part of a chain.
_PART_STEPS = 40_000

#: The most cases in which a chain is read.
_CASES = 24


class MovementMaps:
    """The index maps of the paths of one graph, within a budget."""

    def __init__(self, graph: GraphScope, budget: Budget) -> None:
        self._graph, self._budget = graph, budget

    def read(self, path: MovementPath) -> Reading | None:
        """Return the Rearrange that a path may be."""
        divided = DividedSizes()
        # Nodes that divide a size require that it is a multiple of the divisor.
        for multiples in itertools.chain(({},), divided.together()):
            case = self._case()
            body = partial(self._read_in, case, path, multiples, divided)
            try:
                for reading in islice(case.all(body), _CASES):
                    if reading is not None:
                        return reading
            except (UndecidedError, ArithmeticError, LookupError, TypeError, ValueError):
                continue
        return None

    def _read_in(
        self,
        case: Case,
        path: MovementPath,
        multiples: Mapping[SizeKey, int],
        divided: DividedSizes,
    ) -> Reading | None:
        mapped = self._map(path, case, multiples)
        try:
            y = mapped.y
        finally:
            if not multiples:
                divided.note(case, mapped.x.dims)
        movements = read_rearrange(case, mapped.source, mapped.x, y)
        if movements is None or not all(mapped.dims_of(name) for name in path.values):
            return None
        dims = {name: mapped.dims_of(name) for name in path.values}
        source = self._graph.dims(path.values[0])
        each = []
        for scale in (TYPICAL, SMALL):
            sizes = values_of(mapped.x.dims, estimated(source, scale, movements[0]) or ())
            each.append(
                {n: [evaluated(d, sizes, scale[1]) for d in row] for n, row in dims.items()}
            )
        return Reading(movements, *each)

    def is_proven(self, path: MovementPath, movements: Movements) -> bool:
        """Tell whether a path is that Rearrange for all sizes."""
        return is_rearrange(movements, lambda case: self._map(path, case), self._case)

    def _map(
        self, path: MovementPath, case: Case, multiples: Mapping[SizeKey, int] | None = None
    ) -> ChainMap:
        nodes = tuple(
            (_moving_alone(node, data),)
            for node, data in zip(path.nodes, path.values, strict=False)
        )
        plain = Path(tuple(path.values), nodes)
        return ChainMap(case, self._graph, plain, 0, len(nodes), multiples)

    def _case(self) -> Case:
        return Case(Budget(_PART_STEPS, within=self._budget))


@dataclass(frozen=True)
class Reading:
    """The Rearrange that a chain may be, and dims of its values: typical ones, and small ones."""

    movements: Movements
    typical: Mapping[str, list[int]]
    small: Mapping[str, list[int]]


def _moving_alone(node: onnx.NodeProto, data: str) -> onnx.NodeProto:
    """Return a node as its index map sees it: a function of single elements is an Identity."""
    if node.op_type in MOVING:
        return node
    return onnx.helper.make_node("Identity", [data], node.output)
