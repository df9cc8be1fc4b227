"""Write the broken models and the table of README.md; needs only onnx and numpy.

    python models/broken/build.py

What is in the table, and how each model is made, is in `breaking`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from breaking import CASES, Case

HERE = Path(__file__).parent

INTRODUCTION = """# Broken models

Each model here is wrong in one way, and `onnx-spatial validate` must detect it: with the
expected status, the expected kind of failure ([validation.md](../../docs/validation.md#reports)
explains the kinds) and a message that contains the expected words. A model that does not fail
here is a bug of this package.

```console
onnx-spatial validate models/broken --strict --timeout 10 --memory 2G --expect-failure '*'
```

```
models/broken/<name>/model.onnx               the model, if it is one
models/broken/<name>/test_data_set_0/...      recorded data, if that is wrong
models/broken/build.py                        makes all of it, and this page
models/broken/breaking/                       the table below, as code
```

`python models/broken/build.py` writes the same bytes each time.
`tests/validation/test_broken.py` compares the result of each model with the table. It also runs
`convert` and `inspect` on it: they exit with the codes of the last two columns, print one line
if the code is not 0, and leave no file.

- The status is that of a run with `--strict` in mode `lower`. Without `--strict` `unverified`
  does not fail the run.
- `convert` and `inspect` exit with 0 if only recorded data or a run can show the error.

## Kinds without a model

- `difference`: the converted model differs from the original. A right converter makes no such
  model. `tests/mutation` breaks conversions on purpose
  ([verification-campaigns](../../docs/internals/verification-campaigns.md)).
- `lost`, `not-run` and `xpassed` depend on the machines, the order and the expectations of a
  run.

"""


def table() -> str:
    """Return the table of the cases."""
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
    """Return the text of README.md."""
    return INTRODUCTION + table()


def write(name: str, case: Case, folder: Path) -> None:
    """Write the files of one model to a folder of its own."""
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
