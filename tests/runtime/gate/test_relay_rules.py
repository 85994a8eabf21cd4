"""Which control records of members the gate stores: what the rules accept, once, so many."""

from contextlib import asynccontextmanager

import pytest

from antiphon.core.authority.delegations import open_token, token_of
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.core.authority.scope import NOTHING, Scope
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.mesh.ops import EvidenceBody, MeshEvidence
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, signing, subjects
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import message_id
from antiphon.errors import LostRace, Rejected
from antiphon.runtime.gate import relay_rules
from antiphon.runtime.gate.member_registry import Member, MemberRegistry
from antiphon.runtime.gate.relay_rules import Asker, RelayRules
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.writer import Intent, write_one
from tests.families.polls import POLLS, WITH_POLLS
from tests.families.polls.ops import CloseBody, OpenBody, PollClose, PollOpen
from tests.families.polls.table import PollLane
from tests.runtime.meshes import a_mesh

CLOSED = Rules(max_drift_ms=100)
ALL = Terms(can=("all",))


class Desk:
    """The gate's desk, and people who know how to sign."""

    def __init__(self, mesh, tmp_path, gate, owner):
        self.mesh, self.gate, self.owner = mesh, gate, owner
        members = MemberRegistry(tmp_path)
        for n in "12":
            members.keep(Member(node=f"n{n}", user=f"U{n}", refresh_key=f"D{n}", alias=""))
        members.keep(Member(node="n1", user="U1b", refresh_key="D1b", alias=""))
        self.scopes, self.members = {}, members
        self.letters = self.rules(gate.session)

    def rules(self, session):
        """What one gate goes by."""

        def asker_of(user):
            member = self.members.by_user(user)
            return member and Asker(member.node, self.scopes.get(user, NOTHING))

        return RelayRules(session, asker_of, session.engine.messages)

    async def grant(self, giver, to: str) -> str:
        """A delegation on the log; its id."""
        draft = self.delegation(giver, to)
        await self.bring(giver, UcanDelegate, draft.op.body)
        return open_token(draft.op.body.token).cid

    def delegation(self, giver, to: str):
        owner, token = self.gate.session.control.owner, self.mesh.entropy.token
        (payload,) = PROTOCOL.rights.payloads(
            ALL, issuer=giver.keyring.did, audience=to, owner=owner, nonce=token
        )
        body = DelegateBody(token=token_of(giver.keyring.delegate(payload).raw))
        return giver.session.draft(UcanDelegate, body, prev=0)

    async def bring(self, by, kind, body) -> None:
        await by.session.sync_control()
        await write_one(by.session, Intent(kind, body))

    def revocation(self, by, cid: str, **how):
        return by.session.draft(UcanRevoke, RevokeBody(cid=cid), **{"prev": 0, **how})

    async def refusal(self, payload: bytes, user: str = "U1") -> str:
        with pytest.raises(Rejected) as caught:
            await self.letters.accept(user, payload)
        return caught.value.reason


@asynccontextmanager
async def a_desk(tmp_path, protocol=PROTOCOL):
    async with a_mesh("memory", CLOSED, protocol) as mesh:
        yield Desk(mesh, tmp_path, await mesh.connection(), await mesh.connection(mesh.owner))


async def test_the_issuer_and_those_above_take_back_once(tmp_path):
    async with a_desk(tmp_path) as at:
        alice, bob, carol = [await at.mesh.connection() for _ in range(3)]
        await at.grant(at.owner, alice.keyring.did)
        to_bob = await at.grant(alice, bob.keyring.did)
        to_carol = await at.grant(bob, carol.keyring.did)
        draft = at.revocation(alice, to_carol)
        accepted = await at.letters.accept("U1", draft.payload)
        assert accepted == (
            subjects.control(at.mesh.mesh, f"revoke.{to_carol}"),
            message_id(draft.payload),
            0,
        )
        seq = await alice.session.commit(draft)
        with pytest.raises(LostRace):
            await at.letters.accept("U1", at.revocation(bob, to_carol).payload)
        again = at.revocation(alice, to_carol, prev=seq)
        assert await at.refusal(again.payload) == "already"
        assert await at.letters.accept("U1", at.revocation(bob, to_carol, prev=seq).payload)
        assert await at.refusal(at.revocation(carol, to_bob).payload) == "no_chain"


