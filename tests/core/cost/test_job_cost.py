"""The formula, by hand and by its laws; and what a job's runs cost together."""

from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.core.cost.estimate import effective_ms, on_devices
from antiphon.core.cost.job_cost import Cost, Spent, cost_of, price, rounded
from antiphon.core.cost.rates import Rate, Rates, pico
from antiphon.core.cost.usage import Reported, Resources
from antiphon.core.record.codec import MAX_INTEGER

pytestmark = pytest.mark.req("B21")

POLICY = "sha256:" + "0" * 64


def tco(rate: str) -> Rate:
    return Rate(rate=rate, source="tco")


ALL = Rates(
    currency="EUR",
    role_rate_bu={"default": "0.01", "render": "0.02", "render.final": "0.05"},
    cpu_sec=tco("0.00001"),
    gpu_sec={"a100": tco("0.0005"), "h100": tco("0.001")},
    accel_sec={"tpu": tco("0.0003")},
    mem_gbs=tco("0.000002"),
    disk_io_mb=tco("0.0000001"),
    net_egress_mb=tco("0.00009"),
    storage_gbh=tco("0.00003"),
    ecu={"a100": "8", "tpu": "4", "cheap": "1"},
)
USED = Resources(
    cpu_ms=12_000,
    mem_kbs=30_000_000,
    disk_io_bytes=500_000_000,
    net_egress_bytes=2_000_000,
    storage_kbh=1_500_000,
    reported=Reported(gpu_ms={"a100": 2_500}, accel_ms={"tpu": 4_000}),
)


def test_a_phrase_by_hand():
    # 4.5 beats · 0.02 + 12 · 0.00001 + 2.5 · 0.0005 + 4 · 0.0003 + 30 · 0.000002
    # + 500 · 0.0000001 + 2 · 0.00009 + 1.5 · 0.00003
    parts = (0.09, 0.00012, 0.00125, 0.0012, 0.00006, 0.00005, 0.00018, 0.000045)
    expected = sum(Decimal(str(part)) for part in parts)
    found = price(ALL, "render.frame", beats_milli=4_500, used=USED)
    assert found.nano == int(expected * 10**9) == 92_905_000
    assert (found.unmeasured, found.unpriced) == ((), ())


@pytest.mark.parametrize(
    "kind, role",
    [
        ("render", "render"),
        ("render.frame", "render"),
        ("render.final", "render.final"),
        ("render.final.4k", "render.final"),
        ("renderer", "default"),
        ("other", "default"),
    ],
)
def test_a_jobs_role_is_the_longest_prefix_of_its_kind(kind, role):
    assert ALL.role_of(kind) == role


def test_what_has_a_rate_and_was_not_measured_is_named():
    found = price(ALL, "other", beats_milli=0, used=Resources(cpu_ms=0))
    assert found.nano == 0
    assert found.unmeasured == ("mem_gbs", "disk_io_mb", "net_egress_mb", "storage_gbh")


def test_a_device_that_nobody_reported_was_not_used_and_one_without_a_rate_is_named():
    used = Resources(reported=Reported(gpu_ms={"mi300": 1_000}))
    found = price(Rates(currency="EUR", gpu_sec={"a100": tco("1")}), "x", beats_milli=0, used=used)
    assert (found.nano, found.unmeasured, found.unpriced) == (0, (), ("gpu_sec[mi300]",))


def test_ecu_is_never_billed():
    without = Rates(
        **{name: getattr(ALL, name) for name in Rates.__struct_fields__ if name != "ecu"}
    )
    billed = [price(one, "x", beats_milli=1_000, used=USED) for one in (ALL, without)]
    assert billed[0] == billed[1]


def test_without_rates_there_are_beats_and_no_amount():
    assert cost_of(POLICY, None, "x", beats_milli=1_500, used=USED) == Cost(
        beats_milli=1_500, policy=POLICY
    )


# --- laws ----------------------------------------------------------------------------------------

counts = st.integers(0, 10**9)
used = st.builds(
    Resources,
    cpu_ms=counts,
    mem_kbs=counts,
    disk_io_bytes=counts,
    net_egress_bytes=counts,
    storage_kbh=counts,
    reported=st.builds(Reported, gpu_ms=st.dictionaries(st.sampled_from(["a100", "h100"]), counts)),
)


