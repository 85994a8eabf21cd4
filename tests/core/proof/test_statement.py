"""Proofs of execution: what holds, what does not, and what other people's tools say to them."""

import base64
import json
import tracemalloc
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.families.jobs import completion_proof
from antiphon.core.families.jobs.ops import CompleteBody, Failure, JobComplete
from antiphon.core.family import At
from antiphon.core.manifest import Manifest, job_id
from antiphon.core.proof import statement
from antiphon.core.proof.output import DsseEnvelope, Output
from antiphon.core.record import codec, signing
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest, public_key_of
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed
from tests.core.authors import ALICE, BOB, Author
from tests.core.ledger import T0, Ledger, Story
from tests.examples import size

OK = Verdict.OK
MANIFEST = Manifest(command=("true",), args=(), timeout=30)


def output(text: str = "42", name: str = "result") -> Output:
    raw = text.encode()
    return Output(
        name=name, hash=digest(raw), size=len(raw), sha256=sha256(raw).hexdigest(), text=text
    )


def predicate(body: CompleteBody, on: str, by: str, **changes) -> statement.Predicate:
    said = statement.Predicate(
        mesh=on,
        kind=body.kind,
        job=body.job,
        manifest=statement.Digests(blake3=body.job),
        worker=by,
        fence=body.fence,
        started=body.fence,
        ended=body.fence,
        status=body.status,
        exit=body.exit,
        runner=statement.Runner(name="test", version="1", platform="any"),
        isolation=statement.Isolation(level="none"),
        usage=statement.Usage(wall_ms=1),
    )
    return msgspec.structs.replace(said, **changes)


def envelope(said: statement.Predicate, outputs, by: Author) -> DsseEnvelope:
    payload = statement.statement(said, outputs)
    return statement.put_in_envelope(
        payload, by.did, lambda kind, data: signing.sign(by.secret, kind, data)
    )


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

    def proved(self, by: Author = ALICE, body=None, **changes) -> CompleteBody:
        body = body or self.body()
        said = predicate(body, self.ledger.mesh, ALICE.did, **changes)
        return msgspec.structs.replace(body, proof=envelope(said, body.outputs, by))

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
        {"manifest": statement.Digests(blake3="0" * 64)},
        {"fence": "0" * 16},
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
    proved = job.proved()
    other = msgspec.structs.replace(proved, outputs=(output("43"),))
    assert job.put(other) is Verdict.PROOF
    more = msgspec.structs.replace(proved, outputs=(output(), output("x", "more")))
    assert job.put(more) is Verdict.PROOF
    forged = msgspec.structs.replace(
        proved.proof,
        signatures=(msgspec.structs.replace(proved.proof.signatures[0], keyid=BOB.did),),
    )
    assert job.put(msgspec.structs.replace(proved, proof=forged)) is Verdict.PROOF
    assert job.put(proved) is OK


def test_a_failed_run_is_vouched_for_too_and_one_without_outputs_names_the_job():
    job = Proved()
    body = job.body(status="failed", outputs=(), exit=3, error=Failure(name="Exit", message="3"))
    proved = job.proved(body=body)
    (subject,) = statement.open_proof(proved.proof).subject
    assert subject.name == f"job:{body.job}"
    assert job.put(proved) is OK


@given(st.data())
def test_no_byte_of_an_envelope_can_change(data):
    job = Proved()
    proved = job.proved()
    encoded = bytearray(codec.encode(proved.proof))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        bent = msgspec.json.decode(bytes(encoded), type=DsseEnvelope)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    body = msgspec.structs.replace(proved, proof=bent)
    at = At(9, T0, job.ledger.history.current, LaneKey("jobs", body.kind, body.job))
    assert not completion_proof.is_proved(body, ALICE.did, at)
    assert completion_proof.is_proved(proved, ALICE.did, at)


def test_only_the_canonical_spelling_of_a_statement_is_read():
    job = Proved()
    payload = base64.b64decode(job.proved().proof.payload)
    spaced = json.dumps(json.loads(payload)).encode()
    loose = statement.put_in_envelope(
        spaced, ALICE.did, lambda kind, data: signing.sign(ALICE.secret, kind, data)
    )
    with pytest.raises(Malformed, match="canonical"):
        statement.open_proof(loose)


