"""This machine's clocks and random numbers, behind the ports that the runtime uses."""

from __future__ import annotations

import random
import secrets
import time
from functools import lru_cache, partial

NANOSECONDS_PER_MS = 1_000_000


@lru_cache(maxsize=1)
def installed_version() -> str:
    """The version of this installation."""
    from importlib.metadata import PackageNotFoundError, version  # slow, and rarely needed

    try:
        return version("antiphon")
    except PackageNotFoundError:
        return "0+unknown"


_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall time in whole milliseconds."""
        return time.time_ns() // NANOSECONDS_PER_MS

    boot_s = staticmethod(partial(time.clock_gettime, _SINCE_BOOT))
    """Seconds that keep counting while the machine is suspended, where the OS has them."""


class SystemEntropy:
    """The machine's random numbers."""

    def __init__(self) -> None:
        """Jitter needs spread, not secrecy; tokens need both."""
        self._jitter = random.Random()  # noqa: S311 - jitter only

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._jitter.random()

    def token(self, size: int) -> bytes:
        """Bytes that nobody can guess."""
        return secrets.token_bytes(size)
