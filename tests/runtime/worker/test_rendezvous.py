"""Workers come to a job in the order of their draws; nobody hands it to them."""

import asyncio

import pytest

from antiphon.core.authority.rules import Rules
from antiphon.core.bus.subjects import WORK
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.runtime.presence.worker_messages import WORKER_MESSAGES, WorkerMessage
from antiphon.runtime.presence.worker_presence import Traits, WorkerPresence
from antiphon.runtime.worker.announced_jobs import recent_activity
from tests.runtime.drawing import DRAWN, KIND, QUEUED, WINDOW_S, drawing
from tests.runtime.meshes import a_mesh, eventually, on_both_engines
from tests.runtime.meshes import call as call_on
from tests.runtime.timeless import in_no_time


@pytest.mark.req("G1", "G6", "M23", "G2", "G4")
def test_the_lowest_draw_claims_at_once_and_the_others_do_not_even_try():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            workers = [await mesh.worker() for _ in range(4)]
            await asyncio.sleep(1)
            for number in range(20):
                await mesh.call(number)
                await asyncio.sleep(0.5)
            await asyncio.sleep(10)
            for job in mesh.called:
                assert mesh.who_ran(job) == (await mesh.order(job, workers))[0]
                assert mesh.started_after_s(job) < 0.2
                assert await mesh.claims(job) == 1
                assert await mesh.state(job) == "succeeded"
            assert len({ran.by for ran in mesh.runs}) == 4

    in_no_time(story)


@pytest.mark.req("G6")
def test_whoever_hears_that_a_job_was_taken_does_not_even_look_at_it():
    """Each further rank would try a claim window later, while the first one is still at work."""

    async def story(timeless):
        async with drawing(timeless) as mesh:
            mesh.takes_s = 10 * WINDOW_S
            touched: list[str] = []
            workers = [await mesh.worker() for _ in range(3)]
            await asyncio.sleep(1)
            for worker in workers:
                NotedLog(worker.session, touched)
            job = await mesh.call(1)
            await asyncio.sleep(8 * WINDOW_S)
            assert [ran.job_id for ran in mesh.runs] == [job]
            assert set(touched) == {mesh.who_ran(job)}

    in_no_time(story)


class NotedLog:
    """A worker's log that notes who reads a lane or writes to it."""

    def __init__(self, session, touched: list[str]) -> None:
        self._log, self._did, self._touched = session.log, session.author.did, touched
        session.log = self

    def __getattr__(self, name):
        if name in {"append", "append_many", "read_lane", "read_lanes"}:
            self._touched.append(self._did)
        return getattr(self._log, name)


@pytest.mark.req("G3")
def test_a_worker_that_knows_of_nobody_claims():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            await mesh.worker()
            job = await mesh.call(1)
            await asyncio.sleep(1)
            assert mesh.started_after_s(job) < 0.2

    in_no_time(story)


@pytest.mark.req("G10")
def test_a_dead_winner_costs_one_claim_window_and_not_the_job():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            workers = [await mesh.worker() for _ in range(3)]
            await asyncio.sleep(1)
            dead = workers[0]
            dead.session.engine.sever()
            waits = {True: [], False: []}
            for number in range(12):
                job = await mesh.call(number)
                await asyncio.sleep(0.1)
                was_first = (await mesh.order(job, workers))[0] == dead.session.author.did
                waits[was_first].append(job)
                await asyncio.sleep(0.4)
            await asyncio.sleep(10)
            assert waits[True], "the dead one must have won something"
            for job in waits[True]:
                assert WINDOW_S <= mesh.started_after_s(job) < 2 * WINDOW_S
            for job in waits[False]:
                assert mesh.started_after_s(job) < 0.2
            dead.session.engine.heal()

    in_no_time(story)


def test_after_a_while_a_dead_worker_costs_nothing_any_more():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            workers = [await mesh.worker() for _ in range(3)]
            await asyncio.sleep(1)
            workers[0].session.engine.sever()
            await asyncio.sleep(12)
            for number in range(8):
                await mesh.call(number)
            await asyncio.sleep(1)
            assert all(mesh.started_after_s(job) < 0.2 for job in mesh.called)
            workers[0].session.engine.heal()

    in_no_time(story)


@pytest.mark.req("G10")
def test_a_job_whose_worker_dies_holding_it_goes_to_another():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            await mesh.node()
            workers = [await mesh.worker() for _ in range(3)]
            await asyncio.sleep(1)
            mesh.takes_s = 5
            job = await mesh.call(1)
            await asyncio.sleep(1)
            (first,) = mesh.runs
            dead = next(one for one in workers if one.session.author.did == first.by)
            dead.session.engine.sever()
            await asyncio.sleep(60)
            assert await mesh.state(job) == "succeeded"
            assert {ran.by for ran in mesh.runs} > {first.by}
            dead.session.engine.heal()
            await asyncio.sleep(5)

    in_no_time(story)


