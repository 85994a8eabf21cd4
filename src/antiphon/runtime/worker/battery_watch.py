"""Pauses a worker while its machine's battery is low, so that jobs go back in time (M22).

A laptop that switches off without a word keeps its jobs from others until their leases end. At a
low battery the worker takes no more jobs, gives running ones the usual time to finish, and yields
the rest with the reason `battery`. On mains power, or well above the limit, it goes on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.worker.worker import Worker

SUPPLIES: Final = Path("/sys/class/power_supply")
LOOK_S: Final = 30.0
MARGIN: Final = 5
"""Percent above the limit from which a battery counts as charged: around the limit it may waver."""

log = LazyLogger(__name__)


class Battery(Protocol):
    """What a worker asks about its machine's power."""

    def percent_left(self) -> int | None:
        """What is left while the machine runs on its battery; None on mains, or without one."""


class HostBattery:
    """This machine's batteries, as Linux shows them; elsewhere there is none."""

    def __init__(self, supplies: Path = SUPPLIES) -> None:
        """`supplies` is the directory with one folder for each supply."""
        self._supplies = supplies

    def percent_left(self) -> int | None:
        """What the fullest discharging battery has left; batteries of mice do not count."""
        left = [self._of(folder) for folder in sorted(self._supplies.glob("*"))]
        return max((one for one in left if one is not None), default=None)

    def _of(self, folder: Path) -> int | None:
        words = {name: _read(folder / name) for name in ("type", "scope", "status", "capacity")}
        is_ours = words["type"] == "Battery" and words["scope"] != "Device"
        if not is_ours or words["status"] != "Discharging" or not words["capacity"].isdecimal():
            return None
        return int(words["capacity"])


class BatteryWatch:
    """Pauses and resumes one worker."""

    def __init__(self, worker: Worker, battery: Battery, *, low: int) -> None:
        """At `low` percent and below the worker pauses."""
        self._worker = worker
        self._battery = battery
        self._low = low

    async def run(self) -> None:
        """Look at the battery until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Pause or resume the worker, if it is time to."""
        left, worker = self._battery.percent_left(), self._worker
        is_paused = "battery" in worker.paused
        if left is not None and left <= self._low and not is_paused:
            log.warning("battery_low", percent=left, jobs=worker.busy)
            await worker.pause("battery")
        elif is_paused and (left is None or left >= self._low + MARGIN):
            log.info("battery_charged", percent=left)
            worker.resume("battery")


def _read(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="ascii").strip()
    return ""
