"""What an author knows about its own drafts: whether it has just signed the proof in one."""

import tracemalloc

import pytest
from msgspec.structs import replace

from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import CompleteBody, JobComplete
from antiphon.core.proof.output import Output
from antiphon.core.proof.statement import UNSIGNED, Proof, Runner
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import PROOFS_KEPT, PROOFS_KEPT_BYTES, Author, NoMark


def an_author(seed=b"k"):
    clock = SystemClock()
    return Author("m" * 16, SeedKeyring(seed * 32), clock, max_drift_ms=2_000, mark=NoMark())


def a_proof():
    runner = Runner(name="test", version="1", platform="any")
    return Proof(sig=UNSIGNED, ended="0" * 16, runner=runner, usage=Usage(wall_ms=1))


def a_body(text="1"):
    outputs = (Output(name="result", text=text),)
    return CompleteBody(kind="k", job="0" * 64, fence="0" * 16, status="succeeded", outputs=outputs)


def drafted(author, body):
    return author.draft(JobComplete, body, prev=1, auth=()).opened


@pytest.mark.parametrize(
    "by, change, is_verified",
    [
        (b"k", {}, True),
        (b"o", {}, False),
        (b"k", {"fence": "1" * 16}, False),
        (b"k", {"status": "failed"}, False),
        (b"k", {"outputs": ()}, False),
        (b"k", {"proof": None}, False),
    ],
    ids=["own", "another author's", "fence", "status", "outputs", "no proof"],
)
def test_a_proof_is_an_authors_own_of_what_it_signed_and_of_nothing_else(by, change, is_verified):
    author = an_author()
    made = (author if by == b"k" else an_author(by)).prove(a_body(), a_proof())
    assert drafted(author, replace(made, **change)).is_verified is is_verified


@pytest.mark.parametrize("change", [{"usage": Usage(wall_ms=2)}, {"sig": bytes(64)}], ids=str)
def test_a_proof_that_was_changed_is_not_an_authors_own(change):
    author = an_author()
    made = author.prove(a_body(), a_proof())
    assert not drafted(author, replace(made, proof=replace(made.proof, **change))).is_verified


def test_own_proofs_fill_no_memory_whatever_their_size():
    author = an_author()
    tracemalloc.start()
    try:
        for number in range(2 * PROOFS_KEPT):
            made = author.prove(a_body(f"{number}" * 10_000), a_proof())
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert drafted(author, made).is_verified
    assert held < 2 * PROOFS_KEPT_BYTES
