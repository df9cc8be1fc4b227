"""Follow the axes of a tensor through Transposes and Reshapes, as groups of axes that were joined.

    [n, h, w, c]                        (n) (h) (w) (c)
    Reshape [n, h*w, c]                 (n) (h w) (c)
    Transpose [0, 2, 1]                 (n) (c) (h w)
    Reshape [n, c, h, w]                (n) (c) (h) (w)

The elements of a value are in the order of its groups, one after the other. Sizes are compared as
polynomials, so that groups are right in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul

from onnx_spatial.maps.polynomial import Polynomial

Group = tuple[int, ...]

_ONE = Polynomial.of(1)


@dataclass(frozen=True)
class AxisGroups:
    """The axes of a value as groups of the axes of a tensor.

    Attributes:
        groups: for each axis of the value the axes that it joins; none for a size of 1.
        sizes: size of each axis of the tensor.
        nonzero: axes whose size is not 0 in any run that the nodes up to here accept.
    """

    groups: tuple[Group, ...]
    sizes: tuple[Polynomial, ...]
    nonzero: frozenset[int] = frozenset()

    @property
    def order(self) -> Group:
        """The axes of the tensor in the order of the elements of the value."""
        return tuple(axis for group in self.groups for axis in group)

    @property
    def are_apart(self) -> bool:
        """Whether no Reshape is left: each axis of the value is one of the tensor."""
        return all(len(group) == 1 for group in self.groups)

    @property
    def dims(self) -> tuple[Polynomial, ...]:
        """The dims of the value."""
        return tuple(self._size(group) for group in self.groups)

    def _size(self, group: Group) -> Polynomial:
        return reduce(mul, (self.sizes[axis] for axis in group), _ONE)

    def resized(self, axis: int, size: int) -> AxisGroups:
        """Return the groups where an axis of the tensor has another size."""
        sizes = (*self.sizes[:axis], Polynomial.of(size), *self.sizes[axis + 1 :])
        return replace(self, sizes=sizes)

    def transposed(self, perm: Sequence[int]) -> AxisGroups:
        """Return the groups behind a Transpose."""
        return replace(self, groups=tuple(self.groups[axis] for axis in perm))

    def without(self, axes: Sequence[int]) -> AxisGroups | None:
        """Return the groups behind a Squeeze."""
        dims = [dim for axis, dim in enumerate(self.dims) if axis not in axes]
        return self.regrouped(dims) if all(self.dims[axis] == _ONE for axis in axes) else None

    def with_ones(self, axes: Sequence[int]) -> AxisGroups:
        """Return the groups behind an Unsqueeze."""
        groups = list(self.groups)
        for axis in sorted(axes):
            groups.insert(axis, ())
        return replace(self, groups=tuple(groups))

    def reshaped(self, target: Sequence[Polynomial], *, allow_zero: bool) -> AxisGroups | str:
        """Return the groups behind a Reshape, or say why there are none.

        It cannot infer a -1 beside a 0. A 0 that is computed copies the size of the input, and the
        Reshape fails if that is another one.

        Args:
            target: the shape that it is given; -1 is inferred.
            allow_zero: whether a 0 in it is a size; the size of the input is copied otherwise.
        """
        dims: list[Polynomial | None] = []
        for axis, size in enumerate(target):
            is_copy = size.constant == 0 and not allow_zero
            if is_copy and axis >= len(self.groups):
                return "its shape is not legal"
            dims.append(None if size.constant == -1 else self.dims[axis] if is_copy else size)
        result = self.regrouped(dims) if dims.count(None) < 2 else None
        if result is None:
            known = all(size.constant is not None for size in (*target, *self.sizes))
            return f"it splits or joins axes of the patches{'' if known else ', or may do so'}"
        nonzero = set(self.nonzero)
        for axis in result.order:
            place = next(i for i, group in enumerate(result.groups) if axis in group)
            if dims[place] is None or self._is_nonzero(axis):
                continue
            computed = target[place].constant is None and not allow_zero
            copied = self._copied_group(place) if computed else (axis,)
            if copied is None or (axis in copied and None in dims):
                nonzero.add(axis)  # it copies a size that is not there, or stands beside -1
            elif axis not in copied and None in dims:
                return "a 0 in its shape would copy the size of another axis"
            elif axis not in copied and all(map(self._is_nonzero, copied)):
                nonzero.add(axis)  # there are no elements for the size that it copies
        return replace(result, nonzero=frozenset(nonzero))

    def _copied_group(self, place: int) -> Group | None:
        """Return the group whose size a 0 at a place of a shape copies; None if there is none."""
        return self.groups[place] if place < len(self.groups) else None

    def _is_nonzero(self, axis: int) -> bool:
        return bool(self.sizes[axis].constant) or axis in self.nonzero

    def regrouped(self, dims: Sequence[Polynomial | None]) -> AxisGroups | None:
        """Return the groups that have these sizes, one of which may be open; None if there are none."""
        split = dims.index(None) if None in dims else len(dims)
        axes = list(self.order)
        front = self._taken(dims[:split], axes)
        if front is None:
            return None
        if split == len(dims):
            if any(self.sizes[axis] != _ONE for axis in axes) or (axes and not front):
                return None
            if axes:
                front[-1] += tuple(axes)
            return replace(self, groups=tuple(front))
        axes.reverse()
        behind = self._taken(dims[:split:-1], axes)
        if behind is None:
            return None
        last = [group[::-1] for group in reversed(behind)]
        return replace(self, groups=(*front, tuple(reversed(axes)), *last))

    def _taken(self, dims: Sequence[Polynomial | None], axes: list[int]) -> list[Group] | None:
        """Take axes from the front of a list, so that each group has the size of a dim."""
        groups: list[Group] = []
        for dim in dims:
            group: Group = ()
            size = _ONE
            if dim == _ONE and not (axes and self.sizes[axes[0]] == _ONE):
                groups.append(group)
                continue
            while axes and (not group or size != dim):
                group += (axes.pop(0),)
                size = self._size(group)
            if size != dim:
                return None
            groups.append(group)
        return groups
