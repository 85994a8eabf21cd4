"""What the outsider writes on subjects of its own: headers, sizes and names that nobody expects.

A publisher chooses its headers, and a log that keeps everything keeps them too. Here they try to
erase or replace records, to look like the server's own messages, and to break whoever reads them.
"""

from __future__ import annotations

import os
from typing import Final

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import JobOffer, JobSchedule, OfferBody, ScheduleBody
from antiphon.core.record.ids import message_id
from antiphon.errors import Conflict, OutcomeUnknown
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.session import Session
from chaos.network.raw_connection import header
from chaos.outsider.attempt import Attempt, Outcome, unknown_job
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh

_CAS: Final = "Nats_Expected_Last_Subject_Sequence"
_BIG: Final = 600_000
_LONG: Final = 20_000
_LONGEST: Final = 70_000


def own_subject(target: TargetMesh, place: str = "jobs.job") -> str:
    """A subject that it may write on."""
    return f"ap.{target.mesh}.{place}.{RENDER}.{unknown_job()}"


async def stored(
    target: TargetMesh, subject: str | bytes, head: bytes, payload: bytes = b"x"
) -> int:
    """Write it on the log, where it may; its sequence."""
    answer = await target.connection.store(subject, payload, head=head)
    if not answer:
        raise Breach("the server's answer took too long, or somebody keeps this process busy")
    if "error" in answer:
        raise Breach(f"this shows nothing, since the server says {answer}")
    return int(answer["seq"])


async def rejected(target: TargetMesh, seqs: list[int]) -> Outcome:
    """Require that each of these is on the log and rejected."""
    verdicts = {await target.verdict(seq) for seq in seqs}
    if any(verdict.is_accepted for verdict in verdicts):
        raise Breach(f"accepted: {verdicts}")
    return Outcome("rules", f"stored, rejected as {', '.join(sorted(verdicts))}; the log reads on")


# --- what the server does not store -------------------------------------------------------------


def _unstored(name: str, **fields: object) -> Attempt:
    async def act(target: TargetMesh) -> Outcome:
        names = {key: str(value).replace("<m>", target.mesh) for key, value in fields.items()}
        answer = await target.connection.store(own_subject(target), head=header(**names))
        error = answer.get("error")
        if error is None:
            raise Breach(f"the server stored it: {answer}")
        return Outcome("server", error["description"])

    return Attempt(name, act)


def _too_large(name: str, head: bytes, payload: bytes) -> Attempt:
    async def act(target: TargetMesh) -> Outcome:
        answer = await target.connection.store(own_subject(target), payload, head=head)
        if "error" in answer:
            return Outcome("server", answer["error"]["description"])
        if not target.connection.is_open:
            return Outcome("server", "hung up")
        raise Breach(f"the server stored it: {answer}")

    return Attempt(name, act)


_UNSTORED: Final = [
    _unstored("a record that ends by itself", Nats_TTL="1s"),
    _unstored("a record that never ends", Nats_TTL="never"),
    _unstored("roll up its subject", Nats_Rollup="sub"),
    _unstored("roll up the log", Nats_Rollup="all"),
    _unstored(
        "a record for the victim's subject, later",
        Nats_Schedule="@at 2030-01-01T00:00:00Z",
        Nats_Schedule_Target="ap.<m>.jobs.job.build.image.x",
    ),
    _unstored("a counter", Nats_Incr="+1"),
    _unstored("a record that pretends to be mirrored", Nats_Stream_Source="x 1"),
    _unstored("a record for another stream", Nats_Expected_Stream="OTHER"),
    _unstored("a wrong sequence", Nats_Expected_Last_Sequence="1"),
    _unstored("a wrong message id", Nats_Expected_Last_Msg_Id="x"),
    _too_large("a record of 600 kB", b"", b"x" * _BIG),
    _too_large("a header of 200 kB", header(X="y" * 200_000), b""),
    _too_large("a message of 2 MB", b"", b"x" * 2_000_000),
]


async def _oracle(target: TargetMesh) -> Outcome:
    """A compare-and-set about somebody else's subject fails with that subject's sequence."""
    told = []
    for pattern in ("jobs.1.secret.plan.*", "jobs.1.nothing.at.all.*"):
        about = {_CAS: 2**40, f"{_CAS}_Subject": f"ap.{target.mesh}.{pattern}"}
        answer = await target.connection.store(own_subject(target), head=header(**about))
        if "error" not in answer:
            raise Breach(f"the server stored it: {answer}")
        told.append(answer["error"]["description"])
    return Outcome("harmless", f"learns only where the newest of a guessed kind lies ({told[0]})")


