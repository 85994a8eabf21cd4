"""Every op in every state: what it does, or the exact reason why it does nothing (spec §7.2).

A row is one op as one node would author it; a column is a job in one state, reached as its setup
says. A cell is the verdict, and the next state where the op takes effect.
"""

import pytest

from antiphon.core.clock.hlc import pack
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import (
    JobArtifact,
    JobCancel,
    JobClaim,
    JobComplete,
    JobEvict,
    JobExpire,
    JobOffer,
    JobResolve,
    JobSchedule,
    JobStart,
    JobYield,
    Retry,
)
from antiphon.core.families.jobs.state import State
from antiphon.core.families.jobs.table import TRANSITIONS
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import NO_FENCE, T0, Ledger, Story

CLAIMED_AT = 1_000
DEADLINE = 11_000
IN_TIME = 20_000  # of the setup's end, not of any lease
START_BY = 100_000
LATE = 90_000
TOO_LATE = 1_000_000
FENCE = pack((T0 + CLAIMED_AT, 0))
OTHER_FENCE = pack((T0 + 1, 1))

assert FENCE not in {OTHER_FENCE, NO_FENCE}


def waiting():
    story = Story()
    body = {"concurrency": "gpu", "start_by": T0 + START_BY}
    assert story.schedule(**body, how={"at": 0}) is Verdict.OK
    return story


def delayed():
    """Its time has not come yet when an op is tried."""
    story = Story()
    body = {"not_before": T0 + 10_000, "start_by": T0 + START_BY}
    assert story.schedule(**body, how={"at": 0}) is Verdict.OK
    return story


def due():
    """A delayed job whose time has come."""
    story = Story()
    body = {"not_before": T0, "start_by": T0 + START_BY}
    assert story.schedule(**body, how={"at": 0}) is Verdict.OK
    return story


def pending(attempts=3):
    story = Story()
    retry = Retry(attempts=attempts)
    assert story.schedule(start_by=T0 + START_BY, retry=retry, how={"at": 0}) is Verdict.OK
    return story


def claimed(attempts=3):
    story = pending(attempts)
    assert story.claim(ALICE, at=CLAIMED_AT) is Verdict.OK
    assert story.fence == FENCE
    return story


def running():
    story = claimed()
    assert story.start(ALICE, at=2_000) is Verdict.OK
    return story


def retried():
    """Pending again: Alice's tenure expired."""
    story = claimed()
    assert story.expire(at=DEADLINE + 1) is Verdict.OK
    return story


def succeeded():
    story = running()
    assert story.complete(ALICE, at=3_000) is Verdict.OK
    return story


def failed():
    story = running()
    assert story.complete(ALICE, status="failed", at=3_000) is Verdict.OK
    return story


def exhausted():
    story = claimed(attempts=1)
    assert story.expire(at=DEADLINE + 1) is Verdict.OK
    return story


def cancelled():
    """Aborted while Alice ran it."""
    story = running()
    assert story.cancel(at=3_000) is Verdict.OK
    return story


def expired():
    """Aborted because nobody claimed it."""
    story = pending()
    assert story.expire(fence=None, at=START_BY + 1) is Verdict.OK
    return story


STATES = {
    "waiting": (waiting, State.WAITING),
    "delayed": (delayed, State.WAITING),
    "due": (due, State.WAITING),
    "pending": (pending, State.PENDING),
    "retried": (retried, State.PENDING),
    "claimed": (claimed, State.CLAIMED),
    "running": (running, State.RUNNING),
    "succeeded": (succeeded, State.SUCCEEDED),
    "failed": (failed, State.FAILED),
    "exhausted": (exhausted, State.FAILED),
    "cancelled": (cancelled, State.ABORTED),
    "expired": (expired, State.ABORTED),
}


