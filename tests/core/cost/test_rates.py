"""Rates as people write them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.cost.rates import Rate, pico, price_text, read_rates
from antiphon.core.record import codec
from antiphon.core.tempo.policy import TempoPolicy, policy_hash, read_policy
from antiphon.errors import Malformed
from antiphon.sdk.manifests.strict_yaml import read_yaml

pytestmark = pytest.mark.req("B21")

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "rates.yaml"


def test_the_example_can_be_read_and_goes_onto_the_log_as_it_is():
    rates = read_rates(read_yaml(EXAMPLE.read_text()).value)
    assert {name for name, _ in rates.priced()} > {"cpu_sec", "gpu_sec[a100]", "storage_gbh"}
    codec.check_profile(codec.parse_json(codec.encode(rates)))
    policy = TempoPolicy(rates=rates)
    assert policy_hash(policy) != policy_hash(TempoPolicy()), "who has other rates notices"


def test_numbers_stand_for_the_digits_that_were_typed():
    rates = read_rates(
        {
            "rates": {
                "currency": "EUR",
                "role_rate_bu": {"default": 0.010},
                "cpu_sec": {"rate": 1.25e-05, "source": "tco", "note": "hall 3, 2027"},
                "gpu_sec": {"a100": {"rate": "0.00050", "source": "list"}},
            }
        }
    )
    assert rates.role_rate_bu == {"default": "0.01"}
    assert rates.cpu_sec == Rate(rate="0.0000125", source="tco", note="hall 3, 2027")
    assert rates.gpu_sec["a100"].rate == "0.0005"


@given(st.integers(0, 10**15 - 1))
def test_a_number_and_its_text_are_the_same_price(micro):
    text = f"{micro // 10**6}.{micro % 10**6:06}"
    assert price_text(text, "x") == price_text(float(text), "x")
    assert pico(price_text(text, "x")) == micro * 10**6


@pytest.mark.parametrize("given_", [-1, "1e-3", 1e-13, float("nan"), float("inf"), True, "", 1e10])
def test_what_is_not_a_price_is_refused_with_where_it_stands(given_):
    fields = {"currency": "EUR", "cpu_sec": {"rate": given_, "source": "tco"}}
    with pytest.raises(Malformed, match=r"cpu_sec: .* is not a price"):
        read_rates(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"currency": "euro"},
        {"currency": "EUR", "cpu_sec": 0.1},
        {"currency": "EUR", "cpu_sec": {"rate": 0.1}},
        {"currency": "EUR", "cpu_sec": {"rate": 0.1, "source": "guess"}},
        {"currency": "EUR", "gpu_sec": {"A 100": {"rate": 0.1, "source": "tco"}}},
        {"currency": "EUR", "tokens": {"rate": 0.1, "source": "list"}},
    ],
)
def test_a_rate_without_its_source_is_refused_and_so_is_what_nobody_knows(fields):
    with pytest.raises(Malformed, match="not valid"):
        read_rates(fields)


def test_a_policy_file_may_have_its_rates_in_it():
    policy = read_policy(
        {"initial_bpm": 12, "rates": {"currency": "EUR", "role_rate_bu": {"default": 0.5}}}
    )
    assert policy.rates.role_rate_bu == {"default": "0.5"}
    assert read_policy({"initial_bpm": 12}).rates is None
