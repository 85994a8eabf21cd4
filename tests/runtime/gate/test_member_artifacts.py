"""Artifacts of members: on a mesh as people host it, over its gate, by its log's word."""

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon import Mesh
from antiphon.assembly.mesh_connection import place
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.clock import hlc
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.derivation import Cron
from antiphon.core.families.jobs.ops import ArtifactBody, ClaimBody, JobArtifact, JobClaim
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.families.plans.state import PlanLane
from antiphon.core.manifest import BlobInput, Manifest, with_nonce
from antiphon.core.proof.output import Output, Stored
from antiphon.core.ucan import Payload, Policy
from antiphon.errors import EngineDenied, Rejected
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.retry import retry
from antiphon.runtime.gate.blob_rights import BlobRights
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.author import NoMark
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.hosting import hosted_mesh
from tests.runtime.by_hand import called, completed
from tests.runtime.coordinator.test_whose_results import given_back
from tests.runtime.meshes import CALM, KIND, a_mesh, eventually

BIG = bytes(range(256)) * 8_000


def nodes_of(nodes):
    """The keys behind a user."""
    return lambda user: (nodes.get(user, ""),)


def output_file(folder, data):
    (folder / "source").write_bytes(data)
    return folder / "source"


@asynccontextmanager
async def hosted(directory, **members):
    """A hosted mesh, and the meshes that its owner and its members have opened."""
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        home = directory / "owner"
        here = await stack.enter_async_context(
            hosted_mesh.found_and_host(home, name="files", listen=listen)
        )
        owner = await stack.enter_async_context(Mesh.open(home=home))
        await stack.enter_async_context(here.gate(owner))
        opened = [owner]
        for alias, terms in members.items():
            place = StateDirectory(directory / alias)
            await hosted_mesh.redeem(
                place, hosted_mesh.invite(StateDirectory(home), terms), alias=alias
            )
            opened.append(await stack.enter_async_context(Mesh.open(home=place.path)))
        yield opened


