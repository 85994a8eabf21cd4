"""Follows beats, status claims and promises as they are sent (spec §11).

What is heard is told as plain objects. Topics are subjects of the mesh's bus; the addresses
`backbeat://cluster/ID`, `status://PROJECT` and `promise://KIND/THREAD` name them, too. A project is
a kind and every kind below it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.core.bus.signed_message import Message, OlderMessage, Refused
from antiphon.core.bus.subjects import BEAT, MESH, MESH_STATUS, PROMISE, STATUS
from antiphon.core.record.subjects import is_kind
from antiphon.errors import AntiphonError, Malformed
from antiphon.runtime.services import beside
from antiphon.runtime.tempo.tempo_messages import STATUS_CLAIMS, TALKS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.core.bus.signed_message import MessageType
    from antiphon.core.tempo.messages import BeatFrame, StatusClaim
    from antiphon.runtime.tempo.beat_clock import BeatClock

What = Literal["beat", "status", "promise"]
EVERYTHING: Final = ">"
MAX_CLAIMS: Final = 1_000
MAX_PENDING: Final = 4_096


class Topic(Struct, frozen=True):
    """What to listen to."""

    what: What
    kind: str = EVERYTHING
    thread: str = EVERYTHING


ALL_TOPICS: Final = (Topic("beat"), Topic("status"))


def read_topic(text: str, mesh: str) -> Topic:
    """The topic that an address names; `Malformed` if it names none of this mesh."""
    scheme, is_url, rest = text.partition("://")
    if is_url and scheme == "backbeat":
        place, _, named = rest.partition("/")
        if place == "cluster" and named in {mesh, ""}:
            return Topic("beat")
        raise _fault(text, f"this mesh is backbeat://cluster/{mesh}")
    if is_url and scheme == "status" and (is_kind(rest) or not rest):
        return Topic("status", rest or EVERYTHING)
    if is_url and scheme == "promise":
        kind, _, thread = rest.partition("/")
        if (is_kind(kind) or not kind) and thread.isalnum() | (not thread):
            return Topic("promise", kind or EVERYTHING, thread if kind and thread else EVERYTHING)
    raise _fault(text, "write backbeat://cluster/, status://render.video or promise://render.video")


def subjects_of(topic: Topic) -> tuple[str, ...]:
    """Where a topic is heard: that of a kind includes the kinds below it."""
    kind, thread = topic.kind, topic.thread
    if topic.what == "beat":
        return (BEAT.at(),)
    if topic.what == "status":
        below = () if kind == EVERYTHING else (STATUS.at(kind=f"{kind}.{EVERYTHING}"),)
        return (STATUS.at(kind=kind), *below)
    if kind == EVERYTHING:
        return (PROMISE.pattern.partition("{")[0] + EVERYTHING,)
    return (PROMISE.at(kind=kind, thread=thread),)


def _fault(text: str, hint: str) -> Malformed:
    return Malformed(f"{text!r} is no topic of this mesh", reason="topic", hint=hint)


class Heard(Struct, frozen=True):
    """One message."""

    what: What
    author: str
    fields: dict[str, Any]
    warning: str = ""
    """If it was sent in a deprecated form: what to send instead."""


class TempoWatch:
    """What is heard, while it is being watched."""

    def __init__(self, clock: BeatClock) -> None:
        """Use `watching`."""
        self.clock = clock
        self.frame: BeatFrame | None = None
        """The newest frame that is followed."""
        self.claims: dict[tuple[str, str], StatusClaim] = {}
        """The newest claim of each agent about each task."""
        self._news: asyncio.Queue[Heard] = asyncio.Queue(MAX_PENDING)

    async def heard(self) -> Heard:
        """The next message."""
        return await self._news.get()

    def note_frame(self, message: Message[BeatFrame]) -> None:
        """A frame is followed."""
        self.frame = message.body
        self._tell("beat", message)

    async def listen(self, topic: Topic) -> None:
        """Listen to claims or promises until cancelled."""
        messages: MessageType[Any] = STATUS_CLAIMS if topic.what == "status" else TALKS
        async with beside(
            *(self._hear(where, messages, topic.what) for where in subjects_of(topic))
        ):
            await asyncio.Event().wait()

    async def listen_to_mesh(self) -> None:
        """Listen to claims about the mesh itself until cancelled."""
        await self._hear(MESH_STATUS.at(), STATUS_CLAIMS, "status")

    async def _hear(self, where: str, messages: MessageType[Any], what: What) -> None:
        session = self.clock.session
        while True:
            with suppress(AntiphonError):
                async with session.engine.bus.subscribe(where, max_pending=MAX_PENDING) as words:
                    async for word in words:
                        opened = messages.open(
                            word.payload,
                            mesh=session.mesh,
                            subject=word.subject,
                            now_ms=session.wall.now_ms(),
                        )
                        if not isinstance(opened, Refused):
                            self._note(what, opened)
            await asyncio.sleep(1)

    def _note(self, what: What, message: Message[Any]) -> None:
        if what == "status":
            claim: StatusClaim = message.body
            if claim.agent_id.partition("/")[0] != message.author:
                return  # nobody speaks for another node
            key = (claim.agent_id, claim.task_id)
            if claim.state in {"done", "failed"}:
                self.claims.pop(key, None)
            elif key in self.claims or len(self.claims) < MAX_CLAIMS:
                self.claims[key] = claim
        self._tell(what, message)

    def _tell(self, what: What, message: Message[Any]) -> None:
        if self._news.full():
            self._news.get_nowait()
        fields = msgspec.to_builtins(message.body)
        warning = message.warning if isinstance(message, OlderMessage) else ""
        self._news.put_nowait(Heard(what, message.author, fields, warning))


@asynccontextmanager
async def watching(
    clock: BeatClock, topics: tuple[Topic, ...] = ALL_TOPICS
) -> AsyncIterator[TempoWatch]:
    """Listen while the block runs; beats are always followed, and told if they are asked for."""
    watch = TempoWatch(clock)
    if any(topic.what == "beat" for topic in topics):
        clock.watchers.append(watch.note_frame)
    others = [watch.listen(topic) for topic in topics if topic.what != "beat"]
    if any(topic.what == "status" and topic.kind in {MESH, EVERYTHING} for topic in topics):
        others.append(watch.listen_to_mesh())
    try:
        async with clock.listen(), beside(*others):
            yield watch
    finally:
        with suppress(ValueError):
            clock.watchers.remove(watch.note_frame)
