"""What work costs beside other work: the measure of speed that no machine changes.

A limit in seconds says as much about the machine as about the code. Two pieces of work that take
turns on one machine meet the same neighbours and the same clock rate, and the best of several
rounds met the fewest of them: their ratio is the code's alone.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 5


def times_the_cost(
    work: Callable[[], Any], of: Callable[[], Any], *, rounds: int = ROUNDS
) -> float:
    """How many times the CPU time of `of` that of `work` is; the best of each, taken in turns."""
    best = {work: float("inf"), of: float("inf")}
    collects = gc.isenabled()
    gc.disable()  # it comes when others have made enough objects
    try:
        for _ in range(rounds):
            for one in (of, work):
                began = time.thread_time()
                one()
                best[one] = min(best[one], time.thread_time() - began)
    finally:
        if collects:
            gc.enable()
    return best[work] / max(best[of], 1e-9)
