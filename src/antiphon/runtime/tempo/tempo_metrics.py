"""The numbers that pulse and reverb keep about themselves.

Plain numbers in one struct: the services count, and an interface turns the numbers into whatever
its readers want, such as Prometheus' text. Nothing here decides anything, and nothing needs a
metrics library. Everything runs in one event loop, so there is no lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

TempoMode = Literal["off", "leader", "median", "local"]
"""Which beats a node follows: `off` where no pulse runs here, the leader's, the median of all
pulses that it hears, or its own clock's."""


@dataclass(slots=True, kw_only=True)
class TempoMetrics:
    """What a node's pulse and reverb have done since it started, and how they are now.

    Fields named after what was done only grow; the others are replaced.
    """

    # --- the pulse ------------------------------------------------------------------------------

    mode: TempoMode = "off"
    """Which beats this node follows now."""
    bpm: float = 0.0
    """The tempo in force, in beats per minute; 0 while there is none."""
    bar_len: int = 0
    """Beats in a bar; 0 while there is no tempo."""
    drift_ms: float = 0.0
    """This node's beat minus the leader's (in `median`: minus the median's), in milliseconds."""
    is_leader: bool = False
    """Whether this node holds the lease of the pulse."""
    is_frozen: bool = False
    """Whether the tempo may not change now: by the operator, in an alarm, or without a leader."""
    degraded: str = ""
    """Why the tempo is not the leader's, in a few fixed words (`no leader`); empty while it is.
    It becomes the value of a label, so it must not contain ids or times."""
    beats_sent: int = 0
    """Beat frames that this node published."""
    takeovers: int = 0
    """How often this node became the leader."""
    tempo_changes: int = 0
    """How often the tempo in force changed."""
    engine_failures: int = 0
    """Requests of pulse and reverb that the engine did not answer or refused."""

    # --- the reverb -----------------------------------------------------------------------------

    claims_received: int = 0
    """Status claims that were valid."""
    claims_refused: int = 0
    """Status claims that were not: badly signed, too large, by nobody with the permission."""
    claims_late: int = 0
    """Of those received: claims about a bar that had been reported already."""
    bars_reported: int = 0
    """Bar reports that this node made."""
    aggregation_s: float = 0.0
    """Seconds spent on them in total; divided by `bars_reported`, the mean."""
    last_aggregation_s: float = 0.0
    """Seconds that the newest one took."""
    kpis: dict[str, float | None] = field(default_factory=dict)
    """The newest bar's KPIs by their name (`tnt`, `bpd`, `wr`, `eta`, `pmr`, `cpd`, `ttfu`); None
    where the divisor was 0."""
    alarms: frozenset[str] = frozenset()
    """The alarms that are on (`promise_miss_rate`, `overrun_rate`, `no_status_claims`)."""


__all__ = ["TempoMetrics", "TempoMode"]
