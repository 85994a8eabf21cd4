"""What the outsider writes on subjects of its own: headers, sizes and names that nobody expects.

A publisher chooses its headers, and a log that keeps everything keeps them too. Here they try to
erase or replace records, to look like the server's own words, and to break whoever reads them.
"""

from __future__ import annotations

import os
from typing import Final

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import JobOffer, JobSchedule, OfferBody, ScheduleBody
from antiphon.core.ids import message_id
from antiphon.errors import Conflict, OutcomeUnknown
from antiphon.runtime.handlers import call_text
from antiphon.runtime.peer import Peer
from chaos.outsider_attempt import Attempt, Held, invented
from chaos.outsider_line import header
from chaos.outsider_scene import BUILD, RENDER, Breach, Scene

_CAS: Final = "Nats_Expected_Last_Subject_Sequence"
_BIG: Final = 600_000
_LONG: Final = 20_000
_LONGEST: Final = 70_000


def own(scene: Scene, place: str = "job") -> str:
    """A subject that it may write on."""
    return f"ap.{scene.mesh}.{place}.{RENDER}.{invented()}"


async def stored(scene: Scene, subject: str | bytes, head: bytes, payload: bytes = b"x") -> int:
    """Put it on the log, where nothing forbids it; its place."""
    answer = await scene.line.store(subject, payload, head=head)
    if not answer:
        raise Breach("the server's answer took too long, or somebody keeps this process busy")
    if "error" in answer:
        raise Breach(f"this shows nothing, since the server says {answer}")
    return int(answer["seq"])


async def rejected(scene: Scene, seqs: list[int]) -> Held:
    """Every one of these is on the log, and nobody believes it."""
    verdicts = {await scene.verdict(seq) for seq in seqs}
    if any(verdict.is_accepted for verdict in verdicts):
        raise Breach(f"accepted: {verdicts}")
    return Held("rules", f"stored, rejected as {', '.join(sorted(verdicts))}; the log reads on")


# --- what the server does not store -------------------------------------------------------------


def _unstored(name: str, **fields: object) -> Attempt:
    async def act(scene: Scene) -> Held:
        names = {key: str(value).replace("<m>", scene.mesh) for key, value in fields.items()}
        answer = await scene.line.store(own(scene), head=header(**names))
        error = answer.get("error")
        if error is None:
            raise Breach(f"the server stored it: {answer}")
        return Held("server", error["description"])

    return Attempt(name, act)


def _too_large(name: str, head: bytes, payload: bytes) -> Attempt:
    async def act(scene: Scene) -> Held:
        answer = await scene.line.store(own(scene), payload, head=head)
        if "error" in answer:
            return Held("server", answer["error"]["description"])
        if not scene.line.is_up:
            return Held("server", "hung up")
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
        Nats_Schedule_Target="ap.<m>.job.build.image.x",
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


async def _oracle(scene: Scene) -> Held:
    """A compare-and-set about somebody else's subject fails with that subject's sequence."""
    told = []
    for pattern in ("call.1.secret.plan.*", "call.1.nothing.at.all.*"):
        about = {_CAS: 2**40, f"{_CAS}_Subject": f"ap.{scene.mesh}.{pattern}"}
        answer = await scene.line.store(own(scene), head=header(**about))
        if "error" not in answer:
            raise Breach(f"the server stored it: {answer}")
        told.append(answer["error"]["description"])
    return Held("harmless", f"learns only where the newest of a guessed kind lies ({told[0]})")


# --- message ids --------------------------------------------------------------------------------


async def _junk_ids(scene: Scene) -> Held:
    count = 50 * scene.rounds
    subject = own(scene)
    seqs = [
        await stored(scene, subject, header(Nats_Msg_Id=f"junk-{n}-{os.urandom(4).hex()}"))
        for n in range(count)
    ]
    again = await scene.line.store(subject, head=header(Nats_Msg_Id="twice"))
    twice = await scene.line.store(subject, head=header(Nats_Msg_Id="twice"))
    if again.get("seq") != twice.get("seq") or not twice.get("duplicate"):
        raise Breach("one id was stored twice")
    return await rejected(scene, seqs)


