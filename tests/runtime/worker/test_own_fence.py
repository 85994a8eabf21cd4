"""What a tenure writes carries its own fence, also when the lane has moved on without it."""

from antiphon.core.families.jobs.ops import Retry
from antiphon.core.policy import attempt_end
from antiphon.runtime.worker.tenure import Leases, Tenure
from tests.core.authors import ALICE, BOB
from tests.core.ledger import Story


async def test_after_its_lease_was_ended_by_others_it_still_speaks_for_itself():
    story = Story()
    story.schedule()
    story.claim(ALICE, begin=True, at=100, lease_ms=10_000)
    fence = story.fence
    tenure = Tenure(Leases(None, None, None), None, story.lane, None, boot_s=0, loan_s=1)
    story.expire(BOB, at=10_101)
    tenure._move(story.lane)
    assert tenure.job.state.value == "pending"
    ends = (
        attempt_end.giving_back(tenure.held),
        attempt_end.after(tenure.held, Retry(), chance=0.5),
    )
    assert [end.fence for end in ends] == [fence, fence]
