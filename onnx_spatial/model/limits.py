"""Say which tensors and operators a limit of rank, or a target, does not admit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_spatial.model.targets import Target

#: Pools that may have dilations.
_POOLS = ("AveragePool", "LpPool", "MaxPool")


@dataclass(frozen=True)
class Limits:
    """Limits that the nodes of a model are compared with.

    Attributes:
        max_rank: largest rank of a tensor; None for any.
        target: the runtime; None for any.
    """

    max_rank: int | None = None
    target: Target | None = None

    @property
    def title(self) -> str:
        """The limits in a few words: "Core ML", "rank 4", "Core ML and rank 3"."""
        names = [] if self.target is None else [self.target.title]
        if self.target is None or self._is_stricter:
            names.append(f"rank {self.max_rank}")
        return " and ".join(names)

    def rank_of(self, op_type: str) -> int | None:
        """Return the largest rank of a tensor that an operator reads or computes; None for any."""
        if self.target is None:
            return self.max_rank
        own = self.target.max_rank_of.get(op_type, self.target.max_rank)
        return own if self.max_rank is None or not self._is_stricter else min(own, self.max_rank)

    @property
    def _is_stricter(self) -> bool:
        """Whether `max_rank` is smaller than what the target runs."""
        target = self.target
        return target is not None and self.max_rank is not None and self.max_rank < target.max_rank

    def counted(self, shape: Sequence[int | str | None]) -> int:
        """Return the rank of a shape as the target counts it.

        Where a first axis of size 1 does not count, neither does one of unknown size.
        """
        left_out = self.target is not None and self.target.uncounted_batch and bool(shape)
        return len(shape) - (left_out and (shape[0] == 1 or not isinstance(shape[0], int)))

    def refusal(self, op_type: str, dilations: Sequence[int] = ()) -> str | None:
        """Return why the target does not run an operator; None if nothing says so.

        Args:
            op_type: a standard operator.
            dilations: of a pool.
        """
        target = self.target
        if target is None:
            return None
        if op_type in target.refused:
            return f"{target.title} does not run {op_type}"
        if op_type in _POOLS and not target.dilated_pools and any(d != 1 for d in dilations):
            return f"{target.title} runs no {op_type} with dilations"
        return None
