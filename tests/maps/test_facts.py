"""What facts claim holds at every integer point of a box that fulfils them."""

import itertools
from random import Random

import numpy as np
import pytest
from maps import maps
from onnx import TensorProto

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.facts import Facts
from onnx_spatial.maps.polynomial import INTEGER, OperationKey, Polynomial, Symbol
from onnx_spatial.maps.rules_numbers import fitting

NAMES = "abcd"


def symbol(name: str, *, nonnegative: bool = True) -> Polynomial:
    return Polynomial.atom(Symbol(0, "size", name), nonnegative=nonnegative)


def floor(p: Polynomial, divisor: Polynomial, *, nonnegative: bool) -> Polynomial:
    return Polynomial.atom(OperationKey("Floor", (), (p, divisor)), nonnegative=nonnegative)


def polynomial(rng: Random, atoms: list[Polynomial], terms: int) -> Polynomial:
    total = Polynomial.of(rng.randint(-4, 4))
    for _ in range(rng.randint(1, terms)):
        term = Polynomial.of(rng.choice((-3, -2, -1, -1, 1, 1, 2, 3)))
        for _ in range(rng.choice((1, 1, 2))):
            term = term * rng.choice(atoms)
        total = total + term
    return total


class Box:
    """Atoms with all their values: symbols of either sign, and a quotient with what defines it."""

    def __init__(self, rng: Random) -> None:
        names = NAMES[: rng.randint(2, 3)]
        flags = {name: rng.random() < 0.75 for name in names}
        ranges = [range(6) if flags[name] else range(-4, 5) for name in names]
        rows = np.array(list(itertools.product(*ranges)))
        self.values = {name: rows[:, i] for i, name in enumerate(names)}
        self.atoms = [symbol(name, nonnegative=flags[name]) for name in names]
        self.facts: list[Polynomial] = []
        if rng.random() < 0.5:
            dividend, divisor = polynomial(rng, self.atoms, 2), Polynomial.of(rng.randint(2, 4))
            sign = dividend.nonnegative
            quotient = floor(dividend, divisor, nonnegative=sign)
            self.atoms.append(quotient)
            self.facts = [
                dividend - quotient * divisor,
                quotient * divisor + divisor - 1 - dividend,
            ]

    def holds(self, p: Polynomial) -> np.ndarray:
        """At which points `p` is 0 or more."""
        count = len(next(iter(self.values.values())))
        return np.broadcast_to(maps.number(p, self.values, {}) >= 0, (count,))


def wanted(rng: Random, box: Box, facts: list[Polynomial]) -> Polynomial:
    """A polynomial that often follows, by a sum of products, and sometimes just does not."""
    if not facts or rng.random() < 0.3:
        return polynomial(rng, box.atoms, 3)
    total = Polynomial.of(rng.choice((0, 0, 0, 1, -1)))
    for _ in range(rng.randint(1, 3)):
        total = total + rng.choice(facts) * rng.choice((Polynomial.of(1), *box.atoms))
    return total


def check(rng: Random) -> int:
    """Number of claims about random facts, each of which holds."""
    box, facts = Box(rng), Facts()
    if rng.random() < 0.5:
        for atom in box.atoms:
            if atom.lone_atom.nonnegative and isinstance(atom.lone_atom.key, Symbol):
                facts.samples.define(atom.lone_atom, 0)
    added, states, claims = [], [], 0
    for step in range(rng.randint(2, 8)):
        if states and rng.random() < 0.25:  # take some back
            facts, added = states.pop()
        else:
            states.append((facts.copy(), list(added)))
            new = box.facts if step == 0 else [polynomial(rng, box.atoms, 2)]
            for fact in new:
                added.append(fact)
                facts.add(fact)
        inside = np.logical_and.reduce([box.holds(p) for p in [Polynomial.of(0), *added]])
        for _ in range(4):
            p = wanted(rng, box, added)
            if facts.nonnegative(p):
                claims += 1
                assert (box.holds(p) | ~inside).all(), (p, added)
        if facts.contradictory():
            claims += 1
            assert not inside.any(), added
    return claims


def test_claims_hold_everywhere_in_a_box():
    assert sum(check(Random(seed)) for seed in range(30)) > 200


def sizes(*names: str) -> list[Polynomial]:
    return [symbol(name) for name in names]


n, w, N, W, H = sizes(*"nwNWH")
P = symbol("p", nonnegative=False)

#: Facts, what follows from them, and what does not.
CLAIMS = {
    "a place in memory is below the number of elements": (
        (N - 1 - n, W - 1 - w, N - 1, W - 1),
        (N * W - 1 - n * W - w,),
        (N * W - 2 - n * W - w, N * W - 1 - w * W - n),
    ),
    "products of sizes outweigh their factors": (
        (H - 2, W - 1),
        (H * W - H, (H - 1) * W * 2 - W),
        (H * W - H - 1,),
    ),
    # 2*h*w <= 2*w does not give h <= 1 unless w is 1 or more.
    "a size that may be 0 does not scale": ((W - H * W,), (), (1 - H,)),
    "a number of either sign does not scale": ((H - 3,), (), (H * P - 3 * P, H * P, P + 4)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims(name):
    given, following, others = CLAIMS[name]
    facts = Facts()
    for fact in given:
        facts.add(fact)
    assert all(map(facts.nonnegative, following))
    assert not any(map(facts.nonnegative, others))
    assert not facts.contradictory()


def test_quotient_of_a_negative_number_is_negative():
    case = Case()
    h = case.symbol("H")
    quotient = case.floor_div(h - 4, Polynomial.of(3))
    assert not case.surely(quotient)
    assert case.surely(quotient + 1)


def test_quotients_are_not_below_the_limit_of_sizes():
    n = symbol("N")
    quotient = floor(n * n, Polynomial.of(3), nonnegative=True)
    assert not Facts().nonnegative(2**32 - quotient)
    assert not Facts().nonnegative(2**32 - n * n)


def test_integers_of_the_model_have_no_bound():
    case = Case()
    x = case.symbol("x", None, kind=INTEGER)
    assert not case.surely(x + 2**28)
    assert not case.surely(2**28 - x)
    assert case.surely(2**28 - case.symbol("h"))


def test_remainder_is_small_though_what_it_is_of_is_not():
    case = Case()
    n, h, i = (case.symbol(name) for name in ("n", "h", "i"))
    case.counts.append(n * h)
    quotient = floor(i + 1, Polynomial.of(3), nonnegative=True)
    assert fitting(case, n * h * (i + 1 - quotient * 3), TensorProto.INT64)
    for wrong in (i + 1 - quotient * 2, i + 1 + quotient * 3, i * i - quotient * 3):
        with pytest.raises(UndecidedError):
            fitting(case, n * h * wrong, TensorProto.INT64)
