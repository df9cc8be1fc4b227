"""Limit the resources of a process, where the system can: macOS refuses some limits, Windows all."""

from __future__ import annotations


def limit_memory(size: int) -> bool:
    """Limit the bytes of private memory of this process; mapped files do not count.

    Returns:
        Whether they are limited now.
    """
    return _limit("RLIMIT_DATA", size)


def leave_no_core() -> bool:
    """Make a crash of this process leave no core file; return whether that worked."""
    return _limit("RLIMIT_CORE", 0)


def _limit(name: str, value: int) -> bool:
    """Lower a soft limit. Systems differ in the exception that they refuse with."""
    try:
        import resource

        number = getattr(resource, name)
        now, most = resource.getrlimit(number)
        lowest = min([value, *(bound for bound in (now, most) if bound != resource.RLIM_INFINITY)])
        resource.setrlimit(number, (lowest, most))
    except (ImportError, AttributeError, OSError, ValueError):
        return False
    return True
