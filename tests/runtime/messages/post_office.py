"""Agents with gates of their own on one store: what tests of messages begin with."""

from contextlib import asynccontextmanager

from msgspec import Raw

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.messages import envelope, register
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import agent_address
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.messages.message_gate import MessageGate, Reading
from tests.runtime.meshes import CALM, a_mesh


class Agent:
    """One key with a gate, as a node with all permissions has it."""

    def __init__(self, connection, gate=None):
        self.session, self.keyring = connection.session, connection.keyring
        self.gate = gate or MessageGate(self.session, self.session.engine.messages)
        self.address = agent_address(self.keyring.did, "main")
        self.opened = 0
        self.open()

    def open(self):
        """A new session, as after a restart."""
        self.opened += 1
        self.reading = register.session_name(1_000 + self.opened, "s")

    def sign(self, to, key, *, at_ms=None, **fields):
        did, _, name = to.partition("/")
        body = MessageBody(
            node=did, agent=name, sender="main", kind=fields.pop("kind", "note"), key=key, **fields
        )
        at_ms = self.session.wall.now_ms() if at_ms is None else at_ms
        signer = (self.keyring.did, self.keyring.sign)
        return envelope.sign(body, signer, mesh=self.session.mesh, at_ms=at_ms)

    async def put(self, to, key, *, gate=None, payload=b"1", **fields):
        signed = self.sign(to, key, payload=Raw(payload), **fields)
        return await (gate or self.gate).put(to, signed, by=self.keyring.did)

    async def read(self, *, gate=None, limit=64, wait_ms=0, lease_ms=60_000, **fields):
        asked = Reading(
            address=self.address,
            session=self.reading,
            limit=limit,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
            **fields,
        )
        return await (gate or self.gate).read(asked, by=self.keyring.did)

    async def ack(self, handed, *, gate=None):
        await (gate or self.gate).ack(self.address, handed.id, handed.revision, by=self.keyring.did)

    async def nack(self, handed, delay_ms=None, error=""):
        await self.gate.nack(
            self.address,
            handed.id,
            handed.revision,
            by=self.keyring.did,
            delay_ms=delay_ms,
            error=error,
        )

    def key_of(self, handed):
        """The sender's key for a message: what tests tell them apart by."""
        opened = envelope.open_stored(handed.envelope, self.address, mesh=self.session.mesh)
        return opened.body.key


@asynccontextmanager
async def agents(engine, count, rules=CALM):
    """Agents of a mesh, each over its own connection."""
    async with a_mesh(engine, rules) as mesh:
        found = [Agent(await mesh.connection()) for _ in range(count)]
        try:
            yield mesh, found
        finally:
            for one in found:
                await one.gate.close()


async def grant(mesh, owner, to, can=("message",), kinds=("*",)):
    """The owner delegates; the delegations' ids."""
    cids = []
    terms = Terms(can=can, kinds=kinds)
    for payload in PROTOCOL.rights.payloads(
        terms,
        issuer=mesh.owner.did,
        audience=to,
        owner=mesh.owner.did,
        nonce=mesh.entropy.token,
        mesh=mesh.mesh,
    ):
        delegation = mesh.owner.delegate(payload)
        await write_one(
            owner.session, Intent(UcanDelegate, DelegateBody(token=token_of(delegation.raw)))
        )
        cids.append(delegation.cid)
    return cids


async def revoke(owner, cid):
    """The owner takes one back."""
    await write_one(owner.session, Intent(UcanRevoke, RevokeBody(cid=cid)))
