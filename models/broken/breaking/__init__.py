"""Models that are wrong in one way each, by what is wrong with them."""

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
