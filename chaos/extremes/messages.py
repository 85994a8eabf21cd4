"""Signed messages at the ends of what they admit: on the bus, and to the gate."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.assembly import MeshConnection
from antiphon.core.bus import subjects as bus
from antiphon.core.bus.signed_message import MessageType
from antiphon.core.messages import envelope
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.policy.locks.lock_turns import Arrival
from antiphon.core.presence.cards import HEARTBEATS, Card
from antiphon.core.record.ids import DEFAULT_AGENT, agent_address
from antiphon.core.tempo import messages as tempo
from antiphon.core.tempo.time_text import hlc_text, time_text
from antiphon.errors import AntiphonError
from antiphon.ports import GateLine
from antiphon.runtime.locks.lock_queue import ARRIVALS
from antiphon.runtime.messages import message_requests
from antiphon.runtime.messages.message_requests import MessageRequest, Put
from antiphon.runtime.presence.worker_messages import WORKER_MESSAGES, WorkerMessage
from antiphon.runtime.tempo.tempo_messages import BAR_REPORTS, BEAT_FRAMES, STATUS_CLAIMS, TALKS
from chaos.extremes.known import KINDS, WORKED, Known
from chaos.extremes.ops import decode_errors
from chaos.extremes.values import Extremes

MESSAGE_WITHIN_S: Final = 0.2
"""A read may wait for longer than this; then nobody waits for its answer."""
MESSAGE_AT_ONCE: Final = 4
THREAD: Final = "a" * 8
JUNK_ON: Final = (bus.ROLL.at(), bus.ENTRY.at(), bus.BEAT.at())


class BusMessage(Struct, frozen=True):
    """A sort of message: its body, how it is signed, and where it is published."""

    body: Any
    signed_as: MessageType[Any]
    subject: str
    """With `USER` for the writer's own."""


BUS: Final = (
    *(BusMessage(tempo.StatusClaim, STATUS_CLAIMS, bus.STATUS.at(kind=one)) for one in KINDS),
    BusMessage(tempo.StatusClaim, STATUS_CLAIMS, bus.STATUS.at(kind=WORKED)),
    BusMessage(tempo.BeatFrame, BEAT_FRAMES, bus.BEAT.at()),
    BusMessage(tempo.BarReport, BAR_REPORTS, bus.BAR_REPORT.at()),
    BusMessage(tempo.HelpRequest, TALKS, bus.PROMISE.at(kind=WORKED, thread=THREAD)),
    BusMessage(tempo.HelpPromise, TALKS, bus.PROMISE.at(kind=WORKED, thread=THREAD)),
    BusMessage(tempo.HelpAnswer, TALKS, bus.PROMISE.at(kind=WORKED, thread=THREAD)),
    BusMessage(Card, HEARTBEATS, bus.HEARTBEAT.at(user="USER")),
    BusMessage(Arrival, ARRIVALS, bus.LOCK_WAIT.at(kind=KINDS[0])),
    BusMessage(WorkerMessage, WORKER_MESSAGES, bus.WORK.at(kind=WORKED)),
)
TIMES: Final = ("hlc", "beat_epoch", "deadline_at", "window_start", "window_end")


class Messages:
    """What one writer sends beside its records."""

    def __init__(self, writer: MeshConnection, extremes: Extremes, known: Known) -> None:
        self._writer = writer
        self._extremes = extremes
        self._chance = extremes.chance
        self._known = known
        self.sent: Counter[str] = Counter()

    async def send(self, count: int) -> None:
        """So many on the bus, and a few requests about messages."""
        for _ in range(count):
            try:
                await self._send_one(self._chance.choice(BUS))
            except (AntiphonError, *decode_errors) as problem:
                self.sent[f"unsent: {type(problem).__name__}"] += 1
        line = self._writer.session.engine.gate
        if line is not None:
            await asyncio.gather(*(self._ask(line) for _ in range(MESSAGE_AT_ONCE)))

    async def _send_one(self, sort: BusMessage) -> None:
        session, key = self._writer.session, self._writer.keyring
        out = session.engine.bus
        subject = sort.subject.replace("USER", out.user)
        if self._chance.random() < 0.1:
            junk = self._chance.randbytes(self._chance.choice((0, 3, 200)))
            await out.publish(self._chance.choice((subject, *JUNK_ON)), junk, reply="")
            self.sent["junk"] += 1
            return
        body = self._fitting(self._extremes.draw(sort.body))
        at_ms = self._chance.choice((self._known.now_ms,) * 6 + (0, 2**53 - 1))
        signer = (key.did, key.sign)
        payload = sort.signed_as.sign(body, signer, mesh=session.mesh, subject=subject, at_ms=at_ms)
        await out.publish(subject, payload)
        self.sent[type(body).__name__] += 1

    def _fitting(self, body: Any) -> Any:
        """About this writer and this mesh, or nobody would listen; times at the ends of theirs."""
        choice, now = self._chance.choice, self._known.now_ms
        texts = (
            *(hlc_text((now, 0)), hlc_text((2**48 - 1, 65_535)), hlc_text((0, 0))),
            *("x", time_text(now), "9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00.000Z+0"),
        )
        fits: dict[str, Any] = {name: choice(texts) for name in TIMES}
        fits |= {"cluster_id": self._writer.session.mesh, "node": self._writer.keyring.did}
        fits |= {"thread_id": THREAD, "agent_id": self._writer.keyring.did + choice(("", "/b"))}
        job = self._known.job_key() or (WORKED, "0" * 64)
        fits["task_id"] = choice(("/".join(job), f"{WORKED}/", "/", "own", "x" * 256))
        names = set(body.__struct_fields__) & fits.keys()
        return replace(body, **{name: fits[name] for name in names})

    # --- messages -------------------------------------------------------------------------------

    async def _ask(self, line: GateLine) -> None:
        is_put = self._chance.random() < 0.4
        try:
            payload = self._put() if is_put else self._request(line.user)
            verb = message_requests.PUT if is_put else message_requests.MESSAGES
            answer = await line.ask(verb, payload, timeout_s=MESSAGE_WITHIN_S)
            found = message_requests.read_answer(answer)
            self.sent["message " + ("put" if found.id else "answered")] += 1
        except (AntiphonError, *decode_errors) as problem:
            self.sent[f"message refused: {type(problem).__name__}"] += 1

    def _put(self) -> bytes:
        key = self._writer.keyring
        body: MessageBody = self._extremes.draw(MessageBody)
        to = self._chance.choice(self._known.dids)
        body = replace(body, node=to, agent=DEFAULT_AGENT, kind=KINDS[0])
        signed = envelope.sign(
            body, (key.did, key.sign), mesh=self._writer.session.mesh, at_ms=self._known.now_ms
        )
        receiver = agent_address(to, DEFAULT_AGENT)
        return message_requests.encode_put(Put(receiver, signed))

    def _request(self, user: str) -> bytes:
        key = self._writer.keyring
        request: MessageRequest = self._extremes.draw(MessageRequest)
        if self._chance.random() < 0.8:
            request = replace(request, agent=DEFAULT_AGENT, wait_ms=0)
        return message_requests.REQUESTS.sign(
            request,
            (key.did, key.sign),
            mesh=self._writer.session.mesh,
            subject=message_requests.request_subject(user),
            at_ms=self._known.now_ms,
        )
