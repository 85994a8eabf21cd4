"""What went wrong on lanes, found by words: SQLite's full-text search (FTS5) beside the replica.

One row for each lane that has said so, under the lane's `first_seq`; a newer error replaces it. A
lane without an error costs nothing. Where this Python's SQLite is built without FTS5 there is no
such table, everything else works, and a search by words is `Unavailable`.
"""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Final

from antiphon.errors import Malformed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLE: Final = "lane_texts"
MOST_CHARACTERS: Final = 1_000
"""Of one error."""
MOST_WORDS: Final = 16
"""Of one search."""
PAGES_AT_ONCE: Final = 64
"""Of the index, in one step of merging it."""
_CHANGES_OF_A_STEP: Final = 2
"""SQLite counts fewer if there was nothing left to do."""
_WORD: Final = re.compile(r"\w+")


def create(db: sqlite3.Connection) -> bool:
    """Make the table if there is none; whether this SQLite can."""
    try:
        db.execute(f"create virtual table if not exists {TABLE} using fts5 (text)")
    except sqlite3.OperationalError as problem:
        if "fts5" not in str(problem):
            raise
        return False
    return True


def match_of(text: str) -> str:
    """The search for lanes whose error has all these words, the last one as a beginning.

    Nothing that a person types is an operator.
    """
    words = _WORD.findall(text)
    if not 1 <= len(words) <= MOST_WORDS:
        raise Malformed(
            f"a search has 1 to {MOST_WORDS} words, not {len(words)}",
            reason="text",
            hint="words are letters and digits: --text 'connection refused'",
        )
    return " ".join(f'"{word}"' for word in words) + "*"


class ReplicaTexts:
    """The table of errors: one writer, any number of readers."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """`db` is the replica's own connection."""
        self._db = db

    @property
    def is_kept(self) -> bool:
        """Whether errors can be searched here."""
        try:
            self._db.execute(f"select rowid from {TABLE} limit 1")  # noqa: S608 - our own name
        except sqlite3.OperationalError:
            return False
        return True

    def require(self) -> None:
        """`Unavailable` where errors cannot be searched."""
        if not self.is_kept:
            raise Unavailable(
                "errors cannot be searched by words: the SQLite of this Python, or of the process"
                " that keeps the replica, is built without FTS5",
                hint="use a Python whose SQLite has it, as those of python.org, uv and Debian do",
            )

    def put(self, rows: Iterable[tuple[int, str]]) -> None:
        """Store the newest error of lanes, inside the caller's transaction."""
        if not self.is_kept:
            return
        cut = [(first_seq, text[:MOST_CHARACTERS]) for first_seq, text in rows]
        self._db.executemany(
            f"delete from {TABLE} where rowid = ?",  # noqa: S608 - our own name
            [(first_seq,) for first_seq, _ in cut],
        )
        self._db.executemany(f"insert into {TABLE} (rowid, text) values (?, ?)", cut)  # noqa: S608 - the same

    def has(self, first_seq: int) -> bool:
        """Whether a lane has said what went wrong."""
        query = f"select 1 from {TABLE} where rowid = ?"  # noqa: S608 - our own name
        return self.is_kept and self._db.execute(query, (first_seq,)).fetchone() is not None

    def erase(self, first_seqs: Iterable[int]) -> None:
        """Remove the errors of lanes, in the caller's transaction.

        Their words stay in the index until it is merged.
        """
        if self.is_kept:
            self._db.executemany(
                f"delete from {TABLE} where rowid = ?",  # noqa: S608 - our own name
                [(first_seq,) for first_seq in first_seqs],
            )

    def merge(self) -> Iterator[None]:
        """Take the words of deleted rows out of the index, bit by bit: each step is short."""
        pages = -PAGES_AT_ONCE  # the first step says that all parts are to become one
        while self.is_kept:
            before = self._db.total_changes
            self._db.execute(
                f"insert into {TABLE} ({TABLE}, rank) values ('merge', ?)",  # noqa: S608 - our own name
                (pages,),
            )
            if self._db.total_changes - before < _CHANGES_OF_A_STEP:
                return
            pages = PAGES_AT_ONCE
            yield

    def delete_all(self) -> None:
        """Forget everything."""
        if self.is_kept:
            self._db.execute(f"delete from {TABLE}")  # noqa: S608 - our own name
