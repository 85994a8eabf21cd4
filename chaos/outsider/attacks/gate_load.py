"""What the outsider has the gate and the HTTP interface do for it, again and again.

A machine of the contractor's may send messages. What it asks must cost the gate about as much as it
is worth, and must leave room for others: in inboxes, in rates, and among connections. Work is
counted, or compared with other work of the same moment, so that a slow machine is no breach.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from msgspec import Raw

from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.messages import envelope, register
from antiphon.core.messages.envelope import MAX_MESSAGE_BYTES, MessageBody
from antiphon.core.messages.inbox import MAX_BYTES_OF_PARTY
from antiphon.core.messages.register import Note, write_note
from antiphon.core.messages.send_rate import BURST
from antiphon.core.record.ids import agent_address, split_address
from antiphon.errors import InboxFull, RateLimited, Unavailable
from antiphon.guard import Guard
from antiphon.interfaces.http.answers import word
from antiphon.interfaces.http.askers import Anybody
from antiphon.interfaces.http.bounded_server import serving
from antiphon.interfaces.http.connection import MAX_CONNECTIONS
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.route import REQUESTS, Route
from antiphon.ports import MessageStore
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.messages import message_requests
from antiphon.runtime.messages.message_requests import MESSAGES, PUT, MessageRequest, Put
from antiphon.runtime.messages.register_index import register_key
from antiphon.sdk.http.deliveries import Deliveries
from antiphon.settings import HttpAddress
from chaos.network.raw_connection import ANSWER_S, RawConnection
from chaos.outsider.attacks.forgeries import Forger
from chaos.outsider.attempt import Attempt, Outcome
from chaos.outsider.target import Breach, TargetMesh

KIND: Final = "render.note"
DEAD_LETTERS: Final = 300
LETTER_BYTES: Final = 60_000
ASKED: Final = 12
TIMES_DEARER: Final = 8.0
"""How much more the gate may work for a question about dead letters than for one about threads."""
WAITED_S: Final = 1.5
MOST_READS: Final = 40
"""Reads of the log while somebody waits for that long; a gate that spins reads thousands."""
WRITTEN_AT_ONCE: Final = 32
KEYS: Final = 3
TWICE: Final = 6
SILENT: Final = MAX_CONNECTIONS + 16
STRANGER: Final = "127.0.0.2"
PROBES: Final = 6
PROBE_S: Final = 16.0


class Sender:
    """A machine of the contractor's that may send, with its raw connection."""

    def __init__(self, target: TargetMesh, home: StateDirectory, raw: RawConnection) -> None:
        self.target = target
        self.home = home
        self.raw = raw
        self.key = home.signer("machine")
        self.address = agent_address(self.key.did, "main")

    async def ask(self, **fields: Any) -> message_requests.MessageAnswer:
        """One request about its own inbox."""
        payload = message_requests.REQUESTS.sign(
            MessageRequest(agent="main", session=register.session_name(1, "s"), **fields),
            (self.key.did, self.key.sign),
            mesh=self.target.mesh,
            subject=message_requests.request_subject(self.raw.user),
            at_ms=self.target.owner.connection.session.wall.now_ms(),
        )
        return await self._sent(MESSAGES, payload)

    async def put(self, to: str, **fields: Any) -> message_requests.MessageAnswer:
        """One message."""
        signed = signed_message(self.target, self.key, to, **fields)
        return await self._sent(PUT, message_requests.encode_put(Put(to, signed)))

    async def _sent(self, verb: str, payload: bytes) -> message_requests.MessageAnswer:
        subject = f"apg.{self.target.mesh}.{self.raw.user}.{verb}"
        found = await self.raw.ask(subject, payload, within_s=WAITED_S + ANSWER_S)
        if not found:
            raise Breach("the gate stays silent")
        return message_requests.read_answer(found[0].data)


def signed_message(target: TargetMesh, by: SeedKeyring, to: str, **fields: Any) -> bytes:
    """A message of a kind that the contractor may send."""
    node, agent = split_address(to)
    fields = {"key": os.urandom(8).hex(), "payload": Raw(b"1"), **fields}
    body = MessageBody(node=node, agent=agent, sender="main", kind=KIND, **fields)
    at_ms = target.owner.connection.session.wall.now_ms()
    return envelope.sign(body, (by.did, by.sign), mesh=target.mesh, at_ms=at_ms)


