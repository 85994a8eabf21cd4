"""What a person sees on a terminal: whole, without padding, and with news while they wait."""

import asyncio
import io
import logging
import re
from types import SimpleNamespace

import pytest

from antiphon import JobContext, Mesh
from antiphon.core.derivations.cost_sums import CostLine
from antiphon.core.families.jobs.state import State
from antiphon.core.record.verdict import Verdict
from antiphon.interfaces.cli.commands.history.show import _standing
from antiphon.interfaces.cli.commands.history.why import _filled
from antiphon.interfaces.cli.commands.jobs import watch
from antiphon.interfaces.cli.commands.jobs.watch import Progressing
from antiphon.interfaces.cli.commands.proofs.cost import _tell_gaps
from antiphon.interfaces.cli.screen.command_loop import Notices
from antiphon.interfaces.cli.screen.terminal import TextStream, err
from antiphon.interfaces.cli.shared import wait
from antiphon.interfaces.cli.shared.follow import _without_last_words
from tests.patience import PATIENCE_S

STYLED = re.compile(r"\x1b\[[0-9;]*m")
TICKET = "antiphon-ticket-" + "x" * 200


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def screen(monkeypatch):
    """Standard error as a terminal of eighty columns."""
    stream = Terminal()
    monkeypatch.setattr(TextStream, "stream", stream)
    monkeypatch.setattr(err, "_console", None)
    for name, value in {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return stream


def lines_of(screen):
    return screen.getvalue().splitlines()


# --- lines ------------------------------------------------------------------------------------


def test_what_people_copy_is_never_broken_into_lines(screen):
    TextStream("stderr").verbatim(TICKET)
    assert lines_of(screen) == [TICKET]


def test_what_people_copy_cannot_steer_the_terminal(screen):
    TextStream("stderr").verbatim("a\x1b[2Jb")
    assert lines_of(screen) == ["a\\x1b[2Jb"]


def test_a_long_sentence_goes_on_below_itself_and_is_not_padded(screen):
    TextStream("stderr").hanging([("try: ", "")], [("one two three " * 12, "failed")])
    first, *more = lines_of(screen)
    assert first.startswith("try: one")
    assert more
    assert all(line.startswith("     ") for line in more)
    assert [line for line in lines_of(screen) if line != line.rstrip()] == []


def test_columns_in_which_nothing_stands_are_left_out():
    rows = [[("", ""), ("w1", ""), ("", "")], [("", ""), ("w2", ""), ("not routed", "")]]
    assert _filled(("RANK", "WORKER", ""), rows) == (
        ["WORKER", ""],
        [[("w1", ""), ("", "")], [("w2", ""), ("not routed", "")]],
    )


@pytest.mark.parametrize(
    "message, code, told",
    [
        ("it left no file 'x.txt'", 0, "job 1 (command): it left no file 'x.txt'"),
        ("exited with 7: last words", 7, "job 1 (command): it exited with 7"),
    ],
)
def test_the_end_of_a_command_is_a_sentence(message, code, told):
    failed = SimpleNamespace(message=f"job 1 (command): it failed: some:name: {message}")
    error = SimpleNamespace(name="some:name", message=message)
    assert _without_last_words(failed, SimpleNamespace(error=error, exit=code)) == told


@pytest.mark.parametrize(
    "verdict, told",
    [(Verdict.OK, "no worker holds it now"), (Verdict.HELD, "no worker has claimed it")],
)
def test_a_job_that_was_given_back_is_not_called_unclaimed(verdict, told):
    job = SimpleNamespace(
        scheduled_ms=0,
        is_terminal=False,
        state=State.PENDING,
        attempts=0,
        attempts_max=3,
        tries=0,
        postponed=0,
        start_by_ms=1_000,
    )
    story = [SimpleNamespace(op="job.claim", verdict=verdict)]
    assert _standing(job, story, {})[-1].startswith(told)


# --- news while one waits ---------------------------------------------------------------------


def test_what_every_connection_says_is_read_once(screen):
    notices = Notices()
    for text in ("it is away", "it is away", "it is back", "it is back"):
        notices.handle(logging.makeLogRecord({"msg": text, "levelno": logging.WARNING}))
    told = screen.getvalue().replace("\r\x1b[2K", "")
    assert told.splitlines() == ["! it is away", "! it is back"]


def test_whoever_wants_errors_only_gets_no_notices(monkeypatch):
    monkeypatch.setenv("ANTIPHON_LOG_LEVEL", "error")
    assert Notices().level == logging.ERROR


async def shown(screen, text, *, within_s=PATIENCE_S):
    async with asyncio.timeout(within_s):
        while text not in STYLED.sub("", screen.getvalue()):
            await asyncio.sleep(0.01)


async def test_an_engine_that_does_not_answer_is_told_while_one_waits(screen, monkeypatch):
    async def never():
        await asyncio.Event().wait()

    monkeypatch.setattr(wait, "SILENCE_S", 0.05)
    handle = SimpleNamespace(kind="example.add", id="ab" * 32, state=never)
    async with wait.narrated(SimpleNamespace(), handle):
        await shown(screen, "no answer from the engine for")


async def test_a_watcher_sees_how_far_jobs_are_and_forgets_them_at_their_end(screen):
    mesh = Mesh.open(engine="memory")
    may_end = asyncio.Event()

    @mesh.task("example.slow")
    async def slow(ctx: JobContext) -> None:
        while not may_end.is_set():
            ctx.progress(0.4, "frame 12 of 30")
            await asyncio.sleep(0.02)

    async with mesh, mesh.worker(), mesh.watching() as batches, Progressing(mesh) as progress:
        handle = await slow.submit()
        watcher = asyncio.ensure_future(_noting(batches, progress, until="succeeded"))
        await shown(screen, f"▶ running  example.slow {handle.id[:8]}, 40% frame 12 of 30")
        may_end.set()
        await watcher
        assert progress._listeners == {}


async def _noting(batches, progress, *, until):
    async for batch in batches:
        for event in batch:
            progress.note(event)
            if event.state == until:
                return


async def test_a_watcher_listens_for_a_bounded_number_of_jobs(screen):
    async with Mesh.open(engine="memory") as mesh, Progressing(mesh) as progress:
        for number in range(2 * watch.LISTENED):
            progress.note(SimpleNamespace(kind="a.b", job_id=f"{number:064x}", is_held=True))
        assert len(progress._listeners) == watch.LISTENED


def test_a_sum_of_costs_says_what_it_lacks(screen):
    _tell_gaps(CostLine(name="all", without=2, partial=3))
    said = " ".join(screen.getvalue().split())
    assert "2 jobs without a measured cost" in said
    assert "antiphon tempo set FILE --rates" in said
    assert "3 jobs cost at least this much" in said


def test_a_whole_sum_of_costs_lacks_nothing(screen):
    _tell_gaps(CostLine(name="all", jobs=2))
    assert screen.getvalue() == ""
