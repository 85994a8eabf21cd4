"""Usage in words, for people."""

from __future__ import annotations

from typing import Final

from antiphon.core.cost.usage import Resources, primitives

_MICRO_PLACES: Final = 6
_UNITS: Final = {
    "cpu_sec": "s of CPU",
    "gpu_sec": "s of GPU",
    "accel_sec": "s of accelerator",
    "mem_gbs": "GB·s of memory",
    "disk_io_mb": "MB of disk I/O",
    "net_egress_mb": "MB sent",
    "storage_gbh": "GB·h of storage",
}
_NAMES: Final = {
    "cpu_sec": "CPU",
    "mem_gbs": "memory",
    "disk_io_mb": "disk I/O",
    "net_egress_mb": "network",
}
"""What a worker may be unable to measure."""


def decimal_text(value: int, places: int) -> str:
    """An integer in units of 10^-places as a decimal number, without trailing zeros."""
    whole, rest = divmod(abs(value), 10**places)
    digits = f"{rest:0{places}}".rstrip("0") if places else ""
    return f"{'-' * (value < 0)}{whole}{'.' * bool(digits)}{digits}"


def usage_words(used: Resources) -> str:
    """What was measured, then what the handler reported; empty if nothing is known."""
    measured, said = [], []
    for name, micro in primitives(used):
        plain, _, device = name.partition("[")
        amount = f"{decimal_text(micro, _MICRO_PLACES)} {_UNITS[plain]}"
        if device:
            said.append(f"{amount} {device.rstrip(']')}")
        else:
            measured.append(amount)
    parts = [", ".join(measured)] if measured else []
    if said:
        parts.append(f"the handler reported {', '.join(said)}")
    return "; ".join(parts)


def unmeasured_words(used: Resources) -> str:
    """What was not measured; empty if everything was."""
    known = {name for name, _ in primitives(used)}
    return ", ".join(word for name, word in _NAMES.items() if name not in known)
