"""How much of a machine is in use."""

import sys

import pytest

from antiphon.runtime.tempo.machine_use import MachineUse, read_stat


class Kernel:
    def __init__(self) -> None:
        self.ticks = [0] * 10
        self.now_s = 0.0
        self.looks = 0

    def line(self) -> str:
        self.looks += 1
        return f"cpu  {' '.join(map(str, self.ticks))}\n"

    def passes(self, *, user: int = 0, idle: int = 0, disk: int = 0, guest: int = 0) -> None:
        self.now_s += 2
        for place, ticks in ((0, user), (3, idle), (4, disk), (8, guest)):
            self.ticks[place] += ticks


@pytest.mark.req("B16")
def test_it_is_the_part_of_the_time_that_was_used_since_the_last_time():
    kernel = Kernel()
    use = MachineUse(kernel.line, lambda: kernel.now_s)
    assert use.cpu() is None
    kernel.passes(user=30, idle=60, disk=10, guest=30)
    assert use.cpu() == 0.3
    kernel.passes(user=50)
    assert use.cpu() == 1.0
    kernel.passes(idle=50)
    assert use.cpu() == 0.0


def test_asked_often_it_looks_once_a_second():
    kernel = Kernel()
    use = MachineUse(kernel.line, lambda: kernel.now_s)
    use.cpu()
    kernel.passes(user=1, idle=1)
    assert [use.cpu() for _ in range(100)] == [0.5] * 100
    assert kernel.looks == 2


@pytest.mark.parametrize("line", ["", "cpu0 1 2 3\n", "cpu  a b c\n", "\n"])
def test_where_nothing_is_told_nothing_is_known(line):
    now = iter(range(0, 100, 5))
    use = MachineUse(lambda: line, lambda: float(next(now)))
    assert [use.cpu() for _ in range(3)] == [None] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels tell it elsewhere")
def test_this_machine_tells_it():
    assert read_stat().startswith("cpu ")
