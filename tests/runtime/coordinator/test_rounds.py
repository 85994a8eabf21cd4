"""One member's many waiting jobs leave the coordinator's time to others, and use it all alone."""

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from antiphon.core.families.jobs.ops import JobOffer
from antiphon.runtime.coordinator.coordinator import JOBS_PER_ROUND
from antiphon.runtime.node.full_node import FullNode
from tests.runtime.by_hand import called, finished
from tests.runtime.coordinator.test_coordinator import coordinated, state
from tests.runtime.meshes import call, eventually

pytestmark = pytest.mark.virtual_time
KIND = "build.image"
WRITE_S = 0.4
JOBS = 2 * JOBS_PER_ROUND


class Rounds:
    """The coordinator's offers: each round takes a while until it is on the log."""

    def __init__(self, monkeypatch) -> None:
        self.found: list[tuple[float, float, int]] = []
        """When each began and ended, and how many jobs it offered."""
        really = FullNode.write_all

        async def write_all(node, intents):
            is_offer = bool(intents) and intents[0].op is JobOffer
            begun_s = asyncio.get_running_loop().time()
            if is_offer:
                await asyncio.sleep(WRITE_S)
            written = await really(node, intents)
            if is_offer:
                ended_s = asyncio.get_running_loop().time()
                self.found.append((begun_s, ended_s, len(intents)))
            return written

        monkeypatch.setattr(FullNode, "write_all", write_all)

    @property
    def sizes(self) -> list[int]:
        return [size for _, _, size in self.found]

    @property
    def gaps_s(self) -> list[float]:
        return [after[0] - before[1] for before, after in pairwise(self.found)]


@asynccontextmanager
async def offered(monkeypatch, *, has_others: bool):
    """Everything that one member's jobs wait for ends at once, and somebody else has one, too."""
    async with coordinated("memory") as (mesh, session, node):
        many, few = [(await mesh.connection()).session for _ in range(2)]
        first = await called(session, KIND)
        after = ((KIND, first.id),)
        jobs = [await call(many, number, kind=KIND, after=after) for number in range(JOBS)]
        if has_others:
            jobs.append(await call(few, "another's", kind=KIND, after=after))
        await node.reached(jobs[-1].seq)
        rounds = Rounds(monkeypatch)
        await finished(session, KIND, first)
        yield many, few, node, rounds
        kinds = [type("Named", (), {"kind": KIND, "id": one.id}) for one in jobs]
        await eventually(lambda: all(state(node, one) == "pending" for one in kinds))


@pytest.mark.parametrize("has_others", [True, False])
async def test_whoever_has_more_than_a_round_holds_rests_if_others_wait_too(
    monkeypatch, has_others
):
    async with offered(monkeypatch, has_others=has_others) as (_, _, _, rounds):
        await eventually(lambda: sum(rounds.sizes) >= JOBS)
        if has_others:
            assert min(rounds.gaps_s) > 2 * WRITE_S
        else:
            assert max(rounds.gaps_s) < WRITE_S, "nobody else waits"


@pytest.mark.parametrize("has_others", [True, False])
async def test_rounds_are_shorter_while_others_wait_too(monkeypatch, has_others):
    async with offered(monkeypatch, has_others=has_others) as (_, _, _, rounds):
        await eventually(lambda: sum(rounds.sizes) >= JOBS)
        assert rounds.sizes[0] == JOBS_PER_ROUND, "nobody knew of others yet"
        assert (max(rounds.sizes[1:]) <= JOBS_PER_ROUND // 2) == has_others


async def test_a_job_of_somebody_else_is_offered_while_the_one_with_many_rests(monkeypatch):
    async with offered(monkeypatch, has_others=True) as (_, few, node, rounds):
        await eventually(lambda: len(rounds.sizes) == 2)
        ended = await called(few, "few.first")
        await finished(few, "few.first", ended)
        late = await call(few, "late", kind=KIND, after=(("few.first", ended.id),))
        await node.reached(late.seq)
        begun_s = asyncio.get_running_loop().time()
        one = type("Named", (), {"kind": KIND, "id": late.id})
        await eventually(lambda: state(node, one) == "pending")
        assert asyncio.get_running_loop().time() - begun_s < 2 * WRITE_S
