"""How long a worker waits before it looks at a job again that it could not claim (M12, M23, M24).

Until the lease ends, the retry may begin or the worker's cool-down is over, as the job's state
says; with jitter, so that workers that were refused together do not come back together. A job
that this worker may not claim at all goes back at once, so that another worker gets it, and after
each further delivery for twice as long.
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
SOON_S: Final = 0.05
"""How long a job stays back that is not for the worker which it was delivered to; doubled with
each delivery."""
_DOUBLINGS: Final = 12
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


def claim_delay_s(
    job: Job, verdict: Verdict, *, by: str, deliveries: int, now_ms: int, chance: float
) -> float:
    """Seconds before a job should be delivered again after `by`'s claim of it got this verdict.

    `deliveries` says how often it was delivered so far, to any worker.
    """
    if verdict in NOT_FOR_US:
        wait_s = SOON_S * (1 << min(deliveries - 1, _DOUBLINGS)) * (1 + chance)
        return min(wait_s, LONGEST_S + chance * JITTER_S)
    wait_s = (job.claimable_ms(now_ms, by) - now_ms) / 1000
    if verdict not in PASSING:
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
