"""Writes the broken models and the table of README.md; needs onnx and numpy only.

    python models/broken/build.py

What is in the table, and how each model is made, is in `breaking`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from breaking import CASES, Case

HERE = Path(__file__).parent

INTRODUCTION = """# Broken models: failing is what is expected of them

Each model here is wrong in one way, and `onnx-spatial validate` has to find it: that it fails, of
which kind the failure is ([validation.md](../../docs/validation.md) lists them), and what it says. A
model that does not fail here is a bug of this package.

```
onnx-spatial validate models/broken --strict --timeout 10 --memory 2G --expect-failure '*'
```

```
models/broken/<name>/model.onnx               the model, if it is one
models/broken/<name>/test_data_set_0/...      recorded data, where that is what is wrong
models/broken/build.py                        makes all of it, and this file
models/broken/breaking/                       what is broken how: the table, as code
```

`python models/broken/build.py` writes the same bytes each time. `tests/validation/test_broken.py`
compares what becomes of each model with the table, and tries `convert` and `inspect` on it: they
exit with the codes of the last two columns, say why in one line where that is not 0, and leave no
file behind.

- The status is that of a run with `--strict`, in mode `lower`; `unverified` fails the run only then.
- `convert` and `inspect` exit with 0 where it takes recorded data, or a run, to see what is wrong.
- `-8` is the signal that ends the process of `convert`, which runs the model itself; that of
  `validate` is another one, and its own result.

## What is not here

Some kinds of failure are those of no model:

- `difference`: the converted model gives something else than the original. A right converter makes
  no such model, and none is faked: `tests/mutation` breaks conversions on purpose
  ([verification.md](../../docs/verification.md)).
- `lost`, `not-run` and `xpassed` speak of the machines, the order and the expectations of a run.

"""


def table() -> str:
    """The cases for a reader."""
    head = ("name", "what is wrong", "status", "kind", "the message has", "`convert`", "`inspect`")
    lines = [f"## The {len(CASES)} models", "", _row(head), "|---" * len(head) + "|"]
    for name, case in CASES.items():
        says = ", ".join(f"`{words}`" for words in case.says)
        codes = (str(case.convert_code), str(case.inspect_code))
        lines.append(_row((f"`{name}`", case.wrong, case.status, f"`{case.kind}`", says, *codes)))
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def readme() -> str:
    """README.md, which is this and nothing else."""
    return INTRODUCTION + table()


def write(name: str, case: Case, folder: Path) -> None:
    """The files of one model in a folder of its own."""
    for path, content in case.files.items():
        target = folder / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def main() -> None:
    for model in HERE.glob("*/model.onnx"):
        shutil.rmtree(model.parent)
    for name, case in CASES.items():
        write(name, case, HERE)
    (HERE / "README.md").write_text(readme(), "utf-8")


if __name__ == "__main__":
    main()
