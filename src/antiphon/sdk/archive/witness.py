"""Comparing histories: whether somebody else has the same log as this machine (spec §7.5).

A coordinator, or a server, could show two machines two different logs, each of them valid by
itself. Two machines that compare the roots of their trees notice.
"""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.archive import checkpoint as checkpoints
from antiphon.core.archive import told_roots
from antiphon.core.archive.signed_note import NoteKey
from antiphon.core.archive.told_roots import TOLD_ROOTS, AskedRoots, ToldRoots
from antiphon.core.bus.signed_message import Refused
from antiphon.core.bus.subjects import ROOTS
from antiphon.core.proof.merkle import is_consistent
from antiphon.errors import Malformed, Misconfigured, Rejected, Unavailable
from antiphon.sdk.archive.archives import open_archive
from antiphon.sdk.authority.holdings import find_node, who
from antiphon.settings import is_bucket

if TYPE_CHECKING:
    from antiphon.core.archive.signed_note import Note
    from antiphon.runtime.archive.archive_reader import ArchiveReader
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica import Replica
    from antiphon.runtime.replica.replica_tree import Tree
    from antiphon.sdk.connection.connection import Connection

ANSWER_WITHIN_S: Final = 3.0
MAX_NOTE_BYTES: Final = 64 * 1024


class Comparison(Struct, frozen=True, kw_only=True):
    """How two histories compare."""

    result: Literal["same", "parted", "unproved"]
    """`unproved`: there was no proof, or a wrong one."""
    other: str
    own_size: int
    other_size: int
    common: int
    """How many records are known to be the same."""
    is_exact: bool = True
    """Whether the histories part right after these; otherwise perhaps later."""
    by_coordinator: bool | None = None
    """Whether a coordinator of this mesh signed the other history; None if it is not signed."""


class Compared(typing.Protocol):
    """What comparing needs of a `Mesh`."""

    @property
    def id(self) -> str:
        """The mesh's id."""

    @property
    def connection(self) -> Connection:
        """What it is connected by."""

    def replica(self) -> AbstractAsyncContextManager[Replica]:
        """The local replica."""


class History(typing.Protocol):
    """One side: a tree of some size."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def size(self) -> int:
        """How many records it has."""

    @property
    def root(self) -> bytes:
        """The root over all of them."""

    async def root_at(self, size: int) -> bytes | None:
        """The root over the first `size`; None if it cannot be known."""

    async def proof(self, old: int) -> list[bytes] | None:
        """What shows that it begins with the tree of `old`; None if there is no proof."""


class OwnHistory:
    """That of this machine's replica."""

    name = "this machine"

    def __init__(self, tree: Tree, size: int) -> None:
        """`size` is how many records the replica has."""
        self._tree = tree
        self.size, self.root = size, tree.root_at(size)

    async def root_at(self, size: int) -> bytes | None:
        """See `History.root_at`."""
        return self._tree.root_at(size)

    async def proof(self, old: int) -> list[bytes] | None:
        """See `History.proof`."""
        return self._tree.consistency(old, self.size)


class ArchivedHistory:
    """That of an archive."""

    def __init__(self, reader: ArchiveReader) -> None:
        """Up to its checkpoint."""
        self._reader = reader
        self.name = f"the archive {reader.store}"
        self.size, self.root = reader.checkpoint.size, reader.checkpoint.root

    async def root_at(self, size: int) -> bytes | None:
        """See `History.root_at`."""
        return await self._reader.root_at(size)

    async def proof(self, old: int) -> list[bytes] | None:
        """See `History.proof`."""
        return await self._reader.consistency(old, self.size)


class NotedHistory:
    """A checkpoint alone: one root, and no proof."""

    def __init__(self, name: str, checkpoint: checkpoints.Checkpoint) -> None:
        """`name` is where it is from."""
        self.name, self.size, self.root = name, checkpoint.size, checkpoint.root

    async def root_at(self, size: int) -> bytes | None:
        """See `History.root_at`."""
        return self.root if size == self.size else None

    async def proof(self, old: int) -> list[bytes] | None:
        """See `History.proof`."""
        return [] if old == self.size else None