async def test_a_delegation_has_no_more_revocations_than_chains_that_it_was_part_of(tmp_path):
    """A member can stand above one with any number of keys."""
    async with a_desk(tmp_path) as at:
        alice, bob, carol = [await at.mesh.connection() for _ in range(3)]
        keys = [await at.mesh.connection() for _ in range(3)]
        await at.grant(at.owner, alice.keyring.did)
        before = alice
        for key in keys:  # one below the other, and bob below them all
            await at.grant(before, key.keyring.did)
            before = key
        await at.grant(before, bob.keyring.did)
        to_carol = await at.grant(bob, carol.keyring.did)
        draft = at.revocation(keys[0], to_carol)
        assert await at.letters.accept("U1", draft.payload)
        seq = await keys[0].session.commit(draft)
        for key in keys[1:]:
            again = at.revocation(key, to_carol, prev=seq)
            assert await at.refusal(again.payload) == "already"
        await at.grant(alice, bob.keyring.did)  # another way to bob, which nobody has ended
        assert await at.letters.accept("U1", at.revocation(alice, to_carol, prev=seq).payload)


async def test_nobody_else_revokes_what_its_issuer_has_revoked(tmp_path):
    async with a_desk(tmp_path) as at:
        alice, bob, carol = [await at.mesh.connection() for _ in range(3)]
        await at.grant(at.owner, alice.keyring.did)
        await at.grant(alice, bob.keyring.did)
        to_carol = await at.grant(bob, carol.keyring.did)
        seq = await bob.session.commit(at.revocation(bob, to_carol))
        for above in (alice, at.owner):
            again = at.revocation(above, to_carol, prev=seq)
            assert await at.refusal(again.payload) == "already"


async def test_nobody_fills_the_place_of_its_own_revocation(tmp_path):
    async with a_desk(tmp_path) as at:
        alice = await at.mesh.connection()
        cid = await at.grant(at.owner, alice.keyring.did)
        assert await at.refusal(at.revocation(alice, cid).payload) == "no_chain"
        # In the book it now stands above the owner, and so above everything.
        await at.grant(alice, at.owner.keyring.did)
        assert await at.refusal(at.revocation(alice, cid).payload) == "no_chain"


async def test_what_the_rules_would_reject_is_not_stored(tmp_path):
    async with a_desk(tmp_path) as at:
        alice = await at.mesh.connection()
        await at.grant(at.owner, alice.keyring.did)
        cid = await at.grant(alice, SeedKeyring(bytes(32)).did)
        draft = at.revocation(alice, cid)
        assert await at.refusal(draft.payload, user="U9") == "member"
        assert await at.refusal(b"junk") == "op"
        assert await at.refusal(draft.payload + b" ") == "op"
        body = ClaimBody(kind="a", job="1" * 64, lease_ms=5000)
        claim = alice.session.draft(JobClaim, body, prev=0)
        assert await at.refusal(claim.payload) == "op"
        for fields, reason in (
            ({"hlc": (draft.op.hlc[0] + 10**7, 0)}, "drift"),
            ({"deps": ((1, "blake3:" + "0" * 64),)}, "missing_dep"),
            ({"body": RevokeBody(cid="b" + "a" * 58)}, "no_chain"),
        ):
            assert await at.refusal(resigned(alice.keyring, draft.op, **fields)) == reason


async def test_evidence_is_stored_where_it_proves_something(tmp_path):
    async with a_desk(tmp_path) as at:
        liar, witness = await at.mesh.connection(), await at.mesh.connection()
        await at.grant(at.owner, liar.keyring.did)
        claim = ClaimBody(kind="a", job="1" * 64, lease_ms=5000)
        first = liar.session.draft(JobClaim, claim, prev=0)
        second = resigned(liar.keyring, first.op, prev=1)
        texts = first.payload.decode(), second.decode()

        def shown(one: str, two: str):
            body = EvidenceBody(node=liar.keyring.did, first=one, second=two)
            return witness.session.draft(MeshEvidence, body, prev=0)

        assert await at.refusal(shown(texts[0], texts[0]).payload) == "proof"
        true = shown(*texts)
        assert await at.letters.accept("U1", true.payload)
        seq = await witness.session.commit(true)
        again = resigned(witness.keyring, true.op, prev=seq)
        assert await at.refusal(again) == "already"