# --- message ids --------------------------------------------------------------------------------


async def _junk_ids(target: TargetMesh) -> Outcome:
    count = target.scaled(50)
    subject = own_subject(target)
    seqs = [
        await stored(target, subject, header(Nats_Msg_Id=f"junk-{n}-{os.urandom(4).hex()}"))
        for n in range(count)
    ]
    again = await target.connection.store(subject, head=header(Nats_Msg_Id="twice"))
    twice = await target.connection.store(subject, head=header(Nats_Msg_Id="twice"))
    if again.get("seq") != twice.get("seq") or not twice.get("duplicate"):
        raise Breach("one id was stored twice")
    return await rejected(target, seqs)


def _schedule(text: str) -> ScheduleBody:
    content = manifest.author(
        {"command": [f"@{BUILD}"], "args": [call_text((text,), {})], "timeout": 60}
    )
    return ScheduleBody(kind=BUILD, manifest=content)


async def _written_anyway(
    target: TargetMesh, session: Session, body: ScheduleBody | OfferBody
) -> Outcome:
    """First the predictable id is taken, then the one that cannot be predicted."""
    kind = JobSchedule if isinstance(body, ScheduleBody) else JobOffer
    draft = session.draft(kind, body, prev=0)
    await stored(target, own_subject(target), header(Nats_Msg_Id=draft.op_id))
    seq = await session.commit(draft)
    (record,) = [one for one in await target.read_log(seq - 1) if one.seq == seq]
    if record.payload != draft.payload:
        raise Breach(f"the write was swallowed, and its author thinks that it is at {seq}")
    draft = session.draft(kind, body, prev=seq)
    await stored(target, own_subject(target), header(Nats_Msg_Id=message_id(draft.payload)))
    try:
        await session.commit(draft)
        told = "is written under another one"
    except (Conflict, OutcomeUnknown) as error:
        told = f"says so ({type(error).__name__})"
    return Outcome("harmless", f"ids are those of signed records; who was told of one {told}")


async def _id_of_the_owner(target: TargetMesh) -> Outcome:
    """A record's id is unknown before it is signed; here the outsider is told."""
    return await _written_anyway(
        target, target.owner.connection.session, _schedule(target.canary())
    )


async def _id_of_the_victim(target: TargetMesh) -> Outcome:
    """The same for a member, who cannot even read what lies there under its op's id."""
    session = target.working.mesh.connection.session
    await session.sync_control()
    return await _written_anyway(target, session, OfferBody(kind=BUILD, job=unknown_job()))


# --- looking like the server --------------------------------------------------------------------


def _status_line(place: str) -> Attempt:
    async def act(target: TargetMesh) -> Outcome:
        seqs = []
        for words in ("204 EOB", "404 Message Not Found", "408 x", "413 x", "503", "100 x"):
            for start in ("NATS/1.0", "nats/1.0", "HTTP/1.1"):
                head = f"{start} {words}\r\nNats-Num-Pending: 0\r\n\r\n".encode()
                seqs.append(await stored(target, own_subject(target, place), head))
        outcome = await rejected(target, seqs)
        await target.owner.connection.session.sync_control()
        return outcome

    return Attempt(f"records whose headers look like the end of an answer, on {place}", act)


async def _forged_place(target: TargetMesh) -> Outcome:
    """A record whose headers give another place on the log."""
    subject = own_subject(target)
    forged = (
        f"Nats-Subject: ap.{target.mesh}.ctl.rules\r\nNats-Sequence: 1\r\n"
        "Nats-Time-Stamp: 2020-01-01T00:00:00Z\r\n"
    )
    heads = (f"NATS/1.0\r\n{forged}\r\n", f"NATS/1.0\r\nX: y\r\n\r\n{forged}\r\n")
    seqs = [await stored(target, subject, head.encode()) for head in heads]
    shown = {one.seq: one.subject for one in await target.read_log()}
    if any(shown.get(seq) != subject for seq in seqs):
        raise Breach("the log shows it where its header says")
    return await rejected(target, seqs)


