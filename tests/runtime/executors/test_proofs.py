"""Proofs as jobs leave them behind, checked by a stranger's tool and by ours."""

import base64
import json

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from antiphon.core.families.jobs.ops import Retry
from antiphon.core.families.jobs.state import State
from antiphon.core.proof import statement as proof_statement
from antiphon.core.record.ids import public_key_of
from antiphon.sdk.handle import JobHandle
from antiphon.sdk.proofs.proof import proof_of
from tests.core.published_schemas import fits, published
from tests.runtime.by_hand import completed
from tests.runtime.meshes import KIND, a_mesh, call, on_both_engines


async def double(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return 2 * number


async def ended(mesh, caller, number, **fields):
    called = await call(caller.session, number, **fields)
    handle = JobHandle(caller.session, KIND, called.id, is_new=True)
    from antiphon.runtime.caller import submission

    await submission.wait_for_end(caller.session, KIND, called.id)
    return handle


@on_both_engines
@pytest.mark.req("P7", "P8")
async def test_every_result_carries_a_proof_of_its_job_by_its_worker(engine):
    async with a_mesh(engine) as mesh:
        caller = await mesh.connection()
        worker = await mesh.worker(double)
        handle = await ended(mesh, caller, 21)
        envelope = await proof_of(handle)
        assert fits(proof_statement.to_json(envelope), published("proof"))
        said = proof_statement.open_envelope(envelope)
        assert said.predicate.job == handle.id
        assert said.predicate.worker == worker.session.author.did
        assert said.predicate.isolation.level == "none"
        assert said.predicate.started == said.predicate.fence
        assert said.predicate.ended >= said.predicate.started
        (subject,) = said.subject
        assert (subject.name, subject.digest.sha256) == (
            "result",
            "73475cb40a568e8da8a045ced110137e159f890ac4da883b6b17dc651b3a8049",
        )


async def test_only_who_signed_a_proof_takes_its_signature_as_read():
    async with a_mesh("memory") as mesh:
        worker, other = (await mesh.connection()).session, (await mesh.connection()).session
        job = await completed(other, worker, KIND)
        views = [
            await session.read_lane(KIND, job.id, at_least=job.seq) for session in (worker, other)
        ]
        assert [view.history[-1].opened.is_verified for view in views] == [True, False]


async def test_a_stranger_verifies_it_with_securesystemslib_alone():
    async with a_mesh("memory") as mesh:
        caller = await mesh.connection()
        worker = await mesh.worker(double)
        envelope = await proof_of(await ended(mesh, caller, 4))
    text = json.dumps(proof_statement.to_json(envelope))
    keyid = worker.session.author.did
    public = public_key_of(keyid).hex()
    # From here on, nothing of ours.
    key = SSlibKey(keyid, "ed25519", "ed25519", {"public": public})
    opened = Envelope.from_dict(json.loads(text))
    assert keyid in opened.verify([key], 1)
    statement = json.loads(opened.payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicate"]["worker"] == keyid
    bent = json.loads(text)
    payload = bytearray(base64.b64decode(bent["payload"]))
    payload[-3] ^= 1
    bent["payload"] = base64.b64encode(payload).decode()
    with pytest.raises(VerificationError):
        Envelope.from_dict(bent).verify([key], 1)


async def test_a_failed_run_is_vouched_for_and_a_job_nobody_ran_is_not():
    from antiphon.errors import Rejected

    async with a_mesh("memory") as mesh:
        caller = await mesh.connection()
        unheard = await call(caller.session, 1)
        with pytest.raises(Rejected, match="not ended"):
            await proof_of(JobHandle(caller.session, KIND, unheard.id, is_new=True))
        handle = JobHandle(caller.session, KIND, unheard.id, is_new=True)
        await handle.cancel()
        with pytest.raises(Rejected, match="without a proof"):
            await proof_of(handle)
        await mesh.worker(double)
        failed = await ended(mesh, caller, -1, retry=Retry(attempts=1))
        assert (await failed.state()).state is State.FAILED
        said = proof_statement.open_envelope(await proof_of(failed)).predicate
        assert said.status == "failed"
