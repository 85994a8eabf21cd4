"""What the outsider tries with shared memory: it may claim `render.*`, which opens no space."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from antiphon import assembly
from antiphon.core.families.memory.ops import Inline, MemoryBody, MemoryPut, Stored
from antiphon.core.families.memory.state import document_key
from antiphon.core.record.ids import name_of_key
from chaos.network.raw_connection import QUIET_S
from chaos.outsider.attacks.blobs import digest_of, given_bytes
from chaos.outsider.attacks.forgeries import Forger
from chaos.outsider.attempt import DENIED, Attempt, Outcome, publish_attempt, subscribe_attempt
from chaos.outsider.target import RENDER, SECRET, Breach, TargetMesh

KEY: Final = "plan"
NAME: Final = name_of_key(KEY)
LARGE: Final = 64 * 1024


async def _write(target: TargetMesh) -> Outcome:
    """A signed put with the chain that it really has, in others' space and in one of its kind."""
    forger = Forger(target)
    for space in (SECRET, RENDER):
        body = MemoryBody(kind=space, key=KEY, agent="main", value=Inline(text="1"))
        record = forger.sign(MemoryPut, body, auth=forger.chain("/job/claim"))
        if not await target.connection.is_refused(record.subject, record.payload):
            raise Breach(f"the server took a put in {space}")
    return DENIED


async def _large_value(target: TargetMesh) -> Outcome:
    """The value of a document that it may not read, by the name of that document."""
    secret = target.canary() + os.urandom(LARGE // 2).hex()
    await target.owner.memory[SECRET].put(KEY, secret, strategy="local")
    wanted = digest_of(f'"{secret}"'.encode())
    for space in (SECRET, RENDER):
        if await given_bytes(target, wanted, kind=space, job=NAME):
            raise Breach(f"the gate gave a document's value, for {space}")
    return Outcome("gate", "it shows a document's value to whoever may read the document")


async def _entry(target: TargetMesh) -> Outcome:
    """Where a lane of others can be entered: which record wrote it last."""
    subject = f"ap.{target.mesh}.memo.{SECRET}.{NAME}"
    gate = f"apg.{target.mesh}.{target.connection.user}.entry"
    # No answer comes, so nothing is gained by waiting for as long as a slow machine may take.
    answers = await target.connection.ask(gate, subject.encode(), within_s=10 * QUIET_S)
    if answers and b"seq" in answers[0].data:
        raise Breach("it was told where a lane of others can be entered")
    return Outcome("gate", "it passes on questions about lanes that the asker may read")


async def _same_value_twice(target: TargetMesh) -> Outcome:
    """Two values that wait beside a document and are the same content, or that of the document."""
    home = await target.join(f"keeper-{os.urandom(2).hex()}", can="memory")
    key, found = f"twice-{os.urandom(2).hex()}", digest_of(b'"the same"')
    said = []
    async with assembly.join(home, "client") as connection:
        session = connection.session
        await session.sync_control()
        for base, behind in ((0, None), (0, True), (0, True)):
            lane = (await session.read(document_key(RENDER, key))).lane
            revision = lane.state.revision if lane.state is not None else 0
            body = MemoryBody(
                kind=RENDER,
                key=key,
                agent="main",
                value=Stored(hash=found, size=10),
                base=base,
                found=revision if behind else None,
                strategy="defer",
            )
            draft = session.draft(MemoryPut, body, prev=lane.tails[0])
            seq = await session.commit(draft)
            await asyncio.sleep(0.2)  # if a full node ends by it, it ends now
            target.check_participants()
            said.append(await target.verdict(seq))
    await target.check_work()
    return Outcome("rules", f"{', '.join(one.value for one in said)}; full nodes go on")


DOCUMENTS: Final = (
    publish_attempt("write a document", f"ap.<m>.memo.{SECRET}.{NAME}"),
    publish_attempt("write a document in a space named like its kind", f"ap.<m>.memo.{RENDER}.x"),
    publish_attempt("ask full nodes past the gate", "apb.<m>.entry", b"x"),
    subscribe_attempt("hear documents", "apr.<m>.memo.>"),
    subscribe_attempt("hear a space named like its kind", f"apr.<m>.memo.{RENDER}.*"),
    subscribe_attempt("hear what others ask", "apb.<m>.entry"),
    Attempt("put with a chain for jobs", _write),
    Attempt("read the value of another's document", _large_value),
    Attempt("ask where another's lane can be entered", _entry),
    Attempt("put the same content beside a document twice", _same_value_twice),
)
