"""Which commands allow a member to read the documents of a space, and to write them.

The branch of the memory family uses these, and so do artifacts, which know a document's space but
not its ops. A space is named like a kind, so a policy about `.kind` is about the space.
"""

from __future__ import annotations

from typing import Final

MEMORY: Final = "/memory"
"""Covers both of the commands below."""
READ: Final = "/memory/read"
WRITE: Final = "/memory/write"
READ_BY: Final = (READ, WRITE, "/job/read")
"""To write a space includes to read it: a writer must know the revision. Whoever may read the jobs
of a kind reads the space of that name: a node that reads every job reads the whole log, and can
check seals. To claim jobs does not include it."""
WRITTEN_BY: Final = (WRITE,)
