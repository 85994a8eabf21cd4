"""The rules of a mesh: values that are in force for all of it (spec §7.4).

Genesis sets them, and `mesh.rules` replaces all of them from its place on. A rule at its default is
not written. `protocol` says which protocol is in force: code that does not have it stops there with
an error.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from antiphon.core.record.op import Label

_DAY_MS: Final = 24 * 3600 * 1000
NOTICE_MS: Final = 7 * _DAY_MS
"""How long after its announcement a higher protocol comes into force: time to upgrade, and for
the recovery key to cancel it if a stolen owner key announced it."""
HORIZON_LEAST_MS: Final = 3600 * 1000
DRIFT_LEAST_MS: Final = 100
"""Lower limits for every owner; below them a recovery could not be committed in time."""
RETENTION_LEAST_MS: Final = 3600 * 1000
"""A lower limit, too: who was away for less finds what it knows."""
_YEAR_MS: Final = 366 * _DAY_MS

Positive = Annotated[int, Meta(ge=1, le=_YEAR_MS * 10)]
Prefix = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_.-]*\Z", max_length=128)]
Selection = Literal["queue", "rendezvous"]
SnapshotPart = Literal["prompt", "context", "output"]


class Limit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How many jobs with a label may run at once, or begin in a period, on the whole mesh."""

    label: Label
    kinds: Annotated[tuple[Prefix, ...], Meta(max_length=64)] = ()
    """Prefixes of kinds whose jobs must name the label; the longest match decides."""
    at_once: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Jobs that are offered and have not ended."""
    rate: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Jobs that are offered within any `per_ms`."""
    per_ms: Annotated[int, Meta(ge=1_000, le=_DAY_MS)] = 1_000


class Rules(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True
):
    """Rule values; the name of each field has its unit or says what it counts."""

    protocol: Annotated[int, Meta(ge=1, le=65535)] = 1
    authority: Literal["chain", "open"] = "chain"
    """`chain`: every op needs a chain to the owner. `open`: every node that the engine admits
    may schedule, claim, complete and cancel (development meshes)."""
    max_drift_ms: Annotated[int, Meta(ge=1, le=600_000)] = 2_000
    """How far ahead of the commit time an author's clock may be."""
    horizon_ms: Positive = 30 * _DAY_MS
    """Older ops are rejected; ids and finished jobs are remembered for this long."""
    lease_min_ms: Positive = 5_000
    lease_max_ms: Positive = 3_600_000
    lease_ms: Positive = 30_000
    """The first lease of a claim, unless the job says otherwise."""
    lease_ms_max: Positive = 120_000
    """How long a lease may grow with tenure, unless the job says otherwise."""
    attempts: Annotated[int, Meta(ge=1, le=1000)] = 3
    """Expiries and `error` yields before a job is exhausted, unless the job says otherwise."""
    attempts_max: Annotated[int, Meta(ge=1, le=1000)] = 100
    yields_max: Annotated[int, Meta(ge=0, le=1000)] = 32
    """Yields for other reasons before a job is exhausted."""
    postponed_max: Annotated[int, Meta(ge=0, le=100_000)] = 100
    """How often a job may ask for another try later before it is exhausted."""
    continuations_max: Annotated[int, Meta(ge=0, le=100_000)] = 1_000
    """How often a job may give up its tenure to wait for other jobs."""
    retry_after_max_ms: Positive = 3_600_000
    """The longest wait that a yield may ask for; longer ones are shortened to it."""
    start_by_ms: Positive = 7 * _DAY_MS
    """How long a job may wait or be pending unless it says otherwise."""
    claim_window_ms: Positive = 1_500
    """How long each rank waits for the one before it under rendezvous selection."""
    offer_after_ms: Positive = 15_000
    """How long a job may stay claimable before a full node offers it again."""
    retention_ms: Positive = _DAY_MS
    """How long what has ended stays on the hot log, unless somebody may ask for it again: that
    stays for `horizon_ms`."""
    artifact_ttl_ms: Positive = 30 * _DAY_MS
    """How long the outputs of a finished job are stored outside the log."""
    plans_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000
    """How many plans of one party run: the oldest."""
    derived_per_minute: Annotated[int, Meta(ge=1, le=1_000_000)] = 600
    """Jobs that are derived from one party's plans within any minute; replicas count too."""
    tracebacks: bool = True
    """Whether workers write the tracebacks of failed handlers to the log. No verdict depends on
    it: whoever may read a job's lane could read its handler's paths and source lines there."""
    audit_inference: bool = False
    """Whether the model calls of every tenure are audited, from its claim on (spec §12)."""
    redact_inference: Annotated[tuple[SnapshotPart, ...], Meta(max_length=3)] = ()
    """Which parts of a model call a snapshot has as a digest alone. No verdict depends on it."""
    selection: Annotated[tuple[tuple[Prefix, Selection], ...], Meta(max_length=256)] = ()
    """Selection by kind prefix; the longest match decides; `queue` if none matches."""
    limits: Annotated[tuple[Limit, ...], Meta(max_length=256)] = ()

    def may_name(self, kind: str, label: str) -> bool:
        """Whether a job of this kind may name a label, or none: that of its own limit, if any.

        Room under a limit for certain kinds is for those alone: whoever may submit another kind
        must not be able to take it.
        """
        own = self.label_of(kind)
        if own or not label:
            return label == own
        return label not in self._reserved

    def label_of(self, kind: str) -> str:
        """The label that a job of this kind must name; empty if it is under no limit."""
        labels, prefix = self._labels, kind
        while labels and prefix:
            if prefix in labels:
                return labels[prefix]
            prefix = prefix.rpartition(".")[0]
        return ""

    @cached_property
    def _labels(self) -> dict[str, str]:
        """By prefix. Every job is looked up here, and a mesh may have thousands of prefixes."""
        return {prefix: limit.label for limit in self.limits for prefix in limit.kinds}

    @cached_property
    def _reserved(self) -> frozenset[str]:
        """Labels for the jobs of certain kinds alone."""
        return frozenset(limit.label for limit in self.limits if limit.kinds)


