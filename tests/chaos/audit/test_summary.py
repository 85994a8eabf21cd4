"""A run that left anything behind does not pass."""

import pytest

from chaos.audit.summary import holds

FINE = {
    "jobs": 9,
    "succeeded": 9,
    "lost": 0,
    "accepted_twice": 0,
    "unwitnessed": 0,
    "same_fence": 0,
    "broken_laws": 0,
    "crashed": 0,
}


@pytest.mark.parametrize("name", [name for name in FINE if name != "jobs"])
def test_a_run_that_left_anything_behind_does_not_pass(name):
    assert holds(FINE)
    assert not holds({**FINE, name: FINE[name] + 1})
