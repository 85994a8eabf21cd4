"""What the outsider makes of atomic batches, and of signatures over many records.

A batch is a header that any publisher may set, and the server keeps what is not committed yet. So
batches are opened and left, torn, shared and oversized. A signature over many records is a root
and paths: the outsider takes them from each other, from the owner and from nowhere.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from blake3 import blake3
from msgspec.structs import replace

from antiphon.core.clock.hlc import pack
from antiphon.core.families.jobs.ops import JobClaim, JobYield, YieldBody
from antiphon.core.record import signing
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.engines.nats.log.log import BATCH_FROM
from antiphon.engines.nats.server.server_config import MAX_BATCH_RECORDS, MAX_OPEN_BATCHES
from antiphon.runtime.values.signature import plain_call
from antiphon.sdk.call_options import Scheduling
from antiphon.sdk.many.bound_calls import Call
from chaos.network.raw_connection import RawConnection, frame, header
from chaos.outsider.attacks.forgeries import Forger, Signed, a_claim, agreed, called, now_ms
from chaos.outsider.attacks.headers import own_subject, rejected
from chaos.outsider.attempt import Attempt, Outcome, unknown_job
from chaos.outsider.target import BUILD, RENDER, WORK_S, Breach, TargetMesh

_INCOMPLETE: Final = 10176
_WRONG_LAST_SEQUENCE: Final = 10071
_LARGE: Final = 400_000
"""Bytes of a record that the log would take."""
Pair = tuple[str, bytes]


def _new_id() -> str:
    return os.urandom(12).hex()


def _mark(batch: str, at: int, **more: object) -> bytes:
    return header(Nats_Batch_Id=batch, Nats_Batch_Sequence=at, **more)


async def _open(connection: RawConnection, records: Sequence[Pair], batch: str = "") -> str:
    """Begin a batch and leave it; its id."""
    batch = batch or _new_id()
    for at, (subject, payload) in enumerate(records, start=1):
        await connection.publish(subject, payload, head=_mark(batch, at))
    return batch


async def _commit(
    connection: RawConnection, batch: str, at: int, record: Pair, **more: object
) -> dict[str, Any]:
    """Send the record that ends a batch; the server's answer."""
    head = _mark(batch, at, Nats_Batch_Commit=1, **more)
    return await connection.store(record[0], record[1], head=head)


async def _whole(connection: RawConnection, records: Sequence[Pair]) -> dict[str, Any]:
    """Send a batch as it should be; the server's answer."""
    batch = await _open(connection, records[:-1])
    return await _commit(connection, batch, len(records), records[-1])


async def _drop(connection: RawConnection, batches: Sequence[str]) -> None:
    """Have the server forget batches: a wrong number ends each."""
    subject = f"ap.{connection.mesh}.jobs.job.{RENDER}.{unknown_job()}"
    for batch in batches:
        await connection.publish(subject, b"x", head=_mark(batch, 9))
    await connection.flush()


async def _last(target: TargetMesh) -> int:
    """The end of the log, once a sound batch was stored: else what is refused shows nothing."""
    record = (own_subject(target), b"x")
    answer: dict[str, Any] = {}
    for _ in range(60):
        answer = await _whole(target.connection, [record] * 2)
        if answer.get("count") == 2:
            return int(answer["seq"])
        await asyncio.sleep(0.25)  # those of the attempt before are still open
    raise Breach(f"no batch is stored any more: {answer}")


def _refused(answer: dict[str, Any], code: int = 0) -> Outcome:
    error = answer.get("error")
    if error is None or (code and error["err_code"] != code):
        raise Breach(f"the server said {answer}")
    return Outcome("server", f"{error['description']} ({error['err_code']}); nothing was stored")


def _seqs(answer: dict[str, Any], count: int) -> list[int]:
    """The places of a batch that was stored."""
    if answer.get("count") != count:
        raise Breach(f"this shows nothing, since the server says {answer}")
    return [*range(answer["seq"] - count + 1, answer["seq"] + 1)]


# --- what the server keeps ----------------------------------------------------------------------


