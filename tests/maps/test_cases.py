"""Every combination of sizes, parameters and indices is in exactly one case, with the right result."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import graphs
import numpy as np
import pytest
from hypothesis import given, reject, settings
from maps import maps

from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.rules_numbers import div, maximum

#: Symbols and their values here: two sizes, a parameter, an index below a size, one below a constant.
VALUES = {"h": range(1, 7), "w": range(1, 5), "p": range(4), "i": range(6), "k": range(4)}


def symbols(case: Case) -> dict[str, Polynomial]:
    h, w, p = case.symbol("h"), case.symbol("w"), case.symbol("p", 0)
    i, k = case.index("i", h), case.index("k", Polynomial.of(4))
    return {"h": h, "w": w, "p": p, "i": i, "k": k}


Program = Callable[[Any, dict[str, Any]], Any]


class Plain:
    """The operations of a case on integers; keeps the answers that a computation branches on."""

    def __init__(self) -> None:
        self.answers: list[int] = []

    def _answer(self, answer: int) -> int:
        self.answers.append(answer)
        return answer

    def decide(self, p: int) -> bool:
        return bool(self._answer(p >= 0))

    def is_zero(self, p: int) -> bool:
        return bool(self._answer(p == 0))

    def value_of(self, p: int, count: int) -> int:
        return self._answer(p)

    def floor_div(self, a: int, b: int) -> int:
        return a // int(b.constant if isinstance(b, Polynomial) else b)

    def mod(self, a: int, b: int) -> int:
        return a % int(b.constant if isinstance(b, Polynomial) else b)


def _divided(case: Any, a: Any, b: int) -> Any:
    """`a / b` rounded toward zero."""
    if isinstance(case, Plain):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return div(case, a, Polynomial.of(b))


def _largest(case: Any, row: list[Any]) -> Any:
    return max(row) if isinstance(case, Plain) else maximum(case, row)


def program(rng: Random, depth: int) -> Program:
    """A random computation that distinguishes cases."""
    if depth == 0 or rng.random() < 0.1:
        if rng.random() < 0.25:
            constant = rng.randint(-3, 5)
            return lambda case, s: s["h"] * 0 + constant
        name = rng.choice("hhwpiik")
        return lambda case, s: s[name]
    a, b, c = (program(rng, depth - 1) for _ in range(3))
    number = rng.randint(2, 4)
    size = rng.choice("hw")
    const = Polynomial.of(number)
    table: dict[str, Program] = {
        "add": lambda case, s: a(case, s) + b(case, s),
        "sub": lambda case, s: a(case, s) - b(case, s),
        "mul": lambda case, s: a(case, s) * (number - 3) + b(case, s),
        "floor": lambda case, s: case.floor_div(a(case, s), const),
        "mod": lambda case, s: case.mod(a(case, s), const),
        "floor by": lambda case, s: case.floor_div(a(case, s), s[size]),
        "mod by": lambda case, s: case.mod(a(case, s), s[size]),
        "div": lambda case, s: _divided(case, a(case, s), -number),
        "max": lambda case, s: _largest(case, [a(case, s), b(case, s)]),
        "if": lambda case, s: b(case, s) if case.decide(a(case, s)) else c(case, s),
        "zero": lambda case, s: b(case, s) if case.is_zero(a(case, s)) else c(case, s),
        "value": lambda case, s: (
            b(case, s) if case.value_of(case.mod(a(case, s), const), number) == 1 else c(case, s)
        ),
    }
    return table[rng.choice(list(table))]


class Cases(NamedTuple):
    """The cases of a computation: how many, those that each assignment is in, and its results there."""

    count: int
    assignments: list[dict[str, int]]
    of: list[list[int]]
    results: list[list[int]]


def cases(compute: Program, names: str = "hwpik") -> Cases:
    """Compute in all cases.

    Raises:
        UndecidedError: a case cannot be followed.
    """

    def body(case: Case) -> tuple[Polynomial, ...]:
        return (compute(case, symbols(case)),)

    outcomes = maps.explored(body, steps=150_000)
    rows = [r for r in maps.assignments({n: VALUES[n] for n in names}) if r["i"] < r["h"]]
    columns = {name: np.array([row[name] for row in rows]) for name in names}
    found = Cases(len(outcomes), rows, [[] for _ in rows], [[] for _ in rows])
    for number, outcome in enumerate(outcomes):
        for places, (values,) in maps._apply([outcome], columns, {}):
            for place, value in zip(places, values, strict=True):
                found.of[place].append(number)
                found.results[place].append(int(value))
    return found


def plain(compute: Program, assignment: dict[str, int]) -> tuple[int, tuple[int, ...]]:
    """The result of a computation on integers, and the answers that it branched on."""
    recorded = Plain()
    return int(compute(recorded, assignment)), tuple(recorded.answers)


def check(rng: Random) -> bool:
    """Whether a random computation is followed; each assignment is in one case, with its result."""
    compute = program(rng, rng.randint(2, 4))
    try:
        found = cases(compute)
    except UndecidedError:
        return False
    wanted = [plain(compute, row) for row in found.assignments]
    assert found.results == [[result] for result, _ in wanted]
    # What a computation branches on has one answer in a case.
    branches = {(number, answers) for (number,), (_, answers) in zip(found.of, wanted, strict=True)}
    assert len(branches) == len({number for number, _ in branches})
    return True


@settings(max_examples=15)
@given(rng=graphs.randoms)
def test_each_assignment_is_in_one_case(rng):
    if not check(rng):
        reject()  # hypothesis fails if most are


def test_exact_quotients():
    case = Case()
    h, w = case.symbol("h"), case.symbol("w")
    assert exact(h * w * 6, w * 2) == h * 3
    assert exact(h * w + h, w + 1) == h
    assert exact(h * 3, Polynomial.of(2)) is None
    assert exact(h * w + 1, h) is None


def divided(case: Case, block: Polynomial) -> tuple[Polynomial, ...]:
    """(cells, offset of an index in its cell) of a size that a block divides by assumption."""
    h, p = case.symbol("h"), case.symbol("p", 0)
    early = case.decide(h - 4)  # a split before the size is replaced, and one behind
    cells = case.divide(h + p, block, "divisible")
    late = case.decide(cells - 2)
    return (cells, Polynomial.of(2 * early + late), case.mod(case.symbol("w"), block))


@pytest.mark.parametrize("block", [1, 2, 3, "b"])
def test_sizes_that_are_replaced_by_multiples(block):
    def body(case: Case) -> tuple[Polynomial, ...]:
        by = case.symbol(block) if isinstance(block, str) else Polynomial.of(block)
        return divided(case, by)

    outcomes = maps.explored(body)
    bounds = {"h": range(1, 9), "p": range(4), "w": range(1, 6)}
    if block == "b":
        bounds["b"] = range(1, 5)
    rows = [r for r in maps.assignments(bounds) if (r["h"] + r["p"]) % r.get("b", block) == 0]
    columns = {name: np.array([row[name] for row in rows]) for name in bounds}
    by = columns.get("b", block)
    cells = (columns["h"] + columns["p"]) // by
    flags = 2 * (columns["h"] >= 4) + (cells >= 2)
    times = np.zeros(len(rows), int)
    for places, values in maps._apply(outcomes, columns, {}):
        times[places] += 1
        for value, wanted in zip(values, (cells, flags, columns["w"] % by), strict=True):
            assert (value == wanted[places]).all()
    assert (times == 1).all()


def test_extent_of_an_index_is_that_of_its_case():
    case = Case()

    def body() -> bool:
        n = case.symbol("n")
        extent = Polynomial.of(3) if case.decide(n - 5) else n + 3
        i = case.index("i", extent)
        return case.are_equal(i * (i - 1) * (i - 2), i * 0)

    assert list(case.all(body)) == [True, False]


@pytest.mark.parametrize(("added", "count"), [(0, 2), (5, 2), (3, 4)])
def test_what_is_left_of_a_size(added, count):
    """Each rest is one case, in which the size divided by the number is exact."""
    case = Case()

    def body() -> tuple[int, Polynomial, Polynomial]:
        p = case.symbol("h") + added
        left = case.residue(p, count)
        return left, p, case.floor_div(p, Polynomial.of(count))

    rows = list(case.all(body))
    assert [left for left, _, _ in rows] == list(range(count))
    assert all(quotient * count + left == p for left, p, quotient in rows)


def test_sizes_that_surely_differ():
    """A run fails there; where they may be equal, that is not known."""
    case = Case()
    h = case.symbol("h")
    with pytest.raises(IllegalError):
        case.require_equal(2 * h + 1, 2 * h, "odd and even")
    with pytest.raises(UndecidedError) as caught:
        case.require_equal(2 * h, case.symbol("w"), "unknown")
    assert not isinstance(caught.value, IllegalError)
