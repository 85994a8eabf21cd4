"""The story of a quorum for the golden log (`golden_log.py`): Carol coordinates an open mesh."""

from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import Ledger, manifest
from tests.core.quorums import FALSE, TRUE, Replicated

AT = 50_600


def story(ledger: Ledger) -> None:
    """Two of three replicas agree, and a third does not."""
    body = ScheduleBody(kind="render", manifest=manifest("alone"), replicas=2, quorum=3)
    ledger.put(JobSchedule, body, OWNER, at=AT)  # replicas
    parent = Replicated(ledger, how={"at": AT + 1})
    parent.offer(CAROL, at=AT + 2)  # by_quorum
    parent.derive(0, BOB, at=AT + 3)  # not_coordinator
    parent.derive(0, CAROL, deps=(), at=AT + 4)  # replica
    children = [parent.child(index) for index in range(3)]
    for index, (child, by, out) in enumerate(
        zip(children, (ALICE, BOB, CAROL), (TRUE, FALSE, TRUE), strict=True)
    ):
        at = AT + 10 * (index + 1)
        parent.derive(index, CAROL, at=at)
        child.claim(by, begin=True, at=at + 1)
        child.complete(by, outputs=(out,), at=at + 2)
    parent.resolve(children[0], children[1], by=CAROL, at=AT + 50)  # quorum
    parent.resolve(children[0], children[2], by=BOB, at=AT + 51)  # not_coordinator
    parent.resolve(children[0], children[2], by=CAROL, at=AT + 52)
    parent.resolve(children[0], children[2], by=CAROL, at=AT + 53)  # finished
