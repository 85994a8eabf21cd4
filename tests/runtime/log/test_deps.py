"""What records that name others cost their readers: one read, and none where they are refused."""

from collections import Counter

import pytest

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.ops import ExpireBody, JobExpire
from antiphon.core.families.mesh.ops import MeshRoute, RouteBody
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import digest
from antiphon.core.record.op import MAX_DEPS
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.log.session import dep_of
from tests.runtime.meshes import KIND, a_mesh, call, on_both_engines

CLOSED = Rules(max_drift_ms=100)
MANY = MAX_DEPS


class Counting:
    """A log that counts what it is asked."""

    def __init__(self, log) -> None:
        self._log, self.asked = log, Counter()
        self.fetched = []

    def __getattr__(self, name):
        found = getattr(self._log, name)
        if name in {"fetch", "confirm", "read", "read_lane", "last"}:
            self.asked[name] += 1
        return found

    async def fetch_many(self, seqs):
        self.asked["fetch_many"] += 1
        self.fetched.append(list(seqs))
        return await self._log.fetch_many(seqs)


async def grant(owner, to) -> None:
    terms, did = Terms(can=("all",)), owner.author.did
    token = owner.entropy.token
    (payload,) = PROTOCOL.rights.payloads(terms, issuer=did, audience=to, owner=did, nonce=token)
    body = DelegateBody(token=token_of(owner.author._keyring.delegate(payload).raw))
    await owner.commit(owner.draft(UcanDelegate, body, prev=0))


@on_both_engines
async def test_a_reader_reads_once_what_an_op_names_and_only_if_nothing_else_speaks_against_it(
    engine,
):
    async with a_mesh(engine, CLOSED) as mesh:
        owner, member = (
            (await mesh.connection(mesh.owner)).session,
            (await mesh.connection()).session,
        )
        stranger, reader = (await mesh.connection()).session, (await mesh.connection()).session
        await grant(owner, member.author.did)
        await member.sync_control()
        jobs = [await call(member, n) for n in range(MANY)]
        records = await member.log.fetch_many([job.seq for job in jobs])
        named = tuple((record.seq, dep_of(member.protocol, record).op_id) for record in records)
        lane = jobs[0].id
        await reader.sync_control()

        async def written(by, deps) -> tuple[Verdict | None, Counter]:
            prev = (await reader.read_lane(KIND, lane)).lane.job_tail
            body = ExpireBody(kind=KIND, job=lane)
            draft = by.draft(JobExpire, body, prev=prev, deps=deps)
            await by.commit(draft)
            counting = reader.log = Counting(reader.log)
            view = await reader.read_lane(KIND, lane)
            reader.log = counting._log
            del counting.asked["read_lane"], counting.asked["confirm"], counting.asked["last"]
            told.append((deps[0], prev, counting.fetched, [one.verdict for one in view.history]))
            return view.verdict_of(draft.op_id), counting.asked

        told = []
        nowhere = tuple((seq, digest(b"")) for seq in range(1, MANY + 1))
        assert await written(stranger, nowhere) == (Verdict.NO_CHAIN, {}), told
        assert await written(stranger, named) == (Verdict.NO_CHAIN, {}), told
        assert await written(member, named) == (Verdict.EARLY, {"fetch_many": 1})
        verdict, asked = await written(member, nowhere)
        assert (verdict, asked.total() <= 1) == (Verdict.MISSING_DEP, True)
        assert await written(member, named[:7]) == (Verdict.EARLY, {}), "they are known by now"


@on_both_engines
@pytest.mark.req("M18")
async def test_what_control_ops_name_is_never_read(engine):
    async with a_mesh(engine, CLOSED) as mesh:
        owner, reader = (
            (await mesh.connection(mesh.owner)).session,
            (await mesh.connection()).session,
        )
        counting = reader.log = Counting(reader.log)
        for n, deps in enumerate(((), ((1, digest(b"")),) * MANY, ((99, digest(b"")),) * MANY)):
            body = RouteBody(kind=f"k{n}", target=owner.author.did)
            seq = await owner.commit(owner.draft(MeshRoute, body, prev=0, deps=deps))
            counting.asked.clear()
            await reader.confirm(seq)
            assert reader.control_verdicts[seq] is (Verdict.MISSING_DEP if deps else Verdict.OK)
            assert counting.asked == {"confirm": 1}
