"""Every op about a lock, whatever it finds: what it does, or why it does nothing (spec §10)."""

import pytest

from antiphon.core.clock.hlc import pack
from antiphon.core.families.locks import LOCKS
from antiphon.core.families.locks.state import LockState, lock_key
from antiphon.core.families.locks.table import TRANSITIONS
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import Court
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.held_locks import CURRENT, KEY, SCOPE, TTL_MS, LockStory
from tests.core.ledger import NO_FENCE, T0, Ledger

OK = Verdict.OK
TAKEN_AT = 1_000
DEADLINE = TAKEN_AT + TTL_MS
FENCE = pack((T0 + TAKEN_AT, 0))
OTHER = pack((T0 + 1, 1))


def absent():
    return LockStory()


def held():
    story = absent()
    assert story.take(at=TAKEN_AT) is OK
    assert story.fence == FENCE
    return story


def free():
    story = held()
    assert story.release(at=2_000) is OK
    return story


def broken():
    story = held()
    assert story.break_it(at=2_000) is OK
    return story


def over():
    return held()


SETUPS = {"absent": absent, "free": free, "broken": broken, "over": over, "held": held}
AT = {"absent": 3_000, "free": 3_000, "broken": 3_000, "over": DEADLINE + 1, "held": 3_000}
ROWS = {
    "take": lambda story, at: story.take(BOB, at=at),
    "take by its holder": lambda story, at: story.take(at=at),
    "take by another agent of its holder's node": lambda story, at: story.take(agent="b", at=at),
    "take with a ttl too short": lambda story, at: story.take(BOB, ttl_ms=4_999, at=at),
    "take with a ttl too long": lambda story, at: story.take(BOB, ttl_ms=3_600_001, at=at),
    "renew": lambda story, at: story.renew(fence=FENCE, at=at),
    "renew with another fence": lambda story, at: story.renew(fence=OTHER, at=at),
    "renew as another node": lambda story, at: story.renew(BOB, fence=FENCE, at=at),
    "renew as another agent": lambda story, at: story.renew(agent="b", fence=FENCE, at=at),
    "renew with a ttl too long": lambda story, at: story.renew(
        fence=FENCE, ttl_ms=3_600_001, at=at
    ),
    "release": lambda story, at: story.release(fence=FENCE, at=at),
    "release with another fence": lambda story, at: story.release(fence=OTHER, at=at),
    "release as another node": lambda story, at: story.release(BOB, fence=FENCE, at=at),
    "release as another agent": lambda story, at: story.release(agent="b", fence=FENCE, at=at),
    "pass": lambda story, at: story.pass_on(BOB, fence=FENCE, at=at),
    "pass with another fence": lambda story, at: story.pass_on(BOB, fence=OTHER, at=at),
    "pass for too long": lambda story, at: story.pass_on(BOB, fence=FENCE, ttl_ms=3_600_001, at=at),
    "break": lambda story, at: story.break_it(at=at),
    "break what has this fence": lambda story, at: story.break_it(fence=FENCE, at=at),
    "break what has another fence": lambda story, at: story.break_it(fence=OTHER, at=at),
}
#                                              absent     free       broken     over          held
CELLS = """
take                                           ok         ok         ok         ok            locked
take by its holder                             ok         ok         ok         ok            locked
take by another agent of its holder's node     ok         ok         ok         ok            locked
take with a ttl too short                      lease      lease      lease      lease         locked
take with a ttl too long                       lease      lease      lease      lease         locked
renew                                          fence      fence      fence      lease_over    ok
renew with another fence                       fence      fence      fence      fence         fence
renew as another node                          fence      fence      fence      lease_over    not_claimer
renew as another agent                         fence      fence      fence      lease_over    not_claimer
renew with a ttl too long                      fence      fence      fence      lease_over    lease
release                                        no_lock    already    already    ok            ok
release with another fence                     no_lock    fence      fence      fence         fence
release as another node                        no_lock    already    already    not_claimer   not_claimer
release as another agent                       no_lock    already    already    not_claimer   not_claimer
pass                                           no_lock    fence      fence      lease_over    ok
pass with another fence                        no_lock    fence      fence      fence         fence
pass for too long                              no_lock    fence      fence      lease_over    lease
break                                          no_lock    already    already    already       ok
break what has this fence                      no_lock    already    already    already       ok
break what has another fence                   no_lock    already    already    already       fence
"""  # noqa: E501 - a table


