"""Amplification: a few bytes of one member that would cost everybody else much.

Each attempt is a kind of fault that was found once. Where one uses up an allowance, it is that of
a further machine of the contractor, so that later attempts still have theirs.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from typing import Any, Final

from antiphon.core import manifest
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import JobClaim, JobSchedule, ScheduleBody
from antiphon.core.families.mesh.ops import EvidenceBody, MeshEvidence
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.engines.nats.member.blob_protocol import ABSENT
from antiphon.errors import Rejected, Unavailable
from antiphon.runtime.gate.relay_rules import RECORDS_AN_HOUR
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.hosting.strongest_key import with_authority
from chaos.network.raw_connection import RawConnection, frame, header
from chaos.outsider.attacks.blobs import others_blob
from chaos.outsider.attacks.forgeries import Forger, Signed, a_claim, grants_of, now_ms
from chaos.outsider.attacks.headers import own_subject, stored
from chaos.outsider.attempt import Attempt, Outcome, unknown_job
from chaos.outsider.target import RENDER, Breach, TargetMesh

_HELD_OFF_S: Final = 40.0
_BEARABLE_S: Final = 40.0
_DEPS: Final = 64
_AHEAD_MS: Final = 400
_PIECE_MS: Final = 20


async def _machine(
    target: TargetMesh, alias: str, can: str
) -> tuple[StateDirectory, RawConnection]:
    """One more machine of the contractor's, with a right of its own."""
    home = StateDirectory(target.directory / f"{alias}{os.urandom(2).hex()}")
    terms = Terms(can=(can,), kinds=("render.*",), alias=home.path.name)
    await hosted_mesh.redeem(home, hosted_mesh.invite(target.owner_home, terms), alias=terms.alias)
    await target.host.node.session.sync_control()
    return home, await target.connect(home)


async def _take_ids(target: TargetMesh) -> Outcome:
    """Store junk under every id that the owner's revocation would have if ids were those of ops."""
    home, connection = await _machine(target, "foreteller", "claim")
    owner = target.host.node.session.control.owner
    cids = tuple(grants_of(target, home.signer("machine").did).values())
    lane = own_subject(target)

    async def take() -> None:
        done = now_ms()
        while connection.is_open:
            # A machine that is too slow for it skips what is past. It shares this process's event
            # loop with its victims, so it rests for as long as it works.
            done = max(done, now_ms())
            while done < now_ms() + _AHEAD_MS:
                begun = time.monotonic()
                times = range(done, done + _PIECE_MS)
                ids = [_predicted_id(target.mesh, owner, cid, at) for at in times for cid in cids]
                frames = [frame(lane, b"x", head=header(Nats_Msg_Id=one)) for one in ids]
                await connection.write(b"".join(frames))
                # It is about ids and is no flood: one piece is stored before the next is sent.
                with suppress(Unavailable):
                    await connection.store(lane, b"x")
                done = max(done + _PIECE_MS, now_ms())
                await asyncio.sleep(time.monotonic() - begun)
            await asyncio.sleep(0.02)

    taking = asyncio.ensure_future(take())
    try:
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        async with asyncio.timeout(_HELD_OFF_S):
            while not connection.ended.is_set():  # as a person does who got no answer
                with suppress(Unavailable, Rejected):
                    async with with_authority(target.owner_home.path) as mesh:
                        await mesh.authority.revoke(home.access().alias)
                        await connection.ended.wait()
    except TimeoutError as late:
        raise Breach("the owner could not take its grant back") from late
    finally:
        taking.cancel()
        await asyncio.wait((taking,))
    took = time.monotonic() - begun
    return Outcome(
        "harmless", f"an id is that of the signed record; revoked and gone in {took:.2f} s"
    )


def _predicted_id(mesh: str, owner: str, cid: str, at_ms: int) -> str:
    op = UcanRevoke(
        v=1,
        mesh=mesh,
        author=owner,
        hlc=(at_ms, 0),
        prev=0,
        deps=(),
        auth=(),
        body=RevokeBody(cid=cid),
    )
    return digest(codec.encode(op))


async def _name_many_records(target: TargetMesh) -> Outcome:
    """Records that name as many others as they may, so that every reader has to fetch them."""
    forger = Forger(target)
    verdicts: set[str] = set()
    for number in range(target.scaled(10)):
        deps = tuple((seq, "blake3:" + "0" * 64) for seq in range(number + 1, number + 1 + _DEPS))
        claim = forger.sign(JobClaim, a_claim(unknown_job()), deps=deps)
        verdicts.add(await target.verdict(await stored(target, claim.subject, b"", claim.payload)))
        answer = await forger.post(_delegation(forger, forger.key.did, deps=deps))
        verdicts.add(answer.get("reason") or "stored")
    begun = time.monotonic()
    await target.restart_victim()
    await target.check_work()
    took = time.monotonic() - begun
    if took > _BEARABLE_S:
        raise Breach(f"the victim needed {took:.1f} s to come back and work")
    return Outcome(
        "harmless", f"{', '.join(sorted(verdicts))}; the victim was back in {took:.2f} s"
    )


