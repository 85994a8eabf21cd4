"""How many examples Hypothesis draws: all of them, or a few where a person waits for the answer."""

import os

from hypothesis import HealthCheck, settings

IS_FAST = os.environ.get("ANTIPHON_TESTS_FAST") == "1"
"""`scripts/check fast` says so."""
FEWER = 10


def examples(count: int) -> int:
    """As many as were asked for, or a tenth of them."""
    return max(count // FEWER, 1) if IS_FAST else count


def draw_at_leisure() -> None:
    """No example is too slow: how long one takes says more about the machine than about us."""
    settings.register_profile(
        "antiphon",
        max_examples=examples(100),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("antiphon")
