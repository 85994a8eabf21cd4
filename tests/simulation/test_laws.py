"""Every law can fail: each is shown a history that breaks it, and only it."""

from pathlib import Path

import pytest

from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from simulator.checks import laws
from simulator.checks.authority_model import AuthorityModel
from simulator.checks.law_state import Call, Committed, LaneFacts, LawState
from tests.simulation.histories import AT_MS, JOB, KIND, LEASE_MS, SUBJECT, History

PART = {"as": "part"}


def called():
    history = History()
    history.add("schedule", 0, by="s")
    return history


def held(by="w"):
    history = called()
    fence = history.add("claim", 10, by=by, lease_ms=LEASE_MS)
    return history, fence


def test_a_good_history_breaks_nothing():
    history, fence = held()
    history.add("claim", 3_000, lease_ms=LEASE_MS, fence=fence)
    history.add("expire", 3_000 + LEASE_MS + 1, by="full", fence=fence)
    history.add("claim", 14_000, by="other", lease_ms=LEASE_MS)
    history.add(
        "yield", 15_000, by="other", fence="?", reason="error", retry_after_ms=100, ok=False
    )
    second = history.ledger.lane((KIND, JOB)).held.fence
    history.add("complete", 16_000, by="other", fence=second, status="succeeded")
    assert not history.broken


def resolved(*children, by="c", result="1", **ends):
    """A job with three replicas that ended with these results, by these workers."""
    history = History()
    history.ledger.authority_model.coordinator = "c"
    history.add("schedule", 0, by="s", replicas=3, quorum=2)
    named = []
    for index, (worker, said) in enumerate(children, start=1):
        child, at = f"{index:064x}", 100 * index
        replica = {"of": JOB, "index": index}
        history.add("schedule", at, by="c", job=child, replica=replica, deps=[[1, ""]])
        fence = history.add("claim", at + 1, by=worker, job=child, lease_ms=LEASE_MS)
        outputs = [{"name": "result", "text": said}]
        status = "succeeded" if said else "failed"
        history.add(
            "complete", at + 2, by=worker, job=child, fence=fence, status=status, outputs=outputs
        )
        named.append([child, history.seq])
    outputs = [{"name": "result", "text": result}]
    history.add("resolve", 900, by=by, children=named, outputs=outputs, **ends)
    return history


def test_two_that_agree_resolve_a_job():
    history = resolved(("w", "1"), ("v", "1"))
    assert not history.broken
    assert history.ledger.lane((KIND, JOB)).results == 1


@pytest.mark.parametrize(
    "children, how",
    [
        ([("w", "1")], {}),
        ([("w", "1"), ("w", "1")], {}),
        ([("w", "1"), ("v", "2")], {}),
        ([("w", "1"), ("v", "1")], {"result": "2"}),
        ([("w", "1"), ("v", "")], {}),
        ([("w", "1"), ("v", "1")], {"by": "w"}),
        ([], {}),
    ],
)
def test_a_resolve_that_too_few_agree_on(children, how):
    assert resolved(*children, **how).laws_broken == {"agreed"}


def test_a_resolve_by_replicas_of_another_job():
    history = resolved(("w", "1"), ("v", "1"), ok=False)
    other = "c" * 64
    history.add("schedule", 901, by="s", job=other, replicas=3, quorum=2)
    named = [[f"{index:064x}", 0] for index in (1, 2)]
    outputs = [{"name": "result", "text": "1"}]
    history.add("resolve", 910, by="c", job=other, children=named, outputs=outputs)
    assert history.laws_broken == {"agreed"}


def test_an_offer_of_a_job_that_replicas_are_run_for():
    history = resolved(ok=False)
    history.add("offer", 910, by="c")
    assert history.laws_broken == {"not_before_its_time"}


def test_a_second_result():
    history, fence = held()
    history.add("complete", 20, fence=fence, status="succeeded")
    history.add("complete", 30, fence=fence, status="succeeded")
    assert history.laws_broken == {"one_result", "final"}


