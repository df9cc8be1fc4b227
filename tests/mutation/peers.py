"""What other tools say of the same mutants.

They need an original that loads, so the operators become local functions (mode "function"); each mutant
is then compared with that, on inputs of legal sizes, by the very code by which a tool checks itself:

    onnxslim     what --model-check runs: gen_onnxruntime_input_data, onnxruntime_inference, check_result
    onnxsim      model_checking.compare, as after every simplification
    Polygraphy   what `polygraphy run a.onnx --onnxrt ... ` compares: Comparator.run, compare_accuracy

    python tests/mutation/peers.py write FOLDER --share 1      where onnx-spatial is installed
    python tests/mutation/peers.py judge FOLDER                where the tools are; needs nothing of ours
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

Shapes = dict[str, list[int]]


def write(folder: Path, share: int) -> None:
    """Put the mutants, the right conversions and the originals as functions into a folder."""
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests), str(tests / "campaign"), str(tests / "mutation")]
    import mutating
    import numpy as np
    import onnx
    import subjects

    import onnx_spatial

    folder.mkdir(parents=True, exist_ok=True)
    pairs = []
    for number, name in enumerate(subjects.NAMES):
        subject = subjects.get(name)
        if any(
            v.type.tensor_type.elem_type == onnx.TensorProto.STRING
            for v in subject.model.graph.input
        ):
            continue  # none of them makes up strings
        original = folder / f"{name}.onnx"
        made = onnx_spatial.convert(subject.model, verify=False, mode="function")
        onnx.save(made.model, original)
        shapes = {n: list(a.shape) for n, a in subject.feeds(np.random.default_rng(5)).items()}
        forms = mutating.FORMS[:2] if number % 2 else (mutating.FORMS[0], mutating.FORMS[3])
        for form, (strategy, fuse) in enumerate(forms):
            right = mutating.converted(name, strategy, fuse)
            path = folder / f"{name}_{form}_right.onnx"
            onnx.save(right, path)
            pairs.append(("right", name, "", original.name, path.name, shapes, "passed"))
            found = mutating.mutants(name, strategy, fuse, share, 0)
            for count, (outcome, mutant) in enumerate(found):
                if outcome.differs:
                    path = folder / f"{name}_{form}_{count}.onnx"
                    onnx.save(mutant, path)
                    what = (outcome.differs, name, outcome.kind)
                    pairs.append((*what, original.name, path.name, shapes, outcome.status))
    (folder / "pairs.json").write_text(json.dumps(pairs))


def onnxslim(original: str, mutant: str, shapes: Shapes) -> bool:
    """onnxslim's --model-check."""
    import onnx
    from onnxslim import utils

    first, second = onnx.load(original), onnx.load(mutant)
    given = [f"{n}:{','.join(map(str, s))}" for n, s in shapes.items()]
    data = utils.gen_onnxruntime_input_data(first, given)
    expected, _ = utils.onnxruntime_inference(first, data)
    actual, _ = utils.onnxruntime_inference(second, data)
    return bool(utils.check_result(expected, actual))


def onnxsim(original: str, mutant: str, shapes: Shapes) -> bool:
    """onnxsim's check behind a simplification."""
    import onnx
    from onnxsim import model_checking

    models = onnx.load(mutant), onnx.load(original)
    return bool(model_checking.compare(*models, n_times=3, input_shapes=shapes, verbose=False))


def polygraphy(original: str, mutant: str, shapes: Shapes) -> bool:
    """`polygraphy run` of two models, with its default tolerances."""
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.common import TensorMetadata
    from polygraphy.comparator import Comparator, DataLoader

    metadata = TensorMetadata()
    for name, shape in shapes.items():
        metadata.add(name, dtype=None, shape=tuple(shape))
    runners = [OnnxrtRunner(SessionFromOnnx(path)) for path in (original, mutant)]
    results = Comparator.run(runners, data_loader=DataLoader(input_metadata=metadata))
    return bool(Comparator.compare_accuracy(results))


PEERS: dict[str, Callable[[str, str, Shapes], bool]] = {
    "onnxslim": onnxslim,
    "onnxsim": onnxsim,
    "polygraphy": polygraphy,
}


def ask(peer: str, original: str, mutant: str, shapes: Shapes) -> str:
    """ "passed", "differs", or "error": it raised, which is noticing as well."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return "passed" if PEERS[peer](original, mutant, shapes) else "differs"
        except (Exception, SystemExit):
            return "error"


def judge(folder: Path) -> None:
    """Ask every tool about every pair, and print who noticed how many.

    Where a tool objects to the right conversion of a subject it has not noticed anything about the wrong
    ones: these count as not noticed.
    """
    pairs: list[list[Any]] = json.loads((folder / "pairs.json").read_text())
    pool = ProcessPoolExecutor(1)
    answers: list[tuple[str, str, str, dict[str, str]]] = []
    for differs, name, kind, original, mutant, shapes, status in pairs:
        said = {"verify": "passed" if status == "passed" else "differs"}
        for peer in PEERS:
            paths = str(folder / original), str(folder / mutant)
            try:
                said[peer] = pool.submit(ask, peer, *paths, shapes).result()
            except BrokenProcessPool:  # the tool died
                said[peer] = "crash"
                pool = ProcessPoolExecutor(1)
        answers.append((differs, name, kind, said))
    (folder / "answers.json").write_text(json.dumps(answers))
    print(table(answers))


def table(answers: list[tuple[str, str, str, dict[str, str]]]) -> str:
    """How many each tool noticed, by class."""
    tools = ["verify", *PEERS]
    right = [(name, said) for differs, name, _, said in answers if differs == "right"]
    useless = {(n, t) for n, said in right for t in tools if said[t] != "passed"}
    rows: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for differs, name, kind, said in answers:
        if differs != "right":
            loud = differs == "loud"
            rows.setdefault("all that do not load or run" if loud else kind, []).append(
                (name, said)
            )
            if not loud:
                rows.setdefault("all with other numbers", []).append((name, said))
    lines = [f"| class | mutants | {' | '.join(tools)} |", f"|---|---|{'---|' * len(tools)}"]
    for kind, found in rows.items():
        counts = [
            sum(said[t] != "passed" and (name, t) not in useless for name, said in found)
            for t in tools
        ]
        lines.append(f"| {kind} | {len(found)} | {' | '.join(map(str, counts))} |")
    objected = [sum(said[t] != "passed" for _, said in right) for t in tools]
    lines.append(
        f"| right conversions objected to | {len(right)} | {' | '.join(map(str, objected))} |"
    )
    return "\n".join(lines)


def main() -> None:
    """Write or judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["write", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=int, default=1, help="mutants per class and model")
    options = parser.parse_args()
    if options.step == "write":
        write(options.folder, options.share)
    else:
        judge(options.folder)


if __name__ == "__main__":
    main()
