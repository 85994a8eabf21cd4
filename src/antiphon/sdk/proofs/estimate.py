"""What a job like a finished one would take on other devices (docs/do/cost.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.core.cost.estimate import DeviceEstimate, effective_ms, on_devices
from antiphon.errors import Rejected
from antiphon.sdk.proofs.proof import open_envelope, proof_of

if TYPE_CHECKING:
    from antiphon.core.cost.rates import Rates
    from antiphon.sdk.handle import JobHandle


class JobEstimate(Struct, frozen=True, kw_only=True):
    """The device time of a run, in the common unit, and on each class of devices."""

    effective_ms: int
    currency: str
    devices: tuple[DeviceEstimate, ...]
    """The cheapest first."""


async def estimate_like(of: JobHandle[Any], rates: Rates | None) -> JobEstimate:
    """By what the job's proof says it used, and the `ecu` in rates: `mesh.tempo.policy.rates`."""
    used = open_envelope(await proof_of(of)).predicate.usage
    if used.reported is None:
        raise Rejected(
            f"job {of.id[:8]} reported no time of a GPU or another device",
            reason="no_estimate",
            hint="its handler has to say it: ctx.used(gpu_sec={'a100': 2.5})",
        )
    effective = None if rates is None else effective_ms(rates, used.reported)
    if rates is None or effective is None:
        raise Rejected(
            "the rates have no ecu for a device class that the job used",
            reason="no_estimate",
            hint="add ecu: {a100: 8, …} to the rates: antiphon tempo set FILE --rates RATES",
        )
    return JobEstimate(
        effective_ms=effective,
        currency=rates.currency,
        devices=tuple(on_devices(rates, effective)),
    )
