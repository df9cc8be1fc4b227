"""Bounds of a process, as far as the system has them: macOS refuses some, Windows knows none."""

from __future__ import annotations


def limit_memory(size: int) -> bool:
    """Bound the bytes that this process may have of its own; mapped files do not count.

    Returns:
        Whether they are bounded now.
    """
    return _limit("RLIMIT_DATA", size)


def leave_no_core() -> bool:
    """Have a crash of this process leave no core file; whether that is so now."""
    return _limit("RLIMIT_CORE", 0)


def _limit(name: str, value: int) -> bool:
    """Lower a soft limit. Systems differ in the exceptions by which they refuse."""
    try:
        import resource

        number = getattr(resource, name)
        now, most = resource.getrlimit(number)
        lowest = min([value, *(bound for bound in (now, most) if bound != resource.RLIM_INFINITY)])
        resource.setrlimit(number, (lowest, most))
    except (ImportError, AttributeError, OSError, ValueError):
        return False
    return True