async def _owner_writes_many(target: TargetMesh) -> int:
    """As many jobs as the engine would store in one batch: every one must be stored, and end."""
    texts = [target.canary() for _ in range(BATCH_FROM + 8)]
    calls: list[Call[Any]] = [
        Call(BUILD, plain_call((text,), {}), Scheduling.of({})) for text in texts
    ]
    handles = await target.owner.submit_many(calls)
    target.hidden.update(handle.id.encode() for handle in handles)
    for handle, text in zip(handles, texts, strict=True):
        await target.check_result(handle, text, WORK_S * 4)
    return len(handles)


async def _all_open(target: TargetMesh) -> Outcome:
    """Open every batch that the server keeps, and hold them open while the others write."""
    connection = target.connection
    record = (own_subject(target), b"x")
    await _last(target)
    opened = [await _open(connection, [record]) for _ in range(MAX_OPEN_BATCHES * 3)]
    _refused(await _commit(connection, opened[-1], 2, record), _INCOMPLETE)
    count = await _owner_writes_many(target)
    await _drop(connection, opened)
    return Outcome("harmless", f"no batch is left, and {count} records of the owner go singly")


async def _opened_again(target: TargetMesh) -> Outcome:
    """Open batches without end while the others write: old ones are dropped, new ones take over."""
    connection = target.connection
    record = (own_subject(target), b"x")
    writing = asyncio.ensure_future(_owner_writes_many(target))
    opened: list[str] = []
    while not writing.done():
        fresh = [_new_id() for _ in range(target.scaled(20))]
        await connection.write(b"".join(frame(*record, head=_mark(one, 1)) for one in fresh))
        opened += fresh
        await asyncio.sleep(0.05)
    count = await writing
    await _drop(connection, opened)
    return Outcome("harmless", f"{len(opened):,} opened, and {count} records of the owner stored")


async def _too_long(target: TargetMesh) -> Outcome:
    """Fill a batch with large records until the server has no room for it."""
    connection, subject = target.connection, own_subject(target)
    before = await _last(target)
    batch, payload = _new_id(), b"x" * _LARGE
    for at in range(1, MAX_BATCH_RECORDS + 1):
        await connection.write(frame(subject, payload, head=_mark(batch, at)))
    answer = await _commit(connection, batch, MAX_BATCH_RECORDS + 1, (subject, b"x"))
    if any(one.subject == subject for one in await target.read_log(before)):
        raise Breach("a part of it was stored")
    return _refused(answer)


async def _other_headers(target: TargetMesh) -> Outcome:
    """What the log refuses of a single record, as part of a batch."""
    connection, subject = target.connection, own_subject(target)
    before = await _last(target)
    told = set()
    for more in (
        {"Nats_Rollup": "sub"},
        {"Nats_Rollup": "all"},
        {"Nats_TTL": "1s"},
        {"Nats_Incr": "+1"},
        {"Nats_Schedule": "@at 2030-01-01T00:00:00Z", "Nats_Schedule_Target": subject},
        {"Nats_Expected_Stream": "OTHER"},
    ):
        batch = await _open(connection, [(subject, b"x")])
        answer = await _commit(connection, batch, 2, (subject, b"x"), **more)
        told.add(_refused(answer).why)
    batch = await _open(connection, [(subject, b"x")])
    told.add(_refused(await _commit(connection, batch, 2, (subject, b"x" * 600_000))).why)
    if any(one.subject == subject for one in await target.read_log(before)):
        raise Breach("a part of one was stored")
    return Outcome("server", f"{len(told)} reasons; nothing was stored")


async def _torn(target: TargetMesh) -> Outcome:
    """A batch with a gap, one that begins in the middle, and one whose order is wrong."""
    connection, subject = target.connection, own_subject(target)
    before = await _last(target)
    record = (subject, b"x")
    outcome = _refused(
        await _commit(connection, await _open(connection, [record] * 2), 4, record), _INCOMPLETE
    )
    _refused(await _commit(connection, _new_id(), 3, record), _INCOMPLETE)
    batch = _new_id()
    for at in (2, 1):
        await connection.publish(*record, head=_mark(batch, at))
    _refused(await _commit(connection, batch, 3, record), _INCOMPLETE)
    for bad in ("0", "-1", "x", "2" * 40):
        head = header(Nats_Batch_Id=_new_id(), Nats_Batch_Sequence=bad, Nats_Batch_Commit=1)
        _refused(await connection.store(*record, head=head))
    if any(one.subject == subject for one in await target.read_log(before)):
        raise Breach("a part of one was stored")
    return outcome


