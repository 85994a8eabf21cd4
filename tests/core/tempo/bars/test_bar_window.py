"""Bar reports: what they sum up, the same in any order, and what counts nothing."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.tempo.bars import bar_facts, bar_window
from antiphon.core.tempo.bars.bar_facts import JobEnd, Noted, Overran
from antiphon.core.tempo.bars.bar_window import BarWindows, settled
from antiphon.core.tempo.messages import HelpPromise, StatusClaim
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.time_text import hlc_text, parse_time
from tests.core.strategies import BRISK

METER = Meter()
BAR = METER.bar_ms
T0 = METER.downbeat_before(1_800_000_000_000)
NODES = ("did:key:zA", "did:key:zB", "did:key:zC")
JOBS = tuple(f"build.c/{digit * 64}" for digit in "abc")
STATES = ("planning", "executing", "waiting", "review", "done", "failed")


def claim(at_ms, state="executing", *, node=NODES[0], task=JOBS[0], counter=0, **more):
    return StatusClaim(
        agent_id=more.pop("agent", node),
        task_id=task,
        beat_index=METER.beat_at(at_ms).index,
        state=state,
        hlc=hlc_text((at_ms, counter)),
        **more,
    )


def windows(bars=1):
    made = BarWindows("mesh")
    for number in range(bars):
        made.begin(METER, T0 + number * BAR)
    return made


def note(made, fact):
    match fact:
        case (author, StatusClaim() as said):
            return made.claim(said, author)
        case (author, HelpPromise() as said, at_ms):
            return made.promise(said, author, at_ms)
        case (author, str() as thread, at_ms):
            return made.answer(thread, author, at_ms)
        case (str() as role, int() as change, at_ms):
            return made.queued(role, change, at_ms)
        case JobEnd():
            return made.ended(fact)
        case Overran():
            return made.overran(fact.task_id, fact.at_ms)
    raise AssertionError(fact)


# --- what a report says ---------------------------------------------------------------------------


@pytest.mark.req("B4")
def test_a_report_counts_tasks_by_their_last_state_between_two_downbeats():
    made = windows(2)
    made.claim(claim(T0, "planning"), NODES[0])
    made.claim(claim(T0 + 9_000, "executing"), NODES[0])
    made.claim(claim(T0 + 9_000, "waiting", node=NODES[1], task=JOBS[1]), NODES[1])
    made.claim(claim(T0 + BAR, "review"), NODES[0])
    report = made.report(T0)
    assert report.counts == {"executing": 1, "waiting": 1}
    assert made.report(T0 + BAR).counts == {"review": 1}
    assert (parse_time(report.window_start), parse_time(report.window_end)) == (T0, T0 + BAR)
    assert report.tempo_bpm == 15


@pytest.mark.req("B4", "B22")
def test_the_log_decides_what_a_job_became_and_claims_what_an_agents_own_task_did():
    made = windows()
    made.claim(claim(T0 + 1, "done"), NODES[0])
    made.claim(claim(T0 + 2, "executing", task=JOBS[1]), NODES[0])
    made.claim(claim(T0 + 3, "done", task="sweeping"), NODES[0])
    assert made.tally(T0).succeeded == 1, "a job has not succeeded because somebody says so"
    made.ended(JobEnd(task_id=JOBS[1], at_ms=T0 + 4, scheduled_ms=T0 - 8_000, is_success=True))
    made.ended(JobEnd(task_id=JOBS[2], at_ms=T0 + 5, scheduled_ms=T0, is_success=False))
    assert made.tally(T0).succeeded == 2
    assert made.report(T0).counts == {"done": 3, "failed": 1}


@pytest.mark.req("B4", "B22")
def test_beats_used_waited_and_useful_are_those_in_which_somebody_said_so():
    made = windows()
    for beat, state in enumerate(["planning", "executing", "waiting", "waiting", "executing"]):
        made.claim(claim(T0 + beat * 4_000, state), NODES[0])
        made.claim(claim(T0 + beat * 4_000, "executing", task=JOBS[1]), NODES[0])
    made.claim(claim(T0 + 8_500, "executing"), NODES[0])  # it waited only for a moment of beat 3
    made.ended(JobEnd(task_id=JOBS[0], at_ms=T0 + 17_000, scheduled_ms=T0 - 4_000, is_success=True))
    tally = made.tally(T0)
    assert (tally.beats, tally.beats_used, tally.beats_waited) == (8, 10, 1)
    assert tally.beats_useful == 4
    assert made.report(T0).kpis == {
        "tnt": 0.125,
        "bpd": 10.0,
        "wr": 0.1,
        "eta": 0.4,
        "pmr": None,
        "cpd": None,
        "ttfu": 5.25,
    }


@pytest.mark.req("B22")
def test_first_output_is_the_first_progress_even_if_that_was_in_an_earlier_bar():
    made = windows(2)
    made.claim(claim(T0 + 4_000, progress=0.1), NODES[0])
    made.claim(claim(T0 + BAR, progress=0.9), NODES[0])
    made.ended(JobEnd(task_id=JOBS[0], at_ms=T0 + BAR + 1, scheduled_ms=T0, is_success=True))
    assert made.report(T0 + BAR).kpis["ttfu"] == 1.0


@pytest.mark.req("B4", "B16")
def test_an_overrun_is_a_phase_whose_beats_are_used_up_while_the_task_is_still_in_it():
    made = windows(2)
    made.claim(claim(T0, "executing", beats_left=1), NODES[0])
    made.claim(claim(T0 + 4_000, "executing", beats_left=0), NODES[0])
    made.claim(claim(T0, "executing", beats_left=1, task=JOBS[1]), NODES[0])
    made.claim(claim(T0 + 4_000, "review", beats_left=2, task=JOBS[1]), NODES[0])
    made.claim(claim(T0, "executing", task="an agent that counts no beats"), NODES[0])
    assert made.report(T0).overruns == 1
    made.claim(claim(T0 + BAR, "executing", beats_left=0), NODES[0])
    assert made.tally(T0 + BAR).overruns_in == (0, 1, 0), "its beats were those of the bar before"


@pytest.mark.req("B4")
def test_a_promise_is_due_in_its_bar_and_broken_without_an_answer_by_then():
    made = windows(2)
    promise = HelpPromise(thread_id="thread01", promise_beats=2, fail_after_beats=3)
    late = HelpPromise(thread_id="thread02", promise_beats=2, fail_after_beats=3)
    next_bar = HelpPromise(thread_id="thread03", promise_beats=9, fail_after_beats=9)
    for one in (promise, late, next_bar):
        made.promise(one, NODES[0], T0)
    made.answer("thread01", NODES[0], T0 + 8_000)
    made.answer("thread02", NODES[0], T0 + 8_001)
    first, second = made.report(T0), made.report(T0 + BAR)
    assert (first.promises_due, first.promises_broken, first.kpis["pmr"]) == (2, 1, 0.5)
    assert (second.promises_due, second.promises_broken) == (1, 1)


@pytest.mark.req("B4", "B16")
def test_queues_are_those_at_the_end_of_the_bar_also_of_jobs_that_waited_before():
    made = BarWindows("mesh")
    made.queued("build", 5, T0 - 1)  # before any bar: what the replica had
    made.begin(METER, T0)
    made.queued("build", -2, T0 + 1)
    made.queued("test", 1, T0 + 2)
    made.begin(METER, T0 + BAR)
    made.queued("test", -1, T0 + BAR + 1)
    assert made.report(T0).queue_depth == {"build": 3, "test": 1}
    assert made.report(T0 + BAR).queue_depth == {"build": 3}


@pytest.mark.req("B4", "B16")
def test_utilisation_is_the_mean_of_what_each_node_said_last():
    made = windows()
    made.claim(claim(T0 + 1, cpu=0.9), NODES[0])
    made.claim(claim(T0 + 2, cpu=0.5, gpu=1.0), NODES[0])
    made.claim(claim(T0 + 1, node=NODES[1], cpu=0.1), NODES[1])
    made.claim(claim(T0 + 1, node=NODES[2]), NODES[2])
    assert made.report(T0).utilisation == {"cpu": 0.3, "gpu": 1.0}


@pytest.mark.req("B4")
def test_a_change_of_tempo_is_in_the_report_of_the_bar_that_begins_with_it():
    made = windows()
    made.begin(Meter(bpm=16, anchor_ms=T0 + BAR), T0 + BAR)
    assert [made.report(at).tempo_changes for at in made.starts] == [0, 1]
    assert [made.report(at).tempo_bpm for at in made.starts] == [15, 16]


# --- what counts nothing --------------------------------------------------------------------------


@pytest.mark.req("B4")
def test_a_claim_in_the_name_of_another_node_counts_nothing():
    made = windows()
    assert made.claim(claim(T0), NODES[1]) is Noted.FORGED
    assert made.claim(claim(T0, agent=NODES[1] + "0/x"), NODES[1]) is Noted.FORGED
    assert made.report(T0).counts == {}
    assert made.claim(claim(T0, agent=f"{NODES[1]}/planner"), NODES[1]) is Noted.COUNTED


@pytest.mark.req("B4")
def test_what_is_too_old_too_new_or_no_time_counts_nothing():
    made = windows(12)
    newest = made.starts[-1]
    assert made.claim(claim(T0 + 3 * BAR), NODES[0]) is Noted.TOO_OLD
    assert made.claim(claim(T0 + 4 * BAR), NODES[0]) is Noted.LATE
    assert made.claim(claim(newest + BAR), NODES[0]) is Noted.AHEAD
    assert made.claim(claim(newest + 2 * BAR), NODES[0]) is Noted.TOO_MANY
    odd = StatusClaim(agent_id=NODES[0], task_id="x", beat_index=1, state="done", hlc="yesterday")
    assert made.claim(odd, NODES[0]) is Noted.MALFORMED
    made.begin(METER, newest + BAR)
    assert made.report(newest + BAR).counts == {"executing": 1}, "it came a little early"


@pytest.mark.req("B4", "B9")
def test_a_late_claim_changes_the_report_and_is_counted_as_late():
    made = windows(3)
    before = made.report(T0)
    assert made.claim(claim(T0 + 1), NODES[0]) is Noted.LATE
    after = made.report(T0)
    assert (before.claims_late, after.claims_late) == (0, 1)
    assert after.counts == {"executing": 1}
    assert made.changed == {T0, T0 + BAR}


@pytest.mark.req("B4")
def test_one_node_cannot_crowd_out_others(monkeypatch):
    monkeypatch.setattr(bar_facts, "MAX_ROWS", 4)
    monkeypatch.setattr(bar_facts, "MAX_NODES", 3)
    tasks = [f"task-{number}" for number in range(10)]
    reports = []
    for seed in range(5):
        made, order = windows(), list(tasks)
        Random(seed).shuffle(order)
        noted = [made.claim(claim(T0, task=task), NODES[0]) for task in order]
        assert Noted.TOO_MANY in noted or len(made.heard(T0)) == 4
        for node in (*NODES[1:], "did:key:zZ"):
            made.claim(claim(T0, node=node, task="own"), node)
        reports.append((made.heard(T0), made.report(T0)))
    assert all(one == reports[0] for one in reports)
    assert reports[0][1].counts == {"executing": 6}


@pytest.mark.req("B4")
def test_many_queues_are_summed_up():
    made = windows()
    for number in range(40):
        made.queued(f"role{number:02}", 1, T0)
    depth = made.report(T0).queue_depth
    assert len(depth) == bar_window.MAX_ROLES + 1
    assert depth["*"] == 8
    assert sum(depth.values()) == 40


# --- any order ------------------------------------------------------------------------------------


def drawn_facts(random, count):
    """Facts of four bars: about few tasks, so that they touch one another."""
    facts = []
    for _ in range(count):
        at_ms = T0 + random.randrange(4 * BAR)
        node = random.choice(NODES)
        match random.randrange(5):
            case 0 | 1:
                one = claim(
                    at_ms,
                    random.choice(STATES),
                    node=node,
                    task=random.choice([*JOBS, "sweeping"]),
                    counter=random.randrange(2),
                    beats_left=random.randrange(2),
                    progress=random.choice([0.0, 0.5]),
                    cpu=random.choice([None, 0.25, 0.5]),
                )
                facts.append((node, one))
            case 2:
                beats = random.randrange(12)
                thread = f"thread{random.randrange(4):02}"
                one = HelpPromise(thread_id=thread, promise_beats=beats, fail_after_beats=beats)
                facts.append((node, one, at_ms))
            case 3:
                facts.append((node, f"thread{random.randrange(4):02}", at_ms))
            case 4:
                facts.append((random.choice(["build", "test"]), random.choice([1, 2]), at_ms))
    facts += [Overran(job, T0 + random.randrange(4 * BAR)) for job in JOBS if random.random() < 0.5]
    for job in JOBS:
        if random.random() < 0.5:
            at_ms = T0 + random.randrange(4 * BAR)
            is_success = random.random() < 0.7
            facts.append(
                JobEnd(
                    task_id=job,
                    at_ms=at_ms,
                    scheduled_ms=T0 - random.randrange(BAR),
                    is_success=is_success,
                    cost_nano=random.choice([None, random.randrange(10**9)]),
                )
            )
    return facts


def idempotent(fact):
    return not (isinstance(fact, tuple) and isinstance(fact[1], int))


@pytest.mark.req("B4", "B9")
@BRISK
@given(st.integers(0, 2**32), st.integers(0, 60))
def test_reports_are_equal_before_and_after_a_partition_heals(seed, count):
    """One reader hears all at once; two others hear a part each, and after the heal the rest."""
    random = Random(seed)
    facts = drawn_facts(random, count)
    whole = windows(6)
    for fact in facts:
        note(whole, fact)

    parts = [[], []]
    for fact in facts:
        random.choice(parts).append(fact)
    for mine, rest in (parts, parts[::-1]):
        reader = BarWindows("mesh")
        begun = 0
        for fact in sorted(mine, key=lambda _: random.random()):  # early ones and late ones
            while begun < max(1, (time_of(fact) - T0) // BAR + random.randrange(2)):
                reader.begin(METER, T0 + begun * BAR)
                begun += 1
            note(reader, fact)
            if idempotent(fact) and random.random() < 0.3:
                note(reader, fact)
        for number in range(begun, 6):
            reader.begin(METER, T0 + number * BAR)
        for fact in sorted(rest, key=lambda _: random.random()):
            note(reader, fact)
        assert differing(reader, whole) == []
        assert [settled(reader.report(at)) for at in reader.starts] == [
            settled(whole.report(at)) for at in whole.starts[-len(reader.starts) :]
        ]


def differing(one, other):
    """The ended bars that two readers know and report differently."""
    shared = sorted(set(one.starts[:-1]) & set(other.starts[:-1]))
    return [at for at in shared if settled(one.report(at)) != settled(other.report(at))]


def time_of(fact):
    if isinstance(fact, JobEnd | Overran):
        return fact.at_ms
    return parse_time(fact[1].hlc.partition("+")[0]) if len(fact) == 2 else fact[2]


@pytest.mark.req("B9")
def test_a_reader_that_has_not_heard_all_reports_something_else():
    one, other = windows(3), windows(3)
    one.claim(claim(T0 + 1), NODES[0])
    assert differing(one, other) == [T0]
    other.claim(claim(T0 + 1), NODES[0])
    assert differing(one, other) == []


@pytest.mark.req("B4")
def test_an_answer_is_remembered_as_long_as_its_promise_is_not_due():
    made = windows()
    beats = 20 * METER.bar_len
    promise = HelpPromise(thread_id="thread01", promise_beats=beats, fail_after_beats=beats)
    made.promise(promise, NODES[0], T0)
    made.answer("thread01", NODES[0], T0 + 1)
    for number in range(1, 22):
        made.begin(METER, T0 + number * BAR)
    report = made.report(T0 + 20 * BAR)
    assert (report.promises_due, report.promises_broken) == (1, 0)


@pytest.mark.req("B4", "B9")
@BRISK
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_asking_for_reports_in_between_changes_nothing(seed, count):
    """What was summed up once is summed up again after anything that could change it."""
    random = Random(seed)
    asked, not_asked = windows(6), windows(6)
    for fact in drawn_facts(random, count):
        note(asked, fact)
        note(not_asked, fact)
        asked.report(random.choice(asked.starts))
    assert differing(asked, not_asked) == []
    assert [asked.tally(at) for at in asked.starts] == [not_asked.tally(at) for at in asked.starts]


@pytest.mark.req("B4", "B16")
def test_a_run_that_the_log_shows_to_be_cut_is_one_overrun_also_where_a_claim_said_so():
    made = windows()
    made.overran(JOBS[0], T0 + 5)
    assert made.tally(T0).overruns_in == (0, 1, 0), "nobody said in which phase it was"
    made.claim(claim(T0 + 1, "planning", beats_left=1), NODES[0])
    assert made.tally(T0).overruns_in == (1, 0, 0)
    made.claim(claim(T0 + 4, "planning", beats_left=0), NODES[0])
    assert made.tally(T0).overruns_in == (1, 0, 0)
    made.overran(JOBS[1], T0 + 6)
    assert made.report(T0).overruns == 2
