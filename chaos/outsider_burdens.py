"""What one member can aim at everybody else: few bytes of its own that would cost others much.

Each is a class of fault that was found once. A machine that uses up an allowance here is one of the
contractor's further ones, so that what comes after still has it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any, Final

from antiphon.core import codec, manifest
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import JobClaim, JobSchedule, ScheduleBody
from antiphon.core.families.mesh.ops import EvidenceBody, MeshEvidence
from antiphon.core.grants import token_of
from antiphon.core.ids import digest
from antiphon.core.terms import Terms
from antiphon.engines.nats.blob_errands import ABSENT
from antiphon.runtime.home import Home
from antiphon.runtime.keys import SeedKeyring
from antiphon.runtime.letters import RECORDS_AN_HOUR
from antiphon.sdk import authority, hosting
from chaos.outsider_attempt import Attempt, Held, invented
from chaos.outsider_blobs import others_blob
from chaos.outsider_forgeries import Forger, Signed, a_claim, grants_of, now_ms
from chaos.outsider_headers import own, stored
from chaos.outsider_line import Line, frame, header
from chaos.outsider_scene import RENDER, Breach, Scene

_HELD_OFF_S: Final = 5.0
_BEARABLE_S: Final = 5.0
_DEPS: Final = 64
_AHEAD_MS: Final = 400


async def _machine(scene: Scene, alias: str, can: str) -> tuple[Home, Line]:
    """One more machine of the contractor's, with a right of its own."""
    home = Home(scene.directory / f"{alias}{os.urandom(2).hex()}")
    terms = Terms(can=(can,), kinds=("render.*",), alias=home.path.name)
    await hosting.redeem(home, hosting.invite(scene.owner_home, terms), alias=terms.alias)
    await scene.host.node.peer.sync_control()
    return home, await scene.enter(home)


async def _take_ids(scene: Scene) -> Held:
    """Store junk under every id that the owner's revocation could have, were ids those of ops."""
    home, line = await _machine(scene, "foreteller", "claim")
    owner = scene.host.node.peer.control.owner
    cids = tuple(grants_of(scene, home.signer("machine").did).values())
    lane = own(scene)

    async def take() -> None:
        done = now_ms()
        while line.is_up:
            upto = now_ms() + _AHEAD_MS
            times = range(done, upto)
            ids = [_foretold(scene.mesh, owner, cid, at) for at in times for cid in cids]
            await line.pour(b"".join(frame(lane, b"x", head=header(Nats_Msg_Id=i)) for i in ids))
            done = upto
            await asyncio.sleep(0.02)

    taking = asyncio.ensure_future(take())
    try:
        await asyncio.sleep(0.2)
        async with authority.with_authority(scene.owner_home.path) as mesh:
            begun = time.monotonic()
            async with asyncio.timeout(_HELD_OFF_S):
                await authority.revoke(mesh, home.access().alias)
                await line.ended.wait()
    except TimeoutError as late:
        raise Breach("the owner could not take its grant back") from late
    finally:
        taking.cancel()
        await asyncio.wait((taking,))
    took = time.monotonic() - begun
    return Held("harmless", f"an id is that of the signed record; revoked and gone in {took:.2f} s")


def _foretold(mesh: str, owner: str, cid: str, at_ms: int) -> str:
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


async def _name_many_records(scene: Scene) -> Held:
    """Records that name as many others as they may, which a judge would have to read."""
    forger = Forger(scene)
    verdicts: set[str] = set()
    for number in range(10 * scene.rounds):
        deps = tuple((seq, "blake3:" + "0" * 64) for seq in range(number + 1, number + 1 + _DEPS))
        claim = forger.sign(JobClaim, a_claim(invented()), deps=deps)
        verdicts.add(await scene.verdict(await stored(scene, claim.subject, b"", claim.payload)))
        answer = await forger.post(_delegation(forger, forger.key.did, deps=deps))
        verdicts.add(answer.get("reason") or "stored")
    begun = time.monotonic()
    await scene.restart_victim()
    await scene.pulse()
    took = time.monotonic() - begun
    if took > _BEARABLE_S:
        raise Breach(f"the victim needed {took:.1f} s to come back and work")
    return Held("harmless", f"{', '.join(sorted(verdicts))}; the victim was back in {took:.2f} s")


def _delegation(giver: Forger, to: str, **other: Any) -> Signed:
    made = giver.key.delegate(giver.delegation(to))
    return giver.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)), **other)