async def _victims_lane(target: TargetMesh) -> Outcome:
    """A batch that begins on its own subject and goes on on the victim's, or on control."""
    connection, own = target.connection, own_subject(target)
    before = await _last(target)
    for subject in (
        f"ap.{target.mesh}.jobs.job.{BUILD}.{unknown_job()}",
        f"ap.{target.mesh}.ctl.rules",
        f"ap.{target.mesh}.jobs.1.{BUILD}.{unknown_job()}",
    ):
        batch = await _open(connection, [(own, b"x")])
        if not await connection.is_refused(subject, b"x", head=_mark(batch, 2)):
            raise Breach(f"the server took a part of a batch on {subject}")
        _refused(await _commit(connection, batch, 3, (own, b"x")), _INCOMPLETE)
        # As the record that ends it, the refused one ends nothing.
        batch = await _open(connection, [(own, b"x")])
        if not await connection.is_refused(
            subject, b"x", head=_mark(batch, 2, Nats_Batch_Commit=1)
        ):
            raise Breach(f"the server took the end of a batch on {subject}")
        await _drop(connection, [batch])
    if any(one.subject == own for one in await target.read_log(before)):
        raise Breach("the part on its own subject was stored")
    return Outcome("server", "no permission for the victim's part, and none of the rest is stored")


async def _shared_batch(target: TargetMesh) -> Outcome:
    """Two logins in one batch, which is what knowing the owner's batch id would allow."""
    await _last(target)
    batch = await _open(target.connection, [(own_subject(target), b"x")])
    other = await target.connect(await target.join(f"batches-{os.urandom(3).hex()}"))
    answer = await _commit(other, batch, 2, (own_subject(target), b"x"))
    if "error" in answer:
        return _refused(answer)
    await rejected(target, _seqs(answer, 2))
    return Outcome("harmless", "each writes where it may; others' batch ids are 96 random bits")


async def _raced(target: TargetMesh) -> Outcome:
    """One record of a batch loses its compare-and-set: no other is stored either."""
    connection, subject = target.connection, own_subject(target)
    before = await _last(target)
    batch = await _open(connection, [(own_subject(target), b"x"), (subject, b"x")])
    cas = {"Nats_Expected_Last_Subject_Sequence": 7}
    answer = await _commit(connection, batch, 3, (own_subject(target), b"x"), **cas)
    if any(one.subject == subject for one in await target.read_log(before)):
        raise Breach("the others were stored")
    return _refused(answer, _WRONG_LAST_SEQUENCE)


async def _to_the_gate(target: TargetMesh) -> Outcome:
    """A record for the gate to write, with a batch's headers: across the border they are gone."""
    connection, forger = target.connection, Forger(target)
    record = forger.sign(JobClaim, a_claim(unknown_job()), auth=forger.chain("/job/claim"))
    before = await _last(target)
    post = f"apg.{target.mesh}.{connection.user}.post"
    for more in ({}, {"Nats_Batch_Commit": 1}):
        found = await connection.ask(post, record.payload, head=_mark(_new_id(), 1, **more))
        if not found or b'"seq"' in found[0].data:
            raise Breach(f"the gate said {found}")
    if any(one.payload == record.payload for one in await target.read_log(before)):
        raise Breach("the gate wrote it")
    return Outcome("gate", "writes only what members may not write themselves, under its own name")


async def _fast_ingest(target: TargetMesh) -> Outcome:
    """The engine's other way to write many: answers come in between, and its ids are free."""
    connection, subject = target.connection, own_subject(target)
    before = await _last(target)
    batch = _new_id()
    heard = await connection.listen(f"{connection.inbox}.{batch}.>")
    for at, end in ((1, 0), (2, 1), (3, 2)):
        reply = f"{connection.inbox}.{batch}.10.ok.{at}.{end}.$FI"
        await connection.publish(subject, b"x", reply=reply)
    await connection.flush()
    await target.check_work()
    if any(one.subject == subject for one in await target.read_log(before)):
        raise Breach("the log takes fast ingest")
    told = json.loads(heard[0].data)["error"]["description"] if heard else "no answer"
    return Outcome("server", f"{told}; nothing was stored")