def contradiction(rules: Rules) -> str | None:
    """Why these rules contradict each other, or None."""
    if rules.horizon_ms < HORIZON_LEAST_MS:
        return f"horizon_ms is below {HORIZON_LEAST_MS}, the lower limit for every mesh"
    if rules.retention_ms < RETENTION_LEAST_MS:
        return f"retention_ms is below {RETENTION_LEAST_MS}, the lower limit for every mesh"
    if rules.max_drift_ms < DRIFT_LEAST_MS:
        return f"max_drift_ms is below {DRIFT_LEAST_MS}, the lower limit for every mesh"
    if rules.lease_min_ms < 2 * rules.max_drift_ms:
        return "lease_min_ms must be at least twice max_drift_ms"
    if rules.lease_min_ms > rules.lease_max_ms:
        return "lease_min_ms is above lease_max_ms"
    if not rules.lease_min_ms <= rules.lease_ms <= rules.lease_max_ms:
        return "lease_ms is outside lease_min_ms..lease_max_ms"
    if not rules.lease_ms <= rules.lease_ms_max <= rules.lease_max_ms:
        return "lease_ms_max is outside lease_ms..lease_max_ms"
    if rules.attempts > rules.attempts_max:
        return "attempts is above attempts_max"
    if rules.start_by_ms > rules.horizon_ms:
        return "start_by_ms is above horizon_ms"
    return _limits_fault(rules.limits)


def _limits_fault(limits: tuple[Limit, ...]) -> str | None:
    labels = [limit.label for limit in limits]
    prefixes = [prefix for limit in limits for prefix in limit.kinds]
    for names, what in ((labels, "label"), (prefixes, "kind prefix")):
        twice = next((one for one, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            return f"two limits have the {what} {twice}"
    bare = next((one.label for one in limits if one.at_once is None and one.rate is None), None)
    return None if bare is None else f"the limit {bare} has neither at_once nor rate"
