"""One guard for all that members ask: whose it is, how much, how long, and what they are told."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest

from antiphon.engines.nats import MemberRequests
from antiphon.engines.nats.connection.requester import Reply
from antiphon.engines.nats.gate import request_guard
from antiphon.engines.nats.gate.request_guard import Limits, Service
from antiphon.errors import Rejected, Unavailable
from antiphon.guard import guard
from tests.engines.nats.harness import until
from tests.engines.nats.scoped_mesh import MEMBER, STRANGER, raw, scoped_mesh
from tests.patience import NEVER_S, PATIENCE_S

pytestmark = pytest.mark.nats

LIMITS = {
    "room": "count",
    "heard": 512,
    "of_party": 2,
    "in_all": 3,
    "request_bytes": 2_000,
    "seconds": PATIENCE_S,
}


class Counter:
    """A service that does what its requests say, and the wires of two users."""

    def __init__(self, mine, theirs):
        self.mine, self.theirs = mine, theirs
        self.go_on, self.in_hand = asyncio.Event(), []

    async def answer(self, asked):
        match asked.payload.split(b" ")[0]:
            case b"wait":
                self.in_hand.append(asked.user)
                await self.go_on.wait()
            case b"fail":
                raise ZeroDivisionError("a bug")
            case b"refuse":
                raise Rejected("that is not yours", reason="no")
            case b"riddle":
                raise Rejected("this cannot be told", reason="no")
            case b"huge":
                return bytes(2**21)
            case b"many":
                return [Reply(b"%d" % n, b"") for n in range(3)]
            case b"stay":
                await asyncio.sleep(NEVER_S)
        return asked.payload

    def told(self, error):
        if error.message == "that is not yours":
            return b"rejected"
        if "cannot be told" in error.message:
            raise ValueError
        return f"{type(error).__name__}: {error.message}".encode()

    async def ask(self, payload, wire=None):
        wire = wire or self.mine
        wire.send(f"{wire.prefix}.count", payload)
        return await self.heard(wire)

    async def heard(self, wire=None):
        async with asyncio.timeout(PATIENCE_S):
            return (await (wire or self.mine).heard.get())[2]


@asynccontextmanager
async def counter(party_of=str, **limits):
    async with scoped_mesh("a.>") as here, raw(here) as mine, raw(here, STRANGER) as theirs:
        here.counter = at = Counter(mine, theirs)
        here.hearing = MemberRequests(here.owner.log.connection, here.mesh, party_of=party_of)
        service = Service(
            verbs=("count",), answer=at.answer, told=at.told, limits=Limits(**{**LIMITS, **limits})
        )
        async with here.hearing.serving(service):
            yield at


async def test_what_goes_wrong_with_one_request_is_told_and_ends_nothing(caplog):
    caplog.set_level(logging.ERROR, request_guard.__name__)
    async with counter() as at:
        for _ in range(3):
            assert await at.ask(b"fail") == b"Unavailable: the gate failed; its log says how"
        assert await at.ask(b"refuse") == b"rejected"
        assert await at.ask(b"many") == b"0"
        assert [await at.heard(), await at.heard()] == [b"1", b"2"]
        assert (await at.ask(b"huge")).startswith(b"Malformed: the answer has 2097152 bytes")
        assert await at.ask(b"hello") == b"hello"
        (logged,) = caplog.records  # once, though it failed three times
        assert MEMBER in logged.getMessage()
        assert "count" in logged.getMessage()
        assert "ZeroDivisionError" in caplog.text


async def test_an_error_that_cannot_be_told_ends_nothing_either():
    async with counter() as at:
        at.mine.send(f"{at.mine.prefix}.count", b"riddle")
        assert await at.ask(b"hello") == b"hello"


async def test_a_request_that_is_too_large_is_refused_before_anybody_looks():
    async with counter() as at:
        answer = await at.ask(b"wait" + bytes(2_000))
        assert answer.startswith(b"Malformed: a request of 2004 bytes is too large")
        assert at.in_hand == []


async def test_an_answer_that_takes_too_long_is_given_up():
    async with counter(seconds=0.05) as at:
        assert await at.ask(b"stay") == b"OutcomeUnknown: the gate did not finish it in 0.05 s"
        for _ in range(5):
            assert b"did not finish" in await at.ask(b"stay")
        assert await at.ask(b"hello") == b"hello"


async def test_so_many_are_in_hand_of_one_party_and_so_many_in_all():
    async with counter() as at:
        for n in range(3):
            at.mine.send(f"{at.mine.prefix}.count", b"wait %d" % n)
        assert await at.heard() == b"RateLimited: too many requests at once"
        await until(lambda: len(at.in_hand) == 2)
        for n in range(2):
            at.theirs.send(f"{at.theirs.prefix}.count", b"wait %d" % n)
        assert await at.heard(at.theirs) == b"RateLimited: too many requests at once"
        at.go_on.set()
        assert {await at.heard(), await at.heard()} == {b"wait 0", b"wait 1"}
        assert await at.heard(at.theirs) == b"wait 0"
        assert await at.ask(b"hello", at.theirs) == b"hello"


async def test_users_of_one_party_have_one_share():
    async with counter(party_of=lambda _user: "both", in_all=99) as at:
        for wire in (at.mine, at.theirs):
            wire.send(f"{wire.prefix}.count", b"wait")
        await until(lambda: sorted(at.in_hand) == [MEMBER, STRANGER])
        for wire in (at.mine, at.theirs):
            assert b"RateLimited" in await at.ask(b"hello", wire)
        at.go_on.set()
        assert [await at.heard(), await at.heard(at.theirs)] == [b"wait", b"wait"]


async def test_requests_in_hand_are_counted_in_bytes_too(monkeypatch):
    monkeypatch.setattr(guard, "PARTY_BYTES", 2_500)
    async with counter(of_party=99, in_all=99) as at:
        at.mine.send(f"{at.mine.prefix}.count", b"wait " + b"x" * 1_900)
        await until(lambda: at.in_hand == [MEMBER])
        assert b"RateLimited" in await at.ask(b"x" * 1_900)
        assert await at.ask(b"small") == b"small"
        assert await at.ask(b"y" * 1_900, at.theirs) == b"y" * 1_900
        at.go_on.set()
        assert len(await at.heard()) == 1_905
        assert await at.ask(b"x" * 1_900) == b"x" * 1_900


async def test_answers_go_to_the_askers_own_inbox_and_nowhere_else():
    async with counter() as at:
        for reply in ("", "elsewhere", f"_I.{STRANGER}.1", "$JS.API.INFO"):
            at.mine.send(f"{at.mine.prefix}.count", b"wait", reply=reply)
        assert await at.ask(b"hello") == b"hello"
        assert at.in_hand == []
        assert at.theirs.heard.empty()


async def test_a_limit_of_the_service_is_asked_before_the_request_is_looked_at():
    async with scoped_mesh("a.>") as here, raw(here) as mine:
        at, limited = Counter(mine, mine), [Unavailable("enough for now")]

        def limit_on(asked):
            if asked.payload == b"bug":
                raise KeyError
            return limited[0]

        service = Service(
            verbs=("count", "again"),
            answer=at.answer,
            told=at.told,
            limits=Limits(**LIMITS),
            limit_on=limit_on,
        )
        hearing = MemberRequests(here.owner.log.connection, here.mesh)
        async with hearing.serving(service):
            assert await at.ask(b"hello") == b"Unavailable: enough for now"
            assert await at.ask(b"bug") == b"Unavailable: the gate failed; its log says how"
            limited[0] = None
            assert await at.ask(b"hello") == b"hello"
