"""Pages of jobs by any filter: the same jobs that looking at each of them gives, in log order."""

import random
import sqlite3

import pytest

from antiphon.core.authority.scope import admits
from antiphon.core.families.jobs.state import EMPTY, Job, JobLane, State, job_key
from antiphon.core.record.subjects import covers
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed, Unavailable
from antiphon.ports import Record
from antiphon.runtime.replica import job_pages, replica_texts
from antiphon.runtime.replica.job_pages import EVERYTHING, JobFilter, JobPages
from antiphon.runtime.replica.replica import Replica

MESH = "bbbbbbbbbbbbbbbb"
START_MS = 1_700_000_000_000
KINDS = ("build", "build.linux", "build.linux.arm", "buildx", "render.a", "render.b", "zoo")
WORDS = ("refused", "refusal", "timeout", "disk")


def node(number: int) -> str:
    return f"did:key:z6Mk{number:044d}"


def a_job(number: int, chance: random.Random, **given) -> Job:
    at_ms = START_MS + number * 1_000
    made = {
        "kind": chance.choice(KINDS),
        "id": f"{number:064x}",
        "state": chance.choice(list(State)),
        "scheduler": node(chance.randrange(3)),
        "claimer": chance.choice(("", node(10), node(11))),
        "concurrency": chance.choice(("", "", "gpu", "disk")),
        "plan": chance.choice(("", "", "blake3:one", "blake3:two")),
        "scheduled_seq": number + 1,
        "scheduled_ms": at_ms,
        "hlc": (at_ms, 0),
        "hlc_author": node(0),
        "priority": "normal",
        "start_by_ms": at_ms + 1,
        "start_window_ms": 1,
        "attempts_max": 1,
        "lease_ms": 1,
        "lease_ms_max": 1,
    }
    return Job(**(made | given))


def write(replica: Replica, seq: int, job: Job, text: str = "") -> None:
    record = Record(seq, job.scheduled_ms * 1_000_000, f"ap.{MESH}.job.{job.kind}.{job.id}", b"{}")
    replica.note(record, Verdict.OK, job_key(job.kind, job.id), JobLane(state=job), text)


class Written:
    """A replica with some jobs, and what was written."""

    def __init__(self, count: int, seed: int = 1, path: object = ":memory:") -> None:
        chance = random.Random(seed)
        self.replica = Replica(path, mesh=MESH)
        self.replica.begin_anew((">",))
        self.jobs: list[Job] = []
        self.texts: dict[str, str] = {}
        for number in range(count):
            job = a_job(number, chance)
            text = " ".join(chance.sample(WORDS, 2)) if chance.random() < 0.4 else ""
            self.texts[job.id] = text
            self.jobs.append(job)
            write(self.replica, number + 1, job, text)
            if chance.random() < 0.1:
                self.replica.flush()
        self.replica.flush()
        self.pages = self.replica.ask(JobPages)

    def expected(self, wanted: JobFilter, visible) -> list[str]:
        words = wanted.text.split()

        def fits(job: Job) -> bool:
            said = self.texts[job.id].split()
            return (
                (not wanted.states or job.state in wanted.states)
                and (not wanted.kind or covers(wanted.kind, job.kind))
                and any(admits(one, job.kind) for one in visible)
                and job.scheduled_ms >= wanted.since_ms
                and (not wanted.until_ms or job.scheduled_ms < wanted.until_ms)
                and wanted.submitter in ("", job.scheduler)
                and wanted.worker in ("", job.claimer)
                and wanted.label in ("", job.concurrency)
                and (wanted.plans is None or job.plan in wanted.plans)
                and all(word in said for word in words[:-1])
                and (not words or any(word.startswith(words[-1]) for word in said))
            )

        return [job.id for job in reversed(self.jobs) if fits(job)]

    def walked(self, wanted: JobFilter, visible, limit: int) -> list[str]:
        found, before, pages = [], 0, 0
        while True:
            page = self.pages.page(wanted, visible=visible, before=before, limit=limit)
            assert len(page.jobs) <= limit
            found += [job.id for job in page.jobs]
            pages += 1
            if not page.next:
                return found
            assert not before or page.next < before, "every page gets further"
            before = page.next