async def _sender(target: TargetMesh) -> Sender:
    home = await target.join(f"sender-{os.urandom(2).hex()}", can="message")
    await target.host.node.session.sync_control()
    return Sender(target, home, await target.connect(home))


def _store(target: TargetMesh) -> MessageStore:
    store = target.host.node.session.engine.messages
    if store is None:
        raise Breach("this shows nothing, since the host stores no messages")
    return store


async def _all(writes: list[Callable[[], Awaitable[object]]]) -> None:
    """The first alone, and then many at a time."""
    await writes[0]()
    for start in range(1, len(writes), WRITTEN_AT_ONCE):
        await asyncio.gather(*(one() for one in writes[start : start + WRITTEN_AT_ONCE]))


async def _dead_letters(target: TargetMesh) -> Outcome:
    """Many large dead letters of its own, as if it had sent them over an hour; and one question."""
    sender, store = await _sender(target), _store(target)
    signed = signed_message(
        target, sender.key, sender.address, payload=Raw(b'"%b"' % (b"x" * LETTER_BYTES))
    )
    note = Note(sender=sender.address, party=sender.key.did, size=len(signed))
    text = write_note(
        register.buried(note, register.EXPIRED, target.owner.connection.session.wall.now_ms())
    )
    prefix = f"dead.{envelope.inbox_name(sender.address)}"

    def written(number: int) -> Callable[[], Awaitable[object]]:
        key = register_key(prefix, "", f"{number:032x}")
        return lambda: store.write(key, signed, note=text, expected=0, ttl_ms=register.DEAD_MS)

    await _all([written(number) for number in range(DEAD_LETTERS)])
    usual = await _cpu_s(lambda: sender.ask(do="threads"))
    dear = await _cpu_s(lambda: sender.ask(do="dead", limit=1))
    if dear > TIMES_DEARER * usual:
        raise Breach(
            f"one of {DEAD_LETTERS} dead letters costs {dear * 1000:.0f} ms of processor,"
            f" another question {usual * 1000:.1f} ms"
        )
    return Outcome("harmless", f"{dear / usual:.1f} times as dear as another question")


async def _cpu_s(ask: Callable[[], Awaitable[object]]) -> float:
    """Processor time of this process, the gate included, for one question."""
    await ask()
    begun = time.process_time()
    for _ in range(ASKED):
        await ask()
    return (time.process_time() - begun) / ASKED


async def _waits_for_an_empty_thread(target: TargetMesh) -> Outcome:
    """Wait for a thread that has nothing, while a message of no thread is there."""
    sender = await _sender(target)
    await sender.put(sender.address)
    log: Any = target.host.node.session.log
    reads, last = 0, log.last

    async def counted(*args: Any, **how: Any) -> Any:
        nonlocal reads
        reads += 1
        return await last(*args, **how)

    log.last = counted
    try:
        waiting = sender.ask(do="read", thread="nothing-here", wait_ms=round(WAITED_S * 1000))
        if (await waiting).handed:
            raise Breach("a message of another thread was handed out")
    finally:
        del log.last
    if reads > MOST_READS:
        raise Breach(f"the gate read the log {reads} times while it waited for {WAITED_S:g} s")
    return Outcome("harmless", f"{reads} reads of the log in {WAITED_S:g} s")


async def _one_key_in_two_threads(target: TargetMesh) -> Outcome:
    """The same message in two threads at once, soon over: the inbox must still be read."""
    sender = await _sender(target)
    for number in range(TWICE):
        puts = (
            sender.put(sender.address, key=f"k{number}", thread=thread, ttl_ms=1)
            for thread in ("one", "other")
        )
        await asyncio.gather(*puts)
    await asyncio.sleep(0.05)
    for _ in range(2 * TWICE):
        try:
            await sender.ask(do="read", limit=64)
        except Unavailable as failed:
            raise Breach(f"a reader is told: {failed.message}") from failed
    return Outcome("gate", "a key has one message, whatever its thread")


