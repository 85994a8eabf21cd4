"""The hostile member's proofs: its own valid ones, and false ones."""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec.structs import replace

from antiphon.core.families.jobs.ops import CompleteBody, JobComplete
from antiphon.core.proof.statement import Proof
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec
from simulator.actors.machines import WatchedKeyring
from simulator.checks.referee import Referee
from simulator.plain_proofs import plain_proof

TRUE: Final = 0.7
"""Of its results, those with a proof of just that: so that other checks are reached."""
BENT: Final = 0.15
LATEST: Final = 200


def vouched(
    body: CompleteBody, referee: Referee, keyring: WatchedKeyring, chance: Random
) -> CompleteBody:
    """A result with a proof, true or false."""
    if body.proof is not None or body.answered is not None:
        return body
    dice = chance.random()
    if dice < TRUE:
        return replace(body, proof=plain_proof(body, referee.mesh, keyring.did, keyring.sign))
    if dice < TRUE + BENT:
        bent = replace(body, fence="0" * 16, status="failed")
        bent = chance.choice((bent, replace(bent, job="0" * 64)))
        return replace(body, proof=plain_proof(bent, referee.mesh, keyring.did, keyring.sign))
    return replace(body, proof=_stolen(referee))


def _stolen(referee: Referee) -> Proof | None:
    """Somebody else's proof, from the log."""
    last = referee.log.last_seq
    for seq in range(last, max(last - LATEST, 0), -1):
        stored = referee.log.at(seq)
        if stored is None or b'"type":"job.complete"' not in stored.payload:
            continue
        if referee.verdicts[seq - 1].value == "ok":
            op = codec.decode(stored.payload.partition(b"\n")[0], PROTOCOL.decoder)
            return op.body.proof if isinstance(op, JobComplete) else None
    return None
