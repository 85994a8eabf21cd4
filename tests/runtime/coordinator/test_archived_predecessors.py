"""A job that waits for one that was archived gets what it waited for."""

import asyncio

import pytest
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.errors import Rejected
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.replica.replica import Replica
from tests.runtime.coordinator.test_coordinator import coordinated, state
from tests.runtime.log.test_archived_lanes import archive, purge
from tests.runtime.meshes import CALM, KIND, a_mesh, eventually

HOUR_S = 3_600
RULES = replace(CALM, retention_ms=HOUR_S * 1_000)

pytestmark = pytest.mark.virtual_time


async def submitted(session, word, **fields):
    content = manifest.author({"command": ["true", word], "timeout": 30})
    content = manifest.with_nonce(content, "0" * 32, "random")
    return await submission.submit(session, ScheduleBody(kind=KIND, manifest=content, **fields))


@pytest.mark.parametrize("becomes", ["pending", "aborted"])
async def test_what_a_waiting_job_names_is_kept_when_its_lane_begins_again(becomes, monkeypatch):
    if becomes == "aborted":  # as it would be without what the replica keeps
        monkeypatch.setattr(Replica, "former", lambda _self, _key: None)
    async with coordinated("memory", RULES) as (mesh, session, node):
        first, last = await submitted(session, "first"), await submitted(session, "last")
        named = ((KIND, first.id), (KIND, last.id))
        waiting = await submitted(session, "waiting", after=named, after_any_outcome=True)
        await submission.cancel(session, KIND, first.id, reason="done with")
        await asyncio.sleep(1.1 * HOUR_S)
        await archive(mesh, session)
        assert await purge(mesh, session, first.id) == 2
        assert state(node, waiting) == "waiting"
        again = await submitted(session, "first")
        assert again.is_new
        await node.reached(again.seq)
        await submission.cancel(session, KIND, last.id, reason="done with")
        await eventually(lambda: state(node, waiting) == becomes)


def plain(word, **fields):
    content = manifest.author({"command": ["true", word], "timeout": 30})
    return ScheduleBody(kind=KIND, manifest=content, **fields)


async def test_who_submits_is_told_that_a_predecessor_has_left_the_log():
    async with a_mesh("memory", RULES) as mesh:
        session = (await mesh.connection(mesh.owner)).session
        first = await submitted(session, "first")
        before = ((KIND, first.id),)
        assert (await submitted(session, "waiting", after=before)).is_new
        await submission.cancel(session, KIND, first.id, reason="done with")
        await asyncio.sleep(1.1 * HOUR_S)
        await archive(mesh, session)
        with pytest.raises(Rejected, match="not on the log") as refused:
            await submitted(session, "another", after=before)
        assert refused.value.reason == "predecessor"
        again = await submitted(session, "waiting", after=before)
        assert not again.is_new, "it was submitted in time"
        one = plain("one")
        both = [one, plain("two", after=((KIND, manifest.job_id(one.manifest)),))]
        assert len(await submit_many(session, both)) == 2, "they wait for each other"
        with pytest.raises(Rejected, match="not on the log"):
            await submit_many(session, [plain("three", after=before)])
