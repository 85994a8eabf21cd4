"""What a node shows over HTTP to a member whose delegations cover some kinds only."""

import msgspec
import pytest

from antiphon.core.protocol import PROTOCOL
from antiphon.core.visible_subjects import sight_of
from antiphon.engines.http import LogService
from antiphon.engines.http import log_service as services
from antiphon.engines.http.log_protocol import (
    Confirm,
    End,
    Fetch,
    Lane,
    Lanes,
    Newest,
    Reaches,
    Read,
)
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.errors import Malformed, NotPermitted, RateLimited
from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.testing import engine_suite as suite
from antiphon.testing.engine_suite.harness import seqs
from tests.job_scopes import job_scope

pytestmark = pytest.mark.virtual_time
MINE = job_scope(reads=("render",))


class Shown:
    """A log on which a member sees the kind `render`, and not `scan`."""

    def __init__(self) -> None:
        self.site = suite.Site(self)
        self.engine = MemoryEngine(MemoryServer(SystemClock()), self.site.mesh)
        self.service = LogService(
            self.engine.log, lambda scope: sight_of(self.site.mesh, PROTOCOL.branches, scope)
        )

    async def write(self, *subjects: str, payload: bytes = b"x") -> None:
        for subject in subjects:
            await self.site.append(self.engine, subject, payload)

    async def ask(self, question, scope=MINE, party="p"):
        return await self.service.answer(party, scope, msgspec.json.encode(question))


async def filled() -> Shown:
    at = Shown()
    mine, theirs = at.site.job, lambda number: at.site.job(number, kind="scan")
    await at.write(mine(1), theirs(1), at.site.control(), theirs(2), mine(2), theirs(3))
    return at


async def test_no_question_shows_a_record_out_of_scope():
    at = await filled()
    theirs = at.site.job(1, kind="scan")
    root = f"ap.{at.site.mesh}"
    assert seqs((await at.ask(Read())).records) == [1, 3, 5]
    assert seqs((await at.ask(Read(subject=f"{root}.jobs.>"))).records) == [1, 5]
    assert seqs((await at.ask(Fetch(seqs=(1, 2, 3, 4, 6)))).records) == [1, 3]
    assert seqs((await at.ask(Fetch(seqs=(2, 5), is_certain=False))).records) == [5]
    assert seqs((await at.ask(End())).records) == [5]
    assert seqs((await at.ask(Confirm(subject=f"{root}.>", after=0, upto=6))).records) == [1, 3, 5]
    assert seqs((await at.ask(Lane(subjects=(f"{root}.>",)))).records) == [1, 3, 5]
    assert (await at.ask(Reaches(seq=6))).is_reached
    for question in (
        Read(subject=theirs),
        Read(subject=theirs, wait_s=1),
        Lane(subjects=(theirs,)),
        Lanes(lanes=((theirs,),)),
        Newest(subjects=(at.site.job(1), theirs)),
        Newest(subjects=(f"{root}.jobs.*.render.*",)),
        Confirm(subject=theirs, after=0, upto=6),
        Read(subject="ap.another.ctl.>"),
    ):
        with pytest.raises(NotPermitted):
            await at.ask(question)


async def test_a_read_that_waits_is_not_woken_by_what_it_may_not_see():
    at = await filled()
    found = await at.ask(Read(after=5, wait_s=5))
    assert (found.records, found.more) == ([], False)
    assert found.reads != (">",)


@pytest.mark.parametrize("body", [b"", b"{}", b"[" * 9_999, b'{"ask":"purge"}', b"\xff"])
async def test_what_is_no_question_is_told_as_such(body):
    at = Shown()
    with pytest.raises(Malformed):
        await at.service.answer("p", MINE, body)
    for question in (Read(subject="a..b"), Read(subject="a.>.b"), Lanes(lanes=((">",),))):
        with pytest.raises((Malformed, NotPermitted)):
            await at.ask(question)


async def test_the_newest_that_may_be_seen_is_found_behind_any_number_of_others():
    at = Shown()
    await at.write(*(at.site.job(n) for n in range(7)))
    assert seqs((await at.ask(End())).records) == [7]
    await at.write(*(at.site.job(n, kind="scan") for n in range(90)))
    assert seqs((await at.ask(End())).records) == [7]
    only_theirs = job_scope(reads=("other",))
    assert (await at.ask(End(), only_theirs)).records == []


async def test_answers_have_a_bounded_size_and_go_on(monkeypatch):
    monkeypatch.setattr(services, "ANSWER_BYTES", 1_000)
    monkeypatch.setattr(services, "AT_ONCE", 4)
    monkeypatch.setattr(services, "CONFIRMED_AT_ONCE", 7)
    at = Shown()
    subjects = [at.site.job(n) for n in range(20)]
    await at.write(*subjects, payload=b"x" * 300)
    root = f"ap.{at.site.mesh}"
    for ask in (
        lambda after: Read(after=after),
        lambda after: Lane(subjects=tuple(subjects), after=after),
        lambda after: Confirm(subject=f"{root}.>", after=after, upto=20),
        lambda after: Fetch(seqs=tuple(range(after + 1, 21))),
    ):
        found, after, more = [], 0, True
        while more:
            answer = await at.ask(ask(after))
            assert len(answer.records) <= 4
            found += seqs(answer.records)
            after, more = answer.upto, answer.more
        assert found == list(range(1, 21))
    asked, newest = tuple(subjects), []
    while asked:
        answer = await at.ask(Newest(subjects=asked))
        newest += seqs(answer.records)
        asked = asked[answer.upto :] if answer.more else ()
    assert newest == list(range(1, 21))


async def test_a_confirmation_reads_no_more_than_fits_into_its_answer(monkeypatch):
    monkeypatch.setattr(services, "ANSWER_BYTES", 1_000)
    monkeypatch.setattr(services, "AT_ONCE", 4)
    at = Shown()
    root = f"ap.{at.site.mesh}"
    await at.write(*(at.site.job(n) for n in range(60)), payload=b"x" * 300)
    plain, taken = at.engine.log.confirm, []

    async def confirm(*about, **how):
        records = await plain(*about, **how)
        taken.append(len(records))
        return records

    monkeypatch.setattr(at.engine.log, "confirm", confirm)
    answer = await at.ask(Confirm(subject=f"{root}.>", after=0, upto=60))
    assert (seqs(answer.records), answer.upto, answer.more) == ([1, 2, 3], 3, True)
    assert taken == [4]
    taken.clear()
    mine = job_scope(reads=("other",))
    hidden = await at.ask(Confirm(subject=f"{root}.>", after=0, upto=60), mine)
    assert (hidden.records, hidden.upto, hidden.more) == ([], 60, False)
    assert max(taken) <= 4
    monkeypatch.setattr(services, "PAGES_CONFIRMED", 3)
    part = await at.ask(Confirm(subject=f"{root}.>", after=0, upto=60), mine)
    assert (part.records, part.upto, part.more) == ([], 12, True)


async def test_a_party_has_a_bounded_number_of_reads_that_wait(monkeypatch):
    monkeypatch.setattr(services, "WAITS_EACH", 0)
    at = await filled()
    with pytest.raises(RateLimited):
        await at.ask(Read(after=6, wait_s=1))
