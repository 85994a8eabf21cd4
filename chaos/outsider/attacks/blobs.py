"""What the outsider tries with artifacts: others' bytes, made-up indexes, a full store.

It may claim `render.*`, so it may store outputs and read what render jobs name: through the gate,
and through nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from blake3 import blake3

from antiphon.core.proof.output import Stored
from antiphon.engines.nats.blobs import CHUNK_BYTES
from antiphon.engines.nats.member.blob_protocol import (
    BUSY,
    CORRUPT,
    FAILED,
    GONE,
    Taken,
    steps,
)
from chaos.network.raw_connection import frame
from chaos.outsider.attempt import Attempt, Outcome, publish_attempt, subscribe_attempt, unknown_job
from chaos.outsider.target import SECRET, Breach, TargetMesh

FLOOD: Final = 2_000
UNSETTLED: Final = frozenset({BUSY, FAILED, GONE})
"""Statuses that say nothing about who may read. While the gate does not hear a member that floods,
the server answers `BUSY` in its place: nobody listens."""
ASK_AGAIN_S: Final = 0.25
SETTLED_WITHIN_S: Final = 80.0
OWN_INBOX: Final = Outcome("gate", "it answers to the asker's own inbox only")


class Silent(Breach):
    """Nobody answered: what is sent while the gate drops a flood can be lost with it."""


def digest_of(blob: bytes) -> str:
    return f"blake3:{blake3(blob).hexdigest()}"


async def _ask(target: TargetMesh, step: str, payload: bytes) -> tuple[int, bytes]:
    """One question to the gate; the status (0 where there is none) and the answer."""
    subject = f"apg.{target.mesh}.{target.connection.user}.blob{step}"
    answers = await target.connection.ask(subject, payload)
    if not answers:
        raise Silent("the gate stays silent")
    headers = answers[0].headers or {}
    return int(headers.get("Status", "0")), answers[0].data


async def _begin(
    target: TargetMesh, do: str, digest: str, **job: str
) -> tuple[int, dict[str, Any]]:
    question = json.dumps({"do": do, "digest": digest, **job}).encode()
    code, answer = await _ask(target, "", question)
    return code, json.loads(answer) if answer and not code else {}


def _steps(target: TargetMesh, taken: dict[str, Any]) -> str:
    where = steps(target.mesh, target.connection.user, Taken(taken["gate"], taken["blob_request"]))
    return where.removeprefix(f"apg.{target.mesh}.{target.connection.user}.blob")


async def others_blob(target: TargetMesh) -> Stored:
    """A blob that the owner keeps for itself."""
    blob = target.canary().encode() + os.urandom(CHUNK_BYTES)

    async def chunks() -> AsyncIterator[bytes]:
        yield blob

    await target.owner.connection.engine.blobs.put(chunks(), digest=digest_of(blob))
    return Stored(hash=digest_of(blob), size=len(blob))


async def _blob_and_job_of_others(target: TargetMesh) -> tuple[str, str]:
    """The same, and the id of a job of a kind out of reach."""
    wanted = (await others_blob(target)).hash
    handle = await target.owner.submit(SECRET, target.canary())
    target.hidden.add(handle.id.encode())
    return wanted, handle.id


async def _settled(
    target: TargetMesh, do: str, digest: str, **job: str
) -> tuple[int, dict[str, Any]]:
    """The same, asked again while the answer says nothing about who may read."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while True:
        is_last = time.monotonic() > deadline
        try:
            code, taken = await _begin(target, do, digest, **job)
        except Silent:
            if is_last:
                raise
        else:
            if code not in UNSETTLED or is_last:
                return code, taken
        await asyncio.sleep(ASK_AGAIN_S)


async def _read_others(target: TargetMesh) -> Outcome:
    digest, job = await _blob_and_job_of_others(target)
    for kind, name in (
        (SECRET, job),
        ("render.video", job),
        ("render.video", unknown_job()),
        ("", ""),
    ):
        if await given_bytes(target, digest, kind=kind, job=name):
            raise Breach(f"the gate gave another's blob, for {kind or 'no job'}")
        code, _ = await _settled(target, "has", digest, kind=kind, job=name)
        if not code:
            raise Breach(f"the gate said that it has another's blob, for {kind or 'no job'}")
    return Outcome("gate", "no record of a job within its scope names it")


