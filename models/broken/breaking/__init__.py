"""Define models with one error each, grouped by the kind of error."""

from breaking import damaged, openvino, places, recorded, running, tensorflow
from breaking.case import Case

CASES: dict[str, Case] = {
    **tensorflow.CASES,
    **openvino.CASES,
    **places.CASES,
    **damaged.CASES,
    **recorded.CASES,
    **running.CASES,
}

__all__ = ["CASES", "Case"]