def test_only_an_eviction_comes_after_the_end_and_none_before():
    history, fence = held()
    history.add("complete", 20, fence=fence, status="succeeded")
    history.add("evict", 30, by="s", hash="blake3:" + "0" * 64)
    assert not history.broken
    history, _ = held()
    history.add("evict", 30, by="s", hash="blake3:" + "0" * 64)
    assert history.laws_broken == {"final"}


def stored(history, at_ms, fence, by="w", **fields):
    body = {"as": "step", "name": "one", "n": 0, "value": "1"} | fields
    body = {name: value for name, value in body.items() if value is not None}
    history.add("artifact", at_ms, by=by, fence=fence, **body)
    return history.laws_broken


def test_what_a_run_stores_is_its_holders_and_the_next_of_its_sort():
    history, fence = held()
    assert not stored(history, 20, fence)
    assert not stored(history, 30, fence, n=1)
    assert not stored(history, 40, fence, **{"as": "part"})
    for change in ({"n": 3}, {"n": 0}, {"by": "thief", "n": 2}, {"fence": "0" * 16, "n": 2}):
        other, fence = held()
        for number in range(2):
            assert not stored(other, 20 + number, fence, n=number)
        assert stored(other, 50, **{"fence": fence, **change}) == {"stored_by_holder"}
    for content in ({"value": None}, {"digest": "blake3:" + "0" * 64}):
        other, fence = held()
        assert stored(other, 50, fence, **content) == {"stored_by_holder"}


def audited(*snapshots):
    """A job that is held under audit, and whose run has stored these snapshots."""
    history = History()
    history.ledger.audits_all = True
    history.add("schedule", 0, by="s")
    fence = history.add("claim", 10, lease_ms=LEASE_MS)
    for number, text in enumerate(snapshots):
        snapshot = {"as": "snapshot", "name": f"call-{number}", "n": number, "value": text}
        history.add("artifact", 20 + number, fence=fence, **snapshot)
    return history, fence


def named(*snapshots):
    type_ = "likewise.inference.snapshot"
    return [{"name": f"call-{n}", "type": type_, "text": one} for n, one in enumerate(snapshots)]


@pytest.mark.parametrize(
    "says",
    [
        {},
        {"calls": 1},
        {"calls": 1, "outputs": named("{}")},
        {"calls": 2, "outputs": named("{}", '{"a":1}')},
        {"calls": 3, "outputs": named('{"a":1}', "{}")},
    ],
)
def test_an_audited_result_names_the_snapshot_of_each_model_call(says):
    history, fence = audited('{"a":1}', "{}")
    history.add("complete", 30, fence=fence, status="succeeded", **says)
    assert history.laws_broken == {"calls_accounted_for"}
    history, fence = audited('{"a":1}', "{}")
    right = {"calls": 2, "outputs": named('{"a":1}', "{}")}
    history.add("complete", 30, fence=fence, status="succeeded", **right)
    assert not history.broken


def test_an_honest_worker_stores_each_call_that_its_handler_made():
    history, fence = audited("{}")
    history.ledger.calls_made[(KIND, JOB), fence] = 2
    right = {"calls": 1, "outputs": named("{}")}
    history.add("complete", 30, fence=fence, status="succeeded", honest=True, **right)
    assert history.laws_broken == {"calls_accounted_for"}


def asked(**more):
    history = History()
    question = {"text": "go on?", "choices": ["yes", "no"], **more}
    history.add("schedule", 0, by="s", question=question)
    return history


def answered(history, fence, at_ms=20, text="go on?", said='"yes"', by="person"):
    outputs = [{"name": "result", "type": "application/json", "text": said}]
    says = {"status": "succeeded", "outputs": outputs, "answered": {"text": text, "at": "0" * 16}}
    history.add("complete", at_ms, by=by, fence=fence, **says)
    return history.laws_broken


def test_a_question_is_taken_and_answered_by_somebody_else():
    history = asked()
    fence = history.add("claim", 10, by="person", lease_ms=LEASE_MS, answers=True)
    assert not answered(history, fence)


