"""What the campaign draws: wrong conversions that look right, and right ones that look wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import bases
import nets
import numpy as np
import onnx
from nets import Feeds, Net, Rng

import onnx_spatial


@dataclass
class Deception:
    """A wrong conversion.

    Attributes:
        what: base and mistake.
        original: the model that was converted.
        right: its right conversion; None if it cannot run.
        wrong: the wrong one.
        feeds: data on which they may differ, the likeliest first.
        exact: whether every bit counts, because data is only moved.
        definition: the original as the evaluator can run it, if it cannot run it itself.
        fact: why it is wrong where no run shows it.
        must_fail: whether a doubt with which the command exits 0 is not enough: the right conversion is
            doubted in this way, too.
    """

    what: str
    original: onnx.ModelProto
    right: onnx.ModelProto | None
    wrong: onnx.ModelProto
    feeds: Callable[[], Iterator[Feeds]] = field(default=lambda: iter(()))
    exact: bool = False
    definition: onnx.ModelProto | None = None
    fact: str = ""
    must_fail: bool = False


@dataclass
class Equivalent:
    """A right conversion.

    Attributes:
        what: base and rewriting.
        original: the model that was converted.
        rewritten: the conversion.
        base: draws inputs.
        rounds: whether its outputs are rounded to steps or another type, and so may be far apart.
        feeds: makes inputs, where there is no base.
        doubtful: whether a doubt is allowed, because names mean other values on purpose.
        less_exact: whether it computes in a shorter type, and so is right within a tolerance only.
        options: of `verify`.
    """

    what: str
    original: onnx.ModelProto
    rewritten: onnx.ModelProto
    base: Net | None = None
    rounds: bool = False
    feeds: Callable[[], Feeds] | None = None
    doubtful: bool = False
    less_exact: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the conversion, not verified."""
    return onnx_spatial.convert(model, verify=False).model


@cache
def converted_net(key: str) -> onnx.ModelProto:
    """Return the conversion of one of the nets."""
    return converted(bases.everything()[key].model)


def data(base: Net, rng: Rng, kinds: Sequence[str] = nets.KINDS) -> Callable[[], Iterator[Feeds]]:
    """Draw data of each kind for a net, later."""
    seed = int(rng.integers(1 << 30))

    def feeds() -> Iterator[Feeds]:
        own = np.random.default_rng(seed)
        for kind in kinds:
            yield base.feeds(own, kind)

    return feeds
