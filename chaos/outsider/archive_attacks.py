"""What the outsider tries with old records, with the archive and with what is forgotten.

Archives, seals and orders to forget are subjects out of its reach, and purging is a request that no
member may make. What was once on the log is refused when it comes again, whoever sends it and under
whatever message id. The archive's files are on the coordinator's machine; the one file of it that
members may ask for is the snapshot that a seal names.
"""

from __future__ import annotations

import os
from typing import Final

from antiphon.core.families.erasures.ops import ForgetBody, JobForget
from antiphon.core.families.jobs.ops import JobClaim, JobYield, YieldBody
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.mesh.ops import ArchiveBody, MeshArchive
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.node.snapshot_search import SNAPSHOT
from chaos.network.raw_connection import header
from chaos.outsider.attacks.blobs import given_bytes, others_blob
from chaos.outsider.attacks.forgeries import Forger, a_claim, called, leaked_lane, now_ms
from chaos.outsider.attacks.headers import own_subject, rejected, stored
from chaos.outsider.attempt import (
    DENIED,
    Attempt,
    Outcome,
    publish_attempt,
    subscribe_attempt,
    unknown_job,
)
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh

_PURGE: Final = "$JS.API.STREAM.PURGE.<stream>"
_DAY_MS: Final = 24 * 3_600_000


async def _forged_archive(target: TargetMesh) -> Outcome:
    """An archive that would empty everything, handed to the gate as revocations are."""
    forger = Forger(target)
    body = ArchiveBody(before=now_ms() - 2 * _DAY_MS, memo_before=now_ms() - 40 * _DAY_MS)
    answer = await forger.post(forger.sign(MeshArchive, body))
    if "refused" not in answer:
        raise Breach(f"the gate did not refuse it: {answer}")
    return Outcome("gate", f"refused as {answer['reason']}")


async def _archive_elsewhere(target: TargetMesh) -> Outcome:
    """The same on a subject that it may write on."""
    forger = Forger(target)
    body = ArchiveBody(before=1, memo_before=1)
    record = forger.sign(MeshArchive, body)
    return await rejected(target, [await forger.store(record, on=own_subject(target))])


async def _forget(target: TargetMesh) -> Outcome:
    """Forget a job that it may claim, by the right that it has."""
    forger, job = Forger(target), await called(target)
    record = forger.sign(
        JobForget, ForgetBody(kind=RENDER, job=job), auth=forger.chain("/job/claim")
    )
    if not await target.connection.is_refused(record.subject, record.payload):
        raise Breach("the server took an order to forget")
    seq = await forger.store(record, on=own_subject(target))
    await rejected(target, [seq])
    return DENIED


async def _forget_by_another(target: TargetMesh) -> Outcome:
    """An order in the owner's name, under the outsider's signature, on a subject of its own."""
    forger = Forger(target)
    body = ForgetBody(kind=BUILD, job=unknown_job())
    record = forger.sign(JobForget, body, author=forger.owner)
    return await rejected(target, [await forger.store(record, on=own_subject(target))])


async def _replay_own(target: TargetMesh) -> Outcome:
    """A claim and a yield that were accepted, again and under other message ids."""
    forger, job = Forger(target), await called(target)
    claim = forger.sign(JobClaim, a_claim(job), auth=forger.chain("/job/claim"))
    at = await forger.store(claim)
    if await target.verdict(at) is not Verdict.OK:
        raise Breach("this shows nothing, since its own claim is refused")
    held = target.host.node.replica.lane(job_key(RENDER, job)).state
    body = YieldBody(kind=RENDER, job=job, fence=held.fence, reason="other")
    chain = forger.chain("/job/complete")
    given_up = forger.sign(JobYield, body, prev=at, auth=chain)
    if await target.verdict(await forger.store(given_up)) is not Verdict.OK:
        raise Breach("this shows nothing, since its own yield is refused")
    again = [
        await stored(target, one.subject, header(Nats_Msg_Id=os.urandom(16).hex()), one.payload)
        for one in (claim, given_up, claim)
    ]
    return await rejected(target, again)


async def _replay_others(target: TargetMesh) -> Outcome:
    """A whole lane of the victim's, on the subjects where it was."""
    leaked = await leaked_lane(target)
    known = {one.payload: one.subject for one in await target.read_log()}
    for payload in leaked:
        if not await target.connection.is_refused(known[payload], payload):
            raise Breach(f"the server took it on {known[payload]}")
    return DENIED


async def _read_as_snapshot(target: TargetMesh) -> Outcome:
    """Others' bytes, asked for as if they were a snapshot, which every member may read."""
    kind, name = SNAPSHOT
    if await given_bytes(target, (await others_blob(target)).hash, kind=kind, job=name):
        raise Breach("the gate gave bytes of others as a snapshot")
    return Outcome("gate", "no seal names them")


ARCHIVE_ATTEMPTS: Final = [
    publish_attempt("an archive, on its subject", "ap.<m>.ctl.archive"),
    Attempt("an archive through the gate", _forged_archive),
    Attempt("an archive on a subject of its own", _archive_elsewhere),
    publish_attempt("a seal that names a snapshot of its own", "ap.<m>.seal"),
    publish_attempt("forget a job of the victim's", f"ap.<m>.forget.{BUILD}.<id>"),
    Attempt("forget a job that it may claim", _forget),
    Attempt("forget in the owner's name", _forget_by_another),
    subscribe_attempt("which jobs were forgotten", f"ap.<m>.forget.{BUILD}.>"),
    subscribe_attempt("every order to forget", "ap.<m>.forget.>"),
    publish_attempt(
        "purge the kind that it may claim", _PURGE, b'{"filter":"ap.*.jobs.*.render.>"}'
    ),
    publish_attempt("purge the seals", _PURGE, b'{"filter":"ap.*.seal"}'),
    publish_attempt("purge the orders to forget", _PURGE, b'{"filter":"ap.*.forget.>"}'),
    Attempt("replay its own records under other message ids", _replay_own),
    Attempt("replay the victim's records where they were", _replay_others),
    Attempt("read others' bytes as a snapshot", _read_as_snapshot),
]