# --- records that belong together ---------------------------------------------------------------


async def _claim_and_end(target: TargetMesh) -> Outcome:
    """A claim and its end in one batch: nothing has confirmed the claim yet."""
    job, forger = await called(target), Forger(target)
    at = (now_ms(), 0)
    claim = forger.sign(JobClaim, a_claim(job), auth=forger.chain("/job/claim"), hlc=at)
    place = (await target.read_log())[-1].seq + 1  # if nobody else writes in between
    body = YieldBody(kind=RENDER, job=job, fence=pack(at), reason="other")
    chain = forger.chain("/job/complete")
    end = forger.sign(JobYield, body, prev=place, auth=chain, hlc=(at[0], 1))
    pairs = [(claim.subject, claim.payload), (end.subject, end.payload)]
    seqs = _seqs(await _whole(target.connection, pairs), 2)
    verdicts = [await target.verdict(seq) for seq in seqs]
    for record, verdict in zip((claim, end), verdicts, strict=True):
        await agreed(target, record, verdict, verdict)
    async with target.answering(RENDER):
        view = await target.owner.connection.session.read_lane(RENDER, job)
        if view.lane.job is None or view.lane.job.is_terminal:
            raise Breach("the job is over")
    said = ", ".join(verdict.value for verdict in verdicts)
    return Outcome("harmless", f"each is judged at its own place ({said}), as if written singly")


async def _two_claims(target: TargetMesh) -> Outcome:
    """Two claims of one job in one batch, each behind the same record."""
    job, forger = await called(target), Forger(target)
    chain = forger.chain("/job/claim")
    claims = [forger.sign(JobClaim, a_claim(job), auth=chain) for _ in range(2)]
    seqs = _seqs(await _whole(target.connection, [(c.subject, c.payload) for c in claims]), 2)
    verdicts = [await target.verdict(seq) for seq in seqs]
    if verdicts[0] is not Verdict.OK:
        raise Breach(f"this shows nothing, since the first is {verdicts[0].value!r}")
    return await agreed(target, claims[1], verdicts[1], Verdict.PREV)


# --- signatures over many records ---------------------------------------------------------------


class _Tree:
    """Claims of real jobs, under one signature of the contractor's."""

    def __init__(self, forger: Forger, jobs: Sequence[str]) -> None:
        chain = forger.chain("/job/claim")
        singly = [forger.sign(JobClaim, a_claim(job), auth=chain) for job in jobs]
        self.subjects = [one.subject for one in singly]
        self.op_bytes = [one.payload.partition(b"\n")[0] for one in singly]
        digests = [blake3(one).digest() for one in self.op_bytes]
        self.blocks = signing.sign_together(forger.key.sign, forger.target.mesh, digests)

    def record(self, at: int, block: signing.Block | None = None) -> Signed:
        """One of them, with its own block or another."""
        payload = signing.frame(self.op_bytes[at], block or self.blocks[at])
        return Signed(self.subjects[at], payload, digest(self.op_bytes[at]))


Spoil = Callable[[_Tree, _Tree], Signed]


def _false_path(name: str, spoil: Spoil, expected: Verdict = Verdict.SIGNATURE) -> Attempt:
    """A record of a tree of four with a block that does not belong to it."""

    async def act(target: TargetMesh) -> Outcome:
        jobs = [await called(target) for _ in range(4)]
        forger = Forger(target)
        tree, other = _Tree(forger, jobs), _Tree(forger, [unknown_job() for _ in range(4)])
        record = spoil(tree, other)
        return await agreed(target, record, await forger.put(record), expected)

    return Attempt(name, act)


def _with(tree: _Tree, **changes: Any) -> Signed:
    return tree.record(0, replace(tree.blocks[0], **changes))


