"""One space of shared memory: read, write, watch, and resolve conflicts (docs/do/memory.md)."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.core.families.memory.ops import MAX_KEY_LENGTH, MEMO, Strategy
from antiphon.core.families.memory.state import Document as State
from antiphon.core.families.memory.state import DocumentLane, document_key
from antiphon.core.families.memory.writing import Wanted
from antiphon.errors import Conflict, LostRace, Malformed, Misconfigured, Unavailable, is_away
from antiphon.runtime.memory import document_values
from antiphon.runtime.memory.documents import Deferred, Documents, Outcome, Settled
from antiphon.runtime.outbox.lane_writes import form_of
from antiphon.runtime.outbox.outbox_item import Form, OutboxItem
from antiphon.runtime.replica.lane_lists import LaneList, Lists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from antiphon.core.families.memory.ops import Inline, Stored
    from antiphon.sdk.connection.connection import Connection

MERGES: Final = 64
"""How often both values are merged while others keep writing."""
MOST_LISTED: Final = 10_000
"""Documents with conflicts."""
AT_ONCE: Final = 1_000
"""Keys that are read without a pause."""
ANY_KEY: Final = "any"
"""Read to learn whether a space may be read: a replica has nothing of one that may not."""
_STRATEGIES: Final = ("remote", "local", "merge", "defer")


DOCUMENTS: Final = LaneList[State]("memory", DocumentLane, MEMO, "standing", name="key")
"""Documents that are there, by space and key."""
DOCUMENTS_IN_CONFLICT: Final = LaneList[State]("memory", DocumentLane, MEMO, "conflicts")
"""Documents with values that wait for a decision, the oldest first."""


class Document(Struct, frozen=True, kw_only=True):
    """A document as it was read."""

    space: str
    key: str
    value: Any
    """None if it was deleted, or holds `null`."""
    revision: int
    """The place on the log of the record that wrote it."""
    hlc: tuple[int, int]
    """That record's timestamp: milliseconds, and a counter within them."""
    author: str
    """The node that wrote it, and its agent."""
    agent: str
    conflicts: int
    """How many deferred values wait to be resolved."""
    is_deleted: bool

    @property
    def written_at(self) -> datetime:
        """When it was written, by its author's clock."""
        return datetime.fromtimestamp(self.hlc[0] / 1000, UTC)


class Sibling(Struct, frozen=True, kw_only=True):
    """A deferred value, beside a document."""

    space: str
    key: str
    id: str
    value: Any
    """None also where the deferred put was a deletion."""
    base: int
    """The revision that it was made from."""
    author: str
    agent: str


class PutResult(Struct, frozen=True, kw_only=True):
    """What became of a put."""

    outcome: Outcome | Literal["tentative"]
    """`written`; `skipped`: what is there stays; `conflict`: it waits beside the document;
    `tentative`: it waits on this machine until there is a connection."""
    document: Document | None
    """The document as it is now; None if that is not known."""
    sibling: str = ""
    """For a conflict, the id by which it can be resolved."""
    is_same: bool = False
    """Whether it was skipped where nothing is lost: the document has just this value."""

    @property
    def why(self) -> str:
        """Why it was not written, for people; empty if it was."""
        document = self.document
        if self.outcome == "written":
            return ""
        if self.outcome == "tentative":
            return "the mesh cannot be reached, so it waits on this machine: antiphon outbox"
        if document is None or document.is_deleted:
            return "there is no such document"
        where = f"{document.key!r} in {document.space}"
        if self.is_same:
            return f"{where} has this value already, at revision {document.revision}"
        by = f"{document.author[-8:]}/{document.agent}"
        stays = "keeps its value beside yours" if self.outcome == "conflict" else "stays as it is"
        return f"{where} is at revision {document.revision}, written by {by}, and {stays}"


