"""What the outsider tries with shared memory: it may claim `render.*`, which opens no space."""

from __future__ import annotations

import os
from typing import Final

from antiphon.core.families.memory.ops import Inline, MemoryBody, MemoryPut
from antiphon.core.record.ids import name_of_key
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
    answers = await target.connection.ask(gate, subject.encode())
    if answers and b"seq" in answers[0].data:
        raise Breach("it was told where a lane of others can be entered")
    return Outcome("gate", "it passes on questions about lanes that the asker may read")


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
)
