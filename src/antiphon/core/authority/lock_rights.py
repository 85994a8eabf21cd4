"""Which commands allow a member to take locks, to break them, and to see who holds them.

A lock's scope is named like a kind, and so are the kinds of a delegation: `lock` for `repo.*` is
about every scope below `repo`.
"""

from __future__ import annotations

from typing import Final

TAKE: Final = "/lock/take"
"""To take, renew, release and pass on locks. `/lock` alone includes it and `BREAK`."""
BREAK: Final = "/lock/break"
"""To end what somebody else holds."""
LOCKED_BY: Final = (TAKE, BREAK)
LOCKS_READ_BY: Final = (TAKE, BREAK, "/job/read")
"""Whoever may read the jobs of a kind sees the locks of the scope of that name: a node that reads
every job reads the whole log, and can check seals. To claim jobs does not include it."""