async def _overflowing_sequence(target: TargetMesh) -> Outcome:
    """A compare-and-set that the server reads modulo 2^64, in the lane of somebody's job."""
    text = f"frame {os.urandom(4).hex()}"
    handle = await target.owner.submit(RENDER, text)
    lane = f"ap.{target.mesh}.jobs.job.{RENDER}.{handle.id}"
    first = await stored(target, lane, b"")
    second = await stored(target, lane, header(**{_CAS: 2**64 + first}))
    outcome = await rejected(target, [first, second])
    async with target.answering(RENDER):
        await target.check_result(handle, text)
    return outcome


async def _other_marks(target: TargetMesh) -> Outcome:
    """Headers that mean something to other parts of the engine, or nothing at all."""
    subject = own_subject(target)
    heads = [
        header(Nats_Marker_Reason="Purge"),
        header(KV_Operation="PURGE"),
        header(Nats_Request_Info="{}"),
        header(Status="503", Description="x"),
        header(Antiphon_Reply=f"gate.{target.victim.access().refresh_key}.login"),
        header(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        b"NATS/1.0\r\nNo end: 1",
        b"NATS/1.0\r\nNo colon\r\n\r\n",
        b"NATS/1.0\nX: y\n\n",
        b"N",
    ]
    return await rejected(target, [await stored(target, subject, head) for head in heads])


async def _traces(target: TargetMesh) -> Outcome:
    """The server tells where a message went, to whoever asks in a header."""
    connection = target.connection
    inbox = f"apb.{target.mesh}.inbox.{connection.user}.trace"
    heard = await connection.listen(inbox)
    for subject in (own_subject(target), f"apg.{target.mesh}.{connection.user}.roll"):
        await connection.publish(subject, b"", head=header(Nats_Trace_Dest=inbox))
    await connection.flush()
    forbidden = header(Nats_Trace_Dest=f"ap.{target.mesh}.ctl.rules")
    await connection.publish(own_subject(target), b"", head=forbidden)
    return Outcome("harmless", f"{len(heard or ())} traces, of its own messages up to the border")


# --- names --------------------------------------------------------------------------------------


def _odd_subject(name: str, end: bytes, place: str = f"jobs.job.{RENDER}") -> Attempt:
    async def act(target: TargetMesh) -> Outcome:
        subject = f"ap.{target.mesh}.{place}.".encode() + end
        seq = await stored(target, subject, b"")
        await target.owner.connection.session.sync_control()  # while it is the newest record of all
        await target.working.mesh.connection.session.sync_control()
        await target.check_work()  # what is not republished shows with the next record
        return await rejected(target, [seq])

    return Attempt(name, act)


async def _longest_subject(target: TargetMesh) -> Outcome:
    """A subject that is too long for the log's own files, which are read after a restart."""
    connection = target.connection
    subject = f"ap.{target.mesh}.jobs.job.{RENDER}.".encode() + b"y" * _LONGEST
    for head in (b"", header(X="y")):
        answer = await connection.store(subject, head=head)
        if not connection.is_open:
            return Outcome("server", "hung up")
        if "seq" not in answer:
            raise Breach(f"the server said {answer}")
    await target.check_work()
    await target.restart_server()
    await target.check_log()
    return Outcome("harmless", "the log is whole after a restart")


HEADERS: Final = [
    *_UNSTORED,
    Attempt("ask where others' records lie, by compare-and-set", _oracle),
    Attempt("junk message ids", _junk_ids),
    Attempt("take the message id of the owner's next op", _id_of_the_owner),
    Attempt("take the message id of the victim's next op", _id_of_the_victim),
    Attempt("records that say they lie elsewhere", _forged_place),
    Attempt("headers of other engines, and broken ones", _other_marks),
    Attempt("have its messages traced", _traces),
    _odd_subject("a subject with wildcards in it", b"*.>"),
    _odd_subject("a subject of 20 kB", b"y" * _LONG),
    _odd_subject("a subject of 10,000 words", b".".join([b"y"] * (_LONG // 2))),
    _odd_subject("a subject with control characters", b"\x01\x7f\x1b"),
    _odd_subject("a subject that is not UTF-8", b"\xff\xfe"),
    Attempt("a compare-and-set beyond 64 bits", _overflowing_sequence),
    Attempt("a subject of 70 kB", _longest_subject),
    _status_line("jobs.job"),
    _status_line("jobs.1"),
]
