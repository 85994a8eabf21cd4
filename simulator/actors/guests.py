"""Further families in a simulated cluster: who writes their ops, and what must hold of them.

A family brings its own faults and laws: a machine that writes its ops while everything around it
breaks, where its ops belong, spelled by hand, and laws over its records. Full and light readers,
restarts and replays are compared for its lanes as they are for jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.core.family import Family
from simulator.checks.laws import Law

if TYPE_CHECKING:
    from antiphon.testing.host_clock import HostClock
    from simulator.actors.machines import Machine
    from simulator.cluster import Cluster


class Guest(Struct, frozen=True, kw_only=True):
    """A family that takes part."""

    family: Family
    prefix: str
    """What the types of its ops begin with, up to the dot."""
    home: Callable[[str, str, dict[str, Any]], str]
    """`home(mesh, type, body)`: the subject on which such an op belongs."""
    laws: tuple[Law, ...]
    """What holds of its records, beside what holds of all."""
    machine: Callable[[Cluster, HostClock], Machine]
    """Whoever writes its ops; it is killed and cut off like the others."""