ACTS = {
    "schedule": (JobSchedule, lambda job, at: job.schedule(CAROL, how={"at": at})),
    "schedule_high": (JobSchedule, lambda job, at: job.schedule(priority="high", how={"at": at})),
    "offer": (JobOffer, lambda job, at: job.offer(OWNER, at=at)),
    "offer_by_bob": (JobOffer, lambda job, at: job.offer(BOB, at=at)),
    "offer_high": (JobOffer, lambda job, at: job.offer(OWNER, priority="high", at=at)),
    "claim_alice": (JobClaim, lambda job, at: job.claim(ALICE, at=at)),
    "claim_bob": (JobClaim, lambda job, at: job.claim(BOB, at=at)),
    "begin_alice": (JobClaim, lambda job, at: job.claim(ALICE, begin=True, at=at)),
    "begin_bob": (JobClaim, lambda job, at: job.claim(BOB, begin=True, at=at)),
    "renew": (JobClaim, lambda job, at: job.claim(ALICE, fence=FENCE, at=at)),
    "renew_by_bob": (JobClaim, lambda job, at: job.claim(BOB, fence=FENCE, at=at)),
    "renew_other": (JobClaim, lambda job, at: job.claim(ALICE, fence=OTHER_FENCE, at=at)),
    "renew_late": (JobClaim, lambda job, _: job.claim(ALICE, fence=FENCE, at=late(job))),
    "start": (JobStart, lambda job, at: job.start(ALICE, fence=FENCE, at=at)),
    "start_by_bob": (JobStart, lambda job, at: job.start(BOB, fence=FENCE, at=at)),
    "start_other": (JobStart, lambda job, at: job.start(ALICE, fence=OTHER_FENCE, at=at)),
    "complete": (JobComplete, lambda job, at: job.complete(ALICE, fence=FENCE, at=at)),
    "complete_late": (
        JobComplete,
        lambda job, _: job.complete(ALICE, fence=FENCE, at=late(job)),
    ),
    "complete_fail": (
        JobComplete,
        lambda job, at: job.complete(ALICE, fence=FENCE, status="failed", at=at),
    ),
    "complete_bob": (JobComplete, lambda job, at: job.complete(BOB, fence=FENCE, at=at)),
    "complete_other": (
        JobComplete,
        lambda job, at: job.complete(ALICE, fence=OTHER_FENCE, at=at),
    ),
    "yield": (JobYield, lambda job, at: job.give_back(ALICE, fence=FENCE, at=at)),
    "yield_error": (
        JobYield,
        lambda job, at: job.give_back(ALICE, fence=FENCE, reason="error", at=at),
    ),
    "yield_by_bob": (JobYield, lambda job, at: job.give_back(BOB, fence=FENCE, at=at)),
    "yield_other": (JobYield, lambda job, at: job.give_back(ALICE, fence=OTHER_FENCE, at=at)),
    "artifact": (JobArtifact, lambda job, at: job.artifact(fence=FENCE, how={"at": at})),
    "artifact_bob": (JobArtifact, lambda job, at: job.artifact(BOB, fence=FENCE, how={"at": at})),
    "artifact_other": (
        JobArtifact,
        lambda job, at: job.artifact(fence=OTHER_FENCE, how={"at": at}),
    ),
    "artifact_late": (
        JobArtifact,
        lambda job, _: job.artifact(fence=FENCE, how={"at": late(job)}),
    ),
    "artifact_far": (
        JobArtifact,
        lambda job, at: job.artifact(fence=FENCE, n=1, how={"at": at}),
    ),
    "expire": (JobExpire, lambda job, _: job.expire(fence=FENCE, at=late(job))),
    "expire_early": (JobExpire, lambda job, at: job.expire(fence=FENCE, at=at)),
    "expire_other": (JobExpire, lambda job, _: job.expire(fence=OTHER_FENCE, at=late(job))),
    "expire_wait": (JobExpire, lambda job, _: job.expire(fence=None, at=TOO_LATE)),
    "expire_soon": (JobExpire, lambda job, at: job.expire(fence=None, at=at)),
    "resolve": (JobResolve, lambda job, at: job.resolve(at=at)),
    "cancel": (JobCancel, lambda job, at: job.cancel(at=at)),
    "evict": (JobEvict, lambda job, at: job.evict(f"blake3:{0:064x}", at=at)),
}


def late(story):
    """Past every lease, before any start_by, after the setup."""
    return max(LATE, story.ledger.now + 1)


