"""What follows for a job with replicas, from the states of its children alone (spec §9)."""

import pytest
from msgspec.structs import replace

from antiphon.core.derivations.party_record import add
from antiphon.core.derivations.quorum_derivation import derive
from antiphon.core.families.jobs.state import Job, State
from tests.core.ledger import Ledger
from tests.core.quorums import Replicated


@pytest.fixture(scope="module")
def replicated():
    parent = Replicated(Ledger())
    parent.derive(0)
    return parent.job, parent.child(0).job


def children(pattern: Job, words: str) -> list[Job]:
    """`alice=42` succeeded so, `alice` runs, `-` nobody took, `failed`, `foreign` is no child."""
    made = []
    for index, word in enumerate(words.split()):
        who, _, result = word.partition("=")
        job = replace(pattern, id=f"{index:064x}", replica_index=index, claimer=who)
        if result:
            job = replace(job, state=State.SUCCEEDED, fingerprint=result, ended_seq=100 + index)
        elif word == "failed":
            job = replace(job, state=State.FAILED, claimer="x", ended_seq=100 + index)
        elif word == "foreign":
            job = replace(job, replica_of="")
        elif word != "-":
            job = replace(job, state=State.RUNNING)
        made.append(job)
    return made


@pytest.mark.parametrize(
    "words, submit, resolve, gives_up",
    [
        ("", [0, 1, 2], [], False),
        ("-", [1, 2], [], False),
        ("- - -", [], [], False),
        ("a=1 b -", [], [], False),
        ("a=1 b=1 c", [], [0, 1], False),
        ("a=1 b=2 c=1", [], [0, 2], False),
        ("a=1 b=2 c", [], [], False),
        ("a=1 a=1 b=1", [], [0, 2], False),
        ("a=1 b=2 c=3", [], [], True),
        ("a=1 failed failed", [], [], True),
        ("failed failed b", [], [], False),
        ("a=1 a=1 b=2", [3], [], False),
        ("a=1 a=1 a=1", [3, 4], [], False),
        ("a=1 foreign b=2", [3], [], False),
        ("a=1 a=1 b=2 c", [], [], False),
        ("a=1 a=1 b=2 c=2", [], [2, 3], False),
        ("a=1 a=1 b=2 a=1", [4], [], False),
        ("a=1 a=1 a=1 a=1 a=1", [5], [], False),
        ("a=1 a=1 a=1 a=1 a=1 a=1", [], [], True),
        ("=1 =1 =1", [3, 4, 5], [], False),
    ],
)
def test_what_follows(replicated, words, submit, resolve, gives_up):
    parent, pattern = replicated
    step = derive(parent, children(pattern, words), lambda job: job.claimer)
    assert [*step.submit] == submit
    assert [job.replica_index for job in step.resolve] == resolve
    assert bool(step.give_up) == gives_up


def test_a_hopeless_case_is_given_up_with_who_said_what(replicated):
    parent, pattern = replicated
    step = derive(parent, children(pattern, "a=1 b=2 failed"), lambda job: job.claimer)
    assert step.give_up.startswith("quorum: 1 of the 2 needed agree; ")
    assert step.give_up.endswith("1 ended without a result")


@pytest.mark.parametrize("state, dropped", [(State.SUCCEEDED, [2, 3]), (State.ABORTED, [1, 2, 3])])
def test_what_is_left_of_an_ended_job_is_dropped(replicated, state, dropped):
    parent, pattern = replicated
    step = derive(
        replace(parent, state=state), children(pattern, "a=1 b - -"), lambda job: job.claimer
    )
    assert [job.replica_index for job in step.drop] == dropped
    assert (step.submit, step.resolve, step.give_up) == ((), (), "")


def test_the_record_says_who_was_outvoted_and_by_whom(replicated):
    parent, pattern = replicated
    ran = children(pattern, "a=1 b=2 c=1 failed d")
    records = {}
    decided = replace(parent, state=State.SUCCEEDED, fingerprint="1")
    add(records, decided, ran, lambda job: job.claimer)
    add(records, replace(parent, state=State.ABORTED), ran, lambda job: job.claimer)
    assert [(one.party, one.done, one.agreed, one.undecided) for one in records.values()] == [
        ("a", 2, 1, 1),
        ("b", 2, 0, 1),
        ("c", 2, 1, 1),
        ("x", 0, 0, 0),
    ]
    assert records["b"].against == {"a": 1, "c": 1}
    assert records["b"].jobs == [(parent.kind, parent.id)]
    assert (records["x"].failed, records["a"].disagreed) == (2, 0)
