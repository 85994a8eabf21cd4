"""What a run under faults comes to, in the keys of docs/evidence.md (`workers`, `partition`)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measurement.report import percentile, say
from chaos.audit.execution_journal import ExecutionTally
from chaos.audit.final_check import FinalCheck
from simulator.checks.plain_record import Key

SHOWN = 10
"""Lost and doubly accepted jobs that are named one by one."""


def summarize(
    check: FinalCheck, tally: ExecutionTally, promised: Sequence[Key], crashed: Sequence[str]
) -> dict[str, object]:
    """Compare the log with the journal; `promised` are jobs whose call was acknowledged."""
    lost = check.lost(promised)
    for what, found_keys in (("lost", lost), ("accepted twice", check.accepted_twice)):
        for key in found_keys[:SHOWN]:
            say(f"{what}: {key}")
    for violation in check.violations:
        say(f"broken law: {violation}")
    same_fence = tally.jobs_with_reused_fence()
    for run in tally.executions:
        if run.job_id in same_fence:
            say(f"under one fence: {run}")
    takeovers = check.takeovers_s or [0.0]
    return {
        "jobs": len(set(promised)),
        "lost": len(lost),
        "accepted_twice": len(check.accepted_twice),
        "overlapped": len(tally.overlapped()),
        "succeeded": check.succeeded,
        "executions": len(tally.executions),
        "expiries": check.accepted_ops["job.expire"],
        "takeover_p50_s": round(percentile(takeovers, 0.5), 2),
        "takeover_p99_s": round(percentile(takeovers, 0.99), 2),
        "takeover_max_s": round(max(takeovers), 2),
        "unwitnessed": len(check.without_execution(tally)),
        "same_fence": len(same_fence),
        "broken_laws": check.violation_count,
        "crashed": len(crashed),
        "records": check.records,
    }


def holds(summary: dict[str, object]) -> bool:
    """Whether nothing happened that must not, and every job succeeded."""
    never = ("lost", "accepted_twice", "unwitnessed", "same_fence", "broken_laws", "crashed")
    return not any(summary[name] for name in never) and summary["succeeded"] == summary["jobs"]
