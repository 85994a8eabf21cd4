"""What an author knows about its own drafts: whether it has just signed the proof in one."""

import tracemalloc

import msgspec
import pytest

from antiphon.core.families.jobs.ops import CompleteBody, JobComplete
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import PROOFS_KEPT, PROOFS_KEPT_BYTES, Author, NoMark


def an_author(seed=b"k"):
    clock = SystemClock()
    return Author("m" * 16, SeedKeyring(seed * 32), clock, max_drift_ms=2_000, mark=NoMark())


def drafted(author, envelope):
    body = CompleteBody(kind="k", job="0" * 64, fence="0" * 16, status="succeeded", proof=envelope)
    return author.draft(JobComplete, body, prev=1, auth=()).opened


def changed(envelope, **fields):
    return msgspec.structs.replace(envelope, **fields)


@pytest.mark.parametrize(
    "by, change, is_own",
    [
        (b"k", lambda made: made, True),
        (b"o", lambda made: made, False),
        (b"k", lambda made: changed(made, payload="AAAA"), False),
        (b"k", lambda made: changed(made, payload_type="another"), False),
        (b"k", lambda made: changed(made, signatures=made.signatures * 2), False),
        (b"k", lambda _: None, False),
    ],
    ids=["own", "another author's", "payload", "type", "signed twice", "no proof"],
)
def test_a_proof_is_an_authors_own_in_the_form_that_it_signed_and_in_no_other(by, change, is_own):
    author = an_author()
    made = (author if by == b"k" else an_author(by)).prove(b"a statement")
    assert drafted(author, change(made)).is_own is is_own


def test_own_proofs_fill_no_memory_whatever_their_size():
    author = an_author()
    tracemalloc.start()
    try:
        for number in range(2 * PROOFS_KEPT):
            made = author.prove(b"%d" % number * 10_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert drafted(author, made).is_own
    assert held < 2 * PROOFS_KEPT_BYTES
