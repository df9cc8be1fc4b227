"""Memory of results is used again, and never while a result lies in it."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from onnx_spatial.python_ops import kernels as memory

FLOAT = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    gc.collect()
    memory._free.clear()


def test_memory_is_used_again_once_its_result_is_gone():
    first = memory.empty((64, 1024), FLOAT)
    address = first.ctypes.data
    part = first.view(np.int32)[3:]  # what onnxruntime-extensions is given is a view, too
    del first
    assert memory.empty((64, 1024), FLOAT).ctypes.data != address
    del part
    assert memory.empty((64, 1024), FLOAT).ctypes.data == address


def test_two_results_at_a_time_lie_apart():
    first, second = memory.empty((1 << 15,), FLOAT), memory.empty((1 << 15,), FLOAT)
    first[:], second[:] = 1, 2
    assert first.sum() == 1 << 15
    assert not np.shares_memory(first, second)


def test_pieces_fit_and_are_not_far_too_large():
    large = memory.empty((1 << 22,), FLOAT)
    address = large.ctypes.data
    del large
    assert memory.empty((1 << 14,), FLOAT).ctypes.data != address
    assert memory.empty((1 << 21,), FLOAT).ctypes.data == address
    grown = memory.empty((1 << 23,), FLOAT)
    assert grown.shape == (1 << 23,)


def test_no_more_is_kept_than_the_limit():
    results = [memory.empty((1 << 22,), FLOAT) for _ in range(8)]
    del results
    assert 0 < sum(piece.nbytes for piece in memory._free) <= memory.MOST_FREE_BYTES
    too_large = memory.empty((memory.MOST_FREE_BYTES + 1,), np.dtype(np.uint8))
    kept = len(memory._free)
    del too_large
    assert len(memory._free) == kept


@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("bool", "uint64", "float64", "object")])
def test_shapes_and_types(dtype):
    for shape in ((), (0, 3), (5,), (3, 1 << 13), (2, 3, 1 << 13)):
        made = memory.empty(shape, dtype)
        assert (made.shape, made.dtype) == (shape, dtype)
        assert made.flags.c_contiguous and made.flags.writeable and made.flags.aligned


def test_threads_never_share_a_piece():
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(300):
            made = memory.empty((1 << 12 << (turn % 4),), FLOAT)
            made[:] = number
            other = memory.empty((1 << 13,), FLOAT)
            other[:] = -1
            if not (made == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