@given(used, counts)
def test_it_is_the_exact_sum_rounded_once(one, beats_milli):
    gpu = one.reported.gpu_ms
    exact = (
        Fraction(beats_milli, 1000) * Fraction("0.01")
        + Fraction(one.cpu_ms, 1000) * Fraction("0.00001")
        + sum(
            Fraction(gpu.get(name, 0), 1000) * Fraction(ALL.gpu_sec[name].rate)
            for name in ("a100", "h100")
        )
        + Fraction(one.mem_kbs, 10**6) * Fraction("0.000002")
        + Fraction(one.disk_io_bytes, 10**6) * Fraction("0.0000001")
        + Fraction(one.net_egress_bytes, 10**6) * Fraction("0.00009")
        + Fraction(one.storage_kbh, 10**6) * Fraction("0.00003")
    )
    assert price(ALL, "x", beats_milli=beats_milli, used=one).nano == round(exact * 10**9)


@given(used, used, counts)
def test_using_more_never_costs_less(one, other, beats_milli):
    cost = price(ALL, "x", beats_milli=beats_milli, used=one).nano
    more = Resources(
        cpu_ms=one.cpu_ms + other.cpu_ms,
        mem_kbs=one.mem_kbs,
        disk_io_bytes=one.disk_io_bytes,
        net_egress_bytes=one.net_egress_bytes + other.net_egress_bytes,
        storage_kbh=one.storage_kbh,
        reported=one.reported,
    )
    assert price(ALL, "x", beats_milli=beats_milli + 1, used=more).nano >= cost


@example(5, 10)
@example(15, 10)
@example(25, 10)
@given(st.integers(0, 10**30), st.integers(1, 10**12))
def test_halves_are_rounded_to_even(value, unit):
    assert rounded(value, unit) == round(Fraction(value, unit))


@given(st.integers(0, 999_999_999), st.integers(0, 10**12 - 1))
def test_a_price_is_read_exactly(whole, rest):
    text = f"{whole}.{rest:012}".rstrip("0").rstrip(".")
    assert pico(text) == whole * 10**12 + rest


def test_an_amount_that_no_record_can_hold_is_the_largest_that_it_can():
    dear = Rates(currency="EUR", cpu_sec=tco("999999999"))
    found = price(dear, "x", beats_milli=0, used=Resources(cpu_ms=10**12))
    assert found.nano == 2**53 - 1


# --- several runs --------------------------------------------------------------------------------


def cost(nano: int | None = None, currency: str | None = "EUR", **fields) -> Cost:
    given = {"currency": currency, "amount_nano": nano} if nano is not None else {}
    return Cost(beats_milli=1_000, policy=POLICY, **given, **fields)


def test_the_runs_of_a_job_add_up():
    spent = Spent().plus(cost(5)).plus(cost(7))
    assert spent == Spent(beats_milli=2_000, currency="EUR", amount_nano=12)


@pytest.mark.parametrize(
    "runs",
    [
        [cost(5, unmeasured=("cpu_sec",)), cost(7)],
        [cost(5), cost(7, unpriced=("gpu_sec[x]",))],
        [cost(), cost(12)],
        [cost(12), cost()],
        [cost(5, currency="USD"), cost(12)],
    ],
)
def test_an_amount_in_which_something_is_missing_says_so(runs):
    spent = Spent()
    for run in runs:
        spent = spent.plus(run)
    assert spent == Spent(beats_milli=2_000, currency="EUR", amount_nano=12, is_partial=True)


def test_a_run_of_which_nothing_is_known_changes_nothing():
    assert Spent().plus(None) == Spent()
    assert Spent().plus(cost()) == Spent(beats_milli=1_000)


def test_the_largest_costs_add_up_to_what_a_replica_can_store():
    """Anybody that may run a job says what that cost, as often as it has tenures."""
    largest = Cost(beats_milli=MAX_INTEGER, policy=POLICY, currency="EUR", amount_nano=MAX_INTEGER)
    spent = Spent()
    for _ in range(2_049):
        spent = spent.plus(largest)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(spent), type=Spent) == spent
    assert (spent.beats_milli, spent.amount_nano) == (MAX_INTEGER, MAX_INTEGER)
    assert spent.is_partial, "at least that much"
    assert Spent().plus(largest).is_partial is False


@pytest.mark.req("B21")
def test_effective_compute_is_for_estimates_and_costs_nothing():
    said = Reported(gpu_ms={"a100": 2_500}, accel_ms={"tpu": 4_000})
    assert effective_ms(ALL, said) == 2_500 * 8 + 4_000 * 4
    found = {one.device: one for one in on_devices(ALL, 36_000)}
    assert {name: one.device_ms for name, one in found.items()} == {
        "a100": 4_500,
        "tpu": 9_000,
        "cheap": 36_000,
    }
    assert (found["a100"].amount_nano, found["tpu"].amount_nano) == (2_250_000, 2_700_000)
    assert found["cheap"].amount_nano is None
    assert list(found) == ["a100", "tpu", "cheap"]
    assert effective_ms(ALL, Reported(gpu_ms={"h100": 1})) is None