def _delegation(giver: Forger, to: str, **other: Any) -> Signed:
    made = giver.key.delegate(giver.delegation(to))
    return giver.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)), **other)


async def _accuse_made_up_keys(target: TargetMesh) -> Outcome:
    """Evidence against keys that it made up: each has really signed two ops with one timestamp."""
    forger, said = Forger(target), set()
    for number in range(target.scaled(5)):
        nobody, hlc = Forger(target, SeedKeyring(os.urandom(32))), (now_ms(), number)
        pair = [
            nobody.sign(JobClaim, a_claim(unknown_job()), hlc=hlc).payload.decode()
            for _ in range(2)
        ]
        body = EvidenceBody(node=nobody.key.did, first=pair[0], second=pair[1])
        answer = await forger.post(forger.sign(MeshEvidence, body))
        if "refused" not in answer:
            raise Breach(f"the gate said {answer}")
        said.add(answer["reason"])
    return Outcome("gate", f"refused as {', '.join(sorted(said))}: such a key holds nothing")


async def _delegate_without_end(target: TargetMesh) -> Outcome:
    """Delegations through the gate, until it takes no more."""
    home, connection = await _machine(target, "giver", "claim")
    giver = Forger(target, home.signer("machine"))
    where = f"apg.{target.mesh}.{connection.user}.post"
    stored_here = 0
    while stored_here < 2 * RECORDS_AN_HOUR:  # some are allowed again while this runs
        record = _delegation(giver, SeedKeyring(os.urandom(32)).did)
        found = await connection.ask(where, record.payload)
        answer: dict[str, Any] = json.loads(found[0].data) if found else {}
        if answer.get("reason") == "quota":
            await target.check_work()
            return Outcome("gate", f"{stored_here} within the hour, and no more")
        if not answer.get("seq"):
            raise Breach(f"this shows nothing, since the gate says {answer}")
        stored_here += 1
    raise Breach(f"one member put {stored_here} delegations on the log")


async def _blob_by_a_second_key(target: TargetMesh) -> Outcome:
    """Another's content, named in a call by a second key to which it gave its own right."""
    wanted = (await others_blob(target)).hash
    home, connection = await _machine(target, "caller", "schedule")
    first = Forger(target, home.signer("machine"))
    second = Forger(target, SeedKeyring(os.urandom(32)))
    made = first.key.delegate(first.delegation(second.key.did, command="/job/schedule"))
    given = first.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)))
    where = f"apg.{target.mesh}.{connection.user}"
    found = await connection.ask(f"{where}.post", given.payload)
    if not found or not json.loads(found[0].data).get("seq"):
        raise Breach("this shows nothing, since the gate did not store its delegation")
    await target.host.node.session.sync_control()
    read = {"kind": "blobptr", "algo": "blake3", "hash": wanted}
    content = manifest.author(
        {"command": [f"@{RENDER}"], "args": [os.urandom(4).hex()], "timeout": 5, "inputs": [read]}
    )
    chain = (*first.chain("/job/schedule"), made.cid)
    body = ScheduleBody(kind=RENDER, manifest=content)
    call = second.sign(JobSchedule, body, auth=chain)
    answer = await connection.store(call.subject, call.payload)
    verdict = await target.verdict(int(answer["seq"]))
    if not verdict.is_accepted:
        raise Breach(f"this shows nothing, since the call is {verdict.value}")
    job = {"kind": RENDER, "job": manifest.job_id(content)}
    for do in ("has", "get"):
        question = json.dumps({"do": do, "digest": wanted, **job}).encode()
        told = await connection.ask(f"{where}.blob", question)
        status = (told[0].headers or {}).get("Status") if told else None
        if status != str(ABSENT):
            raise Breach(f"{do} by a second key's word: {status or 'no status'}")
    return Outcome("gate", "a call under its own grant is its own word")


async def _state_a_wider_scope(target: TargetMesh) -> Outcome:
    """State a wider scope in a read: it is answered no more than its own."""
    where = f"apg.{target.mesh}.{target.connection.user}.get"
    for reads in (
        [">"],
        ["jobs.job.render.*.>", "jobs.job.secret.*.>"],
        ["jobs.job.build.image.*"],
    ):
        question = json.dumps({"seq": 1, "batch": 100, "reads": reads}).encode()
        answers = await target.connection.ask(where, question)
        status = (answers[0].headers or {}).get("Status") if answers else None
        if status != "409":
            raise Breach(f"to {reads} the gate said {status}")
    return Outcome("gate", "409: less than that is in its scope")


AMPLIFICATION: Final = [
    Attempt("take the ids of its revocation in advance", _take_ids),
    Attempt("name many records that nobody should have to read", _name_many_records),
    Attempt("evidence against keys that it made up", _accuse_made_up_keys),
    Attempt("delegations without end", _delegate_without_end),
    Attempt("another's content by a second key of its own", _blob_by_a_second_key),
    Attempt("say that it may read everything", _state_a_wider_scope),
]
