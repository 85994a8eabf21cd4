"""What people have dismissed: dead jobs, and nodes that died, which nobody is told of any more.

It is no record of the log: it changes nothing but what the owner's people are shown. It is kept in
the engine's registers, where all nodes of the owner see it, one register for each dismissal, which
says in its note what it is about. Members cannot reach them. A rule covers the jobs of a kind, or
with some words in their error, that ended before it was made: what fails later is shown again.

Whatever a register says, reading it is bounded, and one that cannot be read counts for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from antiphon.core.record import subjects
from antiphon.core.record.ids import name_of_key
from antiphon.decoding import UNREADABLE
from antiphon.errors import LostRace, Rejected, Unavailable
from antiphon.read_back import read_back

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.families.jobs.state import Job
    from antiphon.ports import MessageStore

PREFIX: Final = "dismissed"
MOST_RULES: Final = 1_000
MOST_SINGLE: Final = 10_000
"""Single jobs and nodes."""
MOST_CHARACTERS: Final = 256
KEPT_MS: Final = 365 * 24 * 3_600_000
REMOVED_MS: Final = 1_000
PAGE: Final = 1_024
TRIES: Final = 5
AT_ONCE: Final = 16
FRESH_S: Final = 2.0
"""How long what was read counts as what is there: pages are drawn again and again."""
WORDS_KEPT: Final = 20_000
"""Jobs of which it is remembered whether a rule covers their error."""

Text = Annotated[str, Meta(max_length=MOST_CHARACTERS)]


class Dismissal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, a node, or a rule about jobs."""

    at_ms: int
    """What ended, or died, until then."""
    by: str = ""
    """The key of whoever dismissed it."""
    kind: Text = ""
    """Of a rule: this kind and those below it; empty: every kind."""
    error: Text = ""
    """Of a rule: words that the outcome and the error have; empty: any."""
    job: Text = ""
    node: Text = ""

    @property
    def is_rule(self) -> bool:
        """Whether it is about all jobs of a sort."""
        return not self.job and not self.node

    @property
    def key(self) -> str:
        """Its register."""
        sort, what = "rule", self.error.casefold()
        if not self.is_rule:
            sort, what = ("job", self.job) if self.job else ("node", self.node)
        return f"{PREFIX}.{sort}.{name_of_key(f'{self.kind} {what}')}"


_decode: Final = msgspec.json.Decoder(Dismissal).decode


def opened(note: bytes) -> Dismissal:
    """The dismissal in a register's note."""
    return _decode(note)


class Dismissed:
    """All dismissals as of one moment."""

    def __init__(self, found: Iterable[Dismissal] = ()) -> None:
        self.all = tuple(found)
        self._jobs = {(one.kind, one.job) for one in self.all if one.job}
        self._nodes = {one.node: one.at_ms for one in self.all if one.node}
        self._rules = [one for one in self.all if one.is_rule]
        self._met: dict[tuple[str, str], bool] = {}

    def covers(self, job: Job, why: Callable[[Job], str]) -> bool:
        """Whether a job was dismissed; `why` finds out its outcome and error, as people see it."""
        key = (job.kind, job.id)
        if key in self._jobs:
            return True
        rules = [
            one
            for one in self._rules
            if job.ended_ms <= one.at_ms and (not one.kind or subjects.covers(one.kind, job.kind))
        ]
        if not rules or any(not one.error for one in rules):
            return bool(rules)
        if key not in self._met:
            if len(self._met) >= WORDS_KEPT:
                self._met.clear()
            said = why(job)
            self._met[key] = any(has_words(said, one.error) for one in rules)
        return self._met[key]

    def covers_node(self, did: str, heard_ms: int) -> bool:
        """Whether a node was dismissed after it was last heard."""
        return heard_ms <= self._nodes.get(did, 0)