def test_a_worker_without_a_free_slot_is_no_candidate():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            mesh.takes_s = 20
            busy = await mesh.worker(slots=1)
            await mesh.call("keep busy")
            await asyncio.sleep(1)
            idle = await mesh.worker(slots=20)
            await asyncio.sleep(5)
            for number in range(8):
                await mesh.call(number)
            await asyncio.sleep(1)
            firsts = {(await mesh.order(job, [busy, idle]))[0] for job in mesh.called}
            assert len(firsts) == 2, "by draw alone both would have had some"
            assert [ran.by for ran in mesh.runs[1:]] == [idle.session.author.did] * 8
            assert all(ran.at_s - mesh.called[ran.job_id] < 0.2 for ran in mesh.runs)

    in_no_time(story)


@pytest.mark.req("G9")
def test_weights_shift_the_shares():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            light = await mesh.worker(slots=50)
            heavy = await mesh.worker(slots=50, weight=9)
            await asyncio.sleep(1)
            for number in range(60):
                await mesh.call(number)
            await asyncio.sleep(30)
            for job in mesh.called:
                assert mesh.who_ran(job) == (await mesh.order(job, [light, heavy]))[0]
            assert sum(ran.by == heavy.session.author.did for ran in mesh.runs) > 40

    in_no_time(story)


def test_a_burst_beyond_all_slots_is_worked_off_by_everybody_without_many_races():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            mesh.takes_s = 0.5
            for _ in range(4):
                await mesh.worker(slots=2)
            await asyncio.sleep(1)
            for number in range(80):
                await mesh.call(number)
            await asyncio.sleep(30)
            assert len(mesh.runs) == 80
            last_s = max(ran.at_s for ran in mesh.runs) - min(mesh.called.values())
            assert last_s < 3 * (80 / 8 * 0.5), "close to what the slots allow"
            claims = [await mesh.claims(job) for job in mesh.called]
            assert sum(claims) < 1.2 * 80

    in_no_time(story)


def test_a_newcomer_finds_what_is_pending():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            done = await mesh.call("done")
            first = await mesh.worker()
            await asyncio.sleep(1)
            first.drain()
            await asyncio.sleep(1)
            for number in range(5):
                await mesh.call(number)
            await asyncio.sleep(5)
            await mesh.worker()
            await asyncio.sleep(2)
            assert len(mesh.runs) == 6
            assert sum(ran.job_id == done for ran in mesh.runs) == 1

    in_no_time(story)


@pytest.mark.req("M22")
def test_what_a_draining_worker_gives_back_the_others_take_up_soon():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            mesh.takes_s = 30
            one, two = await mesh.worker(), await mesh.worker()
            await asyncio.sleep(1)
            job = await mesh.call(1)
            await asyncio.sleep(1)
            (first,) = mesh.runs
            leaver = one if one.session.author.did == first.by else two
            leaver.drain()
            await asyncio.sleep(10)
            assert [ran.job_id for ran in mesh.runs] == [job, job]
            assert mesh.runs[1].at_s - first.at_s < 6

    in_no_time(story)


def test_workers_change_over_when_the_rules_do_and_no_job_is_lost():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            await mesh.node()
            for _ in range(3):
                await mesh.worker()
            for rules in (DRAWN, QUEUED, DRAWN):
                for number in range(10):
                    await mesh.call(rules.selection != (), number, mesh.now_s)
                await mesh.set_rules(rules)
                for number in range(10):
                    await mesh.call(rules.selection != (), number, mesh.now_s)
                    await asyncio.sleep(0.5)
            await asyncio.sleep(60)
            assert {ran.job_id for ran in mesh.runs} == set(mesh.called)

    in_no_time(story)


# --- words ------------------------------------------------------------------------------------


def test_under_queue_selection_nobody_says_a_word():
    async def story(timeless):
        async with drawing(timeless, QUEUED) as mesh:
            heard = []

            async def listen():
                async with mesh.owner.engine.bus.subscribe("work.>") as words:
                    async for word in words:
                        heard.append(word)

            listening = asyncio.ensure_future(listen())
            for _ in range(3):
                await mesh.worker()
            await mesh.call(1)
            await asyncio.sleep(30)
            listening.cancel()
            assert len(mesh.runs) == 1
            assert heard == []

    in_no_time(story)


