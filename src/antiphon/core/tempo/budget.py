"""What a job may use up: beats, waits, resources in each beat, and until when (spec §11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from antiphon.core.cost.rates import pico, price_text
from antiphon.core.cost.usage import MAX_CLASSES, DeviceClass
from antiphon.core.record import codec
from antiphon.core.record.op import Body
from antiphon.core.tempo.score import WaitBeats
from antiphon.errors import Malformed

Units = Annotated[int, Meta(ge=1, le=10_000_000)]
Milli = Annotated[int, Meta(ge=1, le=codec.MAX_INTEGER)]
"""Thousandths of a unit: ops have no fractions."""
Account = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/@=+~-]{0,255}\Z")]
_PICO_IN_MILLI = 10**9
BarsFromStart = Annotated[str, Meta(pattern=r"^bar\+(?:[1-9][0-9]{0,5})\Z")]


_ByClass = Annotated[tuple[tuple[DeviceClass, Milli], ...], Meta(max_length=MAX_CLASSES)]


class PhaseCaps(Body, frozen=True):
    """The most beats in each phase."""

    plan: Units | None = None
    work: Units | None = None
    review: Units | None = None


class WaitCaps(Body, frozen=True):
    """The most beats of each sort of waiting."""

    help: WaitBeats | None = None
    io: WaitBeats | None = None


class BeatCeilings(Body, frozen=True):
    """The most of each resource in any one beat, in thousandths of its unit."""

    cpu_sec: Milli | None = None
    gpu_sec: _ByClass = ()
    accel_sec: _ByClass = ()
    mem_gbs: Milli | None = None
    disk_io_mb: Milli | None = None
    net_egress_mb: Milli | None = None


class Budget(Body, frozen=True):
    """The caps of a job. One beat unit (BU) is one beat."""

    max_bu: Units | None = None
    """All beats of its tenures together, as far as those that ended said what they used."""
    phase_caps: PhaseCaps = PhaseCaps()
    wait_caps: WaitCaps = WaitCaps()
    hard_end: BarsFromStart | None = None
    """`bar+K`: the K-th downbeat after its start ends it."""
    charge_to: Account | None = None
    """The account that its cost is counted for."""
    max_cost: Milli | None = None
    """In thousandths of the unit of the mesh's currency; without rates nothing is priced."""
    per_bu: BeatCeilings = BeatCeilings()

    @property
    def bars(self) -> int | None:
        """The downbeat after its start that ends it."""
        return None if self.hard_end is None else int(self.hard_end.removeprefix("bar+"))


def read_budget(fields: Mapping[str, Any]) -> Budget:
    """A budget from what a person wrote: its keys, or a file that has them under `budget`.

    Ceilings and `max_cost` are in whole units or fractions there, `cpu_sec: 2.5`; by device class
    they are a mapping, `gpu_sec: {a100: 1.5}`.
    """
    inner = fields.get("budget", fields)
    if not isinstance(inner, Mapping):
        raise Malformed("a budget is a mapping", reason="budget", hint="budget: {max_bu: 8}")
    plain = dict[str, Any](inner)
    if "max_cost" in plain:
        plain["max_cost"] = _thousandths(plain["max_cost"], "max_cost")
    if isinstance(ceilings := plain.get("per_bu"), Mapping):
        plain["per_bu"] = {name: _ceiling(name, given) for name, given in ceilings.items()}
    codec.check_profile(plain)
    try:
        return msgspec.convert(plain, Budget)
    except msgspec.ValidationError as problem:
        hint = "hard_end is written as bar+4" if re.search(r"hard_end", str(problem)) else ""
        raise Malformed(
            f"the budget is not valid: {problem}", reason="budget", hint=hint
        ) from problem


def _ceiling(name: str, given: Any) -> Any:
    if isinstance(given, Mapping):
        return [
            (device, _thousandths(one, f"per_bu.{name}.{device}")) for device, one in given.items()
        ]
    return _thousandths(given, f"per_bu.{name}")


def _thousandths(given: object, where: str) -> int:
    """A number in units as thousandths; what is below one thousandth counts as one."""
    return max(-(-pico(price_text(given, where)) // _PICO_IN_MILLI), 1)