def cells():
    for line in CELLS.strip().splitlines():
        *words, absent, free, broken, over, held = line.split()
        for column, verdict in zip(SETUPS, (absent, free, broken, over, held), strict=True):
            yield " ".join(words), column, Verdict(verdict)


@pytest.mark.req("S4", "S5")
@pytest.mark.parametrize("row, column, verdict", list(cells()))
def test_every_cell(row, column, verdict):
    story = SETUPS[column]()
    before = story.lock
    assert ROWS[row](story, AT[column]) is verdict
    if verdict is not OK:
        assert story.lock == before


def test_every_cell_of_the_table_is_filled_and_every_row_is_tried():
    assert set(TRANSITIONS) == set(LOCKS.ops)
    assert all(set(row) == set(LockState) for row in TRANSITIONS.values())
    assert {row for row, _, _ in cells()} == set(ROWS)


@pytest.mark.req("S4")
def test_a_lock_says_who_holds_it_which_agent_since_when_until_when_and_with_which_fence():
    story = held()
    hold = story.hold
    assert (story.lock.kind, story.lock.key) == (SCOPE, KEY)
    assert (hold.node, hold.agent, hold.fence) == (ALICE.did, "main", FENCE)
    assert (hold.taken_ms, hold.deadline_ms) == (T0 + TAKEN_AT, T0 + DEADLINE)
    other = LockStory(story.ledger, scope="repo.other")
    assert other.take(BOB) is OK, "key and scope are unique together"
    assert LockStory(story.ledger, key="file:README").take(BOB) is OK


@pytest.mark.req("S5")
@pytest.mark.parametrize(
    "at, stamp, take, renew",
    [
        (0, 0, Verdict.LOCKED, OK),
        (1, 0, Verdict.LOCKED, Verdict.LEASE_OVER),
        (0, 1, Verdict.LOCKED, Verdict.LEASE_OVER),
        (1, 1, OK, Verdict.LEASE_OVER),
    ],
)
def test_a_hold_ends_when_both_clocks_are_past_its_deadline_and_is_renewed_while_none_is(
    at, stamp, take, renew
):
    when = {"at": DEADLINE + at, "stamp": DEADLINE + stamp}
    assert held().take(BOB, **when) is take
    assert held().renew(**when) is renew
    passed = held().pass_on(BOB, **when)
    assert passed is renew


def test_a_renewal_keeps_the_fence_and_one_that_would_end_sooner_is_rejected():
    story = held()
    assert story.renew(at=5_000, ttl_ms=20_000) is OK
    assert (story.fence, story.hold.deadline_ms) == (FENCE, T0 + 25_000)
    before = story.lock
    assert story.renew(at=6_000, ttl_ms=18_999) is Verdict.LEASE
    assert story.lock == before
    assert story.renew(at=6_000, ttl_ms=19_000) is OK, "for exactly what is left"
    assert (story.hold.deadline_ms, story.hold.ttl_ms) == (T0 + 25_000, 19_000)
    assert story.hold.taken_ms == T0 + TAKEN_AT


@pytest.mark.req("S6")
def test_the_fence_grows_with_release_expiry_break_and_pass():
    story = held()
    fences = [story.fence]
    assert story.release(at=2_000) is OK
    assert story.take(BOB, at=2_001) is OK
    fences.append(story.fence)
    assert story.take(CAROL, at=20_000) is OK, "Bob's time is over"
    fences.append(story.fence)
    assert story.break_it(at=21_000) is OK
    assert story.take(ALICE, at=21_000, logical=1) is OK
    fences.append(story.fence)
    assert story.pass_on(BOB, at=22_000) is OK
    fences.append(story.fence)
    assert fences == sorted(set(fences))
    assert (story.hold.node, len(fences)) == (BOB.did, 5)


def test_an_op_that_is_not_newer_than_the_last_one_begins_no_hold():
    story = held()
    assert story.release(at=5_000) is OK
    assert story.take(BOB, at=5_000) is Verdict.STALE
    assert story.take(BOB, at=4_000) is Verdict.STALE
    assert story.take(BOB, at=5_000, logical=1) is OK


