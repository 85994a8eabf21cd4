"""What an archive empties, that nothing of it comes back, and that every reader agrees."""

import pytest

from antiphon.core.families.jobs.derivation import Cause, Reaction
from antiphon.core.families.jobs.ops import CancelBody, JobCancel
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.locks.state import lock_key
from antiphon.core.families.memory.state import document_key
from antiphon.core.manifest import job_id, with_nonce
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.families.memory.test_memory import KEY as DOCUMENT
from tests.core.families.memory.test_memory import SPACE, Notebook
from tests.core.families.plans.test_plans import Planner, tick
from tests.core.families.plans.test_plans import body as plan_body
from tests.core.held_locks import KEY, SCOPE, LockStory
from tests.core.hot_log import DAY, HOUR, MONTH, HotLog
from tests.core.ledger import T0, Story
from tests.core.quorums import Replicated

OK, ARCHIVED = Verdict.OK, Verdict.ARCHIVED


def once(hot: HotLog, word: str = "once", origin: str = "random") -> Story:
    """A job with a nonce."""
    story = Story(hot, word=word)
    story.manifest = with_nonce(story.manifest, "0" * 32, origin)
    story.id = job_id(story.manifest)
    return story


def ran(story: Story) -> Story:
    assert story.schedule() is OK
    assert story.claim(begin=True) is OK
    assert story.complete() is OK
    return story


def cancelled(hot: HotLog, job) -> Verdict:
    return hot.put(JobCancel, CancelBody(kind=job.kind, job=job.id), OWNER)


def key_of(story: Story):
    return job_key(story.kind, story.id)


def replays(hot: HotLog, upto: int) -> list[Verdict]:
    """Commit again every record outside control, as it is."""
    old = [one for one in hot.log[:upto] if ".ctl." not in one.subject]
    return [hot.append(one.subject, one.payload, stamp=hot.now) for one in old]


# --- the op ---------------------------------------------------------------------------------------


def test_only_the_coordinator_archives():
    hot = HotLog()
    hot.later(MONTH + DAY)
    assert hot.archive(ALICE) is Verdict.NOT_COORDINATOR
    assert hot.coordinator(ALICE) is OK
    assert hot.archive() is Verdict.NOT_COORDINATOR
    assert hot.archive(ALICE) is OK


@pytest.mark.parametrize("field, span", [("before", DAY), ("memo_before", MONTH)])
def test_both_times_lie_as_far_back_as_the_rules_say_by_both_clocks(field, span):
    hot = HotLog(max_drift_ms=2_000)
    hot.later(MONTH + DAY)
    edge = T0 + hot.now - span
    assert hot.archive(**{field: edge + 1}) is Verdict.EARLY
    assert hot.archive(**{field: edge}, stamp=hot.now - 1) is Verdict.EARLY
    assert hot.archive(**{field: edge}, at=hot.now - 1, stamp=hot.now) is Verdict.EARLY
    hot.later(1)
    assert hot.archive(**{field: edge}) is OK


def test_an_archive_never_goes_back():
    hot = HotLog()
    hot.later(2 * MONTH)
    assert hot.archive() is OK
    last = hot.control.archive
    assert hot.archive(before=last.before_ms - 1) is Verdict.STALE
    assert hot.archive(memo_before=last.memo_before_ms - 1) is Verdict.STALE
    assert hot.archive(before=last.before_ms, memo_before=last.memo_before_ms) is OK


def test_an_archive_does_not_stand_in_the_owners_way():
    hot = HotLog()
    hot.later(2 * MONTH)
    assert hot.archive() is OK
    assert hot.rules(how={"at": hot.now - 5}) is OK


# --- jobs -----------------------------------------------------------------------------------------


