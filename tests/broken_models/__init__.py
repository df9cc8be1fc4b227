"""Models with one error each, and what `validate`, `convert` and `inspect` must say of them."""

from __future__ import annotations

from pathlib import Path

from broken_models import damaged, openvino, places, recorded, running, tensorflow
from broken_models.case import MODEL, Case

CASES: dict[str, Case] = {
    **tensorflow.CASES,
    **openvino.CASES,
    **places.CASES,
    **damaged.CASES,
    **recorded.CASES,
    **running.CASES,
}


def write(name: str, folder: Path) -> Path:
    """Write the files of a model below a folder, and return the path of the model."""
    for path, content in CASES[name].files.items():
        target = folder / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder / name / MODEL


__all__ = ["CASES", "Case", "write"]
