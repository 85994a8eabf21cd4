"""Workers talk to those of their own kinds, and hear nothing of others."""

from contextlib import AsyncExitStack

import pytest

from antiphon.errors import EngineDenied
from tests.engines.nats.operated import operated
from tests.job_scopes import job_scope

pytestmark = pytest.mark.nats

VIDEO = job_scope(reads=("render.video",), works=("render.video",))
RENDER = job_scope(reads=("render.>",), works=("render.>",))


async def heard(ear) -> bytes:
    return (await anext(ear)).payload


async def test_members_hear_each_other_within_their_kinds(tmp_path):
    async with (
        operated(tmp_path) as place,
        await place.admit(VIDEO) as one,
        await place.admit(RENDER) as other,
        AsyncExitStack() as stack,
    ):
        ears = [
            await stack.enter_async_context(engine.bus.subscribe("work.render.video"))
            for engine in (place.owner, one, other)
        ]
        await one.bus.publish("work.render.video", b"one")
        await other.bus.publish("work.render.video", b"other")
        for ear in ears:
            assert {await heard(ear), await heard(ear)} == {b"one", b"other"}


@pytest.mark.parametrize("kind", ["build", "render", "render.video.deep", ">"])
async def test_a_member_hears_nothing_of_other_kinds(tmp_path, kind):
    async with operated(tmp_path) as place, await place.admit(VIDEO) as member:
        with pytest.raises(EngineDenied):
            async with member.bus.subscribe(f"work.{kind}") as words:
                await anext(words)


async def test_what_a_member_says_about_other_kinds_reaches_nobody(tmp_path):
    async with (
        operated(tmp_path) as place,
        await place.admit(VIDEO) as member,
        place.owner.bus.subscribe("work.>") as words,
    ):
        await member.bus.publish("work.build", b"not mine")
        await member.bus.publish("work.render.video", b"mine")
        assert await heard(words) == b"mine"
