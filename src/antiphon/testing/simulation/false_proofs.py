"""What the hostile member puts forward as proofs and seals: true ones of its own, and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core import codec, ops, proof, subjects
from antiphon.core.control import protocol_of
from antiphon.core.rules import PROOFS_SINCE

if TYPE_CHECKING:
    from antiphon.testing.simulation.hostile import Mallory

TRUE: Final = 0.7
"""Of its results, those with a proof of just that: so that other checks are reached."""
BENT: Final = 0.15
LATEST: Final = 200


def vouched(m: Mallory, body: ops.CompleteBody) -> ops.CompleteBody:
    """A result with a proof, true or false, where the protocol asks for one."""
    if protocol_of(m.referee.history.current) < PROOFS_SINCE or body.proof is not None:
        return body
    dice = m.chance.random()
    if dice < TRUE:
        return replace(body, proof=_own(m, body))
    if dice < TRUE + BENT:
        other = replace(body, fence="0" * 16, status="failed")
        return replace(body, proof=_own(m, m.chance.choice((other, replace(other, job="0" * 64)))))
    return replace(body, proof=_stolen(m))


def _own(m: Mallory, body: ops.CompleteBody) -> ops.DsseEnvelope:
    predicate = proof.Predicate(
        mesh=m.mesh,
        kind=body.kind,
        job=body.job,
        manifest=proof.Digests(blake3=body.job),
        worker=m.keyring.did,
        fence=body.fence,
        started=body.fence,
        ended=body.fence,
        status=body.status,
        exit=body.exit,
        runner=proof.Runner(name="mallory", version="1", platform="any"),
        isolation=proof.Isolation(level="none"),
        usage=proof.Usage(wall_ms=0),
    )
    payload = proof.statement(predicate, body.outputs)
    return proof.seal_in(payload, m.keyring.did, m.keyring.sign)


def _stolen(m: Mallory) -> ops.DsseEnvelope | None:
    """Somebody else's proof, from the log."""
    last = m.referee.log.last_seq
    for seq in range(last, max(last - LATEST, 0), -1):
        stored = m.referee.log.at(seq)
        if stored is None or b'"type":"job.complete"' not in stored.payload:
            continue
        if m.referee.verdicts[seq - 1].value == "ok":
            op = codec.decode(stored.payload.partition(b"\n")[0], ops.decoder)
            return op.body.proof if isinstance(op, ops.JobComplete) else None
    return None


async def false_seal(m: Mallory) -> None:
    """A seal over what is not there, or out of turn, or that is simply not its own to write."""
    last = m.referee.log.last_seq
    upto = max(1, last - m.chance.choice((0, 0, 0, 5, -3)))
    root = m.chance.randbytes(32).hex()
    body = ops.SealBody(upto=upto, size=max(1, upto - m.chance.choice((0, 0, 1))), root=root)
    subject = subjects.seal(m.mesh)
    await m.put(subject, m.op(ops.MeshSeal, body, prev=m.tail(subject)))
