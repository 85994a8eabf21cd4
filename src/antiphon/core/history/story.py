"""A job's history in words: who did what, when, and the verdict on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.families.jobs.ops import JobClaim
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.time_text import hlc_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.opened_record import OpenedRecord


class Line(Struct, frozen=True, kw_only=True):
    """One record of the story, in words."""

    seq: int
    commit_ms: int
    op: str
    """The op's type; empty if the record is not an op."""
    author: str
    verdict: Verdict
    words: str
    hlc: str = ""
    """Its author's timestamp as text."""


def tell(judged: Iterable[tuple[OpenedRecord, Verdict]]) -> list[Line]:
    """The story of a lane, one line per record, oldest first.

    A control record among them is one that ended a tenure (`core.authority_lapse`).
    """
    lines: list[Line] = []
    holder = ""
    for record, verdict in judged:
        line, op = _line(record, verdict), record.op
        if verdict is Verdict.OK and isinstance(op, JobClaim):
            holder = op.author
        elif holder and record.is_control:
            line = replace(line, words=f"{line.words}: the lease of {short_node(holder)} ended")
        lines.append(line)
    return lines


def _line(record: OpenedRecord, verdict: Verdict) -> Line:
    op = record.op
    if op is None:
        words, kind, author, stamp = "someone wrote a record that is not an op", "", "", ""
    else:
        kind, author, stamp = op.type_name(), op.author, hlc_text(op.hlc)
        words = f"{short_node(op.author)} {op.words()}"
    if verdict is Verdict.UNSEEN:
        words += f" — not checked: {verdict.in_words} ({verdict.value})"
    elif not verdict.is_accepted:
        words += f" — rejected: {verdict.in_words} ({verdict.value})"
    elif verdict is not Verdict.OK:
        words += f" — {verdict.in_words} ({verdict.value})"
    return Line(
        seq=record.seq,
        commit_ms=record.commit_ms,
        op=kind,
        author=author,
        verdict=verdict,
        words=words,
        hlc=stamp,
    )
