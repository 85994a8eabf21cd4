"""A job's lane told in words: who did what, when, and what the rules said to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.families.jobs.ops import JobClaim
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.opened_record import Entry


class Line(Struct, frozen=True, kw_only=True):
    """One record of a story."""

    seq: int
    commit_ms: int
    op: str
    """The op's type; empty where the record is no op."""
    author: str
    verdict: Reason
    words: str


def tell(judged: Iterable[tuple[Entry, Reason]]) -> list[Line]:
    """The story of a lane, one line per record, oldest first.

    A control record among those of a lane is one that ended a tenure (`core.authority_lapse`).
    """
    lines: list[Line] = []
    holder = ""
    for entry, verdict in judged:
        line, op = _line(entry, verdict), entry.op
        if verdict is Reason.OK and isinstance(op, JobClaim):
            holder = op.author
        elif holder and entry.is_control:
            line = replace(line, words=f"{line.words}: the lease of {short_node(holder)} ended")
        lines.append(line)
    return lines


def _line(entry: Entry, verdict: Reason) -> Line:
    op = entry.op
    if op is None or entry.family is None:
        words, kind, author = "someone wrote a record that is no op", "", ""
    else:
        kind, author = op.type_name(), op.author
        words = f"{short_node(op.author)} {entry.family.words(op)}"
    if verdict is Reason.UNSEEN:
        words += f" — not compared: {verdict.in_words} ({verdict.value})"
    elif not verdict.is_accepted:
        words += f" — rejected: {verdict.in_words} ({verdict.value})"
    elif verdict is not Reason.OK:
        words += f" — {verdict.in_words} ({verdict.value})"
    return Line(
        seq=entry.seq,
        commit_ms=entry.commit_ms,
        op=kind,
        author=author,
        verdict=verdict,
        words=words,
    )