@pytest.mark.req("P9")
def test_trailers_carry_prefixed_lower_case_encodings():
    job = Proved()
    program = statement.Digests(blake3="ab" * 32, sha256="cd" * 32)
    runner = statement.Runner(name="bash", version="5", platform="linux", digest=program)
    carried = job.proved(runner=runner).proof
    told = dict(statement.trailers(carried))
    assert told["Job-Id"] == f"blake3:{job.story.job.id}"
    assert told["Proof-Of-Execution"] == digest(codec.encode(carried))
    assert told["Worker-Id"] == f"ed25519:{public_key_of(ALICE.did).hex()}"
    assert told["Attest-Program"] == f"blake3:{'ab' * 32}"
    raw = base64.b64decode(carried.signatures[0].sig).hex()
    assert told["Attest-Sig"] == f"ed25519:{raw}"
    assert all(value == value.lower() for value in told.values())


def test_the_jobs_id_is_the_manifests_digest():
    job = job_id(MANIFEST)
    digests = statement.manifest_digests(job, MANIFEST)
    assert digests.blake3 == job
    assert digests.sha256 == sha256(b'{"args":[],"command":["true"],"timeout":30}').hexdigest()


def with_outputs(number: int, count: int) -> DsseEnvelope:
    outputs = [output(f"{number}"), *(output(name=f"file-{at}") for at in range(1, count))]
    body = CompleteBody(kind="k", job="0" * 64, fence="0" * 16, status="succeeded")
    return envelope(predicate(body, "mesh", ALICE.did), outputs, ALICE)


@pytest.mark.slow
@pytest.mark.parametrize("rounds, count", [(600, 24), (size(70, soak=100), 600)])
def test_proofs_that_others_made_large_fill_no_memory(rounds, count):
    """A worker chooses how large its proofs are, and everybody who reads its jobs opens them."""
    tracemalloc.start()
    try:
        for number in range(rounds):
            made = with_outputs(number, count)
            statement.open_proof(made)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * statement.OPENED_KEPT_BYTES


def test_an_ordinary_proof_is_opened_once():
    made = with_outputs(1, 1)
    assert statement.open_proof(made) is statement.open_proof(made)


def test_a_reader_takes_its_own_signature_as_read_and_nothing_else():
    job = Proved()
    at = At(9, T0, job.ledger.history.current, LaneKey("jobs", "render", job.body().job))
    own = msgspec.structs.replace(at, is_own=True)
    unsigned = job.proved(BOB)
    assert not completion_proof.is_proved(unsigned, ALICE.did, at)
    assert completion_proof.is_proved(unsigned, ALICE.did, own)
    for other in (job.body(), job.proved(BOB, fence="0" * 16), job.proved(BOB, worker=BOB.did)):
        assert not completion_proof.is_proved(other, ALICE.did, own)


LONG = "x" * 256
LONG_INPUT = statement.Subject(name=LONG, digest=statement.Digests(blake3="0" * 64))


@pytest.mark.parametrize(
    "changes, is_certain",
    [
        ({}, True),
        ({"isolation": statement.Isolation(level="sandbox", held=("seccomp",))}, True),
        ({"isolation": statement.Isolation(level="sandbox", held=(LONG,))}, False),
        ({"runner": statement.Runner(name=LONG, version="1", platform="any")}, False),
        ({"environment": "not a digest"}, False),
        ({"policy_root": LONG}, False),
        ({"exit": 256}, False),
        (
            {"inputs": (statement.Subject(name=LONG, digest=statement.Digests(blake3="0" * 64)),)},
            False,
        ),
    ],
)
def test_a_statement_is_kept_unread_only_if_everybody_can_read_it(changes, is_certain):
    said = statement.made_of(predicate(Proved().body(), "mesh", ALICE.did, **changes), (output(),))
    assert statement.is_certainly_readable(said.predicate) == is_certain
    made = envelope(said.predicate, (output(),), ALICE)
    statement.remember(made, codec.encode(said), said)
    if is_certain:
        assert statement.open_proof(made) == statement._read(codec.encode(said)) == said
    else:
        with pytest.raises(Malformed):
            statement.open_proof(made)
