"""What is written about a job that waited: who may read, which output, and what is too long."""

import pytest
from msgspec.structs import replace

from antiphon.core.derivations.offer_derivation import INLINE_EACH, Predecessor, derive
from antiphon.core.families.jobs.ops import Failure, Result
from antiphon.core.families.jobs.state import State
from antiphon.core.manifest import ResultInput, author
from antiphon.core.proof.output import Output
from antiphon.core.record.ids import digest
from tests.core.derivations.test_waiting_jobs import job, key

MANIFEST = author({"command": ["@x"], "args": ["{}"], "timeout": 1})


def output(text, name="result"):
    return Output(name=name, hash=digest(text.encode()), size=len(text), text=text)


def derived(*outputs, may_read=True, state=State.SUCCEEDED, wanted=None):
    before = replace(job(1, state=state), outcome=state.value)
    given = {} if wanted is None else {"output": wanted}
    read = ResultInput(of=key(1), name="/args/0", **given)
    return derive(
        job(2, after=[1]),
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


def test_an_offer_has_no_room_for_the_tracebacks_of_children():
    why = Failure(name="ValueError", message="no luck", traceback="File ...")
    ended = replace(job(1, state=State.FAILED), outcome="failed")
    continued = derive(
        replace(job(2, after=[1]), continuations=1, children=(key(1),)),
        MANIFEST,
        lambda _: ended,
        lambda found: Predecessor(found, (), why),
        lambda _node, _kind: True,
    )
    assert [one.error for one in continued.body.results] == [replace(why, traceback="")]
