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

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.messages import register
from antiphon.core.messages.deadlines import Deadlines
from antiphon.core.messages.envelope import URGENT
from antiphon.core.messages.register import Note
from antiphon.core.messages.thread_turns import ThreadName, ThreadTurns, Waiting

MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_OF_PARTY: Final = MAX_MESSAGES // 4
MAX_BYTES_OF_PARTY: Final = MAX_BYTES // 4
"""What one party may have waiting in one inbox."""
MAX_DONE: Final = 20_000
"""Ended messages that are remembered; the store remembers them too."""
MAX_BURIED: Final = 64
"""Messages whose time is over that one `take` names."""
MAX_LOOKED_AT: Final = 256
"""Messages that one `take` looks at: they may be dead, or another session's."""
MAX_THREADS_SHOWN: Final = 256
MAX_SENDERS_SHOWN: Final = 8
LOOK_AGAIN_MS: Final = 5_000
"""When a session looks again that is older than another one, and so may not have all it sees."""
EVERY: Final = 4
"""One message in so many is not of the highest priority, but of each in turn."""


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
    """Those of its oldest messages."""


class Share(Struct):
    """What one party has waiting."""

    messages: int = 0
    size: int = 0


class Inbox:
    """The present messages of one address."""

    def __init__(self) -> None:
        """Start empty."""
        self.entries: dict[str, InboxItem] = {}
        self.done: dict[str, int] = {}
        """Ids of messages that ended lately, and the revision at which they did."""
        self.size = 0
        self.by_party: dict[str, Share] = {}
        self._threads: dict[ThreadName, Waiting] = {}
        self._turns = [ThreadTurns() for _ in range(URGENT + 1)]
        self._later: Deadlines[ThreadName] = Deadlines()
        self._ends: Deadlines[str] = Deadlines()
        self._session = ""
        self._picked = 0

    @property
    def weight(self) -> int:
        """How much is remembered: messages, and ends of messages."""
        return len(self.entries) + len(self.done)

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
        waiting = self._threads.setdefault(entry.thread, Waiting())
        if known is None:
            waiting.add(entry.order, id_)
            self._ends.set(id_, note.expires_ms)
        else:
            if known.order != entry.order:
                waiting.move(entry.order, id_)
            if self.is_next(entry):
                waiting.is_taken = False
        self._file(entry.thread)

    def _end(self, id_: str, revision: int, known: InboxItem | None) -> None:
        self.done.pop(id_, None)
        self.done[id_] = revision
        if len(self.done) > MAX_DONE:
            del self.done[next(iter(self.done))]
        if known is None:
            return
        was_next, name = self.is_next(known), known.thread
        del self.entries[id_]
        self._ends.discard(id_)
        waiting = self._threads[name]
        waiting.ended(self._is_at)
        if was_next:
            waiting.is_taken = False
            self._file(name)

    def _is_at(self, order: int, id_: str) -> bool:
        entry = self.entries.get(id_)
        return entry is not None and entry.order == order

    def _count(self, entry: InboxItem, change: int) -> None:
        size = change * entry.note.size
        self.size += size
        share = self.by_party.setdefault(entry.note.party, Share())
        share.messages += change
        share.size += size
        if not share.messages:
            del self.by_party[entry.note.party]

    def fullness(self, party: str, size: int) -> str:
        """Why another message of this party does not fit; empty if it does."""
        if len(self.entries) >= MAX_MESSAGES:
            return f"it has {MAX_MESSAGES} messages that were not read"
        if self.size + size > MAX_BYTES:
            return f"it has {MAX_BYTES // 2**20} MiB that were not read"
        share = self.by_party.get(party, Share())
        if share.messages >= MAX_OF_PARTY:
            return f"it has {MAX_OF_PARTY} messages of this sender that were not read"
        if share.size + size > MAX_BYTES_OF_PARTY:
            return f"it has {MAX_BYTES_OF_PARTY // 2**20} MiB of this sender that were not read"
        return ""

    def threads(self) -> list[ThreadSummary]:
        """The threads that have messages, the oldest first; not more than can be shown."""
        found: dict[str, list[InboxItem]] = {}
        for entry in self.entries.values():
            if entry.note.thread in found or len(found) < MAX_THREADS_SHOWN:
                found.setdefault(entry.note.thread, []).append(entry)
        told = [
            ThreadSummary(
                thread=thread,
                messages=len(entries),
                oldest_ms=min(entry.note.put_ms for entry in entries),
                senders=tuple(sorted({one.note.sender for one in entries[:MAX_SENDERS_SHOWN]})),
            )
            for thread, entries in found.items()
        ]
        return sorted(told, key=lambda one: one.oldest_ms)

    # --- what comes next ----------------------------------------------------------------------

    def head(self, thread: ThreadName) -> InboxItem | None:
        """The message of a thread that comes first."""
        waiting = self._threads.get(thread)
        first = None if waiting is None else waiting.first(self._is_at)
        if first is None:
            self._threads.pop(thread, None)
            return None
        return self.entries[first]

    def is_next(self, entry: InboxItem) -> bool:
        """Whether a message is the first of its thread."""
        first = self.head(entry.thread)
        return first is not None and first.id == entry.id

    def take(self, session: str, now_ms: int, limit: int, *, thread: str = "") -> list[Pick]:
        """The messages whose turn it is. Each must be told of: by `apply`, or by `put_back`.

        Those that are dead come first, and do not count towards the limit.
        """
        if register.is_newer(session, self._session):
            self._session = session
            self._refile_leased()
        while (name := self._later.pop_due(now_ms)) is not None:
            self._offer(name)
        picks = self._overdue(now_ms)
        if thread:
            return picks + self._take_from((thread, ""), session, now_ms)
        passed: list[ThreadName] = []
        while limit and len(passed) + len(picks) < MAX_LOOKED_AT:
            following = self._next_thread()
            if following is None:
                break
            pick = self._pick(following, session, now_ms)
            if pick is None:
                passed.append(following)
            else:
                picks.append(pick)
                limit -= 0 if pick.dead else 1
        for name in passed:  # afterwards: what another session may have is offered again at once
            self._file(name)
        return picks

    def put_back(self, id_: str) -> None:
        """A message that was taken was not handed out."""
        entry = self.entries.get(id_)
        if entry is None:
            return
        self._ends.set(id_, entry.note.expires_ms)
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
        for name in list(self._later):
            entry = self.head(name)
            if entry is None or entry.id in holding or entry.note.session != session:
                continue
            entry.note = replace(entry.note, lease_ms=0, session="")
            self._file(name)

    def due_ms(self, session: str, now_ms: int, *, thread: str = "") -> int | None:
        """When `take` may find something for this session; None if only a change brings it."""
        if thread:
            name = (thread, "")
            entry = self.head(name)
            if entry is None or self._threads[name].is_taken:
                return None
            return register.free_ms(entry.note, session)
        if any(turns.places for turns in self._turns):
            return now_ms + LOOK_AGAIN_MS if register.is_newer(self._session, session) else 0
        times = [one for one in (self._later.first_ms(), self._ends.first_ms()) if one is not None]
        return min(times, default=None)

    def _take_from(self, name: ThreadName, session: str, now_ms: int) -> list[Pick]:
        waiting = self._threads.get(name)
        if waiting is None or waiting.is_taken:
            return []
        pick = self._pick(name, session, now_ms)
        return [] if pick is None else [pick]

    def _pick(self, name: ThreadName, session: str, now_ms: int) -> Pick | None:
        entry = self.head(name)
        if entry is None or register.free_ms(entry.note, session) > now_ms:
            return None
        self._hold(name)
        return Pick(entry, register.death_of(entry.note, now_ms))

    def _hold(self, name: ThreadName) -> None:
        """Nobody else takes the first message of this thread until it was told of."""
        waiting = self._threads[name]
        waiting.is_taken, waiting.offered = True, 0
        self._later.discard(name)

    def _overdue(self, now_ms: int) -> list[Pick]:
        """Messages whose time is over, wherever they stand in their thread."""
        found: list[Pick] = []
        while len(found) < MAX_BURIED and (id_ := self._ends.pop_due(now_ms)) is not None:
            entry = self.entries[id_]
            dead, is_next = register.death_of(entry.note, now_ms), self.is_next(entry)
            if not dead or (is_next and self._threads[entry.thread].is_taken):
                lease_ms = entry.note.lease_ms
                self._ends.set(id_, lease_ms if lease_ms > now_ms else now_ms + LOOK_AGAIN_MS)
                continue
            if is_next:
                self._hold(entry.thread)
            found.append(Pick(entry, dead))
        return found

    def _next_thread(self) -> ThreadName | None:
        self._picked += 1
        while True:
            offered = [turns for turns in reversed(self._turns) if turns.places]
            if not offered:
                return None
            at = self._picked // EVERY % len(offered) if self._picked % EVERY == 0 else 0
            order, name = offered[at].pop()
            if self._is_offered(order, name):
                self._threads[name].offered = 0
                return name

    def _is_offered(self, order: int, name: ThreadName) -> bool:
        waiting = self._threads.get(name)
        return waiting is not None and waiting.offered == order

    def _file(self, name: ThreadName) -> None:
        """Put a thread where it belongs now: its first message decides."""
        entry = self.head(name)
        if entry is None:
            self._later.discard(name)
            return
        waiting = self._threads[name]
        at_ms = 0 if waiting.is_taken else register.free_ms(entry.note, self._session)
        if waiting.is_taken or at_ms:
            waiting.offered = 0
            self._later.discard(name)
        if at_ms:
            self._later.set(name, at_ms)
        elif not waiting.is_taken:
            self._offer(name)

    def _offer(self, name: ThreadName) -> None:
        entry = self.head(name)
        if entry is None or self._threads[name].offered == entry.order:
            return
        self._later.discard(name)
        self._threads[name].offered = entry.order
        turns = self._turns[entry.note.priority]
        turns.add(entry.note.party, entry.order, name)
        turns.tidy(len(self._threads), self._is_offered)

    def _refile_leased(self) -> None:
        """Another session reads: leases of those before it are over."""
        for name in list(self._later):
            self._file(name)