def has_words(said: str, words: str) -> bool:
    """Whether a text has these words one after the other, in upper or lower case."""
    text, wanted = said.casefold(), words.casefold().strip()
    at = text.find(wanted)
    while at >= 0:
        around = (text[at - 1 : at], text[at + len(wanted) : at + len(wanted) + 1])
        if not any(one.isalnum() or one == "_" for one in around):
            return True
        at = text.find(wanted, at + 1)
    return False


class DismissalStore:
    """The dismissals of a mesh; without a store, as at a member, there are none."""

    def __init__(self, store: MessageStore | None) -> None:
        self._store = store
        self._read_s = -FRESH_S
        self._last = Dismissed()

    async def read(self) -> Dismissed:
        """What is dismissed now; while the engine does not answer, what was before."""
        loop = asyncio.get_running_loop()
        if self._store is not None and loop.time() - self._read_s >= FRESH_S:
            try:
                found = [one for _, one in (await self._registers(self._store)).values()]
            except Unavailable:
                return self._last
            self._read_s = loop.time()
            if tuple(found) != self._last.all:
                self._last = Dismissed(found)
        return self._last

    async def add(self, dismissals: list[Dismissal]) -> None:
        """Keep these; `Rejected` if there is no room for them."""
        store = self.require()
        there = await self._registers(store)
        known = [one for _, one in there.values()]
        known += [one for one in dismissals if one.key not in there]
        rules = sum(one.is_rule for one in known)
        if rules > MOST_RULES or len(known) - rules > MOST_SINGLE:
            raise Rejected(
                f"at most {MOST_RULES:,} rules and {MOST_SINGLE:,} single jobs and nodes can be"
                " dismissed at one time",
                reason="full",
                hint="dismiss whole kinds or errors, or undo some: antiphon dismiss lists them",
            )
        await self._write_all(store, {one.key: _note(one) for one in dismissals})

    async def remove(self, dismissals: list[Dismissal]) -> None:
        """Keep these no longer."""
        await self._write_all(self.require(), {one.key: b"" for one in dismissals})

    def require(self) -> MessageStore:
        """The store; `Rejected` where there is none."""
        if self._store is None:
            raise Rejected(
                "only the owner's own nodes can dismiss something for everybody",
                reason="policy",
                hint="type it on the machine where 'antiphon init' ran, or ask its owner",
            )
        return self._store

    async def _write_all(self, store: MessageStore, notes: dict[str, bytes]) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def write(key: str, note: bytes) -> None:
            async with slots:
                await _replace(store, key, note)

        dones = await asyncio.gather(
            *(write(key, note) for key, note in notes.items()), return_exceptions=True
        )
        self._read_s = -FRESH_S
        for problem in filter(None, dones):
            raise problem

    async def _registers(self, store: MessageStore) -> dict[str, tuple[int, Dismissal]]:
        found: dict[str, tuple[int, Dismissal]] = {}
        more, after = True, 0
        while more and len(found) <= MOST_RULES + MOST_SINGLE:
            page, more = await store.list(PREFIX, after=after, limit=PAGE)
            for one in page:
                after = max(after, one.revision)
                try:
                    said = opened(one.note) if one.note else None
                except UNREADABLE:
                    continue
                if said is not None and said.key == one.key:
                    found[one.key] = (one.revision, said)
        return found


def _note(dismissal: Dismissal) -> bytes:
    note = msgspec.json.encode(dismissal)
    read_back("the dismissal", dismissal, opened, note)
    return note


async def _replace(store: MessageStore, key: str, note: bytes) -> None:
    """Write a register whatever is in it; whoever loses a race looks again."""
    for left in reversed(range(TRIES)):
        there = await store.get(key)
        if there is None and not note:
            return
        revision = 0 if there is None else there.revision
        ttl_ms = KEPT_MS if note else REMOVED_MS
        try:
            await store.write(key, b"", note=note, expected=revision, ttl_ms=ttl_ms)
        except LostRace:
            if not left:
                raise
        else:
            return