async def test_a_member_delegates_what_leads_from_the_owner_and_nothing_else(tmp_path):
    async with a_desk(tmp_path) as at:
        alice, bob = await at.mesh.connection(), await at.mesh.connection()
        draft = at.delegation(alice, bob.keyring.did)
        assert await at.refusal(draft.payload) == "no_chain", "nothing leads to Alice"
        await at.grant(at.owner, alice.keyring.did)
        assert await at.letters.accept("U1", draft.payload) == (
            draft.subject,
            message_id(draft.payload),
            0,
        )
        seq = await alice.session.commit(draft)
        with pytest.raises(LostRace):
            await at.letters.accept("U1", draft.payload)
        assert await at.refusal(resigned(alice.keyring, draft.op, prev=seq)) == "already"
        nowhere = ((2, "blake3:" + "0" * 64),)
        hostile = resigned(alice.keyring, at.delegation(alice, bob.keyring.did).op, deps=nowhere)
        assert await at.refusal(hostile) == "missing_dep"


async def test_so_many_records_of_a_member_and_type_reach_the_log_in_an_hour(tmp_path, monkeypatch):
    monkeypatch.setattr(relay_rules, "RECORDS_AN_HOUR", 3)
    async with a_desk(tmp_path) as at:
        alice, bob = await at.mesh.connection(), await at.mesh.connection()
        await at.grant(at.owner, alice.keyring.did)
        given = await at.grant(alice, bob.keyring.did)
        at.gate.session.wall = clock = Later(at.gate.session.wall)
        at.letters = at.rules(at.gate.session)

        def one_more() -> bytes:
            return at.delegation(alice, bob.keyring.did).payload

        for _ in range(3):
            assert await at.letters.accept("U1", one_more())
        assert await at.refusal(one_more()) == "quota"
        assert await at.refusal(one_more(), "U1b") == "quota", "another login of the same machine"
        assert await at.letters.accept("U2", one_more()), "each machine has its own"
        assert await at.letters.accept("U1", at.revocation(alice, given).payload)
        clock.later_ms = 1_190_000
        assert await at.refusal(one_more()) == "quota"
        clock.later_ms = 1_210_000  # a third of an hour: one of three
        assert await at.letters.accept("U1", one_more())
        assert await at.refusal(one_more()) == "quota"


