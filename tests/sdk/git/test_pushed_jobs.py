"""A bridge submits for a signer what the signer could submit and read itself."""

from types import SimpleNamespace

import msgspec
import pytest

from antiphon.errors import Malformed, Rejected
from antiphon.guard import Guard, Who
from antiphon.interfaces.git.push_service import PUSHED
from antiphon.runtime.executors.handler_call import call_text
from antiphon.sdk.git.pushed_jobs import PushedJobs, pushed_job
from tests.runtime.by_hand import called
from tests.runtime.coordinator.test_whose_results import CLOSED, RENDER, SECRET
from tests.runtime.meshes import a_mesh
from tests.runtime.plans.plan_meshes import grant


def job_in(signer, *inputs):
    manifest = {"command": [f"@{RENDER}"], "args": [call_text((1,), {})], "timeout": 30}
    written = msgspec.json.encode({**manifest, "inputs": list(inputs)})
    return pushed_job(RENDER, written, signer=signer, commit_id="0" * 40, commit=b"commit")


def result_of(job):
    return {"kind": "result", "of": [SECRET, job.id], "name": "/args/0"}


async def pushed(jobs, job):
    """The bridge answers a push of this job."""
    signer = jobs.signer(job)
    with Guard().admit(PUSHED, Who(party=signer.party, acts=signer)) as visit:
        await visit.work(jobs.check(job))


async def test_a_signer_names_only_results_that_it_may_read():
    async with a_mesh("memory", CLOSED) as mesh:
        bridge = await mesh.connection(mesh.owner)
        owner, signer = bridge.session, (await mesh.connection()).session.author.did
        await grant(owner, signer, kinds=("render.*",))
        secret = await called(owner, SECRET)
        jobs = PushedJobs(SimpleNamespace(connection=bridge, did=owner.author.did))
        await pushed(jobs, job_in(signer))
        with pytest.raises(Rejected, match=r"may not read secret\.salary"):
            await pushed(jobs, job_in(signer, result_of(secret)))
        await grant(owner, signer, can=("read",), kinds=("secret.*",))
        await pushed(jobs, job_in(signer, result_of(secret)))


def test_content_by_its_digest_is_refused():
    named = {"kind": "blobptr", "algo": "blake3", "hash": "ab" * 32}
    with pytest.raises(Malformed, match="names content by its digest"):
        job_in("did:key:z6Mk", named)