def _schedule(text: str) -> ScheduleBody:
    content = manifest.author(
        {"command": [f"@{BUILD}"], "args": [call_text((text,), {})], "timeout": 60}
    )
    return ScheduleBody(kind=BUILD, manifest=content)


async def _written_anyway(scene: Scene, peer: Peer, body: ScheduleBody | OfferBody) -> Held:
    """First the id that could be foretold is taken, then the one that could not."""
    kind = JobSchedule if isinstance(body, ScheduleBody) else JobOffer
    draft = peer.draft(kind, body, prev=0)
    await stored(scene, own(scene), header(Nats_Msg_Id=draft.op_id))
    seq = await peer.commit(draft)
    (record,) = [one for one in await scene.read_log(seq - 1) if one.seq == seq]
    if record.payload != draft.payload:
        raise Breach(f"the write was swallowed, and its author thinks that it is at {seq}")
    draft = peer.draft(kind, body, prev=seq)
    await stored(scene, own(scene), header(Nats_Msg_Id=message_id(draft.payload)))
    try:
        await peer.commit(draft)
        told = "is written under another one"
    except (Conflict, OutcomeUnknown) as error:
        told = f"says so ({type(error).__name__})"
    return Held("harmless", f"ids are those of signed records; who was told of one {told}")


async def _id_of_the_owner(scene: Scene) -> Held:
    """Nobody can know a record's id before it is signed; here the outsider is told."""
    return await _written_anyway(scene, scene.owner.peer, _schedule(scene.canary()))


async def _id_of_the_victim(scene: Scene) -> Held:
    """The same for a member, who cannot even read what lies there under its op's id."""
    peer = scene.working.mesh.peer
    await peer.sync_control()
    return await _written_anyway(scene, peer, OfferBody(kind=BUILD, job=invented()))


# --- looking like the server --------------------------------------------------------------------


def _status_line(place: str) -> Attempt:
    async def act(scene: Scene) -> Held:
        seqs = []
        for words in ("204 EOB", "404 Message Not Found", "408 x", "413 x", "503", "100 x"):
            for start in ("NATS/1.0", "nats/1.0", "HTTP/1.1"):
                head = f"{start} {words}\r\nNats-Num-Pending: 0\r\n\r\n".encode()
                seqs.append(await stored(scene, own(scene, place), head))
        held = await rejected(scene, seqs)
        await scene.owner.peer.sync_control()
        return held

    return Attempt(f"records whose headers look like the end of an answer, on {place}", act)


async def _forged_place(scene: Scene) -> Held:
    """A record that says it lies elsewhere on the log."""
    subject = own(scene)
    forged = (
        f"Nats-Subject: ap.{scene.mesh}.ctl.rules\r\nNats-Sequence: 1\r\n"
        "Nats-Time-Stamp: 2020-01-01T00:00:00Z\r\n"
    )
    heads = (f"NATS/1.0\r\n{forged}\r\n", f"NATS/1.0\r\nX: y\r\n\r\n{forged}\r\n")
    seqs = [await stored(scene, subject, head.encode()) for head in heads]
    shown = {one.seq: one.subject for one in await scene.read_log()}
    if any(shown.get(seq) != subject for seq in seqs):
        raise Breach("the log shows it where its header says")
    return await rejected(scene, seqs)


async def _overflowing_sequence(scene: Scene) -> Held:
    """A compare-and-set that the server reads modulo 2^64, in the lane of somebody's job."""
    text = f"frame {os.urandom(4).hex()}"
    handle = await scene.owner.submit(RENDER, text)
    lane = f"ap.{scene.mesh}.job.{RENDER}.{handle.id}"
    first = await stored(scene, lane, b"")
    second = await stored(scene, lane, header(**{_CAS: 2**64 + first}))
    held = await rejected(scene, [first, second])
    async with scene.answering(RENDER):
        await scene.ends(handle, text)
    return held