@pytest.mark.nats
@pytest.mark.req("M29")
async def test_a_worker_reads_its_jobs_inputs_and_its_outputs_reach_the_owner(tmp_path):
    terms = Terms(can=("claim",), kinds=("render.*",), alias="gpu")
    async with hosted(tmp_path, gpu=terms) as (owner, worker):
        source = await owner.artifacts.keep(output_file(tmp_path, BIG), "in.bin")
        made = await worker.artifacts.keep(output_file(tmp_path, BIG[::-1]), "out.bin")
        job = await completed(
            owner.connection.session,
            worker.connection.session,
            "render.video",
            made,
            inputs=(source,),
        )
        handle = worker.job("render.video", job.id)
        await worker.artifacts.fetch(source, tmp_path / "in", of=handle)
        assert (tmp_path / "in").read_bytes() == BIG
        await owner.artifacts.fetch(made, tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == BIG[::-1]
        with pytest.raises(EngineDenied):
            await worker.artifacts.fetch(made.hash, tmp_path / "none")


@pytest.mark.nats
@pytest.mark.req("M29")
async def test_a_blob_of_another_kind_is_not_had_by_naming_it_oneself(tmp_path):
    both = Terms(can=("claim", "schedule"), kinds=("render.*",), alias="gpu")
    async with hosted(tmp_path, gpu=both) as (owner, member):
        secret = await owner.artifacts.keep(output_file(tmp_path, BIG), "secret.bin")
        theirs = await completed(
            owner.connection.session, owner.connection.session, "secret.plan", secret
        )
        with pytest.raises(EngineDenied):
            await member.artifacts.fetch(
                secret, tmp_path / "x", of=member.job("secret.plan", theirs.id)
            )
        mine = await called(member.connection.session, "render.video", inputs=(secret,))
        with pytest.raises(Rejected):
            await member.artifacts.fetch(
                secret, tmp_path / "x", of=member.job("render.video", mine.id)
            )
        done = await completed(
            member.connection.session, member.connection.session, "render.video", secret
        )
        with pytest.raises(Rejected):
            await member.artifacts.fetch(
                secret, tmp_path / "x", of=member.job("render.video", done.id)
            )
        assert not (tmp_path / "x").exists()
        own = await member.artifacts.keep(output_file(tmp_path, BIG[1:]), "own.bin")
        done = await completed(
            member.connection.session, member.connection.session, "render.video", own
        )
        await member.artifacts.fetch(own, tmp_path / "x", of=member.job("render.video", done.id))
        assert (tmp_path / "x").read_bytes() == BIG[1:]


async def passed_on(owner, giver, audience, *commands, kind=KIND):
    """A key gives these rights to another, on the log; without commands, all that it has."""
    writer = await writing(owner, giver)
    for command in commands or ("/",):
        given = giver.delegate(
            Payload(
                iss=giver.did,
                aud=audience.did,
                sub=owner.connection.session.control.owner if commands else None,
                cmd=command,
                pol=Policy([["==", ".kind", kind]] if commands else []),
                nonce=os.urandom(12),
                exp=None,
            )
        )
        body = DelegateBody(token=token_of(given.raw))
        await write_one(writer, Intent(UcanDelegate, body))


async def writing(mesh, keyring):
    """A node that writes over another's connection, with a key of its own."""
    session = place(
        mesh.connection.session.engine, mesh.connection.session.mesh, keyring, "another", NoMark()
    ).session
    await session.sync_control()
    return session


RIGHTS = ("/job/schedule", "/job/claim", "/job/complete")
BOTH = Terms(can=("claim", "schedule"), kinds=("render.*",), alias="gpu")


@pytest.mark.nats
async def test_a_second_key_of_ones_own_is_ones_own_word(tmp_path):
    """Whoever may pass a right on makes as many keys as it likes: none of them is another."""
    kind = "render.video"
    async with hosted(tmp_path, gpu=BOTH) as (owner, member):
        secret = await owner.artifacts.keep(output_file(tmp_path, BIG), "secret.bin")
        second, third = (SeedKeyring(os.urandom(32)) for _ in range(2))
        await passed_on(owner, member.home.signer("machine"), second, *RIGHTS, kind=kind)
        await passed_on(owner, second, third, "/job/schedule", kind=kind)
        two, three = await writing(member, second), await writing(member, third)
        jobs = [
            await called(two, kind, inputs=(secret,)),
            await completed(two, two, kind, secret),
            await called(three, kind, inputs=(secret,)),
        ]
        for job in jobs:
            with pytest.raises(Rejected):
                await member.artifacts.fetch(secret, tmp_path / "x", of=member.job(kind, job.id))
        own = await member.artifacts.keep(output_file(tmp_path, BIG[1:]), "own.bin")
        job = await called(three, kind, inputs=(own,))
        await member.artifacts.fetch(own, tmp_path / "x", of=member.job(kind, job.id))
        assert (tmp_path / "x").read_bytes() == BIG[1:]


@pytest.mark.nats
async def test_what_was_stored_by_a_machine_under_ones_own_grant_can_be_had(tmp_path):
    kind = "render.video"
    few = Terms(can=("claim",), kinds=("render.still",), alias="helper")
    async with hosted(tmp_path, gpu=BOTH, helper=few) as (owner, member, helper):
        secret = await owner.artifacts.keep(output_file(tmp_path, BIG), "secret.bin")
        theirs, process = helper.home.signer("machine"), SeedKeyring(os.urandom(32))
        await passed_on(owner, member.home.signer("machine"), theirs, *RIGHTS[1:], kind=kind)
        await passed_on(owner, theirs, process)
        worker = await writing(member, process)
        made = await helper.artifacts.keep(output_file(tmp_path, BIG[::-1]), "out.bin")
        job = await completed(member.connection.session, worker, kind, made)
        await member.artifacts.fetch(made, tmp_path / "out", of=member.job(kind, job.id))
        assert (tmp_path / "out").read_bytes() == BIG[::-1]
        job = await completed(member.connection.session, worker, kind, secret)
        with pytest.raises(Rejected):
            await member.artifacts.fetch(secret, tmp_path / "x", of=member.job(kind, job.id))


async def test_only_accepted_records_name_a_blob(tmp_path):
    async with a_mesh("memory") as mesh:
        one, two, lease_timer = [(await mesh.connection()).session for _ in range(3)]
        nodes = {"U1": one.author.did, "U2": two.author.did}
        scopes, users = {}, lambda who: [u for u in nodes if nodes[u] in who]
        rights = BlobRights(lease_timer, scopes.get, nodes_of(nodes), users)
        made = await Artifacts(one.engine.blobs).keep(output_file(tmp_path, BIG), "x")
        read = await called(one, KIND, inputs=(made,))
        wrote = await completed(one, two, KIND, made)
        asked = [(user, job.id) for job in (read, wrote) for user in ("U1", "U2")]
        said = [await rights.vouches(user, KIND, job, made.hash) for user, job in asked]
        assert said == [{"U1"}, "others", "others", {"U2"}]
        for user, kind, job in (
            ("U3", KIND, read.id),
            ("U1", "test.other", read.id),
            ("U1", KIND, "0" * 64),
            ("U1", "", ""),
        ):
            assert await rights.vouches(user, kind, job, made.hash) == frozenset()
        assert await rights.vouches("U2", KIND, read.id, "blake3:" + "0" * 64) == frozenset()


@pytest.mark.virtual_time
async def test_what_the_coordinator_derives_names_a_blob_by_the_word_of_the_plans_author(tmp_path):
    """Otherwise anyone could read any blob: by a plan that names it."""
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        one, two, gate = [(await mesh.connection()).session for _ in range(3)]
        nodes = {"U1": one.author.did, "U2": two.author.did}
        rights = BlobRights(
            gate, {}.get, nodes_of(nodes), lambda who: [u for u in nodes if nodes[u] in who]
        )
        secret = BlobInput(algo="blake3", hash="blake3:" + "ab" * 32)
        manifest = Manifest(command=("true",), args=(), timeout=30, inputs=(secret,))
        trigger = Cron(at="* * * * * *", zone="UTC")
        body = PlanBody(kind=KIND, name="reads", manifest=manifest, trigger=trigger)
        await write_one(one, Intent(PlanPut, body, PlanLane()))
        await asyncio.sleep(3)
        job = node.replica.ask(ReplicaJobs).jobs()[0]
        assert await rights.vouches("U1", KIND, job.id, secret.hash) == {"U1"}
        assert await rights.vouches("U2", KIND, job.id, secret.hash) == "others"


@pytest.mark.virtual_time
@pytest.mark.req("M29")
async def test_an_offer_names_a_blob_by_the_word_of_the_job_that_it_repeats(tmp_path):
    """Otherwise a worker could read any blob: as its own job's result, in another's offer."""
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        one, two, gate = [(await mesh.connection()).session for _ in range(3)]
        nodes = {"U1": one.author.did, "U2": two.author.did}
        rights = BlobRights(
            gate, {}.get, nodes_of(nodes), lambda who: [u for u in nodes if nodes[u] in who]
        )
        secret = Output(name="result", stored=Stored(hash="blake3:" + "ab" * 32, size=9_999))
        told = await completed(two, one, KIND, secret)
        job = await called(two, KIND)
        await node.reached(await given_back(one, job, (KIND, told.id), kind=KIND))
        await eventually(lambda: node.replica.ask(ReplicaJobs).job(KIND, job.id).child_results)
        assert await rights.vouches("U1", KIND, job.id, secret.hash) == {"U1"}
        assert await rights.vouches("U2", KIND, job.id, secret.hash) == "others"


@pytest.mark.virtual_time
async def test_a_long_text_of_ones_own_child_comes_back_in_an_offer(tmp_path):
    """The coordinator stores it; who wrote it on the log has shown that it knows it."""
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner))
        one, gate = [(await mesh.connection()).session for _ in range(2)]
        nodes = {"U1": one.author.did}
        rights = BlobRights(gate, {}.get, nodes_of(nodes), lambda who: [])
        text = "x" * 20_000
        long = Output(name="result", text=text)
        child = await completed(one, one, KIND, long)
        job = await called(one, KIND)
        await node.reached(await given_back(one, job, (KIND, child.id), kind=KIND))
        results = await eventually(
            lambda: node.replica.ask(ReplicaJobs).job(KIND, job.id).child_results
        )
        assert [one.hash for one in results] == [long.hash]
        assert await rights.vouches("U1", KIND, job.id, long.hash) == "others"


