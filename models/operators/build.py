"""Build the grid: each cell's model and recorded data, and the tables of its README.

python models/operators/build.py            write everything
python models/operators/build.py --check    write nothing; 1 if a file is not what it would be
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
from operators import grid, recording, tables

FOLDER = Path(__file__).resolve().parent
README = FOLDER / "README.md"


def files() -> dict[Path, bytes]:
    """Return every file of the grid, by its path below this folder."""
    found: dict[Path, bytes] = {}
    for cell in grid.CELLS:
        model, feeds = grid.model(cell), grid.recorded(cell)
        outputs = recording.outputs(cell, model, feeds)
        folder = Path(cell.name)
        found[folder / "model.onnx"] = model.SerializeToString(deterministic=True)
        data = folder / "test_data_set_0"
        for kind, values, arrays in (
            ("input", model.graph.input, list(feeds.values())),
            ("output", model.graph.output, outputs),
        ):
            for index, (value, array) in enumerate(zip(values, arrays, strict=True)):
                found[data / f"{kind}_{index}.pb"] = _build.recorded(value, array, cell.name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    made = files()
    made[Path(README.name)] = tables.filled(README.read_text(encoding="utf-8")).encode()
    there = {p.relative_to(FOLDER) for p in FOLDER.rglob("*.onnx")}
    there |= {p.relative_to(FOLDER) for p in FOLDER.rglob("*.pb")}
    differing = [f"{path}: nothing makes it" for path in sorted(there - made.keys())]
    for path, data in made.items():
        full = FOLDER / path
        if not full.is_file():
            differing.append(f"{path}: is not there")
        elif full.read_bytes() != data:
            differing.append(f"{path}: differs")
    if check:
        print("\n".join([*differing, f"{len(made)} files, {len(differing)} of them are not so"]))
        return 1 if differing else 0
    for path in there - made.keys():
        (FOLDER / path).unlink()
    for path, data in made.items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_bytes(data)
    size = sum(map(len, made.values()))
    print(f"{len(grid.CELLS)} cells, {len(made)} files, {size} bytes, {len(differing)} of them new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
