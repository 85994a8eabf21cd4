"""Rates: what a beat and each resource cost, with where each number comes from (spec §11).

Part of the tempo policy, so they are on the log and signed by the owner. Prices are decimal numbers
written as text: ops have no fractions, and a price must not change by being written down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, field

from antiphon.core.cost.usage import DeviceClass, of_class
from antiphon.core.record.op import Body
from antiphon.errors import Malformed

PLACES: Final = 12
"""Decimal places of a price at most."""
PICO: Final = 10**PLACES
ANY_ROLE: Final = "default"
"""The role of jobs whose kind is below no role."""
MAX_ROLES: Final = 256
_PRICE: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,12}))?", re.ASCII)

Price = Annotated[str, Meta(pattern=r"^(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{0,11}[1-9])?\Z")]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
Role = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_.-]{0,127}\Z")]


class Rate(Body, frozen=True):
    """The price of one unit, and where it comes from."""

    rate: Price
    source: Literal["tco", "list"]
    """`tco`: the total cost of owning it, computed by you. `list`: a provider's list price."""
    note: Annotated[str, Meta(max_length=192)] = ""
    """Which computation or which list, and of when."""


ByClass = Annotated[dict[DeviceClass, Rate], Meta(max_length=64)]


class Rates(Body, frozen=True):
    """What things cost, in one currency. What has no rate costs nothing."""

    currency: Currency
    role_rate_bu: Annotated[dict[Role, Price], Meta(max_length=MAX_ROLES)] = field(
        default_factory=dict
    )
    """The price of one beat by role: a prefix of kinds, the longest that matches, or `default`."""
    cpu_sec: Rate | None = None
    gpu_sec: ByClass = field(default_factory=dict)
    accel_sec: ByClass = field(default_factory=dict)
    mem_gbs: Rate | None = None
    disk_io_mb: Rate | None = None
    net_egress_mb: Rate | None = None
    storage_gbh: Rate | None = None
    ecu: Annotated[dict[DeviceClass, Price], Meta(max_length=64)] = field(default_factory=dict)
    """How many times as fast as a common unit a device class is: for estimates, never billed."""

    def role_of(self, kind: str) -> str:
        """The role of jobs of this kind."""
        parts = kind.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((one for one in prefixes if one in self.role_rate_bu), ANY_ROLE)

    def beat_pico(self, kind: str) -> int:
        """The price of a beat of such a job, in 10^-12."""
        return pico(self.role_rate_bu.get(self.role_of(kind), "0"))

    def priced(self) -> Iterator[tuple[str, Rate]]:
        """Every primitive that has a rate, by its name."""
        single = {
            "cpu_sec": self.cpu_sec,
            "mem_gbs": self.mem_gbs,
            "disk_io_mb": self.disk_io_mb,
            "net_egress_mb": self.net_egress_mb,
            "storage_gbh": self.storage_gbh,
        }
        yield from ((name, rate) for name, rate in single.items() if rate is not None)
        for primitive, rates in (("gpu_sec", self.gpu_sec), ("accel_sec", self.accel_sec)):
            yield from ((of_class(primitive, device), rate) for device, rate in rates.items())


def pico(price: str) -> int:
    """A price in 10^-12 of the currency's unit."""
    whole, _, rest = price.partition(".")
    return int(whole) * PICO + int(f"{rest:0<{PLACES}}")


def read_rates(fields: Mapping[str, Any]) -> Rates:
    """Rates from what a person wrote: their keys, or a file that has them under `rates`.

    Prices may be numbers or text; a number stands for the digits that were typed.
    """
    inner = fields.get("rates", fields)
    if not isinstance(inner, Mapping):
        raise Malformed(
            "rates are a mapping", reason="rates", hint='cpu_sec: {rate: "0.0000125", source: tco}'
        )
    try:
        return msgspec.convert(_as_text(inner), Rates)
    except msgspec.ValidationError as problem:
        raise Malformed(
            f"the rates are not valid: {problem}",
            reason="rates",
            hint="each rate has rate and source (tco or list): antiphon tempo set --help",
        ) from problem


def _as_text(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same with every price as canonical text."""
    found = dict[str, Any](fields)
    for name in ("role_rate_bu", "ecu"):
        if isinstance(given := found.get(name), Mapping):
            found[name] = {key: price_text(one, f"{name}.{key}") for key, one in given.items()}
    for name in ("cpu_sec", "mem_gbs", "disk_io_mb", "net_egress_mb", "storage_gbh"):
        if name in found:
            found[name] = _rate(found[name], name)
    for name in ("gpu_sec", "accel_sec"):
        if isinstance(given := found.get(name), Mapping):
            found[name] = {key: _rate(one, f"{name}.{key}") for key, one in given.items()}
    return found


def _rate(given: Any, where: str) -> Any:
    if not isinstance(given, Mapping) or "rate" not in given:
        return given
    return {**given, "rate": price_text(given["rate"], where)}


def price_text(given: object, where: str) -> str:
    """A number as the text that stands for it; `Malformed` if it is none, or has too many places.

    A float is written in the fewest digits that give it again: those that somebody typed.
    """
    text = _plain(repr(given)) if isinstance(given, float) else str(given)
    found = _PRICE.fullmatch(text)
    if found is None or isinstance(given, bool):
        raise Malformed(
            f"{where}: {given!r} is not a price",
            reason="rates",
            hint=f"a number from 0 with at most {PLACES} decimal places, such as 0.0000125",
        )
    whole, rest = found[1].lstrip("0") or "0", (found[2] or "").rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def _plain(text: str) -> str:
    """1.25e-05 as 0.0000125."""
    digits, is_scaled, exponent = text.partition("e")
    if not is_scaled or not exponent.startswith("-"):
        return text
    whole, _, rest = digits.partition(".")
    return f"0.{'0' * (int(exponent[1:]) - len(whole))}{whole}{rest}"
