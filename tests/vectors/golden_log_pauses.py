"""The story of pauses for the golden log (`golden_log.py`): Carol coordinates an open mesh."""

from antiphon.core.families.mesh.ops import MeshPause, PauseBody
from antiphon.core.families.mesh.table import MAX_PAUSES
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import Ledger, Story

AT = 50_660


def story(ledger: Ledger) -> None:
    """A kind is paused while a job of it is held: another one waits until it is resumed."""

    def pause(by=OWNER, *, at: int, is_paused: bool = True, **about) -> None:
        ledger.put(MeshPause, PauseBody(is_paused=is_paused, **about), by, at=AT + at)

    held, waits = Story(ledger, word="held"), Story(ledger, word="waits")
    held.schedule(how={"at": AT})
    waits.schedule(how={"at": AT + 1})
    held.claim(ALICE, begin=True, at=AT + 2)
    pause(BOB, at=3, kind="render")  # not_owner
    pause(at=4, kind="render", reason="the disk is full")
    pause(CAROL, at=5, kind="render")  # already
    waits.claim(BOB, at=AT + 6)  # paused
    held.claim(ALICE, fence=held.fence, at=AT + 7)  # a renewal
    held.complete(ALICE, at=AT + 8)
    pause(CAROL, at=9, kind="render", is_paused=False)
    waits.claim(BOB, begin=True, at=AT + 10)
    waits.complete(BOB, at=AT + 11)
    for number in range(MAX_PAUSES + 1):  # the last: pauses
        pause(CAROL, at=12 + number, plan=f"p{number}")
    for number in range(MAX_PAUSES):
        pause(at=12 + MAX_PAUSES + 1 + number, plan=f"p{number}", is_paused=False)
