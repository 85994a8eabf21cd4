"""Evictions: an ended job's output is kept no longer, and nothing else changes (spec §12)."""

import pytest

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import NOTICE_MS
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.state import State
from antiphon.core.history.story import tell
from antiphon.core.manifest import author, blobs_read, job_id
from antiphon.core.opened_record import open_record
from antiphon.core.proof.output import Output, Stored
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import delegation
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import Ledger, Story

ONE, TWO, INLINE = digest(b"one"), digest(b"two"), digest(b"text")
OUTPUTS = (
    Output(name="one", stored=Stored(hash=ONE, size=3)),
    Output(name="one again", stored=Stored(hash=ONE, size=3)),
    Output(name="two", stored=Stored(hash=TWO, size=3)),
    Output(name="text", text="text"),
)


def ended(status="succeeded", **rules):
    """A job that wrote two blobs and a text."""
    story = Story(Ledger(**rules))
    story.schedule(CAROL if not rules else OWNER)
    claimer = ALICE if not rules else OWNER
    assert story.claim(claimer, begin=True) is Verdict.OK
    assert story.complete(claimer, outputs=OUTPUTS, status=status) is Verdict.OK
    return story


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_an_output_is_evicted_once_and_the_jobs_end_stays_what_it_was(status):
    story = ended(status)
    before = story.job
    assert before.stored == (ONE, TWO)
    assert story.evict(ONE) is Verdict.OK
    after = story.job
    assert (after.stored, after.evicted) == ((TWO,), (ONE,))
    assert after.state is State(status)
    assert (after.ended_seq, after.outcome, after.fence) == (
        before.ended_seq,
        before.outcome,
        before.fence,
    )
    assert story.evict(ONE) is Verdict.ALREADY
    assert story.job == after
    assert story.evict(TWO) is Verdict.OK
    assert story.job.stored == ()


@pytest.mark.parametrize("which", [INLINE, digest(b"never written")], ids=["inline", "unknown"])
def test_what_is_not_kept_beside_the_log_cannot_be_evicted(which):
    story = ended()
    before = story.job
    assert story.evict(which) is Verdict.NO_OUTPUT
    assert story.job == before


def test_it_is_told_in_words():
    story = ended()
    story.evict(ONE)
    last = story.ledger.log[-1]
    opened = open_record(
        PROTOCOL, story.ledger.mesh, last.seq, last.commit_ms, last.subject, last.payload
    )
    assert f"evicted the output {ONE[7:19]}" in tell([(opened, Verdict.OK)])[0].words


# --- who may ------------------------------------------------------------------------------------


def test_the_owner_the_coordinator_and_whoever_called_may_evict():
    story = ended(authority="chain")
    assert story.evict(ONE, BOB) is Verdict.NO_CHAIN
    assert story.ledger.coordinator(BOB) is Verdict.OK
    assert story.evict(ONE, BOB) is Verdict.OK
    assert story.evict(TWO, OWNER) is Verdict.OK


def test_so_may_a_holder_of_artifact_write_for_the_kind():
    story = ended(authority="chain")

    def granted(to, command, kind):
        terms = {"pol": [["==", ".kind", kind]], "until_ms": 2 * NOTICE_MS}
        given = delegation(OWNER, to, cmd=command, **terms)
        body = DelegateBody(token=token_of(given.raw))
        assert story.ledger.put(UcanDelegate, body, OWNER) is Verdict.OK
        return (given.cid,)

    right = granted(ALICE, "/artifact/write", "render")
    assert story.evict(ONE, ALICE, auth=right) is Verdict.OK
    of_another_kind = granted(BOB, "/artifact/write", "build")
    assert story.evict(TWO, BOB, auth=of_another_kind) is Verdict.POLICY
    to_do_something_else = granted(CAROL, "/job/cancel", "render")
    assert story.evict(TWO, CAROL, auth=to_do_something_else) is Verdict.COMMAND


def test_a_job_remembers_what_it_reads_until_it_ends():
    content = author(
        {
            "command": ["true"],
            "timeout": 1,
            "inputs": [
                {"kind": "blobptr", "algo": "blake3", "hash": ONE},
                {"kind": "nonce", "nonce": "0" * 16},
                {"kind": "blobptr", "algo": "blake3", "hash": ONE},
            ],
        }
    )
    assert blobs_read(content) == (ONE,)
    story = Story(Ledger())
    story.manifest = content
    story.id = job_id(content)
    assert story.schedule() is Verdict.OK
    assert story.job.reads == (ONE,)
    assert story.cancel() is Verdict.OK
    assert story.job.reads == ()
