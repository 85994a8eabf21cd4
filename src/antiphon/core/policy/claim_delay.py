"""How long a worker waits before it looks at a job again that it could not claim (M12, M23, M24).

Until the lease ends, the retry may begin or the worker's cool-down is over, as the job's state
says; with jitter, so that workers that were refused together do not come back together. A job
that this worker may not claim at all goes back at once, so that another worker gets it, and after
each further delivery for twice as long.
"""

from __future__ import annotations

from typing import Final, TypeVar

from antiphon.core.families.jobs.state import Job
from antiphon.core.record.verdict import Verdict

_K = TypeVar("_K")
_V = TypeVar("_V")

LONGEST_S: Final = 60.0
JITTER_S: Final = 0.5
SIBLING_S: Final = 3.0
"""How long a worker leaves a replica to others when it has another one of the same job."""
SIBLING_LEAST_S: Final = 0.1
REPLICAS_KEPT: Final = 1_024
"""Replicas that a worker remembers: the newest."""
ODD_S: Final = 1.0
PAUSED_S: Final = 5.0
"""How long a job stays back that is paused: its label, or its plan. Of a kind that is paused
workers ask for no jobs."""
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
    if verdict is Verdict.PAUSED:
        return max(wait_s, PAUSED_S) * (1 + chance)
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


class SiblingTurns:
    """Which replicas one worker leaves to others, because it took another of the same job."""

    def __init__(self) -> None:
        """It has taken none."""
        self._taken: dict[tuple[str, str], str] = {}
        """By parent: the replica that it took last."""
        self._left: dict[str, float] = {}
        """Replicas that it leaves to others, and since when."""

    def delay_s(self, parent: tuple[str, str], job_id: str, now_s: float) -> float | None:
        """How long to leave this replica to others; None: take it now."""
        if self._taken.get(parent, job_id) != job_id:
            since_s = self._left.get(job_id, now_s)
            _keep_newest(self._left, job_id, since_s)
            delay_s = sibling_delay_s(now_s - since_s)
            if delay_s is not None:
                return delay_s
        self._left.pop(job_id, None)
        _keep_newest(self._taken, parent, job_id)
        return None


def _keep_newest(kept: dict[_K, _V], key: _K, value: _V) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > REPLICAS_KEPT:
        del kept[next(iter(kept))]
