"""Coming back after the server ended a login: with another one, within bounds, or not at all."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon.core.protocol import PROTOCOL
from antiphon.engines.nats import Reader, UserKey
from antiphon.engines.nats.connection import relogin
from antiphon.engines.nats.connection.relogin import TRIES, Relogin
from antiphon.errors import EngineDenied, RateLimited, Rejected, Unavailable
from antiphon.testing.engine_suite.harness import collect, seqs
from tests.engines.nats.harness import until
from tests.engines.nats.operated import now_s, operated
from tests.job_scopes import BRANCHES, job_scope

BOTH = job_scope(reads=("build.>", "render.>"), works=("build.>", "render.>"))
BUILD = job_scope(reads=("build.>",), works=("build.>",))
ENDED = EngineDenied("the login has ended", hint="join again")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(relogin, "PAUSE_FIRST_S", 0.001)


async def outcome(renew) -> EngineDenied | None:
    told = asyncio.get_running_loop().create_future()
    assert Relogin(renew, told.set_result).begin(ENDED)
    return await told


def answering(*answers):
    left = list(answers)

    async def renew() -> None:
        answer = left.pop(0)
        if answer is not None:
            raise answer

    return renew


async def test_a_gate_that_is_away_is_asked_again():
    assert await outcome(answering(Unavailable("away"), Unavailable("away"), None)) is None


async def test_a_gate_that_refuses_is_believed_and_its_words_are_told():
    told = await outcome(answering(Rejected("your grants have ended", hint="ask the owner")))
    assert told.message == "the login has ended; your grants have ended"
    assert told.hint == "ask the owner"


async def test_whoever_is_paused_is_told_how_long_until_the_connection_is_back():
    told = asyncio.get_running_loop().create_future()
    paused = RateLimited("this machine is paused", retry_s=0.4)
    login = Relogin(answering(paused, None), told.set_result)
    assert login.wait_s is None
    login.begin(ENDED)
    await until(lambda: login.paused)
    assert 0.1 < login.wait_s <= 0.4
    assert await told is None
    assert login.wait_s, "there is another login, and nothing is connected with it yet"
    login.came_up()
    assert login.wait_s is None


async def test_whoever_is_not_let_in_at_the_door_hears_why_the_login_ended():
    assert await outcome(answering(EngineDenied("not let in"))) is ENDED


async def test_asking_ends():
    asked = 0

    async def renew() -> None:
        nonlocal asked
        asked += 1
        raise Unavailable("away")

    assert await outcome(renew) is ENDED
    assert asked == TRIES


async def test_logins_that_are_refused_again_and_again_are_an_end_too():
    told = []
    way_back = Relogin(answering(*[None] * TRIES), told.append)
    for count in range(TRIES):
        assert way_back.begin(ENDED)
        await until(lambda count=count: len(told) > count)
    assert not way_back.begin(ENDED)
    way_back.came_up()
    assert way_back.begin(ENDED)
    way_back.cancel()


async def test_without_a_way_to_ask_there_is_no_hope():
    assert not Relogin(None, lambda _: None).begin(ENDED)


class Member:
    """A machine whose gate gives it what `scope` says at that moment, or refuses."""

    def __init__(self, place) -> None:
        self.place, self.key, self.scope = place, UserKey.new(), BOTH
        self.refusal: Exception | None = None
        self.given = self._login()

    def _login(self) -> str:
        issuer = self.place.issuer
        return issuer.admit(self.key.public, self.scope, [], name="m", now_s=now_s())

    async def renew(self) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.given = self._login()

    @asynccontextmanager
    async def entered(self):
        reader = Reader(self.key.public, lambda: self.scope, BRANCHES, PROTOCOL.rights)
        async with (
            self.place.gate(BOTH),
            await self.place.enter(
                self.key, lambda: self.given, renew=self.renew, reader=reader
            ) as engine,
        ):
            yield engine

    async def shown_out(self, engine) -> None:
        epoch = engine._connection.epoch
        await self.place.issuer.expel([self.key.public], now_s())
        await until(lambda: not engine.connected or engine._connection.epoch > epoch)


async def write(engine, place, subject) -> None:
    where = f"ap.{place.mesh}.{subject}"
    await engine.log.append(where, b"", message_id=where, expected_last=0)


@pytest.mark.nats
async def test_whoever_keeps_a_part_goes_on_with_it(tmp_path):
    async with operated(tmp_path) as place:
        member = Member(place)
        async with member.entered() as engine, engine.log.follow(0) as batches:
            await write(place.owner, place, "jobs.job.render.video.1")
            assert seqs(await collect(batches, 1)) == [1]
            member.scope = BUILD
            await member.shown_out(engine)
            await until(lambda: engine.connected)
            await write(place.owner, place, "jobs.job.build.image.1")
            with pytest.raises(StopAsyncIteration):  # what it may read is another log
                await anext(batches)
            async with engine.log.follow(1) as others:
                assert seqs(await collect(others, 1)) == [2]
            await write(engine, place, "jobs.job.build.image.2")
            with pytest.raises(EngineDenied):
                await write(engine, place, "jobs.job.render.video.2")
            with pytest.raises(EngineDenied, match="may not read"):
                await engine.log.read(0, limit=1, subject=f"ap.{place.mesh}.jobs.job.render.*.>")


@pytest.mark.nats
async def test_whoever_keeps_nothing_is_told_in_a_sentence(tmp_path):
    async with operated(tmp_path) as place:
        member = Member(place)
        async with member.entered() as engine, engine.bus.subscribe("roll") as calls:
            waiting = asyncio.ensure_future(anext(aiter(calls)))
            member.refusal = Rejected("this machine's grants have ended", reason="no_chain")
            await member.shown_out(engine)
            with pytest.raises(EngineDenied, match=r"revoked; this machine's grants have ended"):
                await waiting