def a_filter(chance: random.Random) -> JobFilter:
    given = {
        "states": tuple(chance.sample(list(State), chance.randrange(1, 4))),
        "kind": chance.choice(("build", "build.linux", "render", "zoo", "none")),
        "since_ms": START_MS + chance.randrange(-5, 130) * 1_000,
        "until_ms": START_MS + chance.randrange(-5, 130) * 1_000 + 1,
        "submitter": node(chance.randrange(4)),
        "worker": node(chance.randrange(10, 13)),
        "label": chance.choice(("gpu", "disk", "none")),
        "plans": chance.choice((("blake3:one",), ("blake3:one", "blake3:two"), ())),
        "text": chance.choice(("refused", "disk refus", "timeout", "nowhere")),
    }
    names = chance.sample(list(given), chance.randrange(4))
    return JobFilter(**{name: given[name] for name in names})


SCOPES = (EVERYTHING, ("build.>",), ("build", "render.>"), ("render.a",), ())


@pytest.mark.parametrize("examined", [job_pages.EXAMINED, 7])
@pytest.mark.parametrize("merged", [job_pages.MERGED, 2])
def test_pages_of_any_filter_are_what_looking_at_every_job_gives(monkeypatch, examined, merged):
    monkeypatch.setattr(job_pages, "EXAMINED", examined)
    monkeypatch.setattr(job_pages, "MERGED", merged)
    chance = random.Random(f"{examined} {merged}")
    written = Written(120)
    for _ in range(120):
        wanted, visible = a_filter(chance), chance.choice(SCOPES)
        found = written.walked(wanted, visible, chance.choice((1, 5, 200)))
        assert found == written.expected(wanted, visible), (wanted, visible)


def test_a_page_looks_at_a_bounded_number_of_jobs_and_says_where_to_go_on(monkeypatch):
    monkeypatch.setattr(job_pages, "EXAMINED", 10)
    written = Written(100)
    wanted = JobFilter(worker=node(10), label="gpu", submitter=node(1), kind="zoo")
    page = written.pages.page(wanted, limit=50)
    assert page.next > 0
    assert written.walked(wanted, EVERYTHING, 50) == written.expected(wanted, EVERYTHING)


def test_counts_are_those_of_the_kinds_that_may_be_seen_and_no_others():
    written = Written(80)
    for visible in SCOPES:
        for kind in ("", "build", "render.a"):
            seen = [
                job.state.value
                for job in written.jobs
                if any(admits(one, job.kind) for one in visible)
                and (not kind or covers(kind, job.kind))
            ]
            counts = written.pages.counts(visible=visible, kind=kind)
            assert counts == {state: seen.count(state) for state in sorted(seen, key=_rank)}
        kinds = {kind for kind, _ in written.pages.counts_by_kind(visible=visible)}
        assert kinds == {
            job.kind for job in written.jobs if any(admits(one, job.kind) for one in visible)
        }


def _rank(state: str) -> int:
    return list(State).index(State(state))


def test_the_jobs_of_a_graph_are_found_from_any_of_them():
    replica, chance = Replica(":memory:", mesh=MESH), random.Random(3)
    replica.begin_anew((">",))
    before = {2: (1,), 3: (1,), 4: (2, 3), 6: (5,)}
    for number in range(1, 8):
        after = tuple(("zoo", f"{one:064x}") for one in before.get(number, ()))
        write(replica, number, a_job(number, chance, kind="zoo", after=after))
    write(replica, 8, a_job(8, chance, kind="secret.x", after=(("zoo", f"{4:064x}"),)))
    replica.flush()

    def graph(number: int, visible=EVERYTHING) -> list[int]:
        wanted = JobFilter(graph=("zoo", f"{number:064x}"))
        found = replica.ask(JobPages).page(wanted, visible=visible)
        return [int(job.id, 16) for job in found.jobs]

    assert [graph(one) for one in (1, 4, 3)] == [[8, 4, 3, 2, 1]] * 3
    assert graph(5) == graph(6) == [6, 5]
    assert graph(7) == [7]
    assert graph(99) == []
    assert graph(4, ("zoo",)) == [4, 3, 2, 1], "nothing of kinds that may not be seen"