async def test_a_retry_names_a_blob_by_the_word_of_whoever_submitted_the_job_first(tmp_path):
    """Otherwise a member could read any blob: by having another retry its job."""
    async with a_mesh("memory") as mesh:
        one, two, gate = [(await mesh.connection()).session for _ in range(3)]
        nodes = {"U1": one.author.did, "U2": two.author.did}
        rights = BlobRights(
            gate, {}.get, nodes_of(nodes), lambda who: [u for u in nodes if nodes[u] in who]
        )
        secret = Output(name="secret", stored=Stored(hash="blake3:" + "ab" * 32, size=9_999))
        job = await called(one, KIND, inputs=(secret,))
        for _ in range(2):
            await submission.cancel(one, KIND, job.id, reason="")
            job = await retry(two, KIND, job.id)
            assert await rights.vouches("U1", KIND, job.id, secret.hash) == {"U1"}
            assert await rights.vouches("U2", KIND, job.id, secret.hash) == "others"
        other = await called(one, KIND)
        forged = replace(
            (await one.read_lane(KIND, job.id)).submitted_with, retry_of=other.id, priority="low"
        )
        forged = replace(forged, manifest=with_nonce(forged.manifest, "ab" * 16, "random"))
        job = await submission.submit(two, forged)
        assert await rights.vouches("U2", KIND, job.id, secret.hash) == {"U2"}


async def test_a_step_and_a_part_of_a_stream_name_their_content(tmp_path):
    async with a_mesh("memory") as mesh:
        one, two, gate = [(await mesh.connection()).session for _ in range(3)]
        nodes = {"U1": one.author.did, "U2": two.author.did}
        rights = BlobRights(gate, {}.get, nodes_of(nodes), lambda who: [])
        job = await called(one, KIND)
        await two.read_lane(KIND, job.id, at_least=job.seq)  # its clock is then past the schedule
        claim = ClaimBody(kind=KIND, job=job.id, lease_ms=CALM.lease_ms, begin=True)
        draft = two.draft(JobClaim, claim, prev=0)
        seq = await two.commit(draft)
        body = ArtifactBody(
            kind=KIND,
            job=job.id,
            fence=hlc.pack(draft.op.hlc),
            as_="part",
            name="parts",
            n=0,
            digest="blake3:" + "ab" * 32,
            size=9_999,
        )
        await two.commit(two.draft(JobArtifact, body, prev=seq))
        assert await rights.vouches("U1", KIND, job.id, body.digest) == "others"
        assert await rights.vouches("U2", KIND, job.id, body.digest) == {"U2"}
