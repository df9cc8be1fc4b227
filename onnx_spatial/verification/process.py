"""Do work in a child process within bounds: a model may crash, hang or take all memory.

    parent                              child
    run(work, ...)          ------->    work(progress)
    progress(text)          <-------    progress("run 1/3: x 2x4x6x3")
                            <-------    report("the converted model runs on x ...", CONVERTED)
    Died: "the process ends with SIGFPE: the converted model runs on x ..."

The child is forked where that is safe, which takes milliseconds: it has the arguments and libraries
already. A fork has no thread but the one that calls it, and never gets a lock that another one held, of
an import for example: so it is made by the main thread only. Elsewhere a new interpreter runs `main`,
which reads the arguments from its stdin. Both answer through a pipe, in pickles of (kind, value). What
libraries print is lost, or goes to a log. A thread of the parent watches the child, and kills it when
it leaves its bounds. macOS refuses some limits of a process, Windows all.

Time is the last resort against a run that does not end. It is stopped between two nodes, wherever it is:
a Loop whose condition stays true, a model that is large. The verification then says at what.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TypeVar, cast

import onnxruntime as ort

from onnx_spatial.errors import one_line

T = TypeVar("T")
Progress = Callable[[str], None]
#: How a child ended: "memory" also if the system killed it, which it does when memory runs out.
Ending = Literal["crash", "memory", "timeout"]

#: The models that are compared, in messages.
ORIGINAL, CONVERTED = "the original", "the converted model"

#: Seconds between two looks at the child, and at the clock: a late end costs no more than that.
_INTERVAL_SECONDS = 0.02


@dataclass(frozen=True)
class Doing:
    """What a child does: a line of text, and which model's native code runs; None: neither's."""

    text: str
    model: str | None = None


@dataclass(frozen=True)
class Bounds:
    """What ends a child.

    Attributes:
        memory: bytes of private memory that it may take beside what it has from the start; None: any.
        weights: bytes that it may take beside these.
        seconds: time that it may take; None: any time.
    """

    memory: int | None = None
    weights: int = 0
    seconds: float | None = None

    @property
    def beyond_memory(self) -> str:
        """What is said of work that takes more memory, as the rest of a sentence."""
        if self.memory is None:
            return "needs more memory than there is (--shape gives smaller sizes)"
        return f"needs more than {show_bytes(self.memory)} of memory (--memory allows more)"


class Died(Exception):
    """The child ended without a result; the message says how, and the last thing that it did.

    Attributes:
        ending: how it ended.
        doing: the last thing that it did.
    """

    def __init__(self, ending: Ending, how: str, doing: Doing) -> None:
        last = f": {doing.text}" if doing.text else ""
        of_original = ending == "crash" and doing.model == ORIGINAL
        advice = " (--shape gives other sizes)" if of_original else ""
        super().__init__(one_line(f"the process {how}{last}{advice}"))
        self.ending, self.doing = ending, doing

    @property
    def status(self) -> Literal["failed", "unverified"]:
        """What it says of the converted model, which runs on nothing before the original did."""
        crashed = self.ending == "crash" and self.doing.model == CONVERTED
        return "failed" if crashed else "unverified"


#: The pipe to the parent of this process, and its bounds; None if it is nobody's child.
_pipe: BinaryIO | None = None
_bounds = Bounds()


def report(text: str, model: str | None) -> None:
    """Tell the parent, if there is one, what runs next: native code may end this process.

    Users see this line only if none follows: there may be thousands.
    """
    _send_message("report", Doing(text, model))


def lack_of_memory() -> str:
    """Say that something needs more memory than this process may take, as the rest of a sentence."""
    return _bounds.beyond_memory


def _send_message(kind: str, value: object) -> None:
    if _pipe is not None:
        pickle.dump((kind, value), _pipe, pickle.HIGHEST_PROTOCOL)
        _pipe.flush()


def can_fork() -> bool:
    """Tell whether a fork is safe: macOS has it, but its system libraries are not safe after one."""
    main = threading.current_thread() is threading.main_thread()
    return hasattr(os, "fork") and sys.platform != "darwin" and main


def run(
    work: Callable[[Progress], T],
    progress: Progress,
    bounds: Bounds,
    *,
    log: IO[bytes] | None = None,
) -> T:
    """Run a function in a child process and return its result.

    Args:
        work: gets a function that takes lines of progress. Where a child is not forked (`can_fork`), it
            must be picklable.
        progress: called with these lines.
        bounds: what ends the child.
        log: file that gets what libraries print, and where a crash happened; None: that is lost.

    Raises:
        Died: the child ended without a result.
    """
    start = _fork_child if can_fork() else _spawn_child
    doing = Doing("")
    with start(work, bounds, log) as (process, stream), stream:
        with _killing_beyond(process, bounds) as killed:
            for kind, value in _received_messages(stream):
                if kind == "result":
                    result: T = value
                    return result
                if kind == "error":
                    raise value
                doing = value
                if kind == "progress":
                    progress(doing.text)
            code = process.wait()
        ending, how = killed[0] if killed else _describe_end(code)
        raise Died(ending, how, doing)


def _received_messages(stream: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Yield the messages of a child until it ends."""
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(stream)  # what this package wrote