def test_an_ended_job_is_empty_behind_the_archive_and_can_be_submitted_anew():
    hot = HotLog()
    story = ran(once(hot))
    hot.later(DAY // 2)
    assert hot.archive() is OK
    assert hot.check(key_of(story)).job is not None, "it ended less than a day before"
    hot.later(DAY)
    assert hot.archive() is OK
    assert hot.check(key_of(story)).job is None
    assert hot.purge(key_of(story)) == 3
    assert hot.check(key_of(story)).job is None
    ran(story)
    assert hot.check(key_of(story)).job.outcome == "succeeded"


@pytest.mark.parametrize("is_purged", [True, False])
def test_nothing_that_was_on_the_log_comes_back(is_purged):
    hot = HotLog()
    story = ran(once(hot))
    assert story.schedule(priority="high") is Verdict.EXISTS
    assert story.cancel() is Verdict.FINISHED
    written = len(hot.log)
    hot.later(2 * DAY)
    assert hot.archive() is OK
    if is_purged:
        hot.purge(key_of(story))
    assert not any(one.is_accepted for one in replays(hot, written))
    assert hot.check(key_of(story)).job is None
    assert story.schedule() is OK, "signed again, it is new"
    assert OK not in replays(hot, written)
    hot.check(key_of(story))


def test_junk_behind_the_archive_must_be_named_and_older_junk_need_not():
    hot = HotLog()
    story = once(hot)
    assert story.claim(prev=7) is Verdict.PREV
    hot.later(2 * DAY)
    assert hot.archive() is OK
    never = once(hot, "never")
    for one in (story, never):
        assert one.claim(prev=2) is Verdict.NO_JOB
        assert one.claim(prev=1) is Verdict.PREV, "the record before is behind the archive"
        hot.purge(key_of(one))
        hot.check(key_of(one))
    assert story.schedule(how={"prev": 1}) is OK
    assert story.claim(prev=0) is Verdict.PREV
    assert story.claim(begin=True) is OK
    hot.check(key_of(story))


def test_on_a_lane_that_began_again_other_subjects_are_as_free_as_before():
    hot = HotLog()
    story = ran(once(hot))
    last = len(hot.log)
    hot.later(2 * DAY)
    assert hot.archive() is OK
    assert story.schedule() is OK
    assert story.claim(prev=last) is OK, "the end of its first life is still there"
    other = ran(once(hot, "other"))
    hot.later(2 * DAY)
    assert hot.archive() is OK
    hot.purge(key_of(other))
    assert other.schedule(priority="low") is OK
    assert other.claim(prev=0) is OK
    for one in (story, other):
        hot.check(key_of(one))


def test_a_lane_that_has_not_ended_stays_however_old_it_is():
    hot = HotLog()
    story = once(hot)
    assert story.schedule() is OK
    hot.later(3 * MONTH)
    assert hot.archive() is OK
    assert hot.check(key_of(story)).job is not None
    assert hot.purge(key_of(story)) == 0
    assert story.cancel() is OK
    hot.later(HOUR)
    assert hot.archive() is OK
    assert hot.check(key_of(story)).job.outcome == "cancelled"


def test_content_without_a_nonce_and_keys_stay_for_the_horizon():
    hot = HotLog()
    plain, keyed, other = Story(hot), once(hot, origin="key"), once(hot, origin="retry")
    for one in (plain, keyed, other):
        ran(one)
    hot.later(MONTH - DAY)
    assert hot.archive() is OK
    assert hot.check(key_of(other)).job is None
    for one in (plain, keyed):
        assert hot.check(key_of(one)).job is not None
        assert one.schedule() is Verdict.EXISTS
    hot.later(2 * DAY)
    assert hot.archive() is OK
    for one in (plain, keyed):
        assert hot.check(key_of(one)).job is None
        ran(one)


def test_the_drift_that_was_ever_allowed_is_between_a_lane_and_the_archive():
    hot = HotLog(max_drift_ms=2_000)
    story = once(hot)
    assert story.schedule() is OK
    assert story.cancel() is OK
    ended = T0 + hot.now
    assert hot.rules(max_drift_ms=60_000, lease_min_ms=120_000, lease_ms=120_000) is OK
    assert hot.rules(max_drift_ms=1_000) is OK
    hot.later(2 * DAY)
    assert hot.archive(before=ended + 120_000) is OK
    assert hot.check(key_of(story)).job is not None
    assert hot.archive(before=ended + 120_001) is OK
    assert hot.check(key_of(story)).job is None


def test_a_first_op_from_before_the_archives_time_is_archived_whoever_signed_it():
    hot = HotLog()
    hot.later(3 * DAY)
    assert hot.archive() is OK
    story, limit = once(hot), hot.control.archive.before_ms - T0
    assert story.schedule(how={"at": limit, "stamp": hot.now}) is ARCHIVED
    assert story.schedule(how={"at": limit + 1, "stamp": 3 * DAY}) is OK
    hot.check(key_of(story))


# --- locks and documents --------------------------------------------------------------------------


def test_a_lock_stays_until_its_deadline_is_long_past_and_fences_still_grow():
    hot = HotLog()
    lock, key = LockStory(hot), lock_key(SCOPE, KEY)
    assert lock.take(ttl_ms=HOUR) is OK
    fence = lock.fence
    hot.later(DAY + HOUR // 2)
    assert hot.archive() is OK
    assert hot.check(key).state is not None, "it may still have been held an hour later"
    hot.later(HOUR)
    assert hot.archive() is OK
    assert hot.check(key).state is None
    hot.purge(key)
    assert OK not in replays(hot, 2)
    assert lock.take(BOB) is OK
    assert lock.fence > fence
    hot.check(key)


def test_a_released_lock_is_archived():
    hot = HotLog()
    lock, key = LockStory(hot), lock_key(SCOPE, KEY)
    assert lock.take(ttl_ms=HOUR) is OK
    assert lock.release() is OK
    hot.later(DAY + HOUR // 2)
    assert hot.archive() is OK
    assert hot.check(key).state is None


def test_a_hold_whose_authority_is_lost_is_over_before_its_deadline():
    hot = HotLog()
    lock, key = LockStory(hot), lock_key(SCOPE, KEY)
    assert lock.take(ttl_ms=HOUR) is OK
    assert hot.rules(authority="chain") is OK
    hot.later(DAY + HOUR // 2)
    assert hot.archive() is OK
    hot.check(key)


def test_a_deleted_document_is_archived_and_one_with_conflicts_is_not():
    hot = HotLog()
    book, key = Notebook(hot), document_key(SPACE, DOCUMENT)
    assert book.put("one") is OK
    assert book.put("two", strategy="defer", base=0) is OK
    assert book.put(None) is OK
    hot.later(2 * DAY)
    assert hot.archive() is OK
    assert hot.check(key).state is not None
    assert book.put(None, resolves=(book.siblings[0],)) is OK
    hot.later(2 * DAY)
    assert hot.archive() is OK
    assert hot.check(key).state is None
    hot.purge(key)
    assert hot.check(key).state is None


def test_the_last_record_decides_when_a_document_is_archived():
    """Not the latest time of all: a lane that is entered at its last write knows no other."""
    hot = HotLog(max_drift_ms=600_000, lease_min_ms=1_200_000, lease_ms=1_200_000,
                 lease_ms_max=3_600_000)  # fmt: skip
    book, key = Notebook(hot), document_key(SPACE, DOCUMENT)
    assert book.put("stamped late", how={"at": 1, "stamp": 500_000}) is OK
    assert book.put(None, how={"at": 2, "stamp": 3}) is OK
    hot.later(DAY + HOUR)
    assert hot.archive(before=T0 + 3 + 1_200_001) is OK
    assert hot.check(key).state is None


# --- what is derived ------------------------------------------------------------------------------


def test_no_tick_fires_twice():
    hot = HotLog()
    planner = Planner(hot)
    assert planner.put(at=1_000) is OK
    due = tick(2_000)
    assert planner.derive(due, at=2_000) is OK
    job = planner.job(due)
    assert cancelled(hot, job) is OK
    hot.later(2 * DAY)
    assert hot.archive(CAROL) is OK
    assert hot.check(job_key(job.kind, job.id)).job is None
    assert planner.derive(due) is ARCHIVED
    late = tick(hot.control.archive.before_ms - T0 + 1)
    assert planner.derive(late) is OK


def test_a_reaction_follows_an_end_that_is_neither_in_the_future_nor_archived():
    hot = HotLog()
    planner = Planner(hot)
    what = plan_body(Reaction(on="ended", kinds="build.*"))
    assert planner.put(what=what, at=1_000) is OK
    caused = Cause(kind="build.image", job="ab" * 32, ended_ms=T0 + 3_000)
    assert planner.derive(caused, at=2_999, stamp=3_000) is Verdict.EARLY
    assert planner.derive(caused, at=3_000, stamp=2_999) is Verdict.EARLY
    assert planner.derive(caused, at=3_000) is OK
    job = planner.job(caused)
    assert cancelled(hot, job) is OK
    hot.later(2 * DAY)
    assert hot.archive(CAROL) is OK
    assert planner.derive(caused) is ARCHIVED
    hot.check(job_key(job.kind, job.id))


def test_a_replica_is_not_archived_before_its_parent_can_have_no_more():
    hot = HotLog()
    parent = Replicated(hot)
    child = parent.done(0)
    hot.later(20 * DAY)
    assert hot.archive() is OK
    assert hot.check(key_of(child)).job is not None
    assert parent.derive(0) is Verdict.EXISTS
    assert parent.derive(1) is OK, "its parent still waits"
    hot.check(key_of(parent.child(1)))
    hot.now = 30 * DAY + 11
    assert parent.derive(2) is Verdict.TOO_LATE
    assert parent.derive(2, at=30 * DAY, stamp=30 * DAY + 11) is Verdict.TOO_LATE
    hot.later(2 * DAY)
    assert hot.archive() is OK
    assert hot.check(key_of(child)).job is None
    assert parent.derive(0) is Verdict.TOO_LATE


def test_replicas_resolve_their_parent_across_archives():
    hot = HotLog()
    parent = Replicated(hot)
    hot.later(2 * DAY)
    assert hot.archive() is OK
    first, second = parent.done(0, ALICE), parent.done(1, BOB)
    hot.later(2 * DAY)
    assert hot.archive() is OK
    assert parent.resolve(first, second) is OK
    assert hot.check(key_of(parent)).job.outcome == "succeeded"


# --- deps -----------------------------------------------------------------------------------------


def test_a_dep_counts_only_while_it_is_younger_than_the_newest_archive():
    hot = HotLog()
    first = ran(once(hot, "first"))
    lasting = once(hot, "lasting")
    assert lasting.schedule() is OK
    named, live = hot.dep(2), hot.dep(len(hot.log))
    hot.later(2 * DAY)
    before = once(hot, "before")
    assert before.schedule(how={"deps": (named, live)}) is OK, "nothing was archived"
    assert hot.archive() is OK
    hot.check(key_of(before))
    for at, word in enumerate(("kept", "purged", "anew")):
        story = once(hot, word)
        if at == 1:
            hot.purge(key_of(first))
        if at == 2:
            ran(first)
        for old in (named, live):
            assert story.schedule(how={"deps": (old,)}) is Verdict.MISSING_DEP
        hot.check(key_of(story))
    young = hot.dep(len(hot.log))
    story = once(hot, "young")
    hot.later(HOUR)
    assert hot.archive() is OK
    assert story.schedule(how={"deps": (young,)}) is OK, "it is below the archive, and younger"
    hot.check(key_of(story))


def test_no_op_depends_on_a_record_of_a_document():
    hot = HotLog()
    book = Notebook(hot)
    assert book.put("one") is OK
    story = Story(hot, kind=SPACE)
    assert story.schedule(how={"deps": (hot.dep(2),)}) is Verdict.MISSING_DEP


def test_after_the_horizon_the_same_content_is_a_new_job():
    hot = HotLog()
    story = ran(Story(hot))
    hot.later(MONTH + 2 * DAY)
    assert hot.archive() is OK
    assert OK not in replays(hot, 4)
    ran(story)
    hot.check(key_of(story))
