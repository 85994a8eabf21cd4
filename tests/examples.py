"""How much a test tries: what CI has time for, all of it (soak), or what a person waits for (fast).

CI runs on machines that are slow and busy, for every change; `scripts/check soak` runs for as long
as it takes. Both run the same tests: a size differs, and only what has no small form is marked
`soak` and left out of CI. There, something smaller holds the same requirement.
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings

IS_FAST = os.environ.get("ANTIPHON_TESTS_FAST") == "1"
"""`scripts/check fast` says so."""
IS_SOAK = os.environ.get("ANTIPHON_TESTS_SOAK") == "1"
"""`scripts/check soak` says so."""
IS_LONG = os.environ.get("ANTIPHON_TESTS_LONG") == "1"
"""`scripts/check long` says so: what is marked `long`, and nothing else."""
FEWER_IN_CI = 3
FEWER = 10


def examples(count: int) -> int:
    """As many as were asked for, a third of them in CI, or a tenth of them."""
    if IS_SOAK:
        return count
    return max(count // (FEWER if IS_FAST else FEWER_IN_CI), 1)


def size(ci: Any, *, soak: Any) -> Any:
    """What CI has time for, or the whole."""
    return soak if IS_SOAK else ci


def draw_at_leisure() -> None:
    """No example is too slow: how long one takes says more about the machine than about us."""
    settings.register_profile(
        "antiphon",
        max_examples=examples(100),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("antiphon")
