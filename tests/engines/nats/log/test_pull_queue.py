"""Queues on NATS: asking again, and never falling silent."""

import asyncio

import msgspec
import pytest

from antiphon.engines.nats import LocalServer
from antiphon.engines.nats.log import consumers, pull_queue
from antiphon.engines.nats.log.streams import Streams, log_name
from antiphon.engines.nats.server import accounts
from antiphon.errors import Misconfigured
from antiphon.testing.engine_suite.harness import new_mesh, persist, soon, take
from tests.engines.nats.harness import connect, sever, until
from tests.local_server import shared_server
from tests.patience import NEVER_S

pytestmark = pytest.mark.nats


async def announce(engine, mesh, numbers):
    for n in numbers:
        await engine.log.append(f"ap.{mesh}.jobs.1.k.{n}", b"", message_id=f"{n}", expected_last=0)


def calls(mesh):
    return f"ap.{mesh}.jobs.1.k.*"


async def test_a_worker_that_waits_is_heard_again_after_its_line_broke():
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as caller,
        await connect(shared_server(), mesh) as worker,
        worker.log.work(calls(mesh), name="q") as queue,
    ):
        queue.grant(10)
        for n in range(5):
            waiting = asyncio.ensure_future(queue.next())
            await asyncio.sleep(0.05)
            sever(worker)
            await until(lambda: not worker.connected)
            await until(lambda: worker.connected)
            await announce(caller, mesh, [n])
            delivery = await soon(waiting)
            assert delivery.record.subject.endswith(f".{n}")
            delivery.ack()
        assert queue.credits == 5


async def test_a_worker_that_waits_is_heard_again_after_the_server_was_killed():
    mesh = new_mesh()
    async with (
        LocalServer() as server,
        await connect(server, mesh) as worker,
        worker.log.work(calls(mesh), name="q") as queue,
    ):
        queue.grant(2)
        waiting = asyncio.ensure_future(queue.next())
        await asyncio.sleep(0.05)
        server.kill()
        await server.start()
        await until(lambda: worker.connected)
        await persist(lambda: announce(worker, mesh, [1]))
        (await soon(waiting)).ack()


async def test_requests_that_run_out_are_asked_again(monkeypatch):
    monkeypatch.setattr(pull_queue, "EXPIRES_S", 0.2)
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q") as queue,
    ):
        queue.grant(1)
        queue.grant(2)
        await asyncio.sleep(1.0)
        assert queue.credits == 3
        await announce(engine, mesh, range(5))
        assert [delivery.deliveries for delivery in await take(queue, 3)] == [1, 1, 1]
        await asyncio.sleep(0.5)
        assert (queue.credits, len(queue._ready)) == (0, 0)


async def test_who_waits_for_long_asks_rarely_until_something_comes(monkeypatch):
    monkeypatch.setattr(pull_queue, "EXPIRES_S", 0.1)
    monkeypatch.setattr(pull_queue, "LONGEST_EXPIRES_S", 60.0)
    for late in ("OVERDUE_S", "ANSWER_S"):  # on a slow machine answers are, and it would ask again
        monkeypatch.setattr(pull_queue, late, NEVER_S)
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as other,
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q") as queue,
    ):
        asked = []
        other._connection.listen(queue._ask_subject.decode(), lambda *_: asked.append(_[2]))
        queue.grant(2)
        await until(lambda: b"3200000000" in b"".join(asked))  # each waits twice as long
        assert len(asked) <= 8
        asked.clear()
        await announce(engine, mesh, [1, 2])
        for delivery in await take(queue, 2):
            delivery.ack()
        queue.grant(1)
        await until(lambda: b'"expires":100000000}' in b"".join(asked))


def test_the_server_remembers_where_the_answers_to_a_pull_go_while_it_waits():
    assert accounts.PULL_WAITS_NS > (pull_queue.LONGEST_EXPIRES_S + pull_queue.OVERDUE_S) * 1e9


