"""Proofs of execution: what holds, what does not, and what other people's tools say to them."""

import base64
import json
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.core.cost.job_cost import Cost
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs import completion_proof
from antiphon.core.families.jobs.ops import CompleteBody, Failure, JobComplete
from antiphon.core.family import At
from antiphon.core.proof import statement
from antiphon.core.proof.output import Output, Stored
from antiphon.core.proof.statement import DsseEnvelope
from antiphon.core.record import codec, signing
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest, public_key_of
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed
from simulator.plain_proofs import plain_proof
from tests.core.authors import ALICE, BOB, Author
from tests.core.ledger import T0, Ledger, Story

OK = Verdict.OK
PROOFS = msgspec.json.Decoder(statement.Proof)


def output(text: str = "42", name: str = "result") -> Output:
    return Output(name=name, text=text)


class Proved:
    """A job that Alice has claimed."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.story = Story(self.ledger)
        self.story.schedule()
        assert self.story.claim(ALICE) is OK

    def body(self, **fields) -> CompleteBody:
        given = {
            "kind": self.story.kind,
            "job": self.story.job.id,
            "fence": self.story.fence,
            "status": "succeeded",
            "outputs": (output(),),
        }
        return CompleteBody(**{**given, **fields})

    def proved(self, by: Author = ALICE, body=None, **says) -> CompleteBody:
        """With a proof by Alice that another may have signed; `says` bends the statement."""
        sign = partial(signing.sign, by.secret)
        body = body or self.body()
        proof = plain_proof(body, self.ledger.mesh, ALICE.did, sign, **says)
        return replace(body, proof=proof)

    def envelope(self, **says) -> DsseEnvelope:
        """What Alice's proof looks like to other tools."""
        body = self.proved(body=says.pop("body", None), **says)
        return completion_proof.envelope_of(self.ledger.mesh, ALICE.did, body)

    def put(self, body: CompleteBody, by: Author = ALICE) -> Verdict:
        return self.ledger.put(JobComplete, body, by)


@pytest.mark.req("P7", "P8")
def test_a_completion_with_the_proof_of_what_it_says_is_accepted():
    job = Proved()
    assert job.put(job.proved()) is OK
    assert job.story.job.outcome == "succeeded"


