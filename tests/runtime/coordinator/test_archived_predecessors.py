"""A job that waits for one that was archived gets what it waited for."""

import asyncio

import pytest
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.runtime.caller import submission
from antiphon.runtime.replica.replica import Replica
from tests.runtime.coordinator.test_coordinator import coordinated, state
from tests.runtime.log.test_archived_lanes import archive, purge
from tests.runtime.meshes import CALM, KIND, eventually

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
