"""Blobs of members: through the gate, by a job's word, within bounds, and without a stream."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from antiphon.core.authority.job_rights import CALLED_BY, READ_BY, WORKED_BY
from antiphon.core.authority.scope import Scope
from antiphon.engines.nats import BlobService, MemberRequests, ReadService
from antiphon.engines.nats.blobs import CHUNK_BYTES
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.gate import blob_quota, blob_service
from antiphon.engines.nats.gate.blob_quota import BlobLimits
from antiphon.engines.nats.member.blob_protocol import BUSY, FAILED, GONE, asking
from antiphon.errors import Corrupt, EngineDenied, Malformed, Rejected, Unavailable
from antiphon.testing.engine_suite.artifacts import chunks_of, digest_of, fetch
from antiphon.testing.engine_suite.harness import job_id, new_mesh
from tests.engines.nats.harness import connect, until
from tests.engines.nats.scoped_mesh import MEMBER, STRANGER, ScopedMesh, Server, rights
from tests.job_scopes import BRANCHES, job_scope
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nats

JOB = ("render.video", job_id(1))
BIG = bytes(range(256)) * 8_000
"""Sixteen chunks: more than are under way at once."""
SCOPES = {
    MEMBER: job_scope(reads=("render.>",), works=("render.>",), calls=("render.>",)),
    STRANGER: job_scope(reads=("secret.>",), works=("secret.>",)),
}
SMALL = BlobLimits(
    blob_bytes=3_000_000,
    member_bytes=6_400_000,
    puts_per_member=2,
    transfers_per_member=3,
    transfers=4,
)


class Storeroom(ScopedMesh):
    """A mesh whose gate keeps blobs; `word` is what the lanes say about them."""

    def __init__(self, *args):
        super().__init__(*args)
        self.word = {}

    def may_read(self, user, kind, _job):
        return self.scope_of(user).admits(kind, *READ_BY)

    def may_store(self, user):
        return bool(self.scope_of(user).of(*CALLED_BY, *WORKED_BY))

    async def vouches(self, user, kind, job, digest):
        return self.word.get((user, kind, job, digest), frozenset())

    def let(self, blob, *, user=MEMBER, job=JOB, word="others"):
        self.word[(user, *job, digest_of(blob))] = word

    async def open_storeroom(self, limits=None, party_of=str):
        hearing = MemberRequests(self.owner.log.connection, self.mesh, party_of=party_of)
        self.storeroom = BlobService(self.owner, self, limits=limits, hearing=hearing)
        self._storing = asyncio.ensure_future(self.storeroom.run())
        await self.storeroom.ready.wait()

    def scope_of(self, user):
        return self.scopes.get(user, Scope())

    async def close_storeroom(self):
        self._storing.cancel()
        await asyncio.wait([self._storing])


@asynccontextmanager
async def storeroom(limits=None, party_of=str):
    mesh = new_mesh()
    users = [rights(mesh, user, scope) for user, scope in SCOPES.items()]
    async with Server(users=users) as server, await connect(server, mesh) as owner:
        here = Storeroom(mesh, server, owner, dict(SCOPES))
        here.gate = ReadService(owner, here.scope_of, BRANCHES)
        serving = asyncio.ensure_future(here.gate.run())
        await here.gate.ready.wait()
        await here.tell()
        await here.open_storeroom(limits, party_of)
        try:
            yield here
        finally:
            await here.close_storeroom()
            serving.cancel()
            await asyncio.wait([serving])


async def put(engine, blob):
    await engine.blobs.put(chunks_of(blob, 300_000), digest=digest_of(blob))


async def get(engine, blob, job=JOB):
    async with engine.blobs.get(digest_of(blob), job=job) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def test_a_member_stores_and_others_read_what_a_job_names():
    async with storeroom() as here, await here.log_in() as member:
        for blob in (b"", b"small", BIG):
            await put(member, blob)
            assert await fetch(here.owner, digest_of(blob)) == blob
            assert not await member.blobs.has(digest_of(blob), job=JOB)
            here.let(blob)
            assert await member.blobs.has(digest_of(blob), job=JOB)
            assert await get(member, blob) == blob


@pytest.mark.req("M29")
async def test_no_blob_without_a_job_that_names_it():
    async with storeroom() as here, await here.log_in() as member:
        await put(here.owner, BIG)
        for job in (JOB, ("render.video", job_id(9))):
            with pytest.raises(Rejected) as caught:
                await get(member, BIG, job)
            assert caught.value.reason == "no_blob"
        with pytest.raises(EngineDenied):
            await get(member, BIG, None)


@pytest.mark.req("M29")
async def test_a_job_out_of_scope_admits_nothing():
    async with storeroom() as here, await here.log_in() as member:
        await put(here.owner, BIG)
        here.let(BIG, job=("secret.x", job_id(2)))
        with pytest.raises(EngineDenied):
            await get(member, BIG, ("secret.x", job_id(2)))


async def test_ones_own_word_admits_only_what_one_stored_oneself():
    async with storeroom() as here, await here.log_in() as member:
        await put(here.owner, BIG)
        here.let(BIG, word=frozenset({MEMBER}))
        with pytest.raises(Rejected):
            await get(member, BIG)
        await put(member, b"mine")
        here.let(b"mine", word=frozenset({MEMBER}))
        assert await get(member, b"mine") == b"mine"


async def test_wrong_bytes_are_refused_and_leave_no_index():
    async with storeroom() as here, await here.log_in() as member:
        digest = digest_of(b"promised")
        with pytest.raises(Corrupt):
            await member.blobs.put(chunks_of(BIG, 100_000), digest=digest)
        assert not await here.owner.blobs.has(digest)
        await put(member, b"promised")
        with pytest.raises(Corrupt):  # even where the right ones are there already
            await member.blobs.put(chunks_of(b"x", 1), digest=digest)


async def test_a_source_that_breaks_leaves_nothing_and_frees_its_place():
    async def broken():
        yield BIG[:CHUNK_BYTES]
        raise ConnectionResetError("the source went away")

    async with storeroom(SMALL) as here, await here.log_in() as member:
        for _ in range(6):
            with pytest.raises(ConnectionResetError):
                await member.blobs.put(broken(), digest=digest_of(BIG))
        assert not await here.owner.blobs.has(digest_of(BIG))
        await put(member, BIG)


async def test_a_member_can_remove_nothing():
    async with storeroom() as here, await here.log_in() as member:
        await put(member, BIG)
        with pytest.raises(EngineDenied):
            await member.blobs.remove(digest_of(BIG))
        assert await here.owner.blobs.has(digest_of(BIG))


async def test_whoever_may_only_read_stores_nothing():
    async with storeroom() as here, await here.log_in() as member:
        here.scopes[MEMBER] = job_scope(reads=("render.>",))
        with pytest.raises(EngineDenied):
            await put(member, BIG)


async def test_a_scope_that_ends_ends_a_download():
    async with storeroom() as here, await here.log_in() as member:
        await put(here.owner, BIG)
        here.let(BIG)
        async with member.blobs.get(digest_of(BIG), job=JOB) as chunks:
            await anext(chunks)
            here.scopes[MEMBER] = Scope()
            with pytest.raises(EngineDenied):
                async for _ in chunks:
                    pass


# --- bounds -----------------------------------------------------------------------------------


async def test_one_blob_has_a_bound():
    async with storeroom(SMALL) as here, await here.log_in() as member:
        blob = bytes(4_000_000)
        with pytest.raises(Rejected) as caught:
            await put(member, blob)
        assert caught.value.reason == "too_large"
        assert not await here.owner.blobs.has(digest_of(blob))


async def test_what_one_member_stores_has_a_bound_that_a_new_gate_remembers(monkeypatch):
    async with storeroom(SMALL) as here, await here.log_in() as member:
        await put(member, BIG)
        await put(member, BIG[1:])
        await put(member, BIG)  # the same again costs nothing
        await put(member, BIG[2:])
        with pytest.raises(Rejected) as caught:
            await put(member, BIG[3:])
        assert caught.value.reason == "too_large"
        await here.close_storeroom()
        await here.open_storeroom(SMALL)
        with pytest.raises(Rejected):
            await put(member, BIG[3:])
        await here.owner.blobs.remove(digest_of(BIG))
        monkeypatch.setattr(blob_quota, "RECOUNT_S", 0.0)
        await put(member, BIG[3:])


async def test_logins_of_one_party_have_one_share():
    async with (
        storeroom(SMALL, lambda _user: "both") as here,
        await here.log_in() as member,
        await here.log_in(STRANGER) as other,
    ):
        one, two = Asker(here, member), Asker(here, other, STRANGER)
        mine, theirs = await one.begin("put"), await two.begin("put")
        assert (mine.status, theirs.status) == (0, 0)
        assert (await two.begin("put")).status == BUSY
        await one.step(mine, "leave")
        await two.step(theirs, "leave")
        for blob in (BIG, BIG[1:], BIG[2:]):
            await put(member, blob)
        with pytest.raises(Rejected) as caught:
            await put(other, BIG[3:])
        assert caught.value.reason == "too_large"


async def test_whoever_waits_for_a_transfer_that_ends_is_told():
    async with storeroom(SMALL) as here, await here.log_in() as member:
        ask = Asker(here, member)
        begun = await ask.begin("put")
        early = asyncio.ensure_future(ask.step(begun, 1, b"second"))
        await until(lambda: any(one.early for one in here.storeroom._transfers.values()))
        assert (await ask.step(begun, "leave")).status == 0
        assert (await early).status == GONE


async def test_too_many_uploads_at_once_are_refused_in_words():
    async with storeroom(SMALL) as here, await here.log_in() as member:
        ask = Asker(here, member)
        taken = [await ask.begin("put") for _ in range(3)]
        assert [one.status for one in taken] == [0, 0, BUSY]


async def test_a_transfer_that_nobody_goes_on_with_ends(monkeypatch):
    monkeypatch.setattr(blob_service, "SWEEP_S", 0.05)
    async with storeroom(SMALL) as here, await here.log_in() as member:
        ask = Asker(here, member)
        taken = await ask.begin("put")
        with monkeypatch.context() as impatient:
            impatient.setattr(blob_service, "IDLE_S", 0.1)
            await until(lambda: not here.storeroom._transfers)
        assert (await ask.step(taken, 0, b"x")).status == GONE
        await put(member, BIG)


# --- somebody who means harm --------------------------------------------------------------------


class Answered:
    def __init__(self, reply):
        self.status = wire.status_of(reply.header)
        self.taken = json.loads(reply.payload) if reply.payload[:1] == b"{" else {}


class Asker:
    """Raw transfers of one user."""

    def __init__(self, here, engine, user=MEMBER):
        self.subject = asking(here.mesh, user)
        self.engine = engine

    async def ask(self, subject, payload):
        request = self.engine._requester.request(subject.encode(), payload, timeout_s=PATIENCE_S)
        return Answered(await request)

    async def begin(self, do, blob=b"blob", **fields):
        return await self.raw(json.dumps({"do": do, "digest": digest_of(blob), **fields}).encode())

    async def raw(self, payload):
        return await self.ask(self.subject, payload)

    async def step(self, begun, step, payload=b""):
        where = f"{self.subject}.{begun.taken['gate']}.{begun.taken['blob_request']}.{step}"
        return await self.ask(where, payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[" * 600,
        b"\xff",
        b'{"do":"put","digest":"blake3:../x"}',
        b'{"do":"erase","digest":"blake3:' + b"0" * 64 + b'"}',
        b'{"do":"put","digest":"blake3:' + b"0" * 64 + b'","by":"UOTHER"}',
        b'{"do":"put","digest":"blake3:' + b"0" * 64 + b'"}' + b" " * 2000,
    ],
)
async def test_nonsense_is_refused(payload):
    async with storeroom() as here, await here.log_in() as member:
        assert (await Asker(here, member).raw(payload)).status == FAILED


async def test_chunks_out_of_turn_too_large_or_after_the_end_are_refused():
    async with storeroom() as here, await here.log_in() as member:
        ask = Asker(here, member)
        begun = await ask.begin("put")
        for step, payload in ((99, b"x"), ("-1", b"x"), ("x", b"x"), (0, b""), ("1e3", b"x")):
            assert (await ask.step(begun, step, payload)).status == FAILED
        assert (await ask.step(begun, 0, bytes(CHUNK_BYTES + 1))).status == FAILED
        assert (await ask.step(begun, 0, b"blob")).status == 0
        assert (await ask.step(begun, "end")).status == 0
        assert (await ask.step(begun, 1, b"more")).status == GONE


async def test_another_members_transfer_is_not_ones_own():
    async with (
        storeroom() as here,
        await here.log_in() as member,
        await here.log_in(STRANGER) as stranger,
    ):
        begun = await Asker(here, member).begin("put")
        theirs = Asker(here, stranger, STRANGER)
        assert (await theirs.step(begun, 0, b"blob")).status == GONE
        assert (await theirs.step(begun, "leave")).status == GONE
        assert (await Asker(here, member).step(begun, 0, b"blob")).status == 0


async def test_nobody_asks_in_another_ones_name():
    async with storeroom() as here, await here.log_in(STRANGER) as stranger:
        with pytest.raises(EngineDenied):
            await Asker(here, stranger, MEMBER).begin("put")


async def test_without_a_gate_it_says_so(monkeypatch):
    monkeypatch.setattr("antiphon.engines.nats.member.scoped_blobs.STEP_TIMEOUT_S", 0.3)
    async with storeroom() as here, await here.log_in() as member:
        await here.close_storeroom()
        with pytest.raises(Unavailable, match="gate does not answer"):
            await put(member, BIG)
        await here.open_storeroom()


async def test_a_job_is_a_kind_and_an_id():
    async with storeroom() as here, await here.log_in() as member:
        with pytest.raises(Malformed):
            await get(member, BIG, ("render.video", "../x"))
