"""The golden log's story of a job that is forgotten, behind its archive and before."""

from antiphon.core.families.erasures.ops import ForgetBody, JobForget
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER, RECOVERY
from tests.core.ledger import Ledger, Story

START = 15 * 24 * 3_600_000


def story(ledger: Ledger) -> None:
    """Refused without the right, and accepted from the owner, twice."""
    now = ledger.history.current
    owner = next(one for one in (OWNER, RECOVERY, ALICE, BOB, CAROL) if one.did == now.owner)
    other = next(one for one in (ALICE, CAROL) if one.did != now.owner)
    ended = Story(ledger, word="forgotten")
    ended.schedule(owner, how={"at": START})
    ended.cancel(owner, at=START + 10)
    body = ForgetBody(kind=ended.kind, job=ended.id)
    assert ledger.put(JobForget, body, other, at=START + 20) is Verdict.NO_CHAIN
    assert ledger.put(JobForget, body, owner, at=START + 30) is Verdict.OK
    assert ledger.put(JobForget, body, owner, at=START + 40) is Verdict.OK