@pytest.mark.parametrize("by, answers", [("s", True), ("w", False), ("foe", True)])
def test_a_question_that_is_taken_by_whoever_asked_or_may_not_or_as_a_job(by, answers):
    history = asked(not_by=["foe"])
    history.add("claim", 10, by=by, lease_ms=LEASE_MS, answers=answers)
    assert history.laws_broken == {"taken_by_others"}
    history = called()
    history.add("claim", 10, by="w", lease_ms=LEASE_MS, answers=True)
    assert history.laws_broken == {"taken_by_others"}, "a job is no question"


@pytest.mark.parametrize("change", [{"text": "stop?"}, {"said": '"perhaps"'}])
def test_an_answer_to_something_else_or_none_of_the_choices(change):
    history = asked()
    fence = history.add("claim", 10, by="person", lease_ms=LEASE_MS, answers=True)
    assert answered(history, fence, **change) == {"only_answered"}


@pytest.mark.parametrize("text", ["go on?", "go on, after no?"])
def test_an_honest_job_asks_once_whatever_was_answered_before(text):
    history = asked(text="go on, after yes?" if "after" in text else text)
    question = {"text": text, "choices": ["yes", "no"]}
    history.add("schedule", 5, by="s", job="b" * 64, question=question, honest=True)
    assert history.laws_broken == {"asked_once"}


def test_an_honest_stream_goes_on_where_it_was():
    for value in ("[0]", "[2]", "[1,3]"):
        history, fence = held()
        history.add("artifact", 20, fence=fence, honest=True, name="0+1", n=0, value="[0]", **PART)
        assert not history.broken
        history.add("artifact", 30, fence=fence, honest=True, name="1+1", n=1, value=value, **PART)
        assert history.laws_broken == {"parts_in_order"}
    history, fence = held()
    history.add("artifact", 20, fence=fence, honest=True, name="0+2", n=0, value="[0,1]", **PART)
    history.add("artifact", 30, fence=fence, honest=True, name="2+1", n=1, value="[2]", **PART)
    assert not history.broken


def test_a_result_with_an_old_fence():
    history, old = held()
    history.add("yield", 20, fence=old, reason="other")
    history.add("claim", 30, lease_ms=LEASE_MS)
    history.add("complete", 40, fence=old, status="succeeded")
    assert history.laws_broken == {"one_result"}


def test_a_result_from_someone_else():
    history, fence = held()
    history.add("complete", 20, by="thief", fence=fence, status="succeeded")
    assert history.laws_broken == {"one_result"}


def test_a_result_for_a_job_that_nobody_holds():
    history = called()
    history.add("complete", 20, fence="0" * 16, status="succeeded")
    assert history.laws_broken == {"one_result"}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "other"},
        {"job": "b" * 64},
        {"fence": "0" * 16},
        {"status": "failed"},
        {"worker": "thief"},
        {"signer": "thief"},
    ],
)
def test_a_result_whose_proof_says_something_else_or_is_somebody_elses(changes):
    for given, broken in (({}, set()), (changes, {"proved"})):
        history, fence = held()
        said = {"signer": "w", "worker": "w", "fence": fence, "status": "succeeded", **given}
        shown = history.proof(said.pop("worker"), **said)
        history.add("complete", 20, fence=fence, status="succeeded", proof=shown)
        assert history.laws_broken == broken


def test_a_result_without_a_proof():
    history, fence = held()
    history.add("complete", 20, fence=fence, status="succeeded", proof=None)
    assert history.laws_broken == {"proved"}


def test_a_fence_that_does_not_rise():
    history, fence = held()
    history.add("yield", 20, fence=fence, reason="other")
    history.add("claim", 21, lease_ms=LEASE_MS, wall_ms=AT_MS + 5)
    assert history.laws_broken == {"fences_rise", "in_order", "patient"}


def test_a_claim_on_a_held_job():
    history, _ = held()
    history.add("claim", 20, by="other", lease_ms=LEASE_MS)
    assert history.laws_broken == {"fences_rise"}


def test_a_renewal_of_another_tenure_and_one_after_the_deadline():
    history, _ = held()
    history.add("claim", 20, lease_ms=LEASE_MS, fence="0" * 16)
    assert history.laws_broken == {"fences_rise"}
    late, fence = held()
    late.add("claim", 20, lease_ms=LEASE_MS, fence=fence, commit=AT_MS + 99_999)
    assert late.laws_broken == {"fences_rise"}