class MemorySpace:
    """The documents of one space."""

    name: str

    def __init__(
        self, connection: Connection, name: str, documents: Callable[[], Documents]
    ) -> None:
        """Use `mesh.memory[name]`."""
        self.name = name
        self._connection = connection
        self._of = documents

    # --- reading ------------------------------------------------------------------------------

    async def get(self, key: str) -> Document | None:
        """The document; None if there is none, or it was deleted."""
        found = await self._read(_checked(key))
        return None if found is None or found.value is None else await self._shown(found)

    async def _read(self, key: str) -> State | None:
        """A document as it is now; without a connection, as this machine's replica has it."""
        try:
            return await self._of().read(self.name, key)
        except Unavailable as problem:
            if self._connection.keeping is None or not is_away(problem):
                raise
        from antiphon.assembly.offline_connection import known_replica

        with known_replica(self._connection.home, self._connection.opened) as replica:
            document: State | None = replica.lane(document_key(self.name, key)).state
            return document

    async def keys(self, prefix: str = "") -> list[str]:
        """The keys of all documents, in order; from this machine's replica."""
        found: list[str] = []
        async with self._connection.replica() as replica:
            lists = Lists(replica, self._connection.session.control)
            is_full = True
            while is_full:
                place = (self.name, found[-1] if found else "")
                page = lists.named(
                    DOCUMENTS, among=(self.name,), prefix=prefix, after=place, limit=AT_ONCE
                )
                found += [one.name for one in page]
                is_full = len(page) == AT_ONCE
                await asyncio.sleep(0)
        if not found:
            await self._of().read(self.name, ANY_KEY)  # raises where this key may not read
        return found

    async def conflicts(self, key: str | None = None) -> list[Sibling]:
        """Deferred values that nobody has resolved: of one document, or of the whole space.

        Of more than 10,000 documents with such values, parties share the list.
        """
        documents = self._of()
        if key is not None:
            state = await documents.read(self.name, _checked(key))
            return [] if state is None else await self._siblings(state)
        async with self._connection.replica() as replica:
            lists = Lists(replica, self._connection.session.control)
            known = lists.shared(DOCUMENTS_IN_CONFLICT, limit=MOST_LISTED, among=(self.name,)).rows
        if not known:
            await documents.read(self.name, ANY_KEY)
        keys = sorted(one.state.key for one in known)
        return [sibling for key in keys for sibling in await self.conflicts(key)]

    # --- writing ------------------------------------------------------------------------------

    async def put(
        self,
        key: str,
        value: object,
        *,
        base: Document | int | UnsetType | None = UNSET,
        strategy: Strategy = "remote",
        merge: Callable[[Any, Any], Any] | None = None,
    ) -> PutResult:
        """Write a value that was made from `base`: a document that you read, or its revision.

        None, for what you read, is a document that does not exist yet. If the document has another
        revision than the base, the strategy decides, and the result says what became of the value.
        With `merge` (a function of the value that is there and yours, async or not) it is `merge`.
        Without a base, `Conflict` if there is a document with another value. Without a connection
        the value waits (docs/do/offline.md), unless a function has to merge it.
        """
        if merge is not None:
            strategy = "merge"
        _check_strategy(strategy)
        if strategy == "merge" and merge is None:
            raise Misconfigured(
                "the strategy merge needs a function",
                hint="put(…, merge=lambda theirs, mine: …), or update(key, function)",
            )
        given = None if isinstance(base, UnsetType) else base
        wanted = await self._wanted(key, value, given, strategy)
        if merge is None:
            kept = await self._put_or_keep(wanted)
            if isinstance(kept, OutboxItem):
                return PutResult(outcome="tentative", document=None)
            settled = kept
        else:
            settled = await self._of().put(wanted)
        if merge is not None and settled.outcome == "skipped":
            return await self._merged(key, lambda theirs: merge(theirs, value))
        result = await self._result(settled, wanted)
        if base is UNSET and result.outcome == "skipped" and not result.is_same:
            raise Conflict(
                f"nothing was written: {result.why}",
                hint=f"read it first: old = await space.get({key!r}), then put(…, base=old);"
                " or update(key, function); or strategy='local' to write over it",
            )
        return result

    async def update(self, key: str, change: Callable[[Any], Any]) -> PutResult:
        """Write what a function makes of the present value, again while others write first.

        The function, async or not, gets the value, or None if there is no document. It may be
        called several times.
        """
        return await self._merged(key, change)

    async def delete(
        self, key: str, *, base: Document | int | None = None, strategy: Strategy = "remote"
    ) -> PutResult:
        """Delete a document; without a base, the one that is there now."""
        if base is None:
            state = await self._read(_checked(key))
            base = state.revision if state is not None else 0
        _check_strategy(strategy)
        settled = await self._put_or_keep(self._bare(key, None, base, strategy))
        if isinstance(settled, OutboxItem):
            return PutResult(outcome="tentative", document=None)
        return await self._result(settled)

    async def resolve(
        self,
        key: str,
        value: object,
        *,
        siblings: Iterable[Sibling | str] | None = None,
        base: Document | int | None = None,
    ) -> PutResult:
        """End conflicts with a value: all that the document has, or those that are named.

        `skipped` if the document, or one of the siblings, is not what it was any more.
        """
        documents = self._of()
        state = await documents.read(self.name, _checked(key))
        if state is None or not state.siblings:
            raise Misconfigured(
                f"{key!r} in {self.name} has no conflict",
                hint=f"antiphon memory conflicts {self.name} lists those of the space",
            )
        if siblings is None:
            named = tuple(one.op for one in state.siblings)
        else:
            named = tuple(one if isinstance(one, str) else one.id for one in siblings)
        given = state.revision if base is None else base
        wanted = await self._wanted(key, value, given, "remote", named)
        return await self._result(await documents.put(wanted))

    # --- following ----------------------------------------------------------------------------

    @asynccontextmanager
    async def watch(self, key: str | None = None) -> AsyncIterator[AsyncIterator[Document]]:
        """Documents after each change from now on: of one key, or of the whole space.

        While nothing is written there, nothing is read.
        """
        if key is not None:
            _checked(key)

        async def shown() -> AsyncIterator[Document]:
            async for change in changes:
                yield await self._shown(change)

        async with self._of().watch(self.name, key) as changes:
            yield shown()

    # --- in between -----------------------------------------------------------------------------

    async def _put_or_keep(self, wanted: Wanted) -> Settled | OutboxItem:
        """Write a value, or keep it until there is a connection."""
        outbox, documents = self._connection.keeping, self._of()
        if outbox is None:
            return await documents.put(wanted)
        sent: list[Form] = []
        return await outbox.write_or_keep(
            lambda: self._of().put(wanted, lambda draft: sent.append(form_of(draft))),
            lambda _: outbox.keep_put(wanted, sent),
            content=wanted,
        )

    async def _merged(self, key: str, change: Callable[[Any], Any]) -> PutResult:
        documents = self._of()
        for attempt in range(MERGES):
            if attempt:
                await documents.session.pause(min(attempt - 1, 4))
            state = await documents.read(self.name, _checked(key))
            present = None if state is None else await self._value(state.key, state.value)
            made = change(present)
            if inspect.isawaitable(made):
                made = await made
            revision = state.revision if state is not None else 0
            settled = await documents.put(await self._wanted(key, made, revision, "merge"))
            if settled.outcome != "skipped":
                return await self._result(settled)
        raise LostRace(f"others wrote {key!r} first {MERGES} times", hint="try again")

    async def _wanted(
        self,
        key: str,
        value: object,
        base: Document | int | None,
        strategy: Strategy,
        resolves: tuple[str, ...] = (),
    ) -> Wanted:
        kept = await document_values.keep(value, self._connection.artifacts)
        return self._bare(key, kept, base, strategy, resolves)

    def _bare(
        self,
        key: str,
        value: Inline | Stored | None,
        base: Document | int | None,
        strategy: Strategy,
        resolves: tuple[str, ...] = (),
    ) -> Wanted:
        revision = base.revision if isinstance(base, Document) else base or 0
        return Wanted(
            space=self.name,
            key=_checked(key),
            agent=self._connection.agent,
            value=value,
            base=revision,
            strategy=strategy,
            resolves=resolves,
        )

    async def _result(self, settled: Settled, wanted: Wanted | None = None) -> PutResult:
        state = settled.document
        document = None if state is None else await self._shown(state)
        is_same = state is not None and wanted is not None and state.value == wanted.value
        return PutResult(
            outcome=settled.outcome,
            document=document,
            sibling=settled.op_id,
            is_same=is_same and settled.outcome == "skipped",
        )

    async def _shown(self, state: State) -> Document:
        return Document(
            space=self.name,
            key=state.key,
            value=await self._value(state.key, state.value),
            revision=state.revision,
            hlc=state.written,
            author=state.author,
            agent=state.agent,
            conflicts=len(state.siblings),
            is_deleted=state.value is None,
        )

    async def _siblings(self, state: State) -> list[Sibling]:
        return [await self._sibling(one) for one in await self._of().siblings(state)]

    async def _sibling(self, one: Deferred) -> Sibling:
        return Sibling(
            space=self.name,
            key=one.body.key,
            id=one.op_id,
            value=await self._value(one.body.key, one.body.value),
            base=one.body.base,
            author=one.author,
            agent=one.body.agent,
        )

    async def _value(self, key: str, value: Inline | Stored | None) -> Any:
        return await document_values.read(
            value, self._connection.artifacts, space=self.name, key=key
        )


def _checked(key: str) -> str:
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        raise Malformed(
            f"a key has 1 to {MAX_KEY_LENGTH} characters",
            reason="key",
            hint="use a shorter text, such as 'plan' or 'files/src/main.py'",
        )
    return key


def _check_strategy(strategy: str) -> None:
    if strategy not in _STRATEGIES:
        raise Misconfigured(
            f"{strategy!r} is not a strategy", hint=f"choose from: {', '.join(_STRATEGIES)}"
        )


__all__ = ["Document", "MemorySpace", "PutResult", "Sibling", "Strategy"]