async def _accuse_nobodies(scene: Scene) -> Held:
    """Evidence against keys that it made up: each has really signed two ops with one timestamp."""
    forger, said = Forger(scene), set()
    for number in range(5 * scene.rounds):
        nobody, hlc = Forger(scene, SeedKeyring(os.urandom(32))), (now_ms(), number)
        pair = [
            nobody.sign(JobClaim, a_claim(invented()), hlc=hlc).payload.decode() for _ in range(2)
        ]
        body = EvidenceBody(node=nobody.key.did, first=pair[0], second=pair[1])
        answer = await forger.post(forger.sign(MeshEvidence, body))
        if "refused" not in answer:
            raise Breach(f"the gate said {answer}")
        said.add(answer["reason"])
    return Held("gate", f"refused as {', '.join(sorted(said))}: such a key holds nothing")


async def _delegate_without_end(scene: Scene) -> Held:
    """Delegations through the gate, until it takes no more."""
    home, line = await _machine(scene, "giver", "claim")
    giver = Forger(scene, home.signer("machine"))
    where = f"apg.{scene.mesh}.{line.user}.post"
    stored_here = 0
    while stored_here <= RECORDS_AN_HOUR:
        record = _delegation(giver, SeedKeyring(os.urandom(32)).did)
        found = await line.ask(where, record.payload)
        answer: dict[str, Any] = json.loads(found[0].data) if found else {}
        if answer.get("reason") == "quota":
            await scene.pulse()
            return Held("gate", f"{stored_here} within the hour, and no more")
        if not answer.get("seq"):
            raise Breach(f"this shows nothing, since the gate says {answer}")
        stored_here += 1
    raise Breach(f"one member put {stored_here} delegations on the log")


async def _blob_by_a_second_key(scene: Scene) -> Held:
    """Another's content, named in a call by a second key to which it gave its own right."""
    wanted = await others_blob(scene)
    home, line = await _machine(scene, "caller", "schedule")
    first = Forger(scene, home.signer("machine"))
    second = Forger(scene, SeedKeyring(os.urandom(32)))
    made = first.key.delegate(first.delegation(second.key.did, command="/job/schedule"))
    given = first.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)))
    where = f"apg.{scene.mesh}.{line.user}"
    found = await line.ask(f"{where}.post", given.payload)
    if not found or not json.loads(found[0].data).get("seq"):
        raise Breach("this shows nothing, since the gate did not store its delegation")
    await scene.host.node.peer.sync_control()
    read = {"kind": "blobptr", "algo": "blake3", "hash": wanted}
    content = manifest.author(
        {"command": [f"@{RENDER}"], "args": [os.urandom(4).hex()], "timeout": 5, "inputs": [read]}
    )
    chain = (*first.chain("/job/schedule"), made.cid)
    body = ScheduleBody(kind=RENDER, manifest=content)
    call = second.sign(JobSchedule, body, auth=chain)
    answer = await line.store(call.subject, call.payload)
    verdict = await scene.verdict(int(answer["seq"]))
    if not verdict.is_accepted:
        raise Breach(f"this shows nothing, since the call is {verdict.value}")
    job = {"kind": RENDER, "job": manifest.job_id(content)}
    for do in ("has", "get"):
        question = json.dumps({"do": do, "digest": wanted, **job}).encode()
        told = await line.ask(f"{where}.blob", question)
        status = (told[0].headers or {}).get("Status") if told else None
        if status != str(ABSENT):
            raise Breach(f"{do} by a second key's word: {status or 'no status'}")
    return Held("gate", "a call under its own grant is its own word")


async def _say_that_it_may(scene: Scene) -> Held:
    """A reader says what it takes for all: more than its own is not shown for that."""
    where = f"apg.{scene.mesh}.{scene.line.user}.get"
    for reads in ([">"], ["job.render.*.>", "job.secret.*.>"], ["job.build.image.*"]):
        question = json.dumps({"seq": 1, "batch": 100, "reads": reads}).encode()
        answers = await scene.line.ask(where, question)
        status = (answers[0].headers or {}).get("Status") if answers else None
        if status != "409":
            raise Breach(f"to {reads} the gate said {status}")
    return Held("gate", "409: less than that is in its scope")


BURDENS: Final = [
    Attempt("take the ids of its revocation in advance", _take_ids),
    Attempt("name many records that nobody should have to read", _name_many_records),
    Attempt("evidence against keys that it made up", _accuse_nobodies),
    Attempt("delegations without end", _delegate_without_end),
    Attempt("another's content by a second key of its own", _blob_by_a_second_key),
    Attempt("say that it may read everything", _say_that_it_may),
]
