"""What is written about a job that waited: who may read, which output, and what is too long."""

import pytest
from msgspec.structs import replace

from antiphon.core.derivations.offer_derivation import (
    ERROR_EACH,
    INLINE_EACH,
    Predecessor,
    Waiter,
    derive,
)
from antiphon.core.families.jobs.ops import MAX_AFTER, Failure, Result
from antiphon.core.families.jobs.state import State
from antiphon.core.manifest import ResultInput, author
from antiphon.core.proof.output import Output, Stored
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from tests.core.derivations.test_waiting_jobs import job, key

MANIFEST = author({"command": ["@x"], "args": ["{}"], "timeout": 1})


def output(text, name="result"):
    return Output(name=name, text=text)


def derived(*outputs, may_read=True, state=State.SUCCEEDED, wanted=None):
    before = replace(job(1, state=state), outcome=state.value)
    given = {} if wanted is None else {"output": wanted}
    read = ResultInput(of=key(1), name="/args/0", **given)
    return derive(
        Waiter(job(2, after=[1])),
        replace(MANIFEST, inputs=(read,)),
        lambda _: before,
        lambda found: Predecessor(found, outputs),
        lambda _node, kind: may_read and kind == before.kind,
    )


def test_a_result_goes_only_to_jobs_whose_submitter_may_read_its_kind():
    assert derived(output("1")).body.results == (Result(text="1"),)
    refused = derived(output("1"), may_read=False).body
    assert refused.reason == "predecessor: its submitter may not read jobs of kind test.work"


def test_nothing_follows_while_a_predecessor_runs():
    assert derived(output("1"), state=State.RUNNING) is None


@pytest.mark.parametrize("wanted", ["log", None])
def test_an_output_that_is_not_there_cancels_the_job(wanted):
    name = wanted or "result"
    reason = derived(output("1", "other"), wanted=wanted).body.reason
    assert reason.endswith(f"succeeded without an output named {name!r}")


def test_what_is_too_long_for_an_offer_is_stored_beside_the_log():
    long = "x" * (INLINE_EACH + 1)
    found = derived(output(long))
    assert found.body.results == (Result(hash=digest(long.encode()), size=len(long)),)
    assert found.to_store == ((key(1), "result"),), "named, and not held: there may be many"


# --- for whom another job is read ---------------------------------------------------------------


@pytest.mark.parametrize("state", [None, State.RUNNING, State.SUCCEEDED, State.FAILED])
def test_who_may_not_read_a_job_learns_nothing_about_it(state):
    before = None if state is None else replace(job(1, state=state), outcome=state.value)
    found = derive(
        Waiter(job(2, after=[1])),
        MANIFEST,
        lambda _: before,
        lambda _: pytest.fail("its end was read"),
        lambda _node, _kind: False,
    )
    assert found.body.reason == "predecessor: its submitter may not read jobs of kind test.work"


def continued(ends, *, yielded_by="w", may_read=lambda _node, _kind: True):
    """What follows for a job that was given back until its children have ended."""
    jobs = {
        key(at): replace(job(at, state=one[0]), outcome=one[0].value) for at, one in ends.items()
    }
    keys = tuple(jobs)
    by_id = {key(at)[1]: one for at, one in ends.items()}

    def look(found):
        _, outputs, error = by_id[found.id]
        return Predecessor(found, outputs, error)

    waiting = replace(job(10**6), continuations=1, children=keys)
    return derive(Waiter(waiting, yielded_by), MANIFEST, jobs.get, look, may_read)


@pytest.mark.parametrize("lacking", ["submitter", "worker"])
def test_children_are_read_for_the_submitter_and_for_the_worker_that_waits(lacking):
    who = job(10**6).scheduler if lacking == "submitter" else "w"
    ends = {1: (State.SUCCEEDED, (output("1"),), None)}
    assert continued(ends).body.results == (Result(text="1"),)
    refused = continued(ends, may_read=lambda node, _kind: node != who).body
    assert refused.reason == f"predecessor: its {lacking} may not read jobs of kind test.work"


# --- what fits into an offer --------------------------------------------------------------------


def test_an_offer_has_no_room_for_the_tracebacks_of_children():
    why = Failure(name="ValueError", message="no luck", traceback="File ...")
    found = continued({1: (State.FAILED, (), why)})
    assert [one.error for one in found.body.results] == [replace(why, traceback="")]


def test_a_long_error_of_a_child_is_cut():
    found = continued({1: (State.FAILED, (), Failure(name="E", message="x" * 4096))})
    (error,) = [one.error for one in found.body.results]
    assert error.message.startswith("xxx")
    assert error.message.endswith("…")
    assert ERROR_EACH - 10 < len(codec.encode(error.message)) <= ERROR_EACH


@pytest.mark.parametrize("letter", ["x", "\x01", "\U0001f642", '"'])
@pytest.mark.parametrize("sort", ["failed", "text", "stored", "mixed"])
def test_an_offer_fits_into_a_record_whatever_its_children_wrote(sort, letter):
    failed = (State.FAILED, (), Failure(name=letter * 255, message=letter * 4096))
    text = letter * (INLINE_EACH - 1)
    told = (State.SUCCEEDED, (Output(name="result", text=text),), None)
    kept = (
        State.SUCCEEDED,
        (Output(name="result", stored=Stored(hash=digest(b""), size=2**53 - 1)),),
        None,
    )
    each = {"failed": [failed], "text": [told], "stored": [kept], "mixed": [failed, told, kept]}[
        sort
    ]
    found = continued({at: each[at % len(each)] for at in range(1, MAX_AFTER + 1)})
    assert len(found.body.results) == MAX_AFTER
    assert len(codec.encode(found.body)) < codec.MAX_OP_BYTES - 8 * 1024
    assert all(one.has_value or one.error.name for one in found.body.results)
