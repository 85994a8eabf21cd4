"""Creating a mesh: the signed genesis op, whose digest is the mesh's id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.authority.rules import Rules, contradiction
from antiphon.core.clock.hlc import Hlc
from antiphon.core.families.mesh.ops import Genesis, MeshGenesis
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, signing, subjects
from antiphon.core.record.ids import mesh_id, message_id
from antiphon.errors import LostRace, Malformed, Misconfigured
from antiphon.read_back import read_back

if TYPE_CHECKING:
    from antiphon.ports import Keyring, OpLog, WallClock


class SignedGenesis(Struct, frozen=True):
    """A signed genesis and the id of the mesh that it creates."""

    mesh: str
    payload: bytes


def sign(
    keyring: Keyring, wall: WallClock, *, name: str, recovery: str, rules: Rules
) -> SignedGenesis:
    """Sign a genesis; nothing is written anywhere."""
    problem = contradiction(rules)
    if problem is not None:
        raise Misconfigured(f"these rules contradict each other: {problem}")
    op = MeshGenesis(
        v=1,
        mesh="",
        author=keyring.did,
        hlc=Hlc(wall.now_ms(), 0),
        prev=0,
        deps=(),
        auth=(),
        body=Genesis(name=name, owner=keyring.did, recovery=recovery, rules=rules),
    )
    op_bytes = codec.encode(op)
    read_back("the first record of this mesh", op, codec.decode, op_bytes, PROTOCOL.decoder)
    block = signing.Block(sig=keyring.sign(signing.OP_TYPE, op_bytes))
    return SignedGenesis(mesh_id(op_bytes), signing.frame(op_bytes, block))


def name_in(payload: bytes, mesh: str) -> str:
    """The name of this mesh, by its first record; `Malformed` if that is not its record."""
    op_bytes, _ = signing.unframe(payload)
    op = codec.decode(op_bytes, PROTOCOL.decoder) if mesh_id(op_bytes) == mesh else None
    if not isinstance(op, MeshGenesis):
        raise Malformed("this is not the first record of this mesh", reason="genesis")
    return op.body.name


async def write(log: OpLog, signed: SignedGenesis) -> None:
    """Write the genesis; safe when several nodes of the mesh do it at once (S3)."""
    subject = subjects.control(signed.mesh, "genesis")
    try:
        name = message_id(signed.payload)
        await log.append(subject, signed.payload, message_id=name, expected_last=0)
    except LostRace:
        first = (await log.read(0, limit=1, subject=subject)).records
        if not first or first[0].payload != signed.payload:
            raise