@pytest.mark.parametrize("is_dry", [False, True])
async def test_a_request_that_vanished_is_asked_again(is_dry, monkeypatch):
    """Both the one that is answered at once, and the one that waits."""
    monkeypatch.setattr(pull_queue, "ANSWER_S", 0.5)
    monkeypatch.setattr(pull_queue, "EXPIRES_S", 0.3)
    monkeypatch.setattr(pull_queue, "OVERDUE_S", 0.2)
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q") as queue,
    ):
        real, queue._ask_subject = queue._ask_subject, f"{engine._connection.inbox}.void".encode()
        lost: list[object] = []
        engine._connection.listen(queue._ask_subject.decode(), lambda *_: lost.append(_))
        queue._is_dry = is_dry
        queue.grant(1)  # goes where nobody answers, as to a leader that just died
        await until(lambda: lost)
        queue._ask_subject = real
        await announce(engine, mesh, [1])
        await soon(queue.next())


async def test_a_deleted_consumer_is_made_again():
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q") as queue,
    ):
        queue.grant(1)
        await announce(engine, mesh, [1])
        (await queue.next()).ack()
        queue.grant(1)
        await asyncio.sleep(0.1)
        await Streams(engine._requester).call(f"$JS.API.CONSUMER.DELETE.{log_name(mesh)}.q")
        assert (await soon(queue.next())).deliveries == 1


async def test_many_small_grants_need_few_subscriptions():
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q") as queue,
    ):
        for _ in range(50):
            queue.grant(1)
            await asyncio.sleep(0)
        await announce(engine, mesh, range(60))
        found = await take(queue, 50)
        assert len({delivery.record.seq for delivery in found}) == 50
        assert len(queue._slots) <= pull_queue.MAX_SLOTS
        await asyncio.sleep(0.2)
        assert (queue.credits, len(queue._ready)) == (0, 0)


async def test_what_a_queue_said_does_not_outlast_its_line():
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q") as queue,
    ):
        queue.grant(1)
        await until(lambda: queue.is_dry)
        sever(engine)
        await until(lambda: not engine.connected)
        assert not queue.is_dry
        await until(lambda: queue.is_dry)


async def test_asking_about_credits_that_wait_takes_one_delivery_more_at_most():
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q") as queue,
    ):
        queue.grant(4)
        await until(lambda: queue.is_dry)
        await announce(engine, mesh, [0])
        await soon(queue.next())
        for n in range(1, 20):
            queue.ask()
            await announce(engine, mesh, [n])
        assert len(await take(queue, 3)) == 3
        await asyncio.sleep(0.2)
        assert len(queue._ready) <= 1


async def test_a_question_that_vanished_is_asked_again(monkeypatch):
    monkeypatch.setattr(pull_queue, "ANSWER_S", 0.5)
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q") as queue,
    ):
        queue.grant(2)
        await until(lambda: queue.is_dry)
        await announce(engine, mesh, [1])
        await soon(queue.next())
        real, queue._ask_subject = queue._ask_subject, f"{engine._connection.inbox}.void".encode()
        lost: list[object] = []
        engine._connection.listen(queue._ask_subject.decode(), lambda *_: lost.append(_))
        queue.ask()
        await until(lambda: lost)
        queue._ask_subject = real
        await until(lambda: queue.is_dry)


async def test_the_consumer_has_exactly_these_settings():
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh) as engine,
        engine.log.work(calls(mesh), name="q"),
    ):
        answer = await Streams(engine._requester).call(f"$JS.API.CONSUMER.INFO.{log_name(mesh)}.q")
        config = msgspec.json.decode(answer)["config"]
        wanted = consumers.consumer_config("q", calls(mesh), pull_queue.LOAN_S)
        assert {name: config.get(name) for name in wanted} == wanted
        assert config["max_waiting"] >= 16_384
        assert "inactive_threshold" not in config


async def test_a_queue_of_another_filter_is_refused():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        async with engine.log.work(calls(mesh), name="q"):
            pass
        with pytest.raises(Misconfigured) as caught:
            async with engine.log.work(f"ap.{mesh}.jobs.2.k.*", name="q"):
                pass
        assert "filter_subject" in caught.value.message


async def test_a_queue_made_with_another_loan_tells_the_real_one():
    mesh = new_mesh()
    async with (
        await connect(shared_server(), mesh, loan_s=2.0) as first,
        await connect(shared_server(), mesh) as second,
        first.log.work(calls(mesh), name="q") as made,
        second.log.work(calls(mesh), name="q") as joined,
    ):
        assert made.loan_s == joined.loan_s == pytest.approx(2.0)