def test_who_is_passed_a_lock_renews_and_releases_it_and_its_former_holder_cannot():
    story = held()
    assert story.pass_on(BOB, to_agent="deploy", at=2_000) is OK
    assert story.renew(fence=FENCE, at=2_010) is Verdict.FENCE
    assert story.renew(at=2_020) is Verdict.NOT_CLAIMER
    assert story.renew(BOB, agent="deploy", at=2_030) is OK
    assert story.release(BOB, agent="deploy", at=2_040) is OK


def test_only_whoever_saw_the_last_record_takes():
    story = held()
    assert story.take(BOB, prev=0) is Verdict.PREV
    assert story.release(at=3_000, prev=0) is Verdict.PREV


# --- authority ----------------------------------------------------------------------------------

REPO = [["like", ".kind", "repo.*"]]


class Guard(LockStory):
    """A lock on a closed mesh."""

    def __init__(self, **how) -> None:
        self.court = Court()
        super().__init__(self.court.ledger, **how)


def test_a_scope_is_a_kind_for_delegations():
    story = Guard()
    assert story.take() is Verdict.NO_CHAIN
    chain = (story.court.grant(OWNER, ALICE, cmd="/lock/take", pol=REPO),)
    assert story.take(auth=chain) is OK
    assert LockStory(story.ledger, scope="prod.db").take(auth=chain) is Verdict.POLICY
    assert LockStory(story.ledger, scope="repo").take(auth=chain) is Verdict.POLICY
    assert story.break_it(ALICE, auth=chain) is Verdict.COMMAND
    assert story.take(OWNER, agent="x") is Verdict.LOCKED
    jobs = (story.court.grant(OWNER, BOB, cmd="/job"),)
    assert LockStory(story.ledger, key="k").take(BOB, auth=jobs) is Verdict.COMMAND


def test_the_owner_breaks_any_lock_and_others_with_a_command_of_its_own():
    story = Guard()
    chain = (story.court.grant(OWNER, ALICE, cmd="/lock", pol=REPO),)
    breaker = (story.court.grant(OWNER, BOB, cmd="/lock/break", pol=REPO),)
    assert story.take(auth=chain) is OK
    assert story.break_it(OWNER) is OK
    assert story.take(auth=chain) is OK
    assert story.break_it(BOB, fence=CURRENT, auth=breaker) is OK
    assert story.take(BOB, auth=breaker) is Verdict.COMMAND
    assert story.take(auth=chain) is OK
    assert story.break_it(ALICE, auth=chain) is OK, "/lock includes it"


def test_a_hold_ends_with_the_authority_under_which_it_was_taken():
    story = Guard()
    grant = story.court.grant(OWNER, ALICE, cmd="/lock/take", pol=REPO)
    other = (story.court.grant(OWNER, BOB, cmd="/lock/take", pol=REPO),)
    assert story.take(auth=(grant,)) is OK
    fence = story.fence
    assert story.take(BOB, auth=other) is Verdict.LOCKED
    assert story.court.revoke(grant, OWNER) is OK
    assert story.renew(auth=(grant,)) is Verdict.REVOKED
    assert story.take(BOB, auth=other) is OK
    assert story.fence > fence


def test_a_hold_that_was_passed_on_ends_with_the_authority_of_whoever_passed_it():
    story = Guard()
    grant = story.court.grant(OWNER, ALICE, cmd="/lock/take", pol=REPO)
    other = (story.court.grant(OWNER, BOB, cmd="/lock/take", pol=REPO),)
    assert story.take(auth=(grant,)) is OK
    assert story.pass_on(BOB, auth=(grant,)) is OK
    assert story.court.revoke(grant, OWNER) is OK
    assert story.take(OWNER) is OK
    assert story.release(OWNER) is OK
    renewed = Guard()
    grant = renewed.court.grant(OWNER, ALICE, cmd="/lock/take", pol=REPO)
    other = (renewed.court.grant(OWNER, BOB, cmd="/lock/take", pol=REPO),)
    assert renewed.take(auth=(grant,)) is OK
    assert renewed.pass_on(BOB, auth=(grant,)) is OK
    assert renewed.renew(BOB, auth=other) is OK, "from here on under its own"
    assert renewed.court.revoke(grant, OWNER) is OK
    assert renewed.take(OWNER) is Verdict.LOCKED


def test_nobody_holds_a_lock_that_was_never_taken():
    story = LockStory(Ledger())
    assert story.release(fence=NO_FENCE) is Verdict.NO_LOCK
    assert lock_key(SCOPE, KEY).name == lock_key(SCOPE, KEY).name
    assert story.lock is None
