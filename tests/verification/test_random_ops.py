"""A model that gives something else in every run is named, with what makes it so."""

from __future__ import annotations

from adapter import verify
from hand_lowered import model

SEEDED = "[dice] r = RandomUniformLike<seed = 1.0>(x) y = Add(x, r)"


def test_the_node_is_named() -> None:
    text = "g (float[N,4] x) => (float[N,4] y, float[N,4] z) { BODY z = Neg(x) }"
    noisy = model(text.replace("BODY", "[dice] r = RandomUniformLike(x) y = Add(x, r)"))
    result = verify(noisy, noisy)
    assert result.status == "unverified"
    assert "output 'y'" in result.message
    assert "RandomUniformLike node 'dice'" in result.message
    by_name = {o.name: o.passed for o in result.outputs}
    assert by_name == {"y": None, "z": True}


def test_a_seed_is_reported() -> None:
    noisy = model("g (float[N,4] x) => (float[N,4] y) { " + SEEDED + " }")
    assert "'dice' with a seed" in verify(noisy, noisy).message


def test_shapes_of_random_values_are_none() -> None:
    text = "g (float[N,4] x) => (int64[2] y) { r = RandomUniformLike(x) a = Neg(x) y = Shape(a) }"
    assert verify(model(text), model(text))
