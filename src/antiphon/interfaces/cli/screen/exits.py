"""How a command ends: its exit code, and error messages that say what to type next."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from enum import IntEnum
from typing import TYPE_CHECKING

from antiphon.errors import (
    AntiphonError,
    Conflict,
    Corrupt,
    JobFailed,
    Misconfigured,
    NotPermitted,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Exit(IntEnum):
    """Every exit code."""

    OK = 0
    FAILED = 1
    USAGE = 2
    MISCONFIGURED = 3
    UNAVAILABLE = 4
    REJECTED = 5
    CONFLICT = 6
    CORRUPT = 7
    BUG = 70
    INTERRUPTED = 130


EPILOG = """\
\b
Exit codes:
  0  success                          5  rejected by the mesh's rules
  1  the job, or a check, failed      6  someone else holds it, or was first
  2  the command line is wrong        7  the data is corrupt
  3  something must be set up       130  interrupted
  4  the engine is unreachable, or the wait timed out"""

# The first match decides: JobFailed is a subclass of Rejected, NotPermitted one of Unavailable.
_CODES: tuple[tuple[type[AntiphonError], Exit], ...] = (
    (JobFailed, Exit.FAILED),
    (Rejected, Exit.REJECTED),
    (NotPermitted, Exit.REJECTED),
    (Conflict, Exit.CONFLICT),
    (Unavailable, Exit.UNAVAILABLE),
    (Corrupt, Exit.CORRUPT),
    (Misconfigured, Exit.MISCONFIGURED),
)


class WrongUsage(AntiphonError):
    """The command line itself is wrong."""

    def __init__(self, message: str, *, hint: str = "", further: Sequence[str] = ()) -> None:
        """`further` are lines below the hint, such as the choices that there are."""
        super().__init__(message, hint=hint)
        self.further = tuple(further)


def code_of(error: BaseException) -> Exit:
    """The exit code for an error."""
    if isinstance(error, WrongUsage):
        return Exit.USAGE
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.BUG


def disk_full(error: BaseException) -> Misconfigured | None:
    """The error for a disk without room; None if it is something else."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    where = f" ({error.filename})" if error.filename else ""
    return Misconfigured(
        f"the disk of the state directory is full{where}: nothing can be written",
        hint="make room there, then do the same again; 'antiphon doctor' shows which disk it is",
    )


def no_access(error: BaseException) -> Misconfigured | None:
    """The error for a file that this user may not use; None if it is something else."""
    refused = (errno.EACCES, errno.EPERM, errno.EROFS)
    if not isinstance(error, OSError) or error.errno not in refused or not error.filename:
        return None
    return Misconfigured(
        f"{error.filename} cannot be used: {error.strerror}",
        hint="run this as the user whose mesh it is, or name a directory with --home that this user"
        " may read and write",
    )


def can_print() -> bool:
    """Whether standard output takes what was printed; if not, it is discarded from now on."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
        return False
    return True


def discard_output() -> None:
    """Nothing can be printed any more, and the interpreter's end must not complain of that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(error: BaseException, *, as_json: bool) -> Exit:
    """Print what happened and what to type next; return the exit code."""
    cause = next(_ours(error), error)
    cause = disk_full(cause) or no_access(cause) or cause
    code = code_of(cause)
    if isinstance(cause, AntiphonError):
        message, hint = cause.message, cause.hint
        cause.hint = ""  # it is printed below; a traceback would print it, too
    else:
        message = f"this is a bug in antiphon: {type(cause).__name__}: {cause}"
        hint = "set ANTIPHON_LOG_LEVEL=debug to see where, and report it"
    if os.environ.get("ANTIPHON_LOG_LEVEL", "").lower() == "debug":
        traceback.print_exception(error, file=sys.stderr)
    reason = getattr(cause, "reason", "")
    further = cause.further if isinstance(cause, WrongUsage) else ()
    if can_print() and as_json:
        kind = "bug" if code is Exit.BUG else type(cause).__name__
        told = {"kind": kind, "message": message, "reason": reason, "hint": hint}
        more = {"further": further} if further else {}
        print(json.dumps({"error": {**told, **more}}), flush=True)
        return code
    from antiphon.interfaces.cli.screen.terminal import err

    err.hanging([("✗ ", "failed")], [(message, "failed")])
    if code is Exit.REJECTED and reason and _is_verdict(reason):
        err.hanging([("  why: ", "")], [(reason, "")])
    if hint:
        err.hanging([("  try: ", "")], [(hint, "")])
    for line in further:
        err.say(f"       {line}")
    return code


def _is_verdict(reason: str) -> bool:
    """Whether it is a reason code of the mesh's rules; others only repeat the message."""
    from antiphon.sdk.mesh import Verdict

    return reason in {verdict.value for verdict in Verdict}


def _ours(error: BaseException) -> Iterator[AntiphonError]:
    """Our own errors inside what was raised: task groups wrap the errors that end them."""
    if isinstance(error, AntiphonError):
        yield error
    elif isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _ours(part)