@pytest.mark.parametrize(
    "times",
    [
        {"at_ms": 5_000},
        {"at_ms": 10 + LEASE_MS},
        {"at_ms": 10 + LEASE_MS + 1, "commit": AT_MS + 5_000, "wall_ms": AT_MS + LEASE_MS + 11},
        {"at_ms": 99_999, "wall_ms": AT_MS + 5_000},
    ],
)
def test_an_expiry_before_its_time_by_either_clock(times):
    history, fence = held()
    history.ledger.rules["max_drift_ms"] = 10**9
    history.add("expire", by="full", fence=fence, **times)
    assert history.laws_broken == {"not_early"}


def test_an_expiry_of_a_pending_job_before_its_start_by():
    history = called()
    history.add("expire", 60_000, by="full")
    assert history.laws_broken == {"not_early"}


def delayed(**fields):
    history = History()
    history.add("schedule", 0, by="s", not_before=AT_MS + 5_000, **fields)
    return history


@pytest.mark.parametrize(
    "times, broken",
    [
        ({"at_ms": 5_000}, set()),
        ({"at_ms": 4_999}, {"not_before_its_time"}),
        ({"at_ms": 5_000, "commit": AT_MS + 4_000}, {"not_before_its_time"}),
        ({"at_ms": 5_000, "wall_ms": AT_MS + 4_000}, {"not_before_its_time"}),
    ],
)
def test_an_offer_of_a_delayed_job_before_its_time_by_either_clock(times, broken):
    history = delayed()
    history.add("offer", by="full", **times)
    history.add("claim", 6_000, lease_ms=LEASE_MS)
    assert history.laws_broken == broken


@pytest.mark.parametrize("at_ms", [4_000, 6_000])
def test_a_claim_of_a_delayed_job_that_nobody_offered(at_ms):
    history = delayed()
    history.add("claim", at_ms, lease_ms=LEASE_MS)
    assert history.laws_broken == {"not_before_its_time"}


def test_an_offer_of_a_limited_job_by_somebody_else_than_the_coordinator():
    history = delayed(concurrency="gpu")
    history.add("offer", 5_000, by="full")
    assert history.laws_broken == {"not_before_its_time"}


BEFORE = ("build.slow", "b" * 64)


def following(*, is_over=True, has_succeeded=True, seq=0, **fields):
    """A job that waits for another one, of which the laws know this."""
    history = History()
    ended_seq = 3 if is_over else 0
    history.ledger.lanes[BEFORE] = LaneFacts(
        is_scheduled=True, called=Call(seq=seq), ended_seq=ended_seq, has_succeeded=has_succeeded
    )
    history.ledger.authority_model.coordinator = "full"
    history.add("schedule", 0, by="s", **fields)
    return history


READS = {"inputs": [{"kind": "result", "of": BEFORE, "name": "in"}]}


@pytest.mark.parametrize(
    "fields, offer, is_broken",
    [
        ({"after": [BEFORE]}, {}, False),
        ({"after": [BEFORE], "is_over": False, "has_succeeded": False}, {}, True),
        ({"after": [BEFORE], "has_succeeded": False}, {}, True),
        ({"after": [BEFORE], "has_succeeded": False, "after_any_outcome": True}, {}, False),
        ({"after": [BEFORE], "seq": 9}, {}, True),
        ({"manifest": READS}, {"results": [{"text": "1"}]}, False),
        ({"manifest": READS}, {}, True),
        (
            {"manifest": READS, "has_succeeded": False, "after_any_outcome": True},
            {"results": [{"text": "1"}]},
            True,
        ),
    ],
)
def test_an_offer_before_its_predecessors(fields, offer, is_broken):
    history = following(**fields)
    history.add("offer", 10, by="full", honest=True, **offer)
    assert history.laws_broken == ({"after_its_predecessors"} if is_broken else set())


