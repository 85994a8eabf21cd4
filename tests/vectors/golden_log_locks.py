"""The golden log's locks: taken, renewed, passed on, broken, expired. Bob owns the mesh by now."""

from tests.core.authors import ALICE, BOB, CAROL
from tests.core.held_locks import LockStory
from tests.core.ledger import Ledger

START = 10 * 86_400_000


def lock_story(ledger: Ledger) -> None:
    """One lock of the owner, and whoever else tries."""
    lock = LockStory(ledger)
    lock.release(BOB, fence="0" * 16, at=START)  # no_lock
    lock.take(ALICE, at=START + 10)  # no_chain
    lock.take(BOB, ttl_ms=1, at=START + 20)  # lease
    lock.take(BOB, at=START + 30)
    first = lock.fence
    lock.take(BOB, agent="other", at=START + 40)  # locked
    lock.renew(BOB, fence="0" * 16, at=START + 50)  # fence
    lock.renew(BOB, agent="other", at=START + 60)  # not_claimer
    lock.renew(BOB, ttl_ms=20_000, at=START + 70)
    lock.renew(BOB, at=START + 20_080)  # lease_over
    lock.take(BOB, agent="other", at=START + 20_090, stamp=START + 20_070)  # locked: one clock
    lock.take(BOB, agent="other", at=START + 20_100)
    lock.release(BOB, fence=first, at=START + 20_110)  # fence
    lock.pass_on(CAROL, BOB, agent="other", at=START + 20_120)
    lock.break_it(ALICE, at=START + 20_130)  # no_chain
    lock.break_it(BOB, at=START + 20_140)
    lock.break_it(BOB, at=START + 20_150)  # already


STORIES = (lock_story,)
