"""Uids for jobs, on a machine whose worker is root: one for each running job, never root's own.

A uid is held by a lock on a file named after it, so that several workers on one machine do not
use the same one, and a worker that dies frees its own.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

from antiphon.errors import Misconfigured, Unavailable

FIRST: Final = 61_000
COUNT: Final = 180
"""Between the uids of users and those that systemd assigns (61184 and above)."""
LOCKS: Final = Path("/run/antiphon-job-uids")

_turn = count()


@contextmanager
def borrowed(locks: Path = LOCKS) -> Iterator[int]:
    """A uid that nobody else has, for as long as the block runs."""
    _own(locks)
    start = next(_turn)
    for step in range(COUNT):
        uid = FIRST + (start + step) % COUNT
        if _has_an_owner(uid):
            continue
        lock = os.open(
            locks / str(uid), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        try:
            yield uid
        finally:
            os.close(lock)
        return
    raise Unavailable(f"all {COUNT} uids for jobs are in use", hint="run fewer jobs at once")


def _own(locks: Path) -> None:
    """The directory of locks, owned by this user."""
    locks.mkdir(mode=0o700, exist_ok=True)
    found = locks.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Misconfigured(
            f"{locks} belongs to another user", hint=f"check what it is, then: rm -r {locks}"
        )


@cache
def _has_an_owner(uid: int) -> bool:
    """Looked up once: a directory service may be behind it."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