def test_a_job_that_was_cancelled_for_no_reason():
    for has_succeeded in (True, False):
        history = following(after=[BEFORE], has_succeeded=has_succeeded)
        history.add("cancel", 10, by="full", honest=True, reason="predecessor: it failed")
        assert history.laws_broken == ({"after_its_predecessors"} if has_succeeded else set())


@pytest.mark.parametrize(
    "op, fields, is_broken",
    [
        ("offer", {}, True),
        ("cancel", {"reason": "predecessor: it failed"}, True),
        ("cancel", {"reason": "predecessor: its submitter may not read jobs of kind x"}, False),
    ],
)
def test_what_is_told_about_a_job_that_may_not_be_read(monkeypatch, op, fields, is_broken):
    may_read = [False]
    monkeypatch.setattr(AuthorityModel, "may", lambda *_: may_read[0])
    history = following(after=[BEFORE], has_succeeded=op == "offer")
    history.add(op, 10, by="full", honest=True, **fields)
    assert history.laws_broken == ({"read_by_right"} if is_broken else set())
    may_read[0] = True
    history = following(after=[BEFORE], has_succeeded=op == "offer")
    history.add(op, 10, by="full", honest=True, **fields)
    assert history.laws_broken == set()


def test_what_a_worker_is_told_about_children_that_it_may_not_read(monkeypatch):
    monkeypatch.setattr(AuthorityModel, "may", lambda _, who, *__: who != "w")
    history, fence = held()
    history.ledger.authority_model.coordinator = "full"
    history.ledger.lanes[BEFORE] = LaneFacts(is_scheduled=True, ended_seq=1, has_succeeded=True)
    history.add("yield", 20, fence=fence, reason="after", after=[BEFORE])
    history.add("offer", 30, by="full", honest=True, results=[{"text": "1"}])
    assert history.laws_broken == {"read_by_right"}


def test_a_job_that_is_given_back_for_one_job_twice():
    for after in ([BEFORE], [BEFORE, BEFORE]):
        history, fence = held()
        history.ledger.lanes[BEFORE] = LaneFacts(is_scheduled=True)
        history.add("yield", 20, fence=fence, reason="after", after=after)
        assert history.laws_broken == ({"named_once"} if len(after) > 1 else set())


def test_an_offer_under_a_label_that_has_no_room():
    for others in (1, 2):
        history = following(concurrency="gpu")
        history.ledger.limits["gpu"] = 2
        history.ledger.counted["gpu"] = others
        history.add("offer", 10, by="full", honest=True)
        assert history.laws_broken == ({"within_limits"} if others == 2 else set())


def test_the_window_to_start_of_a_delayed_job_begins_with_its_time():
    for at_ms, broken in ((5_999, set()), (6_001, {"begun_in_time"})):
        history = History()
        history.ledger.rules["start_by_ms"] = 1_000
        history.add("schedule", 0, by="s", not_before=AT_MS + 5_000)
        history.add("offer", 5_000, by="full")
        history.add("claim", at_ms, lease_ms=LEASE_MS)
        assert history.laws_broken == broken


def test_a_claim_within_a_retry_pause_or_a_cooldown():
    history, fence = held()
    history.add("yield", 20, fence=fence, reason="error", retry_after_ms=5_000)
    history.add("claim", 1_000, lease_ms=LEASE_MS)
    assert history.laws_broken == {"patient"}
    cooling, fence = held()
    cooling.add("expire", 20_000, by="full", fence=fence)
    cooling.add("claim", 21_000, lease_ms=LEASE_MS)
    assert cooling.laws_broken == {"patient"}


def test_a_claim_after_the_time_to_begin():
    for at_ms, broken in ((4_999, set()), (5_001, {"begun_in_time"})):
        history = History()
        history.add("schedule", 0, by="s", start_by=AT_MS + 5_000)
        history.add("claim", at_ms, lease_ms=LEASE_MS)
        assert history.laws_broken == broken


@pytest.mark.parametrize("lease_ms", [4_999, 120_001])
def test_a_lease_that_is_too_short_or_too_long(lease_ms):
    history = called()
    history.add("claim", 10, lease_ms=lease_ms)
    assert history.laws_broken == {"bounded"}
    renewed, fence = held()
    renewed.add("claim", 20, lease_ms=lease_ms, fence=fence)
    assert renewed.laws_broken == {"bounded"}


