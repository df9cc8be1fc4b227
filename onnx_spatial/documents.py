"""Write results as JSON: a `Document` by its attributes, and what is inside it likewise.

    Run(seed=0, shapes={"x": (2, 3)}, dtypes={"x": "float32"}, overridden=())
    {"seed": 0, "inputs": {"x": {"dtype": "float32", "shape": [2, 3]}}, "overridden": []}

All JSON of the commands, and `to_dict` of all results, is written so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, ClassVar


class Document:
    """A result that is an object in JSON.

    Attributes:
        KEYS: the attributes that are keys, in order; empty for all.
    """

    KEYS: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, ready for JSON; see `plain`."""
        return {name: plain(getattr(self, name)) for name in self.KEYS.split() or vars(self)}


def plain(value: Any) -> Any:
    """Replace what JSON lacks: results by dicts, arrays by their dtype and shape, infinities by None."""
    import numpy as np  # the options of a validation do without

    if isinstance(value, Document):
        return value.to_dict()
    if is_dataclass(value):
        return plain(vars(value))
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
