"""Recovery: a new owner, by the key that was shown once and kept elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.assembly.logins import connect, fresh_access
from antiphon.assembly.stations import OWNER, place
from antiphon.core import ops, subjects
from antiphon.errors import Rejected
from antiphon.runtime import keys
from antiphon.runtime.author import NoMark
from antiphon.runtime.host import SystemEntropy
from antiphon.runtime.peer import commit_control

if TYPE_CHECKING:
    from antiphon.runtime.home import Home


class Recovered(Struct, frozen=True):
    """What holds now."""

    owner: str
    replaced: str
    recovery_seed: bytes
    """Of the new recovery key: to be shown once, and kept nowhere."""
    grants_ended: int

    def __repr__(self) -> str:
        return f"Recovered(owner={self.owner})"


async def recover(home: Home, seed: bytes) -> Recovered:
    """Replace the owner's key and the recovery key, from here on the log.

    What the old owner had granted ends there: whoever stole its key may have granted anything.
    """
    entropy = SystemEntropy()
    keyring = keys.SeedKeyring(seed)
    described = home.mesh()
    engine = await connect(described, await fresh_access(home, ()), name="recovery", home=home)
    try:
        peer = place(engine, described.mesh, keyring, "recovery", NoMark()).peer
        control = await peer.sync_control()
        if control.recovery != keyring.did:
            raise Rejected(
                f"this is not the recovery key of the mesh {described.name!r}",
                reason="not_owner",
                hint="each recovery makes a new one: look for the newest that was written down",
            )
        fresh, next_recovery = home.next_key(OWNER, entropy), entropy.token(keys.SEED_BYTES)
        body = ops.RecoverBody(owner=fresh.did, recovery=keys.SeedKeyring(next_recovery).did)
        prev = peer.history.tail(subjects.control(peer.mesh, "recover"))
        await commit_control(peer, peer.author.draft(ops.MeshRecover, body, prev=prev))
        home.put_in_place(OWNER)
        ended = sum(link.issuer == control.owner for link in control.grants.everything())
    finally:
        await engine.close()
    return Recovered(fresh.did, control.owner, next_recovery, ended)
