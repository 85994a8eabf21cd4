"""What a run costs: the formula, and the part of a proof that says so (spec §11).

    cost = beats · role_rate_bu
         + cpu_sec · rate + Σ gpu_sec · rate + Σ accel_sec · rate       (by device class)
         + mem_gbs · rate + disk_io_mb · rate + net_egress_mb · rate + storage_gbh · rate

Everything is counted in integers: beats in thousandths, usage in millionths, prices in 10^-12. The
sum is exact and is rounded once, to billionths of the currency's unit, halves to even.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from antiphon.core.cost.rates import PICO, Currency, Rates, pico
from antiphon.core.cost.usage import MAX_CLASSES, MICRO, MILLI, Resources, primitives
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.op import Count

NANO: Final = 10**9
_EXACT: Final = PICO * MICRO
"""The sum is counted in 1/this."""

Primitive = Annotated[str, Meta(pattern=r"^[a-z_]{1,16}(?:\[[a-z0-9][a-z0-9._-]{0,63}\])?\Z")]
"""As a rate is called: `cpu_sec`, or `gpu_sec[a100]`."""
_Primitives = Annotated[tuple[Primitive, ...], Meta(max_length=2 * MAX_CLASSES)]
"""No more than a run can report."""


class Cost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one run cost, as its worker computed it; anybody can compute it again."""

    beats_milli: Annotated[Count, Meta(description="Beats used, in thousandths.")]
    policy: Annotated[
        str,
        Meta(
            pattern=r"^sha256:[0-9a-f]{64}\Z",
            description="The policy_hash of the tempo policy whose beats and rates were used.",
        ),
    ]
    currency: Currency | None = None
    amount_nano: (
        Annotated[Count, Meta(description="In billionths of the currency's unit.")] | None
    ) = None
    unmeasured: Annotated[
        _Primitives, Meta(description="Have a rate, but were not measured: the amount lacks them.")
    ] = ()
    unpriced: Annotated[
        _Primitives, Meta(description="Device classes that were used and have no rate.")
    ] = ()


class Priced(Struct, frozen=True, kw_only=True):
    """An amount, and what is missing in it."""

    nano: int
    unmeasured: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()


def price(rates: Rates, kind: str, *, beats_milli: int, used: Resources) -> Priced:
    """What a run of this kind costs."""
    known = dict(primitives(used))
    sum_exact = beats_milli * rates.beat_pico(kind) * (MICRO // MILLI)
    unmeasured = []
    priced = dict(rates.priced())
    for name, rate in priced.items():
        if name in known:
            sum_exact += known[name] * pico(rate.rate)
        elif "[" not in name:  # a device that nobody reported was not used
            unmeasured.append(name)
    unpriced = (name for name in known if "[" in name and name not in priced)
    return Priced(
        nano=min(rounded(sum_exact, _EXACT // NANO), MAX_INTEGER),
        unmeasured=tuple(unmeasured),
        unpriced=tuple(unpriced),
    )


def rounded(value: int, unit: int) -> int:
    """The nearest whole number of units; halves to even."""
    whole, rest = divmod(value, unit)
    return whole + (2 * rest > unit or (2 * rest == unit and whole % 2 == 1))


def cost_of(
    policy_hash: str, rates: Rates | None, kind: str, *, beats_milli: int, used: Resources
) -> Cost:
    """The part of a proof, or of a yield, that says what a run cost."""
    if rates is None:
        return Cost(beats_milli=beats_milli, policy=policy_hash)
    found = price(rates, kind, beats_milli=beats_milli, used=used)
    return Cost(
        beats_milli=beats_milli,
        policy=policy_hash,
        currency=rates.currency,
        amount_nano=found.nano,
        unmeasured=found.unmeasured,
        unpriced=found.unpriced,
    )


# --- what several runs of one job cost --------------------------------------------------------


class Spent(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What the runs of one job have cost so far, as far as their workers said so.

    A sum stops at the largest number that an op can have: workers may say anything, and a replica
    has to store it.
    """

    beats_milli: int = 0
    currency: str = ""
    """Empty while no run had rates."""
    amount_nano: int = 0
    is_partial: bool = False
    """Whether something is missing in the amount."""

    def plus(self, cost: Cost | None) -> Spent:
        """With one more run."""
        if cost is None:
            return self
        return self.with_more(
            Spent(
                beats_milli=cost.beats_milli,
                currency=cost.currency or "",
                amount_nano=cost.amount_nano or 0,
                is_partial=bool(cost.unmeasured or cost.unpriced),
            )
        )

    def with_more(self, later: Spent) -> Spent:
        """Both together. If the currency changed, the amount is what was spent in the later one."""
        if not later.beats_milli and not later.currency:
            return self
        is_first = not self.beats_milli and not self.currency
        is_same = is_first or self.currency == later.currency
        both = self.amount_nano + later.amount_nano
        newest = later if later.currency else self
        amount_nano = both if is_same else newest.amount_nano
        is_more = amount_nano > MAX_INTEGER
        return Spent(
            beats_milli=min(self.beats_milli + later.beats_milli, MAX_INTEGER),
            currency=newest.currency,
            amount_nano=min(amount_nano, MAX_INTEGER),
            is_partial=self.is_partial or later.is_partial or not is_same or is_more,
        )
