"""What is known of sizes before a run is what onnxruntime comes to, on random shape arithmetic.

Every value of a random graph is an output. Its elements and dims as expressions, with numbers from
the run for the atoms that only the run knows, have to be the elements and dims of the run.
"""

from __future__ import annotations

from random import Random

import maps
import numpy as np
import onnx
import running
import sampling
import snippets
from hypothesis import given, settings

from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.sizes import DimKey, ElementKey, NamedDimKey, SymbolicValues
from onnx_spatial.model.inference import constant_folding

#: What sizes are below; behind a number that is not, nothing is promised.
LIMIT = 2**31


class Run(dict):
    """All values of a run, and the sizes of its inputs, by the keys of atoms."""

    def __missing__(self, key: object) -> np.ndarray:
        match key:
            case ElementKey(name=name, index=index):
                return self[name].reshape(-1)[index]
            case DimKey(name=name, axis=axis):
                return np.asarray(self[name].shape[axis])
            case NamedDimKey(name=name):
                return np.asarray(self[name])
        raise AssertionError(key)

    def number(self, p: Polynomial) -> int:
        return int(maps.number(p, self, {}))


def check(rng: Random) -> tuple[int, int]:
    """How many values of a random graph were compared, and how many of them were followed."""
    model = snippets.chain(rng, rng.randint(4, 10))
    names = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = running.session(model, running.LEVELS[0])
    scope, *_ = (scope for scope, _ in constant_folding.scopes(model))
    known = SymbolicValues(scope)
    compared = followed = 0
    for sizes in snippets.assignments(model, rng, 2):
        feeds = maps.feeds_of(model, sizes, {})
        try:
            values = dict(zip(names, session.run(None, feeds), strict=True))
        except Exception:  # onnxruntime's errors have no common class
            continue
        run = Run(values | feeds | sizes)
        for name in names:
            if not values[name].size:
                break  # nothing is promised of sizes that are computed from empty tensors
            dims = known.dims(name)
            if dims is not None:
                assert tuple(map(run.number, dims)) == values[name].shape, name
                assert all(run.number(d) >= 0 for d in dims if d.nonnegative)
            entries = known.entries(name) if values[name].dtype.kind == "i" else None
            if entries is None:
                continue
            numbers = list(map(run.number, entries))
            if any(abs(int(v)) >= LIMIT for v in (*numbers, *values[name].flat)):
                break  # more than a size can be; what is behind it is wrong in the model itself
            assert numbers == values[name].reshape(-1).tolist(), (name, entries)
            assert known.shape_of_entries(name) == values[name].shape
            assert all(v >= 0 for e, v in zip(entries, numbers, strict=True) if e.nonnegative)
            keys = [atom.key for e in entries for term in e.terms for atom in term]
            compared += 1
            followed += any(not isinstance(key, ElementKey) for key in keys)
    return compared, followed


@given(rng=sampling.randoms)
@settings(max_examples=40, deadline=None)
def test_expressions_are_what_the_run_comes_to(rng):
    check(rng)


def test_the_random_graphs_do_test_something():
    totals = [check(Random(seed)) for seed in range(40)]
    assert sum(compared for compared, _ in totals) > 300
    assert sum(followed for _, followed in totals) > 150
