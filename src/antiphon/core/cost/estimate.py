"""What work like a finished run's would take and cost on other devices: for planning (spec §11).

`ecu` says how many times as fast as a common unit a device class is. A run's device time in that
unit is its *effective compute*: 2.5 s of a class with 8 are 20. Nothing is ever billed in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from antiphon.core.cost.job_cost import NANO, rounded
from antiphon.core.cost.rates import PICO, Rates, pico
from antiphon.core.cost.usage import MILLI, Reported


class DeviceEstimate(Struct, frozen=True, kw_only=True):
    """The same work on one class of devices."""

    device: str
    device_ms: int
    amount_nano: int | None
    """At the rate of the class, in 10^-9 of the currency's unit; None if it has none."""


def effective_ms(rates: Rates, said: Reported) -> int | None:
    """The effective compute of a run, in thousandths; None if a class that it used has no `ecu`."""
    total = 0
    for times in (said.gpu_ms, said.accel_ms):
        for device, ms in times.items():
            if device not in rates.ecu:
                return None
            total += ms * pico(rates.ecu[device])
    return total // PICO


def on_devices(rates: Rates, effective: int) -> list[DeviceEstimate]:
    """So much effective compute on every class that has an `ecu`, the cheapest first."""
    prices = {name: one.rate for name, one in {**rates.accel_sec, **rates.gpu_sec}.items()}
    found = [_on(device, effective, ecu, prices) for device, ecu in rates.ecu.items() if pico(ecu)]
    return sorted(
        found, key=lambda one: (one.amount_nano is None, one.amount_nano or 0, one.device)
    )


def _on(device: str, effective: int, ecu: str, prices: Mapping[str, str]) -> DeviceEstimate:
    speed = pico(ecu)
    amount = None
    if device in prices:
        amount = rounded(effective * pico(prices[device]) * NANO, speed * MILLI)
    return DeviceEstimate(
        device=device, device_ms=rounded(effective * PICO, speed), amount_nano=amount
    )