class NodeHistory:
    """That of another full node, which is asked."""

    def __init__(self, session: Session, did: str, name: str, told: ToldRoots) -> None:
        """Use `ask`."""
        self._session, self._did = session, did
        self.name, self.size, self.root = name, told.size, bytes.fromhex(told.root)

    @classmethod
    async def ask(cls, session: Session, did: str, name: str) -> NodeHistory:
        """How far that node is; `Unavailable` if it does not answer."""
        return cls(session, did, name, await _told_by(session, did, ()))

    async def root_at(self, size: int) -> bytes | None:
        """See `History.root_at`."""
        told = dict((await _told_by(self._session, self._did, (size,))).roots)
        return bytes.fromhex(told[size]) if size in told else None

    async def proof(self, old: int) -> list[bytes] | None:
        """See `History.proof`; the node may have grown since it was asked first."""
        told = await _told_by(self._session, self._did, (old,))
        self.size, self.root = told.size, bytes.fromhex(told.root)
        return [bytes.fromhex(node) for node in told.path]


async def _told_by(session: Session, did: str, sizes: Sequence[int]) -> ToldRoots:
    bus = session.engine.bus
    inbox = f"{bus.new_inbox()}.{session.entropy.token(16).hex()}"
    question = told_roots.encode(AskedRoots(did, tuple(sizes)))
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S), bus.subscribe(inbox) as answers:
            await bus.publish(ROOTS.at(), question, reply=inbox)
            async for answer in answers:
                message = TOLD_ROOTS.open(answer.payload, mesh=session.mesh, subject=inbox)
                if not isinstance(message, Refused) and message.author == did:
                    return message.body
    except TimeoutError:
        pass
    raise Unavailable(
        f"{did} does not answer: it is not online, or is no full node of the whole log",
        hint="antiphon nodes lists who is online",
    )


async def compare(own: History, other: History) -> Comparison:
    """Whether one of the two is the beginning of the other, and where they part if not."""
    is_ahead = other.size > own.size
    small, large = (own, other) if is_ahead else (other, own)
    path = await large.proof(small.size)
    told = partial(Comparison, other=other.name, own_size=own.size, other_size=other.size)
    if path is not None and is_consistent(small.size, small.root, large.size, large.root, path):
        return told(result="same", common=small.size)
    low, high = 0, small.size
    if path is None or await own.root_at(high) == await other.root_at(high):
        return told(result="unproved", common=0)
    while high - low > 1:
        middle = (low + high) // 2
        theirs = await other.root_at(middle)
        if theirs is None:
            return told(result="parted", common=low, is_exact=False)
        low, high = (middle, high) if theirs == await own.root_at(middle) else (low, middle)
    return told(result="parted", common=low)


async def compare_with(mesh: Compared, against: str) -> Comparison:
    """Compare this machine's replica with a checkpoint, an archive, or another full node."""
    session = mesh.connection.session
    async with AsyncExitStack() as stack:
        replica = await stack.enter_async_context(mesh.replica())
        own = OwnHistory(replica.tree, replica.tree.size_at(replica.cursor.seq))
        note: Note | None = None
        other: History
        path = Path(against)
        is_folder, is_file = await asyncio.to_thread(lambda: (path.is_dir(), path.is_file()))
        if is_folder or is_bucket(against):
            archive = await stack.enter_async_context(open_archive(against))
            other, note = ArchivedHistory(archive.reader), archive.reader.note
            found = archive.reader.checkpoint
        elif is_file:
            found, note = _read_note(path)
            other = NotedHistory(against, found)
        else:
            did = find_node(await who(mesh.connection), against)
            return await compare(own, await NodeHistory.ask(session, did, against))
        if found.mesh != mesh.id:
            raise Rejected(f"{against} is of another mesh, {found.mesh}", reason="mesh")
        keys = [NoteKey(found.origin, did) for did in session.history.coordinators]
        is_signed = any(note.is_signed_by(key) for key in keys)
        return replace(await compare(own, other), by_coordinator=is_signed)


def _read_note(path: Path) -> tuple[checkpoints.Checkpoint, Note]:
    try:
        with path.open("rb") as file:
            return checkpoints.read(file.read(MAX_NOTE_BYTES + 1))
    except OSError as problem:
        raise Misconfigured(f"{path} cannot be read: {problem.strerror}") from problem
    except Malformed as problem:
        raise Misconfigured(
            f"{path} is not a checkpoint: {problem.message}",
            hint="the file checkpoint of an archive is one",
        ) from problem


__all__ = ["Comparison", "compare_with"]
