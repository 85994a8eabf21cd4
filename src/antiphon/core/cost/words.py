"""Usage and cost in words, for people."""

from __future__ import annotations

from typing import Final

from antiphon.core.cost.job_cost import Cost, Spent
from antiphon.core.cost.usage import Resources, primitives

_MILLI_PLACES: Final = 3
_ONE_BEAT: Final = 1_000
_MICRO_PLACES: Final = 6
_NANO_PLACES: Final = 9
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
        if name == "storage_gbh" and not micro:
            continue  # most runs store nothing outside the log
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


def beats_text(milli: int) -> str:
    """Beats as a decimal number."""
    return decimal_text(milli, _MILLI_PLACES)


def beats_words(milli: int) -> str:
    """Beats in words."""
    return f"{beats_text(milli)} {'beat' if milli == _ONE_BEAT else 'beats'}"


def amount_text(nano: int) -> str:
    """An amount as a decimal number."""
    return decimal_text(nano, _NANO_PLACES)


def cost_words(cost: Cost) -> str:
    """What one run cost, and what is missing in it."""
    words = beats_words(cost.beats_milli)
    if cost.amount_nano is not None:
        words += f", {amount_text(cost.amount_nano)} {cost.currency}"
    if cost.unmeasured:
        words += f"; without {', '.join(cost.unmeasured)} (not measured)"
    if cost.unpriced:
        words += f"; without {', '.join(cost.unpriced)} (no rate)"
    return words


def spent_words(spent: Spent) -> str:
    """What all runs of a job cost."""
    words = beats_words(spent.beats_milli)
    if spent.currency:
        more = "at least " if spent.is_partial else ""
        words += f", {more}{amount_text(spent.amount_nano)} {spent.currency}"
    return words
