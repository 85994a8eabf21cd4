"""Usage in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.cost.job_cost import Cost, Spent
from antiphon.core.cost.usage import Reported, Resources
from antiphon.core.cost.words import (
    cost_words,
    decimal_text,
    spent_words,
    unmeasured_words,
    usage_words,
)

pytestmark = pytest.mark.req("B21")


def test_what_was_measured_comes_before_what_was_reported():
    used = Resources(cpu_ms=1_500, net_egress_bytes=0, reported=Reported(gpu_ms={"a100": 2_500}))
    assert usage_words(used) == ("1.5 s of CPU, 0 MB sent; the handler reported 2.5 s of GPU a100")
    assert unmeasured_words(used) == "memory, disk I/O"


def test_where_nothing_is_known_nothing_is_said():
    assert usage_words(Resources()) == ""
    assert unmeasured_words(Resources()) == "CPU, memory, disk I/O, network"


def test_storage_is_left_out_where_nothing_is_stored():
    assert usage_words(Resources(cpu_ms=1, storage_kbh=0)) == "0.001 s of CPU"
    assert usage_words(Resources(storage_kbh=2_000_000)) == "2 GB·h of storage"


def test_a_cost_says_what_is_missing_in_it():
    policy = "sha256:" + "0" * 64
    assert cost_words(Cost(beats_milli=1_000, policy=policy)) == "1 beat"
    cost = Cost(
        beats_milli=2_500,
        policy=policy,
        currency="EUR",
        amount_nano=12_500_000,
        unmeasured=("cpu_sec", "mem_gbs"),
        unpriced=("gpu_sec[x]",),
    )
    assert cost_words(cost) == (
        "2.5 beats, 0.0125 EUR; without cpu_sec, mem_gbs (not measured); without gpu_sec[x]"
        " (no rate)"
    )
    assert spent_words(Spent().plus(cost)) == "2.5 beats, at least 0.0125 EUR"


@given(st.integers(-(10**15), 10**15), st.integers(0, 9))
def test_decimals_are_exact(value, places):
    text = decimal_text(abs(value), places)
    whole, _, rest = text.partition(".")
    assert int(whole) * 10**places + int(f"{rest:<0{places}}" or 0) == abs(value)
    assert not rest.endswith("0")