def test_followers_of_other_kinds_do_not_hide_those_that_may_be_seen(monkeypatch):
    monkeypatch.setattr(job_pages, "GRAPH_MOST", 4)
    written, chance = Written(0), random.Random(2)
    root = ("shop", f"{0:064x}")
    write(written.replica, 1, a_job(0, chance, kind="shop"))
    for number in range(1, 9):
        kind = "spam" if number < 8 else "shop"
        write(written.replica, number + 1, a_job(number, chance, kind=kind, after=(root,)))
    written.replica.flush()
    found = written.pages.page(JobFilter(graph=root), visible=("shop",)).jobs
    assert [job.id for job in found] == [f"{8:064x}", root[1]]


def test_the_newest_error_of_a_job_is_found_and_the_one_before_is_not():
    replica, chance = Replica(":memory:", mesh=MESH), random.Random(3)
    replica.begin_anew((">",))
    job = a_job(1, chance)
    write(replica, 1, job)
    write(replica, 2, job, 'OSError: "connection" refused by 10.0.0.7 OR (x) NEAR/2 *')
    replica.flush()
    pages = replica.ask(JobPages)

    def found(text: str) -> int:
        return len(pages.page(JobFilter(text=text)).jobs)

    searches = ("connection refused", "OSErr", 'connection" OR "nothing', "10.0.0.7", "near/2")
    assert [found(one) for one in searches] == [1, 1, 0, 1, 1]
    write(replica, 3, job, "MemoryError: no more room")
    replica.flush()
    assert [found("refused"), found("room")] == [0, 1]
    for nothing in ("", "***", " ".join(["word"] * 17)):
        with pytest.raises(Malformed):
            replica_texts.match_of(nothing)


def test_without_full_text_search_everything_else_works_and_a_search_says_why(
    monkeypatch, tmp_path
):
    def without(db: sqlite3.Connection) -> bool:
        return False

    with monkeypatch.context() as patch:
        patch.setattr(replica_texts, "create", without)
        written = Written(20, path=tmp_path / "replica.db")
        assert written.walked(JobFilter(kind="build"), EVERYTHING, 5)
        assert not written.replica.texts.is_kept
        with pytest.raises(Unavailable, match="FTS5"):
            written.replica.texts.require()
        written.replica.begin_anew((">",))
        written.replica.close()
    again = Replica(tmp_path / "replica.db", mesh=MESH)
    assert again.reads is None, "it is built again, with the errors that were not written down"
    again.texts.require()
    again.close()


def test_a_job_is_in_its_place_whatever_was_written_on_its_lane_before(tmp_path):
    replica, chance = Replica(tmp_path / "replica.db", mesh=MESH), random.Random(3)
    replica.begin_anew((">",))
    job = a_job(5, chance)
    record = Record(1, START_MS * 1_000_000, f"ap.{MESH}.job.{job.kind}.{job.id}", b"junk")
    replica.note(record, Verdict.MALFORMED, job_key(job.kind, job.id), JobLane(tails=(1,) * 5))
    replica.flush()
    other = a_job(2, chance)
    write(replica, 2, other)
    write(replica, 6, job, "too late")
    replica.flush()
    pages = replica.ask(JobPages)
    assert [one.id for one in pages.page(JobFilter()).jobs] == [job.id, other.id]
    since = JobFilter(since_ms=job.scheduled_ms)
    assert [one.id for one in pages.page(since).jobs] == [job.id]
    assert [one.id for one in pages.page(JobFilter(submitter=job.scheduler, text="late")).jobs] == [
        job.id
    ]
    replica.close()


def test_a_lane_that_begins_again_is_found_by_what_it_is_now(tmp_path):
    replica, chance = Replica(tmp_path / "replica.db", mesh=MESH), random.Random(3)
    replica.begin_anew((">",))
    job = a_job(1, chance, scheduler=node(1), concurrency="gpu")
    write(replica, 1, job)
    replica.flush()
    key = job_key(job.kind, job.id)
    empty = Record(2, START_MS * 1_000_000, f"ap.{MESH}.job.{job.kind}.{job.id}", b"{}")
    replica.note(empty, Verdict.OK, key, EMPTY)
    replica.flush()
    pages = replica.ask(JobPages)
    assert pages.page(JobFilter()).jobs == []
    again = a_job(1, chance, kind=job.kind, scheduler=node(2), concurrency="")
    write(replica, 3, again)
    replica.flush()
    assert pages.page(JobFilter(submitter=node(1))).jobs == []
    assert pages.page(JobFilter(label="gpu")).jobs == []
    assert pages.page(JobFilter(submitter=node(2))).jobs == [again]
    replica.close()
