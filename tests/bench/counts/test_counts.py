"""What a job costs does not rise unnoticed: counts against the baseline of `bench counts`.

A test fails here after a change that makes a job more expensive: find out whether it has to. If it
has to, or if it became cheaper, record it: `python -m bench counts --write`.
"""

import functools
import sys

import pytest

from antiphon.core.record import signing
from antiphon.runtime.log import author, session
from bench.counts.command import above, read_baseline
from bench.counts.measure import count, cpu_ratios

HINT = "see the docstring of this module; .venv/bin/python -m bench counts --write records it"

TRIES = 5
"""Of processor time: what else the machine does takes from its caches now and then, a change that
makes a job more expensive takes every time."""


@pytest.fixture(autouse=True)
def nobody_traces(monkeypatch):
    """Another test of this process may have loaded OpenTelemetry, which every job then asks."""
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)


@pytest.fixture(autouse=True)
def counted_before(nobody_traces):
    """Whichever test is the first: nothing is planted yet."""
    counted()


@functools.cache
def counted():
    return count()


def test_a_job_costs_no_more_calls_signatures_requests_and_bytes_than_recorded():
    assert not above(counted(), read_baseline()), HINT


def test_the_same_code_counts_the_same():
    assert count() == pytest.approx(counted(), rel=0.005)


@pytest.mark.slow
def test_a_job_takes_no_more_processor_time_than_recorded():
    for _ in range(TRIES):
        over = above(cpu_ratios(rounds=2), read_baseline())
        if not over:
            return
    pytest.fail(f"{over}: {HINT}")


def test_a_signature_for_each_record_is_noticed(monkeypatch):
    monkeypatch.setattr(author, "SIGNED_TOGETHER", 1)
    over = above(count(), counted())
    assert {"caller.signed", "worker.signed", "worker.verified"} <= set(over)


def test_signatures_that_are_verified_again_are_noticed(monkeypatch):
    forgetful = signing._is_root_signed.__wrapped__
    monkeypatch.setattr(signing, "_is_root_signed", forgetful)
    assert "worker.verified" in above(count(), counted())


def test_records_that_are_decoded_twice_are_noticed(monkeypatch):
    known = session.Session.open

    def open_twice(self, record):
        session.open_stored(self.protocol, self.mesh, record)
        return known(self, record)

    monkeypatch.setattr(session.Session, "open", open_twice)
    assert "worker.calls" in above(count(), counted())
