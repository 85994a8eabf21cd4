"""What each side of `bench peers` is given, and what it reports."""

from __future__ import annotations

from msgspec import Struct


class PeerLoad(Struct, frozen=True, kw_only=True):
    """The same for every side."""

    jobs: int
    processes: int
    slots: int
    """Jobs in flight for each of our processes."""
    threads: int
    """The same for a peer that runs one job per thread."""
    work_ms: float
    """How long a job waits; 0: it does nothing."""
    replicas: int
    """Copies of our log."""


class Figures(Struct, frozen=True):
    """One round of one side."""

    per_s: float
    worker_cpu_ms: float
    """Per job, as all three."""
    server_cpu_ms: float
    caller_cpu_ms: float
