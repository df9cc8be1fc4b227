"""Build the network of ``yolov2`` with an unknown batch, height and width.

Same layers and weights; only the sizes are left open, so nothing about the patches is known before
the model runs. The recorded image gives the reorg layer an odd feature map, whose last row VALID
padding drops.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path


def main() -> None:
    # Both folders hold a build.py: load the other one by its path.
    other = Path(__file__).resolve().parents[1] / "yolov2" / "build.py"
    spec = importlib.util.spec_from_file_location("yolov2_build", other)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build(__file__, "yolov2_dynamic", [None, None, None, 3], (3, 36, 40, 3))


if __name__ == "__main__":
    main()
