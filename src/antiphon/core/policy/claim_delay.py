"""How long a worker waits before it looks at a job again that it could not claim (M12, M23, M24).

Until the lease ends, the retry may begin or the worker's cool-down is over, as the job's state
says; with jitter, so that workers that were refused together do not come back together.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.families.jobs.state import Job
from antiphon.core.record.verdict import Verdict

LONGEST_S: Final = 60.0
JITTER_S: Final = 0.5
SIBLING_S: Final = 3.0
"""How long a worker leaves a replica to others when it has another one of the same job."""
SIBLING_LEAST_S: Final = 0.1
ODD_S: Final = 1.0
NOT_FOR_US: Final = frozenset(
    {
        Verdict.NOT_ROUTED,
        Verdict.NO_CHAIN,
        Verdict.CHAIN_EXPIRED,
        Verdict.REVOKED,
        Verdict.COMMAND,
        Verdict.POLICY,
        Verdict.QUARANTINED,
    }
)
"""Verdicts on a claim that do not change by waiting."""
PASSING: Final = frozenset({Verdict.NOT_YET, Verdict.COOLDOWN, Verdict.HELD})
"""Verdicts that end at a time in the job's state."""


def claim_delay_s(job: Job, verdict: Verdict, *, by: str, now_ms: int, chance: float) -> float:
    """Seconds before `by`, whose claim got this verdict, should look at the job again."""
    wait_s = (job.claimable_ms(now_ms, by) - now_ms) / 1000
    if verdict in NOT_FOR_US:
        wait_s = LONGEST_S
    elif verdict not in PASSING:
        wait_s = max(wait_s, ODD_S)
    return min(wait_s, LONGEST_S) + chance * JITTER_S


def sibling_delay_s(left_s: float) -> float | None:
    """How long to leave a replica to others again; None if they have had their time.

    `left_s` says how long it was left to them already. A second replica for the same party tells
    nothing new (spec §9). If nobody else comes, running it shows that sooner than waiting for it.
    """
    if left_s >= SIBLING_S:
        return None
    return max(SIBLING_LEAST_S, min(left_s, SIBLING_S - left_s))