WAITING = """
               waiting         delayed     due
schedule       exists          exists      exists
schedule_high  exists          exists      exists
offer          ok>pending      early       ok>pending
offer_by_bob   not_coordinator early       ok>pending
offer_high     priority        priority    priority
claim_alice    waiting         waiting     waiting
claim_bob      waiting         waiting     waiting
begin_alice    waiting         waiting     waiting
begin_bob      waiting         waiting     waiting
renew          waiting         waiting     waiting
renew_by_bob   waiting         waiting     waiting
renew_other    waiting         waiting     waiting
renew_late     waiting         waiting     waiting
start          not_claimed     not_claimed not_claimed
start_by_bob   not_claimed     not_claimed not_claimed
start_other    not_claimed     not_claimed not_claimed
complete       not_claimed     not_claimed not_claimed
complete_late  not_claimed     not_claimed not_claimed
complete_fail  not_claimed     not_claimed not_claimed
complete_bob   not_claimed     not_claimed not_claimed
complete_other not_claimed     not_claimed not_claimed
yield          not_claimed     not_claimed not_claimed
yield_error    not_claimed     not_claimed not_claimed
yield_by_bob   not_claimed     not_claimed not_claimed
yield_other    not_claimed     not_claimed not_claimed
artifact       not_claimed     not_claimed not_claimed
artifact_bob   not_claimed     not_claimed not_claimed
artifact_other not_claimed     not_claimed not_claimed
artifact_late  not_claimed     not_claimed not_claimed
artifact_far   not_claimed     not_claimed not_claimed
expire         not_claimed     not_claimed not_claimed
expire_early   not_claimed     not_claimed not_claimed
expire_other   not_claimed     not_claimed not_claimed
expire_wait    ok>aborted      ok>aborted  ok>aborted
expire_soon    early           early       early
resolve        quorum          quorum      quorum
cancel         ok>aborted      ok>aborted  ok>aborted
evict          not_ended       not_ended   not_ended
"""

OPEN_AND_HELD = """
               pending     retried     claimed      running
schedule       exists      exists      exists       exists
schedule_high  exists      exists      exists       exists
offer          ok>pending  ok>pending  held         held
offer_by_bob   ok>pending  ok>pending  held         held
offer_high     priority    priority    held         held
claim_alice    ok>claimed  cooldown    ok>claimed   ok>running
claim_bob      ok>claimed  ok>claimed  held         held
begin_alice    ok>running  cooldown    ok>running   ok>running
begin_bob      ok>running  ok>running  held         held
renew          fence       fence       ok>claimed   ok>running
renew_by_bob   fence       fence       fence        fence
renew_other    fence       fence       fence        fence
renew_late     fence       fence       lease_over   lease_over
start          not_claimed fence       ok>running   already
start_by_bob   not_claimed fence       not_claimer  not_claimer
start_other    not_claimed fence       fence        fence
complete       not_claimed fence       ok>succeeded ok>succeeded
complete_late  not_claimed fence       ok>succeeded ok>succeeded
complete_fail  not_claimed fence       ok>failed    ok>failed
complete_bob   not_claimed fence       not_claimer  not_claimer
complete_other not_claimed fence       fence        fence
yield          not_claimed fence       ok>pending   ok>pending
yield_error    not_claimed fence       ok>pending   ok>pending
yield_by_bob   not_claimed fence       not_claimer  not_claimer
yield_other    not_claimed fence       fence        fence
artifact       not_claimed fence       ok>claimed   ok>running
artifact_bob   not_claimed fence       not_claimer  not_claimer
artifact_other not_claimed fence       fence        fence
artifact_late  not_claimed fence       ok>claimed   ok>running
artifact_far   not_claimed fence       artifact     artifact
expire         not_claimed already     ok>pending   ok>pending
expire_early   not_claimed already     early        early
expire_other   not_claimed not_claimed fence        fence
expire_wait    ok>aborted  ok>aborted  fence        fence
expire_soon    early       early       fence        fence
resolve        quorum      quorum      quorum       quorum
cancel         ok>aborted  ok>aborted  ok>aborted   ok>aborted
evict          not_ended   not_ended   not_ended    not_ended
"""

