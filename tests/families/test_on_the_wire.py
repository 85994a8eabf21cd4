"""Polls behind both walls of a real server: what members see, write and have relayed."""

import asyncio

import pytest

from antiphon.core.authority.scope import Scope
from antiphon.engines.nats import MemberRequests, relay_service
from antiphon.errors import EngineDenied
from antiphon.testing.engine_suite.harness import collect, seqs
from tests.engines.nats.operated import operated
from tests.families.polls import WITH_POLLS

pytestmark = pytest.mark.nats

LUNCH = Scope(by_command={"/poll/vote": ("lunch.>",)})
"""To read polls on lunch, and to vote in them."""


async def put(engine, mesh, what, payload=b"x"):
    subject = f"ap.{mesh}.{what}"
    return await engine.log.append(subject, payload, message_id=what, expected_last=0)


async def test_a_member_sees_and_writes_what_the_branches_of_a_new_family_say(tmp_path):
    async with operated(tmp_path, WITH_POLLS.branches) as place:
        await put(place.owner, place.mesh, "ctl.genesis")
        async with place.gate(LUNCH), await place.admit(LUNCH) as member:
            assert set(member.log.reads) == {
                *("ctl.>", "seal"),
                *(f"{stem}.lunch.*.>" for stem in ("poll", "vote", "close")),
            }
            async with member.log.follow(0) as batches:
                for what in ("poll.lunch.today.1", "poll.secret.x.2", "jobs.job.lunch.today.3"):
                    await put(place.owner, place.mesh, what)
                assert await put(member, place.mesh, "vote.lunch.today.1") == 5
                assert seqs(await collect(batches, 3)) == [1, 2, 5]
            for what in ("vote.secret.x.2", "poll.lunch.today.9", "jobs.job.lunch.today.3", "seal"):
                with pytest.raises(EngineDenied):
                    await put(member, place.mesh, what)
            with pytest.raises(EngineDenied, match="may not read secret"):
                await member.log.read(0, limit=9, subject=f"ap.{place.mesh}.poll.secret.>")


async def test_what_a_branch_sends_through_the_gate_is_published_by_nobody_else(tmp_path):
    heard = []

    async def accepts(_user, payload):
        heard.append(payload)
        return f"ap.{place.mesh}.close.lunch.today.1", "id", 0

    async with operated(tmp_path, WITH_POLLS.branches) as place:
        hearing = MemberRequests(place.owner.log.connection, place.mesh)
        service = relay_service(place.owner, accepts)
        serving = asyncio.ensure_future(hearing.serve(service))
        async with place.gate(LUNCH), await place.admit(LUNCH) as member:
            assert await put(member, place.mesh, "close.lunch.today.1", b"closed") == 1
            assert heard == [b"closed"]
            direct = super(type(member.log), member.log).append
            where = f"ap.{place.mesh}.close.lunch.today.2"
            with pytest.raises(EngineDenied):
                await direct(where, b"", message_id="d", expected_last=0)
        serving.cancel()
        await asyncio.wait([serving])