def spoken(connection, *, named="", mesh="", kind=KIND, at_ms=None, **fields) -> bytes:
    """A word, truly signed by this station, about whatever it likes."""
    return WORKER_MESSAGES.sign(
        WorkerMessage(**{"free": 1, **fields}),
        (named or connection.keyring.did, connection.keyring.sign),
        mesh=mesh or connection.session.mesh,
        subject=WORK.at(kind=kind),
        at_ms=connection.session.wall.now_ms() if at_ms is None else at_ms,
    )


@pytest.mark.req("G6")
def test_workers_become_known_by_their_words_and_only_by_their_own():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            one, two, listener = [await timeless.connection("x") for _ in range(3)]
            presence = WorkerPresence(listener.session, KIND, Traits())
            bus = one.session.engine.bus

            async def known_after(payload: bytes) -> set[str]:
                await bus.publish(WORK.at(kind=KIND), payload)
                await asyncio.sleep(0.1)
                return {other.did for other in presence.others()}

            async with presence.listening():
                assert await known_after(b"junk") == set()
                assert await known_after(b'{"x":' + b"[" * 100_000) == set(), "nested too deep"
                assert await known_after(spoken(one, named=two.keyring.did)) == set(), "forged"
                assert await known_after(spoken(one, mesh="a" * 16)) == set()
                assert await known_after(spoken(one, kind="test.other")) == set()
                assert await known_after(spoken(one, at_ms=0)) == set(), "old"
                first = spoken(one)
                assert await known_after(first) == {one.keyring.did}
                later = spoken(one, is_away=True)
                assert await known_after(later) == set(), "it said good-bye"
                assert await known_after(first) == set(), "replayed"
                assert await known_after(spoken(two)) == {two.keyring.did}
                await asyncio.sleep(11)
                assert set(presence.others()) == set(), "not heard of for too long"
            assert mesh.runs == []

    in_no_time(story)


def test_a_liar_delays_a_job_by_a_bound_and_cannot_lose_it():
    async def story(timeless):
        async with drawing(timeless) as mesh:
            await mesh.node()
            await mesh.worker()
            liar = await timeless.connection("liar")
            about: set[tuple[str, int]] = set()

            async def lie():
                """It counts as free, so some jobs wait for it; and then it has them all."""
                while True:
                    said = tuple(about)
                    for what in ("took", "ended"):
                        word = spoken(liar, **{what: said})
                        await liar.engine.bus.publish(WORK.at(kind=KIND), word)
                        await asyncio.sleep(0.1)

            async def listen():
                async with liar.session.log.follow(0, subject=">") as batches:
                    async for batch in batches:
                        calls = (record for record in batch if job_subjects.is_call(record.subject))
                        about.update((record.subject[-64:], record.seq) for record in calls)

            tasks = [asyncio.ensure_future(lie()), asyncio.ensure_future(listen())]
            await asyncio.sleep(2)
            for number in range(10):
                await mesh.call(number)
            await asyncio.sleep(5)
            assert 0 < len(mesh.runs) < 10, "the liar must have been believed about something"
            await asyncio.sleep(30)
            for task in tasks:
                task.cancel()
            assert {ran.job_id for ran in mesh.runs} == set(mesh.called)
            bound_s = DRAWN.offer_after_ms / 1000 + 3 * WINDOW_S + 2
            assert all(mesh.started_after_s(job) < bound_s for job in mesh.called)

    in_no_time(story)


@on_both_engines
@pytest.mark.req("G1", "G10", "P1")
async def test_on_an_engine_of_either_sort_drawn_jobs_run_once_each(engine):
    rules = Rules(
        authority="open",
        claim_window_ms=500,
        selection=(("test.work", "rendezvous"),),
    )
    async with a_mesh(engine, rules) as mesh:
        ran: list[tuple[int, int]] = []

        def handler(at: int):
            async def run(number: int) -> None:
                ran.append((number, at))

            return run

        owner = await mesh.connection()
        for at in range(3):
            await mesh.worker(handler(at))
        for number in range(12):
            await call_on(owner.session, number)
        await eventually(lambda: len(ran) == 12)
        await asyncio.sleep(0.2)
        assert sorted(number for number, _ in ran) == list(range(12))
        assert len({at for _, at in ran}) > 1


@pytest.mark.parametrize(
    "junk", [b'{"x":' + b"[" * 100_000, b'{"type":"\xff"}', b"{"], ids=["deep", "bytes", "cut"]
)
async def test_whoever_comes_late_looks_past_records_that_are_no_ops(junk):
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        called = await call_on(session, 1, kind=KIND)
        subject = f"ap.{mesh.mesh}.jobs.job.{KIND}.{called.id}"
        await session.log.append(subject, junk, message_id="junk", expected_last=0)
        assert (await recent_activity(session, KIND)).upto == called.seq + 1
