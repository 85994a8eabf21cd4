"""Erasures: who may have a job forgotten, and that no verdict on a job depends on it."""

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import NOTICE_MS
from antiphon.core.families.erasures.ops import ForgetBody, JobForget
from antiphon.core.families.erasures.state import erasure_key
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import delegation
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.hot_log import DAY, MONTH, HotLog
from tests.core.ledger import Ledger, Story
from tests.core.test_archive import key_of, once, ran

OK = Verdict.OK


def forget(ledger, story, by=OWNER, **how) -> Verdict:
    return ledger.put(JobForget, ForgetBody(kind=story.kind, job=story.id), by, **how)


def granted(ledger, to, command, kind):
    terms = {"pol": [["==", ".kind", kind]], "until_ms": 2 * NOTICE_MS}
    given = delegation(OWNER, to, cmd=command, **terms)
    assert ledger.put(UcanDelegate, DelegateBody(token=token_of(given.raw)), OWNER) is OK
    return (given.cid,)


def test_the_owner_the_coordinator_and_whoever_holds_the_right_for_the_kind_may_forget():
    ledger = Ledger(authority="chain")
    story = Story(ledger)
    assert story.schedule(OWNER) is OK
    assert forget(ledger, story, BOB) is Verdict.NO_CHAIN
    assert ledger.coordinator(BOB) is OK
    assert forget(ledger, story, BOB) is OK
    assert forget(ledger, story, OWNER) is OK
    right = granted(ledger, ALICE, "/job/forget", story.kind)
    assert forget(ledger, story, ALICE, auth=right) is OK
    other = granted(ledger, CAROL, "/job/forget", "build")
    assert forget(ledger, story, CAROL, auth=other) is Verdict.POLICY
    submits = granted(ledger, CAROL, "/job/schedule", story.kind)
    assert forget(ledger, story, CAROL, auth=submits) is Verdict.COMMAND


def test_the_newest_order_says_by_whom_and_when():
    ledger = Ledger()
    story = Story(ledger)
    assert forget(ledger, story, ALICE) is OK
    assert forget(ledger, story, BOB) is OK
    found = ledger.reader.all_lanes[erasure_key(story.kind, story.id)].state
    last = ledger.log[-1]
    assert (found.by, found.seq, found.at_ms) == (BOB.did, last.seq, last.commit_ms)


def test_a_forgotten_job_is_judged_as_any_other_before_and_behind_its_archive():
    hot = HotLog()
    told, untold = ran(once(hot, "told")), ran(once(hot, "untold"))
    assert forget(hot, told) is OK
    assert [story.complete() for story in (told, untold)] == [hot.verdicts[-1]] * 2
    hot.later(2 * DAY)
    assert hot.archive() is OK
    assert hot.purge(key_of(told)) == hot.purge(key_of(untold)) > 0
    for story in (told, untold):
        assert hot.check(key_of(story)).state is None
        assert story.schedule() is OK
        assert hot.check(key_of(story)).state is not None


def test_an_order_stays_for_the_longest_time_that_jobs_stay_and_never_comes_back():
    hot = HotLog()
    story = ran(once(hot))
    key = erasure_key(story.kind, story.id)
    assert forget(hot, story) is OK
    order = hot.log[-1]
    hot.later(MONTH - DAY)
    assert hot.archive() is OK
    assert hot.check(key).state is not None, "its job has left long ago"
    hot.later(2 * DAY)
    assert hot.archive() is OK
    assert hot.purge(key) == 1
    assert hot.check(key).state is None
    assert hot.append(order.subject, order.payload, stamp=hot.now) is Verdict.TOO_OLD
    assert forget(hot, story) is OK
    hot.check(key)
