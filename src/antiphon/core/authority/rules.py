"""The numbers a mesh lives by (spec §7.4).

Genesis names them and `mesh.rules` replaces them as a whole from its place on. A rule that is at
its default is not written. `protocol` says which reading of the log is in force: code that does
not have it stops there and says so.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

_DAY_MS: Final = 24 * 3600 * 1000
NOTICE_MS: Final = 7 * _DAY_MS
"""How long after its announcement a higher protocol comes into force: time to upgrade, and for
the recovery key to take it back where a stolen owner key announced it."""
HORIZON_LEAST_MS: Final = 3600 * 1000
DRIFT_LEAST_MS: Final = 100
"""Floors that no owner can go below, or a recovery could not be committed in time."""
_YEAR_MS: Final = 366 * _DAY_MS

Positive = Annotated[int, Meta(ge=1, le=_YEAR_MS * 10)]
Prefix = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_.-]*\Z", max_length=128)]
Selection = Literal["queue", "rendezvous"]


class Rules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rule values; every field has a unit in its name or says what it counts."""

    protocol: Annotated[int, Meta(ge=1, le=65535)] = 1
    authority: Literal["chain", "open"] = "chain"
    """`chain`: every op needs a chain to the owner. `open`: whoever the engine lets in may
    schedule, claim, complete and cancel (development meshes)."""
    max_drift_ms: Annotated[int, Meta(ge=1, le=600_000)] = 2_000
    """How far ahead of the commit stamp an author's clock may be."""
    horizon_ms: Positive = 30 * _DAY_MS
    """Older ops are refused; ids and finished jobs are remembered for as long."""
    lease_min_ms: Positive = 5_000
    lease_max_ms: Positive = 3_600_000
    lease_ms: Positive = 30_000
    """What a claim begins with unless the job says otherwise."""
    lease_ms_max: Positive = 120_000
    """How long a lease may grow to with tenure unless the job says otherwise."""
    attempts: Annotated[int, Meta(ge=1, le=1000)] = 3
    """Expiries and `error` yields before a job is exhausted, unless the job says otherwise."""
    attempts_max: Annotated[int, Meta(ge=1, le=1000)] = 100
    yields_max: Annotated[int, Meta(ge=0, le=1000)] = 32
    """Yields for other reasons before a job is exhausted."""
    retry_after_max_ms: Positive = 3_600_000
    """What a yield may ask for at most; more is cut down to it."""
    start_by_ms: Positive = 7 * _DAY_MS
    """How long a job may wait or be pending unless it says otherwise."""
    claim_window_ms: Positive = 1_500
    """What each rank waits for the one before it under rendezvous selection."""
    offer_after_ms: Positive = 15_000
    """How long a claimable job may lie before a full node announces it again."""
    retention_ms: Positive = 30 * _DAY_MS
    """How long finished jobs stay on the hot log."""
    artifact_ttl_ms: Positive = 30 * _DAY_MS
    """How long the outputs of a finished job are kept beside the log."""
    selection: Annotated[tuple[tuple[Prefix, Selection], ...], Meta(max_length=256)] = ()
    """Selection by kind prefix, the longest match deciding; `queue` where none matches."""


def contradiction(rules: Rules) -> str | None:
    """Why these rules cannot hold together, or None."""
    if rules.horizon_ms < HORIZON_LEAST_MS:
        return f"horizon_ms is below {HORIZON_LEAST_MS}, which no mesh can go below"
    if rules.max_drift_ms < DRIFT_LEAST_MS:
        return f"max_drift_ms is below {DRIFT_LEAST_MS}, which no mesh can go below"
    if rules.lease_min_ms < 2 * rules.max_drift_ms:
        return "lease_min_ms must be at least twice max_drift_ms"
    if rules.lease_min_ms > rules.lease_max_ms:
        return "lease_min_ms is above lease_max_ms"
    if not rules.lease_min_ms <= rules.lease_ms <= rules.lease_max_ms:
        return "lease_ms lies outside lease_min_ms..lease_max_ms"
    if not rules.lease_ms <= rules.lease_ms_max <= rules.lease_max_ms:
        return "lease_ms_max lies outside lease_ms..lease_max_ms"
    if rules.attempts > rules.attempts_max:
        return "attempts is above attempts_max"
    if rules.start_by_ms > rules.horizon_ms:
        return "start_by_ms is above horizon_ms"
    return None
