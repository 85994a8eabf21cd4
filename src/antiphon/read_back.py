"""Reading back what was made for others, before anybody is told of it (decision 0094).

A maker names the function that readers use, so what it made meets each of their limits. What they
would refuse, or take for something else, is not signed, not announced, and nothing is removed
because it is there. `tests/makers` lists every maker with its reader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, LogReplaced, Rejected, Unavailable, Unreadable


def read_back(what: str, meant: object, read: Callable[..., Any], *args: Any) -> None:
    """Make sure that `read(*args)` gives what was meant; `Unreadable` if not."""
    try:
        found = read(*args)
    except (AntiphonError, *UNREADABLE) as problem:
        raise _refused(what, problem) from problem
    _compare(what, meant, found)


async def read_back_stored(
    what: str, meant: object, read: Callable[..., Awaitable[Any]], *args: Any
) -> None:
    """The same for what was stored, and is read from where it is."""
    try:
        found = await read(*args)
    except (LogReplaced, Unavailable):
        raise  # nobody can tell now
    except (AntiphonError, *UNREADABLE) as problem:
        raise _refused(what, problem) from problem
    _compare(what, meant, found)


def _compare(what: str, meant: object, found: object) -> None:
    if found != meant:
        raise Unreadable(f"{what} is read back as something else than was meant")


def _refused(what: str, problem: Exception) -> Unreadable:
    if not isinstance(problem, AntiphonError):
        return Unreadable(f"{what} would be refused by its readers: {problem}")
    reason = problem.reason if isinstance(problem, Rejected) else Unreadable.REASON
    told = f"{what} would be refused by its readers: {problem.message}"
    return Unreadable(told, reason=reason, hint=problem.hint)