def _describe_end(code: int) -> tuple[Ending, str]:
    """Say how a child ended by its exit code."""
    if -code == getattr(signal, "SIGKILL", None):
        advice = "(--memory sets a limit, --shape gives smaller sizes)"
        return "memory", f"was killed by the system, most likely for want of memory {advice}"
    names = {int(number): number.name for number in signal.Signals}
    end = names.get(-code, f"signal {-code}") if code < 0 else f"exit code {code}"
    return "crash", f"ends with {end}"


@contextmanager
def _killing_beyond(process: _Process, bounds: Bounds) -> Iterator[list[tuple[Ending, str]]]:
    """Kill a process that leaves its bounds; yield a list that then says how it ended."""
    killed: list[tuple[Ending, str]] = []
    over, started = threading.Event(), time.monotonic()
    first = private_memory(process.pid) or 0

    def watch_child() -> None:
        while not killed and not over.wait(_INTERVAL_SECONDS):
            taken = (private_memory(process.pid) or 0) - first if bounds.memory else 0
            if bounds.seconds is not None and time.monotonic() - started > bounds.seconds:
                end = f"takes longer than {bounds.seconds:g} s (--timeout allows more)"
                killed.append(("timeout", end))
            elif bounds.memory is not None and taken > bounds.memory + bounds.weights:
                killed.append(("memory", bounds.beyond_memory))
        if killed:
            process.kill()

    thread = threading.Thread(target=watch_child, name="onnx-spatial-watch", daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


class _Forked:
    """A forked process, with the methods of `subprocess.Popen` that are used here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def wait(self) -> int:
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def kill(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)


_Process = _Forked | subprocess.Popen[bytes]


@contextmanager
def _fork_child(
    work: Callable[[Progress], Any], bounds: Bounds, log: IO[bytes] | None
) -> Iterator[tuple[_Process, BinaryIO]]:
    reading, writing = os.pipe()
    # Python runs functions after a fork, and swallows what a signal raises in them.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _interrupt_signals())
    with warnings.catch_warnings():
        # Threads of numpy stop for a fork; those of onnxruntime belong to sessions, of which the
        # child makes its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            gc.freeze()  # sessions of the parent must not be collected: their threads are not here
            faulthandler.disable()
            printed = os.open(os.devnull, os.O_WRONLY) if log is None else log.fileno()
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            _do_work(work, bounds, os.fdopen(writing, "wb"))
        finally:
            os._exit(1)  # without the parent's cleanup; the code counts where no result was sent
    os.close(writing)
    process = _Forked(pid)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        yield process, os.fdopen(reading, "rb")
    except BaseException:  # such as Ctrl-C
        process.kill()
        raise
    finally:
        process.wait()


@contextmanager
def _spawn_child(
    work: Callable[[Progress], Any], bounds: Bounds, log: IO[bytes] | None
) -> Iterator[tuple[_Process, BinaryIO]]:
    # It imports this copy of the package, of a checkout, too.
    code = f"import sys; sys.path[:] = {[*map(str, sys.path)]}; import {__name__} as m; m.main()"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if log is None else log,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with suppress(BrokenPipeError), process.stdin:
            pickle.dump((work, bounds), process.stdin, pickle.HIGHEST_PROTOCOL)
        yield process, cast(BinaryIO, process.stdout)
    except BaseException:
        process.kill()
        raise
    finally:
        process.wait()


def main() -> None:
    """Run the function that comes on stdin, in a new interpreter."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not mix with the answers
    work, bounds = pickle.load(sys.stdin.buffer)
    _do_work(work, bounds, answers)
    os._exit(0)  # threads of libraries are not waited for


def _do_work(work: Callable[[Progress], Any], bounds: Bounds, pipe: BinaryIO) -> None:
    """Run the function in the child and send what comes of it."""
    global _pipe, _bounds
    for number in _interrupt_signals():
        signal.signal(number, signal.SIG_IGN)
    die_with_parent()
    lower("RLIMIT_CORE", 0)
    faulthandler.enable(2)  # the log of a crash says where it happened
    _pipe, _bounds = pipe, bounds
    try:
        result = work(lambda text: _send_message("progress", Doing(text)))
    except Exception as error:
        _send_message("error", _portable_error(error))
    else:
        _send_message("result", result)


def _interrupt_signals() -> list[signal.Signals]:
    """Return the signals that end the parent, which then ends the child."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def _portable_error(error: Exception) -> Exception:
    """Return an exception that can be pickled and still tells what happened."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of any type
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# Memory

#: Bytes that a verification may take beside the weights of its models, at most.
MAX_MEMORY = 4 * 2**30


#: Where containers find their limit (control groups, version 2 and 1).
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def lower(name: str, value: int) -> bool:
    """Lower a soft limit of this process, and return whether that worked.

    Args:
        name: "RLIMIT_DATA" for its private memory, without mapped files; "RLIMIT_CORE" for the file that
            a crash leaves.
        value: bytes.
    """
    try:
        import resource

        number = getattr(resource, name)
        now, most = resource.getrlimit(number)
        lowest = min([value, *(bound for bound in (now, most) if bound != resource.RLIM_INFINITY)])
        resource.setrlimit(number, (lowest, most))
    except (ImportError, AttributeError, OSError, ValueError):  # systems differ in what they raise
        return False
    return True


def machine_memory() -> int | None:
    """Return the bytes of memory that the machine or container has, if that is known."""
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    for path in _CONTAINER_LIMITS:
        try:
            text = path.read_text("utf-8").strip()
        except (OSError, ValueError):
            continue
        if text.isdecimal():
            size = min(size, int(text))
    return size


def limit_to_machine() -> None:
    """Limit this process's private memory to what the machine or container has, if that is known.

    A damaged or hostile model may make onnxruntime allocate without end. Without a limit the system
    kills some process, this one or another. With a limit the allocation fails, and the command says so.
    """
    size = machine_memory()
    if size is not None:
        lower("RLIMIT_DATA", size)


def default_memory() -> int:
    """Return the bytes that a verification may take: 4 GiB, or a quarter of a smaller machine."""
    machine = machine_memory()
    return MAX_MEMORY if machine is None else min(MAX_MEMORY, machine // 4)


def private_memory(pid: int) -> int | None:
    """Return the bytes of private memory that a process has in use; None if unknown."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
        line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def die_with_parent() -> None:
    """Make the system kill this process when the thread that started it ends, where it can."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def show_bytes(size: float) -> str:
    """Return a number of bytes in words: 4 GiB."""
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:.3g} {name}"


# Time


class TimeLimitError(BaseException):
    """The time is over; the message says at what. Handlers of `Exception` would hide it."""


class Stopwatch:
    """Seconds since it was made, by the clock or of the processor, whichever is less.

    A busy machine takes longer by the clock; several threads take more of the processor.
    """

    def __init__(self) -> None:
        self._clock, self._processor = time.monotonic(), time.process_time()

    @property
    def seconds(self) -> float:
        """The time so far."""
        return min(time.monotonic() - self._clock, time.process_time() - self._processor)

    def exceeds(self, seconds: float) -> bool:
        """Tell whether more time is over. The clock is read first, which is a thousand times faster."""
        return time.monotonic() - self._clock > seconds and self.seconds > seconds


#: The time of all runs so far, and the most that they may take together; None: any time.
_limit: ContextVar[tuple[Stopwatch, float] | None] = ContextVar("limit", default=None)


@contextmanager
def allowing_time(seconds: float | None) -> Iterator[None]:
    """Let the runs in the block take some seconds together; None: any time."""
    token = _limit.set(None if seconds is None else (Stopwatch(), seconds))
    try:
        yield
    finally:
        _limit.reset(token)


def check_time(doing: str) -> None:
    """End the verification if its time is over; `doing` says at what.

    Raises:
        TimeLimitError: it is.
    """
    stopwatch, seconds = _limit.get() or (None, math.inf)
    if stopwatch is not None and stopwatch.exceeds(seconds):
        raise TimeLimitError(
            f"the verification was stopped after {seconds:g} s, at {doing!r} (--time-limit allows more)"
        )


@contextmanager
def stopping_in_time(run: ort.RunOptions, doing: str) -> Iterator[None]:
    """Stop the run with these options when the time is over: onnxruntime reads a flag.

    Raises:
        TimeLimitError: it is.
    """
    check_time(doing)
    limit, done = _limit.get(), threading.Event()

    def watch_time(stopwatch: Stopwatch, seconds: float) -> None:
        while not done.wait(max(seconds - stopwatch.seconds, _INTERVAL_SECONDS)):
            run.terminate = run.terminate or stopwatch.exceeds(seconds)

    if limit is not None:
        threading.Thread(target=watch_time, args=limit, daemon=True).start()
    try:
        yield
    except Exception:
        if run.terminate:
            check_time(doing)
        raise
    finally:
        done.set()