ENDED = """
               succeeded failed   exhausted cancelled expired
schedule       exists    exists   exists    exists    exists
schedule_high  exists    exists   exists    exists    exists
offer          finished  finished finished  finished  finished
offer_by_bob   finished  finished finished  finished  finished
offer_high     finished  finished finished  finished  finished
claim_alice    finished  finished finished  finished  finished
claim_bob      finished  finished finished  finished  finished
begin_alice    finished  finished finished  finished  finished
begin_bob      finished  finished finished  finished  finished
renew          finished  finished finished  finished  finished
renew_by_bob   finished  finished finished  finished  finished
renew_other    finished  finished finished  finished  finished
renew_late     finished  finished finished  finished  finished
start          finished  finished finished  finished  fence
start_by_bob   finished  finished finished  finished  fence
start_other    fence     fence    fence     fence     fence
complete       finished  finished finished  finished  fence
complete_late  finished  finished finished  finished  fence
complete_fail  finished  finished finished  finished  fence
complete_bob   finished  finished finished  finished  fence
complete_other fence     fence    fence     fence     fence
yield          finished  finished finished  finished  fence
yield_error    finished  finished finished  finished  fence
yield_by_bob   finished  finished finished  finished  fence
yield_other    fence     fence    fence     fence     fence
artifact       finished  finished finished  finished  fence
artifact_bob   finished  finished finished  finished  fence
artifact_other fence     fence    fence     fence     fence
artifact_late  finished  finished finished  finished  fence
artifact_far   finished  finished finished  finished  fence
expire         finished  finished already   finished  finished
expire_early   finished  finished already   finished  finished
expire_other   finished  finished finished  finished  finished
expire_wait    finished  finished finished  finished  already
expire_soon    finished  finished finished  finished  already
resolve        finished  finished finished  finished  finished
cancel         finished  finished finished  finished  finished
evict          no_output no_output no_output no_output no_output
"""


def cells():
    for table in (WAITING, OPEN_AND_HELD, ENDED):
        header, *rows = table.strip("\n").splitlines()
        for row in rows:
            act, *expected = row.split()
            for name, cell in zip(header.split(), expected, strict=True):
                yield act, name, cell


@pytest.mark.req("P10")
@pytest.mark.parametrize("act, name, cell", list(cells()))
def test_every_op_in_every_state(act, name, cell):
    setup, state = STATES[name]
    story = setup()
    before = story.lane
    assert before.job.state is state
    verdict, _, next_state = cell.partition(">")
    soon = 5_000 if name in {"claimed", "running"} else story.ledger.now + 1_000
    got = ACTS[act][1](story, soon)
    assert got.value == verdict
    assert story.state == (next_state or state.value)
    if got is not Verdict.OK:
        assert story.job == before.job


def test_the_table_names_every_pair_of_op_and_state():
    tried = {(ACTS[act][0], STATES[name][1]) for act, name, _ in cells()}
    assert tried == {(kind, state) for kind in JOBS.ops for state in State}
    assert tried == {(kind, state) for kind, row in TRANSITIONS.items() for state in row}
    assert {act for act, _, _ in cells()} == ACTS.keys()


@pytest.mark.parametrize("act", [act for act in ACTS if not act.startswith("schedule")])
def test_nothing_happens_to_a_job_that_was_never_called(act):
    story = Story(Ledger())
    assert ACTS[act][1](story, IN_TIME) is Verdict.NO_JOB
    assert story.lane.job is None


@pytest.mark.req("M6")
@pytest.mark.parametrize("name", ["succeeded", "failed", "exhausted", "cancelled", "expired"])
def test_what_has_ended_is_never_left_and_keeps_its_outcome(name):
    story = STATES[name][0]()
    ended = story.job
    for at, (_, act) in enumerate(ACTS.values(), 1):
        assert act(story, TOO_LATE + at) is not Verdict.OK
        assert story.job == ended
    outcomes = {
        "succeeded": "succeeded",
        "failed": "failed",
        "exhausted": "exhausted",
        "cancelled": "cancelled",
        "expired": "expired",
    }
    assert ended.outcome == outcomes[name]
    assert ended.is_terminal
