"""One inbox: which message is handed out next, and how much is in it (spec §10).

Built from the notes of its registers and kept up to date note by note. A step costs the same
however long the inbox is.

- Messages of one thread are handed out in the order in which they were put, and never two at a
  time: a message that was given back holds up those behind it, and only those. A message without a
  thread is one of its own.
- Between threads the higher priority comes first, but every fourth message is of each priority in
  turn: nobody can hold up others for good by calling everything urgent.
- Among equals the senders' parties take turns. So one that sends a thousand messages delays
  another's by one.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.messages import register
from antiphon.core.messages.envelope import URGENT
from antiphon.core.messages.register import Note

MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_OF_PARTY: Final = 2_500
"""What one party may have waiting in one inbox."""
MAX_DONE: Final = 20_000
"""Ended messages that are remembered; the store remembers them too."""
MAX_SERVED: Final = 4_096
"""Parties of which it is remembered when they had their turn."""
EVERY: Final = 4
"""One message in so many is not of the highest priority, but of each in turn."""

ThreadName = tuple[str, str]
"""A thread, or the id of a message without one."""


class InboxItem(Struct, gc=False):
    """A message in the inbox."""

    id: str
    revision: int
    note: Note

    @property
    def order(self) -> int:
        """Its place by when it was put."""
        return register.order_of(self.note, self.revision)

    @property
    def thread(self) -> ThreadName:
        """Where it waits for its turn."""
        return (self.note.thread, "") if self.note.thread else ("", self.id)


class Pick(Struct, frozen=True):
    """A message whose turn it is: to be handed out, or buried for a reason."""

    entry: InboxItem
    dead: str = ""


class ThreadSummary(Struct, frozen=True, kw_only=True):
    """A thread as people see it."""

    thread: str
    messages: int
    oldest_ms: int
    senders: tuple[str, ...]


class _Waiting:
    """The messages of one thread, oldest first. `version` tells stale places in other lists."""

    __slots__ = ("heap", "is_taken", "version")

    def __init__(self) -> None:
        self.heap: list[tuple[int, str]] = []
        self.version = 0
        self.is_taken = False


class _Turns:
    """The threads of one priority that can be handed out now, by party, parties in turn."""

    __slots__ = ("_by_party", "_count", "_served")

    def __init__(self) -> None:
        self._by_party: OrderedDict[str, list[tuple[int, ThreadName, int]]] = OrderedDict()
        self._served: dict[str, int] = {}
        """The turn at which a party was served last."""
        self._count = 0

    def add(self, party: str, order: int, thread: ThreadName, version: int) -> None:
        heap = self._by_party.get(party)
        if heap is None:
            heap = self._by_party[party] = []
            first, served = next(iter(self._by_party)), self._served.get
            if served(party, 0) < served(first, 0):
                self._by_party.move_to_end(party, last=False)  # the others had their turn
        heappush(heap, (order, thread, version))

    def pop(self) -> tuple[ThreadName, int] | None:
        """The oldest thread of the party whose turn it is."""
        if not self._by_party:
            return None
        party = next(iter(self._by_party))
        heap = self._by_party.pop(party)
        _, thread, version = heappop(heap)
        self._count += 1
        self._served.pop(party, None)
        self._served[party] = self._count
        if len(self._served) > MAX_SERVED:
            del self._served[next(iter(self._served))]
        if heap:
            self._by_party[party] = heap  # at the end: the others are first
        return thread, version

    @property
    def has_any(self) -> bool:
        return bool(self._by_party)


class Inbox:
    """The present messages of one address."""

    def __init__(self) -> None:
        """Start empty."""
        self.entries: dict[str, InboxItem] = {}
        self.done: dict[str, int] = {}
        """Ids of messages that ended lately, and the revision at which they did."""
        self.size = 0
        self.by_party: dict[str, int] = {}
        self._threads: dict[ThreadName, _Waiting] = {}
        self._turns = [_Turns() for _ in range(URGENT + 1)]
        self._later: list[tuple[int, ThreadName, int]] = []
        self._ends: list[tuple[int, str]] = []
        self._session = ""
        self._picked = 0

    # --- what is in it ------------------------------------------------------------------------

    def apply(self, id_: str, revision: int, note: Note) -> None:
        """A register has this version. An older one than is known changes nothing."""
        known = self.entries.get(id_)
        if revision <= (known.revision if known is not None else self.done.get(id_, 0)):
            return
        if known is not None:
            self._count(known, -1)
        if note.done:
            self._end(id_, revision, known)
            return
        self.done.pop(id_, None)
        entry = self.entries[id_] = InboxItem(id_, revision, note)
        self._count(entry, 1)
        waiting = self._threads.setdefault(entry.thread, _Waiting())
        if known is None:
            heappush(waiting.heap, (entry.order, id_))
            heappush(self._ends, (note.expires_ms, id_))
        elif self.is_next(entry):
            waiting.is_taken = False
        self._file(entry.thread)

    def _end(self, id_: str, revision: int, known: InboxItem | None) -> None:
        self.done.pop(id_, None)
        self.done[id_] = revision
        if len(self.done) > MAX_DONE:
            del self.done[next(iter(self.done))]
        if known is None:
            return
        was_next = self.is_next(known)
        del self.entries[id_]
        if was_next:
            self._threads[known.thread].is_taken = False
            self._file(known.thread)

    def _count(self, entry: InboxItem, change: int) -> None:
        self.size += change * entry.note.size
        party = entry.note.party
        left = self.by_party.get(party, 0) + change
        if left:
            self.by_party[party] = left
        else:
            self.by_party.pop(party, None)

    def fullness(self, party: str, size: int) -> str:
        """Why another message of this party does not fit; empty if it does."""
        if len(self.entries) >= MAX_MESSAGES:
            return f"it has {MAX_MESSAGES} messages that were not read"
        if self.size + size > MAX_BYTES:
            return f"it has {MAX_BYTES // 2**20} MiB that were not read"
        if self.by_party.get(party, 0) >= MAX_OF_PARTY:
            return f"it has {MAX_OF_PARTY} messages of this sender that were not read"
        return ""

    def threads(self) -> list[ThreadSummary]:
        """Every thread that has messages, the oldest first."""
        found: dict[str, list[InboxItem]] = {}
        for entry in self.entries.values():
            found.setdefault(entry.note.thread, []).append(entry)
        told = [
            ThreadSummary(
                thread=thread,
                messages=len(entries),
                oldest_ms=min(entry.note.put_ms for entry in entries),
                senders=tuple(sorted({entry.note.sender for entry in entries})),
            )
            for thread, entries in found.items()
        ]
        return sorted(told, key=lambda one: one.oldest_ms)

    # --- what comes next ----------------------------------------------------------------------

    def head(self, thread: ThreadName) -> InboxItem | None:
        """The message of a thread that comes first."""
        waiting = self._threads.get(thread)
        if waiting is None:
            return None
        while waiting.heap:
            entry = self.entries.get(waiting.heap[0][1])
            if entry is not None:
                return entry
            heappop(waiting.heap)
        del self._threads[thread]
        return None

    def is_next(self, entry: InboxItem) -> bool:
        """Whether a message is the first of its thread."""
        first = self.head(entry.thread)
        return first is not None and first.id == entry.id

    def take(self, session: str, now_ms: int, limit: int, *, thread: str = "") -> list[Pick]:
        """The messages whose turn it is. Each must be told of: by `apply`, or by `put_back`."""
        if session > self._session:
            self._session = session
            self._refile_leased()
        while self._later and self._later[0][0] <= now_ms:
            _, name, version = heappop(self._later)
            waiting = self._threads.get(name)
            if waiting is not None and waiting.version == version:
                self._offer(name)
        picks = self._overdue(now_ms)
        if thread:
            picks += self._take_from(thread, session, now_ms)
            return picks
        while len(picks) < limit:
            following = self._next_thread()
            if following is None:
                break
            pick = self._pick(following, session, now_ms)
            if pick is not None:
                picks.append(pick)
        return picks

    def put_back(self, id_: str) -> None:
        """A message that was taken was not handed out."""
        entry = self.entries.get(id_)
        if entry is None:
            return
        heappush(self._ends, (entry.note.expires_ms, id_))
        if self.is_next(entry):
            self._threads[entry.thread].is_taken = False
            self._file(entry.thread)

    def drop(self, id_: str) -> None:
        """The store no longer has this register."""
        known = self.entries.get(id_)
        if known is not None:
            self._count(known, -1)
            self._end(id_, known.revision, known)

    def release_unheld(self, session: str, holding: frozenset[str]) -> None:
        """A session says what it holds: what else is leased to it got lost on the way there."""
        for _, name, version in list(self._later):
            waiting, entry = self._threads.get(name), self.head(name)
            if waiting is None or waiting.version != version or entry is None:
                continue
            if entry.note.session == session and entry.id not in holding:
                entry.note = replace(entry.note, lease_ms=0, session="")
                self._file(name)

    def wake_ms(self) -> int | None:
        """When a message may be due that is not due now; None if nothing waits for a time."""
        while self._later:
            at_ms, name, version = self._later[0]
            waiting = self._threads.get(name)
            if waiting is not None and waiting.version == version:
                return at_ms
            heappop(self._later)
        return None

    @property
    def can_offer(self) -> bool:
        """Whether there may be something to take at once."""
        return any(turns.has_any for turns in self._turns)

    def _take_from(self, thread: str, session: str, now_ms: int) -> list[Pick]:
        name = (thread, "")
        waiting = self._threads.get(name)
        entry = self.head(name)
        if waiting is None or entry is None or waiting.is_taken:
            return []
        if register.free_ms(entry.note, session) > now_ms:
            return []
        pick = self._pick(name, session, now_ms)
        return [] if pick is None else [pick]

    def _pick(self, name: ThreadName, session: str, now_ms: int) -> Pick | None:
        entry = self.head(name)
        if entry is None:
            return None
        if register.free_ms(entry.note, session) > now_ms:
            self._file(name)
            return None
        waiting = self._threads[name]
        waiting.is_taken = True
        waiting.version += 1
        return Pick(entry, register.death_of(entry.note, now_ms))

    def _overdue(self, now_ms: int) -> list[Pick]:
        """Messages whose time is over, wherever they stand in their thread."""
        found: list[Pick] = []
        while self._ends and self._ends[0][0] <= now_ms:
            _, id_ = heappop(self._ends)
            entry = self.entries.get(id_)
            if entry is None:
                continue
            dead, is_next = register.death_of(entry.note, now_ms), self.is_next(entry)
            waiting = self._threads[entry.thread]
            if not dead or (waiting.is_taken and is_next):
                heappush(self._ends, (max(entry.note.lease_ms, now_ms + 1), id_))
                continue
            if is_next:
                waiting.is_taken = True
                waiting.version += 1
            found.append(Pick(entry, dead))
        return found

    def _next_thread(self) -> ThreadName | None:
        self._picked += 1
        while True:
            waiting = [turns for turns in reversed(self._turns) if turns.has_any]
            if not waiting:
                return None
            at = self._picked // EVERY % len(waiting) if self._picked % EVERY == 0 else 0
            popped = waiting[at].pop()
            if popped is None:
                continue
            name, version = popped
            known = self._threads.get(name)
            if known is not None and known.version == version and not known.is_taken:
                return name

    def _file(self, name: ThreadName) -> None:
        """Put a thread where it belongs now: its first message decides."""
        entry = self.head(name)
        waiting = self._threads.get(name)
        if entry is None or waiting is None:
            return
        waiting.version += 1
        if waiting.is_taken:
            return
        at_ms = register.free_ms(entry.note, self._session)
        if at_ms:
            heappush(self._later, (at_ms, name, waiting.version))
        else:
            self._offer(name)

    def _offer(self, name: ThreadName) -> None:
        entry = self.head(name)
        if entry is not None:
            note, version = entry.note, self._threads[name].version
            self._turns[note.priority].add(note.party, entry.order, name, version)

    def _refile_leased(self) -> None:
        """Another session reads: leases of those before it are over."""
        for _, name, version in list(self._later):
            waiting = self._threads.get(name)
            if waiting is not None and waiting.version == version:
                self._file(name)
