"""Usage in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.cost.usage import Reported, Resources
from antiphon.core.cost.words import decimal_text, unmeasured_words, usage_words

pytestmark = pytest.mark.req("B21")


def test_what_was_measured_comes_before_what_was_reported():
    used = Resources(cpu_ms=1_500, net_egress_bytes=0, reported=Reported(gpu_ms={"a100": 2_500}))
    assert usage_words(used) == ("1.5 s of CPU, 0 MB sent; the handler reported 2.5 s of GPU a100")
    assert unmeasured_words(used) == "memory, disk I/O"


def test_where_nothing_is_known_nothing_is_said():
    assert usage_words(Resources()) == ""
    assert unmeasured_words(Resources()) == "CPU, memory, disk I/O, network"


@given(st.integers(-(10**15), 10**15), st.integers(0, 9))
def test_decimals_are_exact(value, places):
    text = decimal_text(abs(value), places)
    whole, _, rest = text.partition(".")
    assert int(whole) * 10**places + int(f"{rest:<0{places}}" or 0) == abs(value)
    assert not rest.endswith("0")