async def _repeated(target: TargetMesh) -> Outcome:
    """One op as two leaves of one tree: both blocks are valid, and it counts once."""
    forger, job = Forger(target), await called(target)
    tree = _Tree(forger, [job])
    one = blake3(tree.op_bytes[0]).digest()
    blocks = signing.sign_together(forger.key.sign, target.mesh, [one, one])
    first, second = (tree.record(0, block) for block in blocks)
    if await forger.put(first) is not Verdict.OK:
        raise Breach("this shows nothing, since the first was not accepted")
    verdict = await forger.put(second)
    view = await target.owner.connection.session.read_lane(RENDER, job)
    light = [one.verdict for one in view.history if one.opened.op_id == second.op_id]
    if light != [Verdict.OK, verdict] or verdict is not Verdict.PREV:
        raise Breach(f"a light reader says {light}, the full node {verdict!r} of the second")
    return Outcome("rules", f"the second is {verdict.value}")


async def _in_the_owners_name(target: TargetMesh) -> Outcome:
    """The owner's signature over many, which the outsider may read, under an op of its own."""
    calls: list[Call[Any]] = [
        Call(RENDER, plain_call((unknown_job(),), {}), Scheduling.of({})) for _ in range(2)
    ]
    handles = await target.owner.submit_many(calls)
    (payload,) = [
        one.payload for one in await target.read_log() if one.subject.endswith(handles[0].id)
    ]
    _, block = signing.unframe(payload)
    if not block.of:
        raise Breach("this shows nothing, since the owner signed each alone")
    forger, job = Forger(target), await called(target)
    record = forger.sign(JobClaim, a_claim(job), author=target.owner.connection.session.author.did)
    op_bytes, _ = signing.unframe(record.payload)
    record = replace(record, payload=signing.frame(op_bytes, block))
    return await agreed(target, record, await forger.put(record), Verdict.SIGNATURE)


async def _many_roots(target: TargetMesh) -> Outcome:
    """More false roots than anybody remembers: each costs a verification, as a single one does."""
    forger, job = Forger(target), unknown_job()
    tree = _Tree(forger, [job, unknown_job()])
    seqs = []
    for _ in range(target.scaled(40)):
        false = _with(tree, path=(os.urandom(32).hex(),))
        seqs.append(await forger.store(false))
    return await rejected(target, seqs)


BATCHES: Final = [
    Attempt("open every batch there is", _all_open),
    Attempt("open batches without end", _opened_again),
    Attempt("a batch of large records without end", _too_long),
    Attempt("batches with other headers, or a record too large", _other_headers),
    Attempt("torn batches", _torn),
    Attempt("a batch that reaches the victim's lanes", _victims_lane),
    Attempt("two logins in one batch", _shared_batch),
    Attempt("a batch with a lost race in it", _raced),
    Attempt("a batch through the gate", _to_the_gate),
    Attempt("fast ingest", _fast_ingest),
    Attempt("a claim and its end in one batch", _claim_and_end),
    Attempt("two claims of one job in one batch", _two_claims),
    _false_path(
        "a path of another tree", lambda tree, other: _with(tree, path=other.blocks[0].path)
    ),
    _false_path("the block of another record", lambda tree, _: tree.record(0, tree.blocks[1])),
    _false_path("another place in the tree", lambda tree, _: _with(tree, at=1)),
    _false_path("a tree of another size", lambda tree, _: _with(tree, of=3)),
    _false_path(
        "a path that goes on above the root",
        lambda tree, _: _with(tree, path=tree.blocks[0].path + bytes(32)),
    ),
    _false_path("a path that stops below the root", lambda tree, _: _with(tree, path=b"")),
    _false_path(
        "a path longer than any tree",
        lambda tree, _: _with(tree, path=bytes(32) * 13),
        Verdict.MALFORMED,
    ),
    _false_path("a tree of no records", lambda tree, _: _with(tree, of=0)),
    _false_path("a tree larger than any", lambda tree, _: _with(tree, of=4097), Verdict.MALFORMED),
    Attempt("one record as two leaves of a tree", _repeated),
    Attempt("the owner's signature over many, under another op", _in_the_owners_name),
    Attempt("more false roots than anybody remembers", _many_roots),
]
