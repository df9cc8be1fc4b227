"""Define the clusters on which `validate` can run models: a table of executors.

A cluster is a function that takes the address of a scheduler and gives an executor, as
`concurrent.futures` has it, and a line in `CLUSTERS`. Its workers see the models under the same paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager

from onnx_spatial.errors import Code, UsageError


@contextmanager
def dask(scheduler: str) -> Iterator[Executor]:
    """Run on the workers of a Dask cluster.

    Args:
        scheduler: its address.

    Raises:
        UsageError: Dask is not installed, or there is no scheduler at that address.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            "executor dask needs the package distributed: python -m pip install distributed",
            code=Code.PACKAGE_MISSING,
        ) from None
    try:
        client = Client(scheduler, timeout=30)
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(f"there is no Dask scheduler at {scheduler!r}: {error}") from None
    # Not pure: the same job runs again when it is submitted again, as its files may have changed.
    executor = client.get_executor(pure=False)
    try:
        yield executor
        executor.shutdown(wait=True)
    finally:  # does not wait for what is left, as after Ctrl-C
        executor.shutdown(wait=False)
        client.close()


#: By the name that --executor takes.
CLUSTERS: dict[str, Callable[[str], AbstractContextManager[Executor]]] = {
    "dask": dask,
}