async def _other_marks(scene: Scene) -> Held:
    """Headers that mean something to other parts of the engine, or nothing at all."""
    subject = own(scene)
    heads = [
        header(Nats_Marker_Reason="Purge"),
        header(KV_Operation="PURGE"),
        header(Nats_Request_Info="{}"),
        header(Status="503", Description="x"),
        header(Antiphon_Reply=f"gate.{scene.victim.access().door}.login"),
        header(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        b"NATS/1.0\r\nNo end: 1",
        b"NATS/1.0\r\nNo colon\r\n\r\n",
        b"NATS/1.0\nX: y\n\n",
        b"N",
    ]
    return await rejected(scene, [await stored(scene, subject, head) for head in heads])


async def _batches(scene: Scene) -> Held:
    """Atomic batches that are opened and left, and one that reaches across kinds."""
    line = scene.line
    for number in range(60):
        head = header(Nats_Batch_Id=f"left-{number}", Nats_Batch_Sequence=1)
        await line.publish(own(scene), b"x", reply=f"{line.inbox}.batch", head=head)
    reach = {"Nats_Batch_Id": "reach", "Nats_Batch_Sequence": 2, "Nats_Batch_Commit": 1}
    victim = f"ap.{scene.mesh}.job.{BUILD}.{invented()}"
    if not await line.is_refused(victim, b"x", head=header(**reach)):
        raise Breach("a batch reached the victim's subject")
    return Held("harmless", "unfinished batches are dropped; the others' writes need none")


async def _traces(scene: Scene) -> Held:
    """The server tells where a message went, to whoever asks in a header."""
    line = scene.line
    inbox = f"apb.{scene.mesh}.inbox.{line.user}.trace"
    heard = await line.listen(inbox)
    for subject in (own(scene), f"apg.{scene.mesh}.{line.user}.roll"):
        await line.publish(subject, b"", head=header(Nats_Trace_Dest=inbox))
    await line.flush()
    forbidden = header(Nats_Trace_Dest=f"ap.{scene.mesh}.ctl.rules")
    await line.publish(own(scene), b"", head=forbidden)
    return Held("harmless", f"{len(heard or ())} traces, of its own messages up to the border")


# --- names --------------------------------------------------------------------------------------


def _odd_subject(name: str, end: bytes, place: str = f"job.{RENDER}") -> Attempt:
    async def act(scene: Scene) -> Held:
        subject = f"ap.{scene.mesh}.{place}.".encode() + end
        seq = await stored(scene, subject, b"")
        await scene.owner.peer.sync_control()  # while it is the newest record of all
        await scene.working.mesh.peer.sync_control()
        await scene.pulse()  # what is not republished shows with the next record
        return await rejected(scene, [seq])

    return Attempt(name, act)


async def _longest_subject(scene: Scene) -> Held:
    """A name that is longer than the log's own files can say; they are read when it restarts."""
    line = scene.line
    subject = f"ap.{scene.mesh}.job.{RENDER}.".encode() + b"y" * _LONGEST
    for head in (b"", header(X="y")):
        answer = await line.store(subject, head=head)
        if not line.is_up:
            return Held("server", "hung up")
        if "seq" not in answer:
            raise Breach(f"the server said {answer}")
    await scene.pulse()
    await scene.restart_server()
    await scene.whole()
    return Held("harmless", "the log is whole after a restart")


HEADERS: Final = [
    *_UNSTORED,
    Attempt("ask where others' records lie, by compare-and-set", _oracle),
    Attempt("junk message ids", _junk_ids),
    Attempt("take the message id of the owner's next op", _id_of_the_owner),
    Attempt("take the message id of the victim's next op", _id_of_the_victim),
    Attempt("records that say they lie elsewhere", _forged_place),
    Attempt("headers of other engines, and broken ones", _other_marks),
    Attempt("atomic batches", _batches),
    Attempt("have its messages traced", _traces),
    _odd_subject("a subject with wildcards in it", b"*.>"),
    _odd_subject("a subject of 20 kB", b"y" * _LONG),
    _odd_subject("a subject of 10,000 words", b".".join([b"y"] * (_LONG // 2))),
    _odd_subject("a subject with control characters", b"\x01\x7f\x1b"),
    _odd_subject("a subject that is not UTF-8", b"\xff\xfe"),
    Attempt("a compare-and-set beyond 64 bits", _overflowing_sequence),
    Attempt("a subject of 70 kB", _longest_subject),
    _status_line("job"),
    _status_line("call.1"),
]