def test_a_renewal_beyond_what_a_tenure_may_last():
    history = History()
    history.ledger.rules["lease_max_ms"] = 20_000
    history.add("schedule", 0, by="s", manifest={"timeout": 1})
    fence = history.add("claim", 10, lease_ms=LEASE_MS)
    for at_ms in (8_000, 16_000):
        history.add("claim", at_ms, lease_ms=LEASE_MS, fence=fence)
    assert not history.laws_broken
    history.add("claim", 21_011, lease_ms=LEASE_MS, fence=fence)
    assert history.laws_broken == {"bounded"}


def test_an_op_on_a_strange_subject():
    history = called()
    history.add("cancel", 20, subject=SUBJECT.replace("fast", "slow"))
    assert history.laws_broken == {"own_subject", "final"}


def test_an_op_with_another_predecessor():
    history, fence = held()
    history.add("complete", 20, fence=fence, status="succeeded", prev=0)
    assert history.laws_broken == {"chained"}


def test_an_op_that_is_not_newer():
    history, _ = held()
    history.add("cancel", 20, wall_ms=AT_MS + 10)
    assert history.laws_broken == {"in_order"}


def test_an_op_from_the_future():
    history = called()
    history.add("claim", 0, lease_ms=LEASE_MS, wall_ms=AT_MS + 2_001)
    assert history.laws_broken == {"in_time"}


def test_an_op_after_the_end():
    history = called()
    history.add("cancel", 20, by="s")
    history.add("claim", 30, lease_ms=LEASE_MS)
    assert history.laws_broken == {"final"}


def test_a_tenure_after_the_attempts_are_used_up():
    history = History()
    history.add("schedule", 0, by="s", retry={"attempts": 1})
    fence = history.add("claim", 10, lease_ms=LEASE_MS)
    history.add("expire", 20_000, by="full", fence=fence)
    history.add("claim", 90_000, lease_ms=LEASE_MS)
    assert history.laws_broken == {"final"}


def test_an_op_on_a_job_that_was_never_called():
    history = History()
    history.add("cancel", 20)
    assert history.laws_broken == {"final"}


def test_an_op_that_its_author_never_signed():
    history = called()
    history.add("cancel", 20, signed=False)
    assert history.laws_broken == {"authentic"}


@pytest.mark.parametrize("verdict", sorted(laws.NEVER_HONEST))
def test_an_honest_op_that_only_a_liar_would_write(verdict):
    history = called()
    history.add("cancel", 20, honest=True, verdict=verdict)
    assert history.laws_broken == {"honest_writers"}


@pytest.mark.req("M12", "M23")
def test_an_honest_claim_on_a_job_that_is_held_or_over():
    history, fence = held()
    history.add("claim", 20, by="other", lease_ms=LEASE_MS, honest=True, verdict=Verdict.HELD)
    assert history.laws_broken == {"no_racing"}
    over, fence = held()
    over.add("complete", 20, fence=fence, status="succeeded")
    over.add("claim", 30, by="other", lease_ms=LEASE_MS, honest=True, verdict=Verdict.FINISHED)
    assert over.laws_broken == {"no_racing"}


def test_an_unreadable_record_that_is_accepted_or_honest():
    record = Record(1, 0, SUBJECT, b"junk")
    for verdict, is_honest in ((Verdict.OK, False), (Verdict.FRAME, True)):
        now = Committed(record, None, (KIND, JOB), verdict, 0, is_honest)
        assert [one.law for one in laws.commit(LawState(), now)] == ["readable"]
    rejected = Committed(record, None, (KIND, JOB), Verdict.FRAME, 0, False)
    assert laws.commit(LawState(), rejected) == []


def test_no_law_is_left_untried():
    here = Path(__file__).parent
    files = ("test_laws.py", "test_mandates.py", "test_plan_laws.py")
    source = "".join((here / name).read_text() for name in files)
    for law in laws.LAWS:
        assert f'"{law.__name__}"' in source, law.__name__