async def given_bytes(target: TargetMesh, digest: str, *, kind: str, job: str) -> bytes:
    """What the gate gives of stored content to who names this as what admits it; empty: nothing.

    Only bytes are a gift. A gate that is busy, has failed or forgot the transfer gave none.
    """
    code, taken = await _settled(target, "get", digest, kind=kind, job=job)
    if code or not taken.get("blob_request"):
        return b""
    code, chunk = await _ask(target, f"{_steps(target, taken)}.0", b"")
    return b"" if code else chunk


async def _lie_about_bytes(target: TargetMesh) -> Outcome:
    promised = digest_of(os.urandom(32))
    code, taken = await _begin(target, "put", promised)
    if code:
        raise Breach(f"it may not store at all: status {code}")
    where = _steps(target, taken)
    await _ask(target, f"{where}.0", b"other bytes")
    code, _ = await _ask(target, f"{where}.end", b"")
    if code != CORRUPT or await target.owner.connection.engine.blobs.has(promised):
        raise Breach("an index names bytes that do not hash to it")
    return Outcome("gate", "the index is written when the digest is right, and by the gate")


async def _too_many(target: TargetMesh) -> Outcome:
    codes = []
    begun = []
    for number in range(12):
        code, taken = await _begin(target, "put", digest_of(b"%d" % number))
        codes.append(code)
        begun += [taken] if taken else []
    for taken in begun:
        await target.connection.publish(
            f"apg.{target.mesh}.{target.connection.user}.blob{_steps(target, taken)}.leave"
        )
    if BUSY not in codes or len(begun) > len(codes) // 2:
        raise Breach(f"{len(begun)} uploads of one member are under way at once")
    return Outcome("gate", f"{len(begun)} uploads at once, and each member's bytes are counted")


async def _others_transfer(target: TargetMesh) -> Outcome:
    code, _ = await _ask(target, f".{'0' * 16}.{'0' * 16}.0", b"x")
    answers = await target.connection.ask(
        f"apg.{target.mesh}.{target.connection.user}.blob.x.y.z", b"x", within_s=0.3
    )
    if answers and not (answers[0].headers or {}).get("Status"):
        raise Breach("a transfer that nobody began goes on")
    if code not in {GONE, 503}:
        raise Breach(f"a transfer that is not its own: status {code}")
    return Outcome("gate", "a transfer belongs to the user who began it")


async def _answer_elsewhere(target: TargetMesh) -> Outcome:
    victim = target.victim.access().user
    digest = digest_of(b"anything")
    question = json.dumps({"do": "put", "digest": digest}).encode()
    for reply in (f"$JS.API.STREAM.PURGE.{target.connection.stream}", f"_I.{victim}.r.1", "apr.x"):
        await target.connection.publish(
            f"apg.{target.mesh}.{target.connection.user}.blob", question, reply=reply
        )
    await target.connection.flush()
    return OWN_INBOX


async def _flood(target: TargetMesh) -> Outcome:
    subject = f"apg.{target.mesh}.{target.connection.user}.blob"
    junk = frame(subject, b"{" * 900, reply=f"{target.connection.inbox}.flood")
    await target.connection.send(junk * target.scaled(FLOOD))
    await asyncio.sleep(0)
    return Outcome("harmless", "questions of one member at once are bounded, and so are refusals")


BLOBS: Final = (
    publish_attempt(
        "write an index", f"apo.<m>.blob.{'0' * 64}", b'{"part":"x","size":0,"runs":[]}'
    ),
    publish_attempt("write a chunk", f"apo.<m>.part.{'0' * 64}.0", b"chunk"),
    publish_attempt("read the blobs' stream", "$JS.API.DIRECT.GET.AP_<m>_BLOBS", b'{"seq":1}'),
    publish_attempt(
        "read an index", f"$JS.API.DIRECT.GET.AP_<m>_BLOBS.apo.<m>.blob.{'0' * 64}", b""
    ),
    publish_attempt("purge the blobs", "$JS.API.STREAM.PURGE.AP_<m>_BLOBS", b"{}"),
    publish_attempt("store in another's name", "apg.<m>.<victim>.blob", b"{}"),
    subscribe_attempt("hear others' chunks", "apo.<m>.>"),
    subscribe_attempt("hear what others store", "apg.<m>.*.blob.>"),
    Attempt("read a blob of another kind", _read_others),
    Attempt("store other bytes than promised", _lie_about_bytes),
    Attempt("fill the store with uploads", _too_many),
    Attempt("go on with a transfer of others", _others_transfer),
    Attempt("have the gate answer elsewhere", _answer_elsewhere),
    Attempt("flood the blob service with junk", _flood),
)