async def test_a_gate_that_begins_anew_and_one_beside_it_go_on_with_the_same_hour(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(relay_rules, "RECORDS_AN_HOUR", 4)
    async with a_desk(tmp_path) as at:
        alice, bob, other = [await at.mesh.connection() for _ in range(3)]
        await at.grant(at.owner, alice.keyring.did)
        beside = at.rules(other.session)

        async def accepted(rules):
            draft = at.delegation(alice, bob.keyring.did)
            return await rules.accept("U1", draft.payload)

        assert await accepted(beside)
        assert await accepted(at.letters)
        assert await accepted(beside)
        at.letters = at.rules(at.gate.session)  # it ended without a word, and was started again
        assert await accepted(at.letters)
        for rules in (at.letters, at.rules(other.session)):
            with pytest.raises(Rejected, match="within the hour"):
                await accepted(rules)


async def test_so_many_bytes_of_a_member_and_type_reach_the_log_in_an_hour(tmp_path, monkeypatch):
    monkeypatch.setattr(relay_rules, "BYTES_AN_HOUR", 2_000)
    async with a_desk(tmp_path) as at:
        alice, bob = await at.mesh.connection(), await at.mesh.connection()
        await at.grant(at.owner, alice.keyring.did)
        drafts = [at.delegation(alice, bob.keyring.did).payload for _ in range(4)]
        fit = 2_000 // len(drafts[0])
        for draft in drafts[:fit]:
            assert await at.letters.accept("U1", draft)
        with pytest.raises(Rejected, match="within the hour") as caught:
            await at.letters.accept("U1", drafts[fit])
        assert "try again in" in caught.value.hint


class Later:
    """A machine's clock, some time on."""

    def __init__(self, wall) -> None:
        self._wall, self.later_ms = wall, 0

    def now_ms(self) -> int:
        return self._wall.now_ms() + self.later_ms

    def boot_s(self) -> float:
        return self._wall.boot_s()


def resigned(key: SeedKeyring, op, **changes) -> bytes:
    """The same op, changed, under a signature that holds."""
    fields = {name: getattr(op, name) for name in op.__struct_fields__}
    text = codec.encode(type(op)(**{**fields, **changes}))
    return signing.frame(text, signing.Block(sig=key.sign(signing.OP_TYPE, text)))


# --- a family that the gate does not know by name ---------------------------------------------


def closing(by, kind: str = "a.b", **how):
    body = CloseBody(kind=kind, poll="p")
    return by.session.draft(PollClose, body, **{"prev": 0, **how})


@asynccontextmanager
async def a_desk_for_polls(tmp_path):
    """With a poll of the owner's, and Alice, who may do everything and comes as U1."""
    async with a_desk(tmp_path, WITH_POLLS) as at:
        alice = await at.mesh.connection()
        await at.grant(at.owner, alice.keyring.did)
        at.scopes["U1"] = Scope(by_command={"/poll/vote": ("a.>", "c")})
        body = OpenBody(kind="a.b", poll="p", question="?")
        await write_one(at.owner.session, Intent(PollOpen, body, PollLane()))
        await alice.session.sync_control()
        await alice.session.read(LaneKey(POLLS.name, "a.b", "p"))
        yield at, alice


async def test_what_a_branch_sends_through_the_gate_is_judged_on_its_lane(tmp_path):
    async with a_desk_for_polls(tmp_path) as (at, alice):
        draft, stranger = closing(alice), await at.mesh.connection()
        for _ in range(2):  # nothing is remembered of what was only shown
            accepted = await at.letters.accept("U1", draft.payload)
            assert accepted == (f"ap.{at.mesh.mesh}.close.a.b.p", message_id(draft.payload), 0)
        await stranger.session.read(LaneKey(POLLS.name, "a.b", "p"))
        for payload, reason in (
            (closing(alice, kind="c").payload, "no_job"),
            (closing(stranger).payload, "no_chain"),
            (closing(alice, deps=((1, "blake3:" + "0" * 64),)).payload, "missing_dep"),
        ):
            assert await at.refusal(payload) == reason
        seq = await alice.session.commit(draft)
        with pytest.raises(LostRace):
            await at.letters.accept("U1", closing(alice).payload)
        assert await at.refusal(closing(alice, prev=seq).payload) == "finished"


async def test_the_gate_reads_no_lane_for_whoever_has_nothing_to_do_with_it(tmp_path, monkeypatch):
    async with a_desk_for_polls(tmp_path) as (at, alice):
        monkeypatch.setattr(at.gate.session, "read", None)
        assert await at.refusal(closing(alice, kind="b").payload) == "policy"
        assert await at.refusal(closing(alice).payload, user="U2") == "policy"


async def test_the_gate_says_what_it_takes_by_the_protocol(tmp_path):
    async with a_desk_for_polls(tmp_path) as (at, alice):
        body = OpenBody(kind="a.c", poll="p", question="?")
        direct = alice.session.draft(PollOpen, body, prev=0)
        taken = "only takes mesh.evidence, poll.close, ucan.delegate, ucan.revoke"
        with pytest.raises(Rejected, match=taken):
            await at.letters.accept("U1", direct.payload)


async def test_what_the_gate_relays_of_any_family_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(relay_rules, "RECORDS_AN_HOUR", 2)
    async with a_desk_for_polls(tmp_path) as (at, alice):
        for _ in range(2):
            await at.letters.accept("U1", closing(alice).payload)
        assert await at.refusal(closing(alice).payload) == "quota"
