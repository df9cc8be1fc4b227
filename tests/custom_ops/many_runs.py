"""Random valid and invalid runs of prepared models on many threads of one process.

    PYTHONPATH=tests python tests/custom_ops/many_runs.py RUNS THREADS

prints what came of them as JSON. It wants a process of its own, which a mistake would end.
"""

from __future__ import annotations

import collections
import json
import sys
import threading
from random import Random

import definitions
import numpy as np
import onnxruntime as ort
import running
import sampling
from building import one_node

from onnx_spatial import InferenceSession, OperatorError

#: Of each kind one model: (operator, symbolic rank, number of blocked axes, element type).
KINDS = [
    (op_type, blocked + rest, blocked, dtype)
    for op_type in ("SpaceToBatchND", "BatchToSpaceND")
    for blocked, rest, dtype in (
        (1, 1, "float32"),
        (1, 2, "float16"),
        (2, 1, "float32"),
        (2, 2, "uint64"),
        (2, 1, "bool"),
        (2, 1, "string"),
        (3, 1, "int8"),
    )
]


def open_session(kind: int, parallel: bool) -> InferenceSession:
    """A session of one model; its parameters are inputs."""
    op_type, tail, blocked, dtype = KINDS[kind]
    rank = 1 + tail
    inputs = (
        sampling.array(Random(0), dtype, (1,) * rank),
        np.ones(blocked, np.int32),
        np.zeros((blocked, 2), np.int64),
    )
    shape = [f"d{i}" for i in range(rank)]
    model = one_node(op_type, inputs, shape=shape, run_time=(1, 2))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    return InferenceSession(model, options, mode="custom-op", providers=["CPUExecutionProvider"])


def draw(rng: Random, kind: int) -> tuple[np.ndarray, ...]:
    """Inputs of a run, of which about half break a rule."""
    op_type, tail, blocked, dtype = KINDS[kind]
    found = sampling.blocking(rng, op_type.startswith("Space"), blocked, tail - blocked)
    shape, block = list(found.shape), list(found.block)
    table = [list(pair) for pair in found.amounts]
    where = rng.randrange(blocked)
    amounts = table[where]
    if rng.random() < 0.5:
        rng.choice(
            (
                lambda: amounts.__setitem__(rng.randrange(2), -rng.randint(1, 3)),
                lambda: block.__setitem__(where, rng.choice((0, -1, -(2**31)))),
                lambda: shape.__setitem__(0, shape[0] + 1),
                lambda: shape.__setitem__(1 + where, shape[1 + where] + 1),
                lambda: amounts.__setitem__(1, amounts[1] + rng.randint(1, 40)),
                lambda: amounts.__setitem__(0, 2**62),
            )
        )()
    data = sampling.array(rng, dtype, tuple(shape))
    return data, np.array(block, np.int32), np.array(table, np.int64)


def expected(kind: int, inputs: tuple[np.ndarray, ...]) -> np.ndarray | None:
    """By definition; None if a rule is broken."""
    x, block, table = inputs
    forward = KINDS[kind][0].startswith("Space")
    if forward and table.max(initial=0) > 2**40:
        return None
    run = definitions.space_to_batch if forward else definitions.batch_to_space
    try:
        return run(x, block.tolist(), [tuple(pair) for pair in table.tolist()])
    except ValueError:
        return None


def run(session: InferenceSession, inputs: tuple[np.ndarray, ...], how: int) -> np.ndarray:
    """One run, by one of the ways that a session has."""
    feeds = dict(zip(("x", "p1", "p2"), inputs, strict=True))
    if how == 0 or inputs[0].dtype == object:
        return session.run(None, feeds)[0]
    if how == 1:
        return session.run_with_ort_values(None, {k: running.feed(v) for k, v in feeds.items()})[
            0
        ].numpy()
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()[0]


def main(runs: int, threads: int) -> None:
    counts: collections.Counter[str] = collections.Counter()
    problems: list[str] = []
    lock = threading.Lock()
    sessions = [open_session(kind, False) for kind in range(len(KINDS))]

    def work(number: int) -> None:
        rng = Random(number)
        for turn in range(runs // threads):
            kind = rng.randrange(len(KINDS))
            session = sessions[kind]
            if turn % 50 == 49:  # sessions are made while others run
                session = sessions[kind] = open_session(kind, rng.random() < 0.5)
            inputs = draw(rng, kind)
            wanted = expected(kind, inputs)
            case = f"thread {number} turn {turn}: {KINDS[kind]} {inputs[0].shape} {inputs[1:]}"
            try:
                result = run(session, inputs, rng.randrange(3))
                right = wanted is not None and running.same_bits(result, wanted)
                verdict = "right" if right else "wrong"
            except (OperatorError, MemoryError) as error:
                named = str(error).startswith(f"{KINDS[kind][0]} 'site' in main graph: ")
                verdict = "raised" if wanted is None and named else "wrong"
                case += f" {error}"
            except Exception as error:
                verdict, case = "wrong", f"{case} {type(error).__name__} {error}"
            with lock:
                counts[verdict] += 1
                if verdict == "wrong":
                    problems.append(case)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    json.dump({**counts, "problems": problems[:5]}, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