async def _fills_an_inbox(target: TargetMesh) -> Outcome:
    """As many bytes as one sender may have waiting there, and more; then somebody else writes."""
    sender, store = await _sender(target), _store(target)
    receiver = agent_address((await _sender(target)).key.did, "main")
    now_ms = target.owner.connection.session.wall.now_ms()
    note = Note(
        sender=sender.address,
        party=sender.key.did,
        size=MAX_MESSAGE_BYTES,
        put_ms=now_ms,
        expires_ms=now_ms + register.RETENTION_MS,
    )
    prefix, text = f"box.{envelope.inbox_name(receiver)}", write_note(note)

    def written(number: int) -> Callable[[], Awaitable[object]]:
        key = register_key(prefix, "", f"{number:032x}")
        return lambda: store.write(key, b"x", note=text, expected=0, ttl_ms=60_000)

    await _all([written(number) for number in range(MAX_BYTES_OF_PARTY // MAX_MESSAGE_BYTES)])
    large = Raw(b'"%b"' % (b"x" * LETTER_BYTES))
    with suppress(InboxFull):
        for _ in range(2):
            await sender.put(receiver, payload=large)
        raise Breach("one sender may have as many bytes waiting in an inbox as it likes")
    try:
        await target.owner.messages.send(receiver, "of somebody else", kind="note", priority=3)
    except InboxFull as full:
        raise Breach(f"one sender filled another's inbox: {full.message}") from full
    return Outcome("gate", "each party has a share of an inbox, also in bytes")


async def _many_keys_over_http(target: TargetMesh) -> Outcome:
    """One party, several keys: what may be sent over HTTP is counted for all of them."""
    sender = await _sender(target)
    receiver = agent_address((await _sender(target)).key.did, "main")
    forger = Forger(target, sender.key)
    keys = [SeedKeyring(os.urandom(32)) for _ in range(KEYS)]
    for key in keys:
        made = forger.key.delegate(forger.delegation(key.did, command="/message/send"))
        record = forger.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)))
        found = await sender.raw.ask(f"apg.{target.mesh}.{sender.raw.user}.post", record.payload)
        if not found or not json.loads(found[0].data).get("seq"):
            raise Breach("this shows nothing, since the gate did not store its delegation")
    await target.host.node.session.sync_control()
    node, stored = Deliveries(target.host.node.session), 0
    begun = time.monotonic()
    try:
        for key in keys:
            for _ in range(round(BURST)):
                with suppress(RateLimited):
                    await node.deliver(signed_message(target, key, receiver))
                    stored += 1
    finally:
        await node.close()
    allowed = BURST + 20 * (time.monotonic() - begun)
    if stored > allowed * 1.2:
        raise Breach(f"{KEYS} keys of one party sent {stored} messages over HTTP at once")
    return Outcome("gate", f"{stored} messages of {KEYS} keys, as of one")


async def _healthy(*_: Any) -> Any:
    return word("ok")


def _probes() -> Door:
    asker = Anybody("one word")
    probe = Route(path="/healthz", answer=_healthy, asker=asker, limits=REQUESTS, is_probe=True)
    return Door((probe,), Guard())


async def _silent_connections(_: TargetMesh) -> Outcome:
    """More connections than the HTTP interface has, which say nothing and come again."""
    async with serving(_probes(), HttpAddress("127.0.0.1", 0)) as port:
        holding = [asyncio.ensure_future(_hold(port)) for _ in range(SILENT)]
        try:
            await asyncio.sleep(0.5)
            answered = sum([await _is_healthy(port) for _ in range(PROBES)])
        finally:
            for one in holding:
                one.cancel()
            await asyncio.gather(*holding, return_exceptions=True)
    if answered < PROBES:
        raise Breach(f"beside {SILENT} silent connections {answered} of {PROBES} were answered")
    return Outcome("harmless", "the longest silent one makes room")


async def _hold(port: int) -> None:
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(STRANGER, 0)
            )
            try:
                await reader.read(1)
            finally:
                writer.close()
        await asyncio.sleep(0.02)


async def _is_healthy(port: int) -> bool:
    """A probe, as an orchestrator makes it."""
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return (await reader.readline()).startswith(b"HTTP/1.1 200")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    finally:
        await asyncio.sleep(0.1)


GATE_LOAD: Final = [
    Attempt("have the gate read all dead letters for one", _dead_letters),
    Attempt("have the gate wait for a thread that has nothing", _waits_for_an_empty_thread),
    Attempt("put one message into two threads at once", _one_key_in_two_threads),
    Attempt("fill another's inbox with bytes", _fills_an_inbox),
    Attempt("send over HTTP with many keys of one party", _many_keys_over_http),
    Attempt("take all HTTP connections and say nothing", _silent_connections),
]