@pytest.mark.parametrize(
    "changes",
    [
        {"mesh": "elsewhere"},
        {"kind": "other.kind"},
        {"job": "0" * 64},
        {"fence": "0" * 16},
        {"started": "0" * 16},
        {"worker": BOB.did},
        {"status": "failed"},
        {"exit": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_proof_of_anything_else_is_rejected(changes):
    job = Proved()
    assert job.put(job.proved(**changes)) is Verdict.PROOF
    assert job.put(job.proved()) is OK, "and the tenure goes on"


@pytest.mark.req("P7", "P8")
def test_a_proof_must_be_there_signed_by_the_worker_and_about_these_outputs():
    job = Proved()
    assert job.put(job.body()) is Verdict.PROOF
    assert job.put(job.proved(BOB)) is Verdict.PROOF
    made = job.proved()
    for outputs in ((output("43"),), (output(), output("x", "more")), (output(name="x"),), ()):
        assert job.put(replace(made, outputs=outputs)) is Verdict.PROOF
    stored = Output(name="result", stored=Stored(hash=output().hash, size=2))
    assert job.put(replace(made, outputs=(stored,))) is Verdict.PROOF, "its SHA-256 is missing"
    assert job.put(made) is OK


OTHERS = {
    "ended": "f" * 16,
    "runner": statement.Runner(name="other", version="1", platform="any"),
    "inputs": (statement.Subject(name="in", digest=statement.Digests(blake3="0" * 64)),),
    "environment": "0" * 64,
    "policy_root": "sha256:" + "0" * 64,
    "usage": Usage(wall_ms=2),
    "cost": Cost(beats_milli=1, policy="sha256:" + "0" * 64),
    "isolation": statement.Isolation(level="sandbox"),
    "sig": bytes(64),
}


def test_all_that_a_proof_says_is_signed():
    assert set(OTHERS) == set(statement.Proof.__struct_fields__)
    job = Proved()
    made = job.proved()
    for name, value in OTHERS.items():
        bent = replace(made, proof=replace(made.proof, **{name: value}))
        assert job.put(bent) is Verdict.PROOF, name
    assert job.put(made) is OK


def test_a_failed_run_is_vouched_for_too_and_one_without_outputs_names_the_job():
    job = Proved()
    body = job.body(status="failed", outputs=(), exit=3, error=Failure(name="Exit", message="3"))
    (subject,) = statement.open_envelope(job.envelope(body=body)).subject
    assert subject.name == f"job:{body.job}"
    assert job.put(job.proved(body=body)) is OK


@given(st.data())
def test_no_byte_of_a_proof_can_change(data):
    job = Proved()
    made = job.proved()
    encoded = bytearray(codec.encode(made.proof))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        bent = codec.decode(bytes(encoded), PROOFS)
    except Malformed:
        return
    body = replace(made, proof=bent)
    at = At(9, T0, job.ledger.history.current, LaneKey("jobs", body.kind, body.job))
    assert not completion_proof.is_proved(body, ALICE.did, at)
    assert completion_proof.is_proved(made, ALICE.did, at)


@pytest.mark.parametrize("outputs", [(), (output(), output("x", "more"))], ids=len)
def test_the_signature_on_the_log_is_the_envelopes(outputs):
    job = Proved()
    envelope = job.envelope(body=job.body(outputs=outputs))
    (signature,) = envelope.signatures
    payload, raw = base64.b64decode(envelope.payload), base64.b64decode(signature.sig)
    assert signature.keyid == ALICE.did
    assert signing.is_signed(ALICE.did, envelope.payload_type, payload, raw)
    said = json.loads(payload)
    assert said["predicate"]["job"] == job.story.job.id
    assert [one["digest"] for one in said["subject"]] == [
        {"blake3": one.hash[len("blake3:") :], "sha256": one.sha256} for one in outputs
    ] or not outputs


def test_only_the_canonical_spelling_of_a_statement_is_read():
    envelope = Proved().envelope()
    spaced = json.dumps(json.loads(base64.b64decode(envelope.payload))).encode()
    with pytest.raises(Malformed, match="canonical"):
        statement.open_envelope(replace(envelope, payload=base64.b64encode(spaced).decode()))


@pytest.mark.req("P9")
def test_trailers_carry_prefixed_lower_case_encodings():
    job = Proved()
    program = statement.Digests(blake3="ab" * 32, sha256="cd" * 32)
    runner = statement.Runner(name="bash", version="5", platform="linux", digest=program)
    carried = job.envelope(runner=runner)
    told = dict(statement.trailers(carried))
    assert told["Job-Id"] == f"blake3:{job.story.job.id}"
    assert told["Proof-Of-Execution"] == digest(codec.encode(carried))
    assert told["Worker-Id"] == f"ed25519:{public_key_of(ALICE.did).hex()}"
    assert told["Attest-Program"] == f"blake3:{'ab' * 32}"
    raw = base64.b64decode(carried.signatures[0].sig).hex()
    assert told["Attest-Sig"] == f"ed25519:{raw}"
    assert all(value == value.lower() for value in told.values())


def test_a_reader_takes_its_own_signature_as_read_and_a_missing_one_never():
    job = Proved()
    at = At(9, T0, job.ledger.history.current, LaneKey("jobs", "render", job.body().job))
    own = replace(at, is_verified=True)
    unsigned = job.proved(BOB)
    assert not completion_proof.is_proved(unsigned, ALICE.did, at)
    assert completion_proof.is_proved(unsigned, ALICE.did, own)
    assert not completion_proof.is_proved(job.body(), ALICE.did, own)
