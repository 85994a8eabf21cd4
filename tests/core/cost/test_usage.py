"""The primitives: what they are called, in which units they are, and memory over time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.cost.memory_time import MemoryTime
from antiphon.core.cost.usage import Reported, Resources, primitives, storage_kbh

pytestmark = pytest.mark.req("B21")


def test_each_primitive_has_its_unit_in_millionths():
    used = Resources(
        cpu_ms=1_500,
        mem_kbs=2_000_000,
        disk_io_bytes=3_000_000,
        net_egress_bytes=0,
        storage_kbh=7,
        reported=Reported(gpu_ms={"a100": 2_500}, accel_ms={"tpu-v5": 10}),
    )
    assert dict(primitives(used)) == {
        "cpu_sec": 1_500_000,
        "gpu_sec[a100]": 2_500_000,
        "accel_sec[tpu-v5]": 10_000,
        "mem_gbs": 2_000_000,
        "disk_io_mb": 3_000_000,
        "net_egress_mb": 0,
        "storage_gbh": 7,
    }


def test_what_was_not_measured_is_not_there_and_zero_is():
    assert dict(primitives(Resources())) == {}
    assert dict(primitives(Resources(net_egress_bytes=0))) == {"net_egress_mb": 0}


def test_storage_is_bytes_for_hours_and_never_rounded_down():
    assert storage_kbh(1_000_000_000, 3_600_000) == 1_000_000, "one GB for one hour"
    assert storage_kbh(1, 1) == 1
    assert storage_kbh(0, 3_600_000) == 0


# --- memory over time ----------------------------------------------------------------------------


def test_without_a_sample_nothing_is_known():
    assert MemoryTime(0.0).kbs(10.0) is None


def test_one_sample_stands_for_the_whole_run():
    memory = MemoryTime(0.0)
    memory.sample(1.0, 5_000)
    assert memory.kbs(4.0) == 20


def test_between_two_samples_their_mean_counts():
    memory = MemoryTime(0.0)
    for at, in_use in ((0.0, 0), (2.0, 4_000), (3.0, 4_000)):
        memory.sample(at, in_use)
    assert memory.kbs(5.0) == 4 + 4 + 8


@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 10**9)), min_size=1, max_size=20))
def test_it_lies_between_the_least_and_the_most_that_was_in_use(samples):
    memory, at = MemoryTime(0.0), 0
    for after, in_use in samples:
        at += after
        memory.sample(at, in_use)
    found = memory.kbs(at + 1)
    sizes = [in_use for _, in_use in samples]
    assert min(sizes) * (at + 1) // 1000 - 1 <= found <= max(sizes) * (at + 1) // 1000 + 1


def test_a_clock_that_seems_to_go_back_takes_nothing_away():
    memory = MemoryTime(10.0)
    memory.sample(12.0, 1_000)
    memory.sample(11.0, 1_000)
    assert memory.kbs(12.0) == 2
