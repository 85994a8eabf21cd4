"""What the outsider makes the server send for it: reply subjects, and acknowledgements.

The server checks no permission where it answers, and the asker names the reply subject. An answer
that holds a record of the asker's own is as good as a message in somebody else's name.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

from antiphon.sdk.handle import JobHandle
from chaos.network.raw_connection import QUIET_S, header
from chaos.outsider.attacks.headers import own_subject, rejected, stored
from chaos.outsider.attempt import Attempt, Outcome, fill_in, publish_attempt
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh

_QUEUE: Final = "render=video=normal"
_TAKE: Final = b'{"batch":1,"no_wait":true}'
_LATER_MS: Final = 30_000

# --- reply subjects -----------------------------------------------------------------------------


def _next(target: TargetMesh) -> str:
    return f"$JS.API.CONSUMER.MSG.NEXT.{target.connection.stream}.{_QUEUE}"


def _answering_on(name: str, reply_to: str, *, heard: str = "") -> Attempt:
    """Every sort of answer that the server gives, sent to one place.

    `heard` says why it does no harm, where members do receive it.
    """

    async def act(target: TargetMesh) -> Outcome:
        connection, to = target.connection, fill_in(reply_to, target)
        before = {one.seq for one in await target.read_log()}
        planted, called = own_subject(target), own_subject(target, "jobs.1")
        stolen = await connection.listen(f"apb.{target.mesh}.inbox.{connection.user}.>")
        # The best that it could plant: a login request, and where the answer should go.
        head = header(Antiphon_Reply=f"inbox.{connection.user}.stolen")
        for subject in (planted, called):
            await stored(target, subject, head, json.dumps({"kinds": [BUILD]}).encode())
        get = f"$JS.API.DIRECT.GET.{connection.stream}"
        await connection.publish(own_subject(target), b"{}", reply=to)
        for where, body in (
            (f"{get}.{planted}", b""),
            (f"{get}.{planted}", b'{"no_hdr":true}'),
            (f"{get}.{own_subject(target)}", b""),
            (_next(target), _TAKE),
            (_next(target), b'{"batch":5,"expires":50000000,"idle_heartbeat":10000000}'),
            (f"$JS.ACK.{connection.stream}.{_QUEUE}.1.1.1.1.0", b"+NXT"),
        ):
            await connection.publish(where, body, reply=to)
        batch = header(Nats_Batch_Id=f"{time.monotonic_ns()}", Nats_Batch_Sequence=1)
        await connection.publish(own_subject(target), b"x", reply=to, head=batch)
        await connection.flush()
        await asyncio.sleep(QUIET_S)
        for one in await target.read_log():
            is_elsewhere = one.seq not in before and f".{RENDER}." not in one.subject
            if is_elsewhere and not (await target.verdict(one.seq)).is_accepted:
                raise Breach(f"an answer was stored on {one.subject}")
        if any(b"jwt" in message.data for message in stolen or ()):
            raise Breach("the gate gave it the victim's login")
        if heard:
            return Outcome("harmless", heard)
        return Outcome("server", "answers stay in the members' account, where nothing obeys them")

    return Attempt(f"have the server answer {name}", act)


_TARGETS: Final = [
    _answering_on("to the stream's deletion", "$JS.API.STREAM.DELETE.<stream>"),
    _answering_on("to the stream's purging", "$JS.API.STREAM.PURGE.<stream>"),
    _answering_on("to the making of a stream", "$JS.API.STREAM.CREATE.EVIL"),
    _answering_on("to the victim's queue", "$JS.API.CONSUMER.MSG.NEXT.<stream>.build=image=normal"),
    _answering_on("on a job of the victim's kind", "ap.<m>.jobs.job.build.image.<id>"),
    _answering_on("on the rules", "ap.<m>.ctl.rules"),
    _answering_on(
        "in the victim's inbox", "_I.<victim>.r.1", heard="where it listens is not to be guessed"
    ),
    _answering_on(
        "in the victim's inbox on the bus",
        "apb.<m>.inbox.<victim>.1",
        heard="where it listens is not to be guessed",
    ),
    _answering_on(
        "at the gate, as the victim's login",
        "apb.<m>.gate.<refresh>.login",
        heard="a delivery is no request, and requests for logins are signed",
    ),
    _answering_on(
        "at the gate, as the victim's read",
        "apg.<m>.<victim>.get",
        heard="a delivery is no request, and answers go to the victim's own inbox",
    ),
    _answering_on(
        "as a live control op", "apr.<m>.ctl.rules", heard="live records are hints: the log is read"
    ),
    _answering_on(
        "as a live record of the victim's kind",
        "apr.<m>.jobs.job.build.image.<id>",
        heard="live records are hints: the log is read",
    ),
    _answering_on("as a roll call", "apb.<m>.roll", heard="everybody may call the roll"),
    _answering_on("to the system account", "$SYS.REQ.CLAIMS.UPDATE"),
]


async def _forged_live_records(target: TargetMesh) -> Outcome:
    """Deliveries of its own record, sent where live records are heard.

    A delivery shows no more than the headers that the publisher wrote: they claim to be the next
    record of the log, on another subject and from another time.
    """
    connection = target.connection
    seqs = []
    for _ in range(4):
        await target.check_log()
        last = len(await target.read_log())
        forged = header(
            Nats_Stream=connection.stream,
            Nats_Subject=f"ap.{target.mesh}.ctl.evidence.forged",
            Nats_Sequence=last + 2,
            Nats_Time_Stamp="2020-01-01T00:00:00.000000001Z",
        )
        planted = own_subject(target, "jobs.1")
        seqs.append(await stored(target, planted, forged))
        for node in target.full_nodes:
            await node.reached(last + 1)
        read = f"$JS.API.DIRECT.GET.{connection.stream}.{planted}"
        for live in ("ctl.evidence.forged", "ctl.x", f"jobs.job.{RENDER}.x", f"jobs.1.{RENDER}.x"):
            for ask, body in ((_next(target), _TAKE), (read, b""), (read, b'{"no_hdr":true}')):
                await connection.publish(ask, body, reply=f"apr.{target.mesh}.{live}")
        await connection.flush()
        await asyncio.sleep(QUIET_S)
    return await rejected(target, seqs)


# --- acknowledgements ---------------------------------------------------------------------------


def _acknowledging(name: str, *words: bytes) -> Attempt:
    """Acknowledge what was delivered to nobody; other workers must still get the jobs."""

    async def act(target: TargetMesh) -> Outcome:
        connection = target.connection
        texts = [f"frame {n}" for n in range(2)]
        handles = [await target.owner.submit(RENDER, text) for text in texts]
        newest = len(await target.read_log())
        guesses = range(max(1, newest - 12), newest + 1)
        for word in words:
            for seq in guesses:
                for order in range(1, 4):
                    stamp = time.time_ns()
                    where = f"$JS.ACK.{connection.stream}.{_QUEUE}.1.{seq}.{order}.{stamp}.0"
                    await connection.publish(where, word)
        await connection.flush()
        return await _still_done(target, handles, texts)

    return Attempt(name, act)


async def _still_done(
    target: TargetMesh, handles: list[JobHandle[Any]], texts: list[str]
) -> Outcome:
    begun = time.monotonic()
    async with target.answering(RENDER):
        for handle, text in zip(handles, texts, strict=True):
            await target.check_result(handle, text, 2 * _LATER_MS / 1000)
    return Outcome(
        "harmless", f"another worker did the jobs, {time.monotonic() - begun:.1f} s later"
    )


async def _discard_announcements(target: TargetMesh) -> Outcome:
    """Take announcements, as it may, and end them for good without doing the work."""
    connection = target.connection
    texts = [f"frame {n}" for n in range(2)]
    handles = [await target.owner.submit(RENDER, text) for text in texts]
    ended = 0
    for _ in range(12):
        for delivery in await connection.ask(_next(target), _TAKE, within_s=QUIET_S):
            if delivery.reply.startswith("$JS.ACK."):
                await connection.publish(delivery.reply, b"+TERM" if ended % 2 else b"+ACK")
                ended += 1
    await connection.flush()
    if ended < len(texts):
        raise Breach("it got no announcement, so this shows nothing")
    return await _still_done(target, handles, texts)


REPLIES: Final = [
    *_TARGETS,
    Attempt("forge live records", _forged_live_records),
]
ACKNOWLEDGEMENTS: Final = [
    *(
        publish_attempt(f"{name} of the victim's", f"$JS.ACK.<stream>.{queue}.1.9.1.1.0", word)
        for name, queue, word in (
            ("acknowledge an announcement", "build=image=normal", b"+ACK"),
            ("end an announcement", "build=image=normal", b"+TERM"),
            ("give back an announcement", "build=image=normal", b"-NAK"),
            ("prolong an announcement", "build=image=normal", b"+WPI"),
            ("acknowledge by wildcard one", "*", b"+ACK"),
        )
    ),
    _acknowledging("acknowledge what it was never handed", b"+ACK", b"+TERM"),
    _acknowledging("give back what it was never handed", b"-NAK", b'-NAK {"delay":99000000000}'),
    Attempt("make away with announcements", _discard_announcements),
]
