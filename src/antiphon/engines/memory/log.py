"""The server's side of one mesh's log: records, indexes, message ids.

Owns the order. Every method runs to its end without waiting, which is what makes the
compare-and-set atomic: nothing runs between check and store.

Invariants: `_records[seq - 1]` is the record with that sequence or None once purged; a subject's
list of sequences holds exactly its living records, rising; heads and sections may still name
purged ones until the next sweep.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from antiphon.engines.memory.filters import Shape, SubjectFilter
from antiphon.errors import IdTaken, LostRace, OutcomeUnknown, Rejected
from antiphon.ports import NANOSECONDS_PER_MS, Append, Page, Record

MAX_PAYLOAD = 1024 * 1024
"""Bytes in one record: NATS' own default."""
SWEEP_AFTER = 4096
"""Purged records that the indexes may still name before they are rebuilt."""

LogImage = tuple[list[Record | None], list[str], deque[tuple[int, str]]]
"""Records, their message ids, and the ids in the window by age."""


class LogStore:
    """Records in order, found by sequence, subject, head, section and last token."""

    def __init__(self, root: str, *, now_ns: Callable[[], int], window_s: float) -> None:
        self.announce: Callable[[Record, str], None] = lambda _record, _head: None
        """Called for each new record with it and its subject's head."""
        self._prefix = root + "."
        self._now_ns = now_ns
        self._window_ns = int(window_s * 1000) * NANOSECONDS_PER_MS
        self._records: list[Record | None] = []
        self._message_ids: list[str] = []
        """As `_records`: the header that each was stored with."""
        self._purged = 0
        self._first = 0
        """Everything at or before this sequence is purged."""
        self._unswept = 0
        self._ids: dict[str, int] = {}
        """Message id to sequence, for as long as the window lasts."""
        self._ids_by_age: deque[tuple[int, str]] = deque()
        self._subjects: dict[str, list[int]] = {}
        self._tails: dict[str, dict[str, None]] = {}
        self._heads: dict[str, list[int]] = {}
        self._sections: dict[str, list[int]] = {}

    @property
    def last_seq(self) -> int:
        """The newest sequence given out, purged or not."""
        return len(self._records)

    @property
    def count(self) -> int:
        """Records that are not purged."""
        return len(self._records) - self._purged

    # --- writing ----------------------------------------------------------------------------

    def append(self, subject: str, payload: bytes, message_id: str, expected_last: int) -> int:
        """Store, or raise why not. The message id is checked before the compare-and-set."""
        if not subject.startswith(self._prefix) or "*" in subject or ">" in subject:
            raise Rejected(f"no record may be stored on {subject!r}", reason="subject")
        if len(payload) > MAX_PAYLOAD:
            raise Rejected(
                f"{len(payload)} bytes are more than the {MAX_PAYLOAD} of one record",
                reason="too_large",
            )
        stamp_ns = self._now_ns()
        self._forget_ids(stamp_ns)
        known = self._ids.get(message_id)
        if known is not None:
            return self._repeated(known, subject, payload, message_id)
        seqs, last = self._subjects.get(subject), self.last_on(subject)
        if last != expected_last:
            earlier = self._own_earlier(seqs or (), payload, message_id, expected_last)
            if earlier:
                return earlier
            raise LostRace(f"the last sequence on {subject} is {last}, not {expected_last}")
        record = Record(len(self._records) + 1, stamp_ns, subject, payload)
        self._records.append(record)
        self._message_ids.append(message_id)
        self._ids[message_id] = record.seq
        self._ids_by_age.append((stamp_ns, message_id))
        head = self._index(record, seqs)
        self.announce(record, head)
        return record.seq

    def append_all(self, records: Sequence[Append]) -> list[int]:
        """Store all of them, or none if one cannot be stored as it is: then the list is empty."""
        subjects = {one.subject for one in records}
        are_free = len(subjects) == len(records) and all(
            one.message_id not in self._ids
            and one.expected_last == self.last_on(one.subject)
            and one.subject.startswith(self._prefix)
            and len(one.payload) <= MAX_PAYLOAD
            for one in records
        )
        if not are_free:
            return []
        return [
            self.append(one.subject, one.payload, one.message_id, one.expected_last)
            for one in records
        ]

    def last_on(self, subject: str) -> int:
        """The last sequence on a subject; 0 if there is none."""
        seqs = self._subjects.get(subject)
        return seqs[-1] if seqs else 0

    def purge(self, wanted: SubjectFilter, upto: int) -> int:
        """Remove what matches up to a sequence; sequences and message ids stay used."""
        removed = 0
        for subject in self._subjects_of(wanted):
            seqs = self._subjects[subject]
            cut = bisect_right(seqs, upto)
            for seq in seqs[:cut]:
                self._records[seq - 1] = None
            removed += cut
            if cut < len(seqs):
                del seqs[:cut]
            else:
                self._drop_subject(subject)
        self._purged += removed
        self._unswept += removed
        while self._first < len(self._records) and self._records[self._first] is None:
            self._first += 1
        if self._unswept > SWEEP_AFTER and self._unswept > self.count:
            self._reindex()
        return removed

    def truncate(self, after_seq: int) -> None:
        """Lose everything above a sequence, as a restored backup does. Sequences are reused."""
        lost = self._records[after_seq:]
        del self._records[after_seq:]
        self._purged -= sum(record is None for record in lost)
        self._first = min(self._first, after_seq)
        del self._message_ids[after_seq:]
        self._ids = {known: seq for known, seq in self._ids.items() if seq <= after_seq}
        self._ids_by_age = deque(pair for pair in self._ids_by_age if pair[1] in self._ids)
        self._reindex()

    def image(self) -> LogImage:
        """A copy of everything that would be on disk."""
        return self._records.copy(), self._message_ids.copy(), self._ids_by_age.copy()

    def load(self, image: LogImage) -> None:
        """Restore an image."""
        records, message_ids, ids_by_age = image
        self._records, self._message_ids = records.copy(), message_ids.copy()
        self._ids_by_age = ids_by_age.copy()
        in_window = {known for _, known in ids_by_age}
        # An id that was stored again after its window counts at its last place.
        self._ids = {
            known: seq for seq, known in enumerate(message_ids, start=1) if known in in_window
        }
        self._purged = sum(record is None for record in self._records)
        self._first = 0
        self._reindex()

    # --- reading ----------------------------------------------------------------------------

    def at(self, seq: int) -> Record | None:
        """The record with that sequence."""
        return self._records[seq - 1] if 0 < seq <= len(self._records) else None

    def newest(self, upto: int) -> Record | None:
        """The newest living record up to a sequence."""
        for seq in range(min(upto, len(self._records)), self._first, -1):
            record = self._records[seq - 1]
            if record is not None:
                return record
        return None

    def page(self, wanted: SubjectFilter, after: int, upto: int, limit: int) -> Page:
        """Up to `limit` matching records in (after, upto], and whether there are more."""
        if wanted.shape is Shape.ALL:
            return self._run(max(after, self._first), min(upto, len(self._records)), limit)
        found: list[Record] = []
        seqs = self.seqs(wanted)
        for at in range(bisect_right(seqs, after), len(seqs)):
            if seqs[at] > upto:
                break
            record = self._records[seqs[at] - 1]
            if record is None or not (wanted.exact or wanted.selects(record.subject)):
                continue
            if len(found) == limit:
                return Page(found, more=True)
            found.append(record)
        return Page(found, more=False)

    def next_after(self, wanted: SubjectFilter, after: int) -> tuple[Record | None, int]:
        """The first matching record above `after`, and the sequence up to which was looked."""
        seqs = self.seqs(wanted)
        for at in range(bisect_right(seqs, after), len(seqs)):
            record = self._records[seqs[at] - 1]
            if record is not None and (wanted.exact or wanted.selects(record.subject)):
                return record, record.seq
        return None, len(self._records)

    def newest_on(self, wanted: SubjectFilter, upto: int) -> Record | None:
        """The newest living record up to a sequence that a filter for one subject selects."""
        seqs = self.seqs(wanted)
        at = bisect_right(seqs, upto)
        return self._records[seqs[at - 1] - 1] if at else None

    def seqs(self, wanted: SubjectFilter) -> Sequence[int]:
        """Rising sequences among which are all that a filter selects."""
        match wanted.shape:
            case Shape.ONE:
                return self._subjects.get(wanted.key, ())
            case Shape.HEAD:
                return self._heads.get(wanted.key, ())
            case Shape.SECTION:
                return self._sections.get(wanted.key, ())
            case Shape.TAIL:
                chosen = self._subjects_of(wanted)
                return sorted(seq for subject in chosen for seq in self._subjects[subject])
            case _:
                return range(1, len(self._records) + 1)

    # --- inside -----------------------------------------------------------------------------

    def _repeated(self, seq: int, subject: str, payload: bytes, message_id: str) -> int:
        record = self._records[seq - 1]
        if record is None:
            raise OutcomeUnknown(f"{message_id} was stored at {seq} and has been purged since")
        if record.payload != payload or record.subject != subject:
            raise IdTaken(f"message id {message_id} is taken by record {seq} with other bytes")
        return seq

    def _own_earlier(
        self, seqs: Sequence[int], payload: bytes, message_id: str, expected_last: int
    ) -> int:
        """The writer's own record, if its earlier attempt went through before the window.

        It would be the first one behind the sequence that it named.
        """
        at = bisect_right(seqs, expected_last)
        if at == len(seqs) or self._message_ids[seqs[at] - 1] != message_id:
            return 0
        record = self._records[seqs[at] - 1]
        return seqs[at] if record is not None and record.payload == payload else 0

    def _forget_ids(self, now_ns: int) -> None:
        ids_by_age = self._ids_by_age
        while ids_by_age and ids_by_age[0][0] <= now_ns - self._window_ns:
            del self._ids[ids_by_age.popleft()[1]]

    def _run(self, after: int, upto: int, limit: int) -> Page:
        chunk = self._records[after : min(upto, after + limit)]
        found = [record for record in chunk if record is not None]
        at = after + len(chunk)
        while at < upto:
            record = self._records[at]
            if record is not None:
                if len(found) == limit:
                    return Page(found, more=True)
                found.append(record)
            at += 1
        return Page(found, more=False)

    def _index(self, record: Record, seqs: list[int] | None) -> str:
        subject, seq = record.subject, record.seq
        head, _, tail = subject.rpartition(".")
        if seqs is None:
            self._subjects[subject] = [seq]
            self._tails.setdefault(tail, {})[subject] = None
        else:
            seqs.append(seq)
        self._heads.setdefault(head, []).append(seq)
        end = subject.find(".", len(self._prefix))
        section = subject if end < 0 else subject[:end]
        self._sections.setdefault(section, []).append(seq)
        return head

    def _reindex(self) -> None:
        self._subjects, self._tails, self._heads, self._sections = {}, {}, {}, {}
        for record in self._records:
            if record is not None:
                self._index(record, self._subjects.get(record.subject))
        self._unswept = 0

    def _subjects_of(self, wanted: SubjectFilter) -> list[str]:
        match wanted.shape:
            case Shape.ONE:
                return [wanted.key] if wanted.key in self._subjects else []
            case Shape.TAIL:
                chosen = self._tails.get(wanted.key, {})
            case _:
                chosen = dict.fromkeys(self._subjects)
        return [subject for subject in chosen if wanted.selects(subject)]

    def _drop_subject(self, subject: str) -> None:
        del self._subjects[subject]
        tail = subject.rpartition(".")[2]
        same_tail = self._tails[tail]
        del same_tail[subject]
        if not same_tail:
            del self._tails[tail]
