"""What jobs cost together, by kind, by node and by account."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.cost.job_cost import Spent
from antiphon.core.derivations.cost_sums import CostSums
from antiphon.core.families.jobs.state import Job, State

pytestmark = pytest.mark.req("B21", "B22")


def cost_sums(jobs, by):
    sums = CostSums(by)
    for one in jobs:
        sums.add(one)
    return sums.lines, sums.total


def job(kind: str = "a", *, ok: bool = True, **fields) -> Job:
    return Job(
        kind=kind,
        id="0" * 64,
        state=State.SUCCEEDED if ok else State.FAILED,
        scheduler=fields.pop("scheduler", "did:me"),
        scheduled_seq=1,
        scheduled_ms=1,
        hlc=(1, 0),
        hlc_author="did:me",
        priority="normal",
        start_by_ms=1,
        start_window_ms=1,
        attempts_max=1,
        lease_ms=1,
        lease_ms_max=1,
        claimer=fields.pop("claimer", "did:w"),
        **fields,
    )


def euros(nano: int, *, partial: bool = False) -> Spent:
    return Spent(beats_milli=1_000, currency="EUR", amount_nano=nano, is_partial=partial)


def test_the_most_expensive_comes_first_and_results_have_a_price():
    jobs = [
        job("a", spent=(("did:w", euros(100)),)),
        job("b", spent=(("did:w", euros(300)),)),
        job("b", spent=(("did:w", euros(201)),), ok=False),
    ]
    lines, total = cost_sums(jobs, "kind")
    assert [(line.name, line.jobs, line.amounts["EUR"]) for line in lines] == [
        ("b", 2, 501),
        ("a", 1, 100),
    ]
    assert lines[0].per_result("EUR") == 501, "one succeeded, and it has to pay for both"
    assert (total.jobs, total.amounts["EUR"], total.beats_milli) == (3, 601, 3_000)
    assert total.per_result("EUR") == 301, "300.5, rounded"


def test_without_a_result_there_is_no_price_of_one():
    lines, _ = cost_sums([job(spent=(("did:w", euros(100)),), ok=False)], "kind")
    assert lines[0].per_result("EUR") is None


def test_a_job_that_several_nodes_ran_is_shared_among_them():
    shared = job(spent=(("did:one", euros(100)), ("did:two", euros(40))), claimer="did:two")
    lines, total = cost_sums([shared], "node")
    assert {line.name: line.amounts["EUR"] for line in lines} == {"did:one": 100, "did:two": 40}
    assert (total.jobs, total.amounts["EUR"]) == (1, 140)


def test_an_account_is_what_the_budget_says_or_the_submitter():
    jobs = [
        job(charge_to="team-a", spent=(("did:w", euros(5)),)),
        job(scheduler="did:other", spent=(("did:w", euros(7)),)),
    ]
    lines, _ = cost_sums(jobs, "account")
    assert {line.name: line.amounts["EUR"] for line in lines} == {"team-a": 5, "did:other": 7}


def test_what_is_not_known_is_counted_and_not_taken_for_zero():
    jobs = [
        job(),
        job(spent=(("did:w", Spent(beats_milli=500)),)),
        job(spent=(("did:w", euros(9, partial=True)),)),
        job(claimer="", ok=False),
    ]
    lines, total = cost_sums(jobs, "kind")
    assert (total.jobs, total.without, total.partial) == (4, 2, 1), "the last one never ran"
    assert total.amounts == {"EUR": 9}
    assert total.beats_milli == 1_500
    assert lines == [lines[0]]


def test_currencies_are_kept_apart():
    dollars = Spent(beats_milli=1, currency="USD", amount_nano=3)
    jobs = [job(spent=(("did:w", euros(5)),)), job(spent=(("did:w", dollars),))]
    _, total = cost_sums(jobs, "kind")
    assert total.amounts == {"EUR": 5, "USD": 3}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b.c", "d"]),
            st.lists(
                st.tuples(st.sampled_from(["did:1", "did:2"]), st.integers(0, 10**12)),
                max_size=2,
                unique_by=lambda part: part[0],
            ),
            st.sampled_from(["", "x", "y"]),
        )
    ),
    st.sampled_from(["kind", "node", "account"]),
)
def test_however_it_is_divided_the_parts_are_the_whole(drawn, by):
    jobs = [
        job(kind, spent=tuple((node, euros(nano)) for node, nano in parts), charge_to=account)
        for kind, parts, account in drawn
    ]
    lines, total = cost_sums(jobs, by)
    exact = sum(nano for _, parts, _ in drawn for _, nano in parts)
    assert total.amounts["EUR"] == sum(line.amounts["EUR"] for line in lines) == exact
    assert total.beats_milli == sum(line.beats_milli for line in lines)
