"""Load modules on first use that no command needs, though libraries import them at once.

onnx_ir imports sympy, with which it computes symbolic dims. No command asks it to, and loading sympy
takes some 0.4 s of processor time, a fifth of a short command. onnx's reference evaluator, which runs
nodes that onnxruntime does not know, and its modules that compose models and write JSON take 0.06 s.
Programs that import onnx_spatial as a library load them as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

#: sympy, the module of onnx_ir that reads its attributes when it is loaded, and those of onnx.
LAZY = frozenset(
    {
        "sympy",
        "onnx_ir._symbolic_shapes",
        "onnx.reference",
        "onnx.compose",
        "google.protobuf.json_format",
    }
)


class _Finder(MetaPathFinder):
    """Finds the modules of `LAZY` as usual, and loads them on first use."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of `LAZY`; None for all others."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in LAZY else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def install() -> None:
    """Load the modules of `LAZY` on first use from now on, in the whole process."""
    sys.meta_path.insert(0, _Finder())
