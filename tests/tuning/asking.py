"""Requests of the operators of a model, as the planner makes them, and figures made up for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from converting import plan

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.lowering import Lowered, Request, lower
from onnx_spatial.tuning import Effort, HarnessData


def requests(model: onnx.ModelProto, **options: Any) -> list[tuple[Request, OperatorInfo]]:
    """What is asked for at each site."""
    asked = []

    def choose(request: Request, info: OperatorInfo) -> Lowered:
        asked.append((request, info))
        return lower(request)

    plan(model, choose=choose, **options)
    return asked


class Figures:
    """Measures nothing: `favourite` takes 1 us, everything else 2."""

    def __init__(self, favourite: str = "") -> None:
        self.favourite = favourite
        self.asked: list[HarnessData] = []

    def __call__(
        self,
        request: Request,
        ways: Sequence[Lowered],
        given: HarnessData,
        rank: int,
        effort: Effort,
    ) -> list[float | None]:
        self.asked.append(given)
        return [1.0 if way.strategy == self.favourite else 2.0 for way in ways]
