"""Routes and queues: a job goes to the node that its kind is routed to, and to no other first."""

import msgspec
import pytest

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.mesh.ops import MeshRoute, RouteBody
from antiphon.runtime.caller import submission
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from tests.runtime.meshes import CALM, KIND, a_mesh, call, eventually, on_both_engines

DRAWN = msgspec.structs.replace(CALM, selection=(("test", "rendezvous"),))
JOBS = 4


class TwoWorkers:
    """Two workers of one kind, what each has run, and which announcements each looked at."""

    def __init__(self, mesh) -> None:
        self._mesh = mesh
        self.ran: list[tuple[str, int]] = []
        self.looked: list[tuple[str, str]] = []

    async def begin(self) -> None:
        self.owner = (await self._mesh.connection(self._mesh.owner)).session
        self.caller = (await self._mesh.connection()).session
        self.target = await self._worker("target")
        self.other = await self._worker("other")

    async def _worker(self, name: str):
        connection = await self._mesh.connection()
        really_open = connection.session.open

        def opening(record):
            if job_subjects.is_call(record.subject):
                self.looked.append((name, record.subject[-64:]))
            return really_open(record)

        async def run(number: int) -> None:
            self.ran.append((name, number))

        connection.session.open = opening
        return await self._mesh.worker(run, connection=connection)

    async def route(self, node: str | None) -> None:
        body = RouteBody(kind=KIND, target=node)
        await write_one(self.owner, Intent(MeshRoute, body), BEHIND)

    async def noticed(self, node: str | None) -> None:
        for worker in (self.target, self.other):
            await eventually(lambda it=worker: it.session.control.route_for(KIND) == node)

    async def do(self, *numbers: int) -> None:
        """Call some jobs and wait for their ends; nobody has to offer one a second time."""
        for number in numbers:
            job = await call(self.caller, number)
            ended = await submission.wait_for_end(self.caller, KIND, job.id)
            assert (ended.job.outcome, ended.job.calls) == ("succeeded", 1)


@pytest.mark.req("M13")
@on_both_engines
@pytest.mark.parametrize("rules", [CALM, DRAWN], ids=["queue", "rendezvous"])
async def test_a_routed_job_is_delivered_to_its_target_and_never_first_to_another_worker(
    engine, rules
):
    async with a_mesh(engine, rules) as mesh:
        two = TwoWorkers(mesh)
        await two.begin()
        await two.route(two.target.did)
        await two.noticed(two.target.did)
        two.looked.clear()
        await two.do(*range(JOBS))
        assert two.ran == [("target", number) for number in range(JOBS)]
        assert {name for name, _ in two.looked} == {"target"}


@on_both_engines
async def test_a_route_set_and_cleared_while_workers_run_leaves_no_job_behind(engine):
    """The jobs come at the same moment as the route, before the workers know it."""
    async with a_mesh(engine) as mesh:
        two = TwoWorkers(mesh)
        await two.begin()
        await two.route(two.target.did)
        await two.do(*range(JOBS))
        assert {name for name, _ in two.ran} == {"target"}
        for _, job_id in two.looked:
            assert two.looked.count(("other", job_id)) <= 1, "it stops to ask"
        await two.route(None)
        two.target.drain()
        await two.do(*range(JOBS, 2 * JOBS))
        assert two.ran[JOBS:] == [("other", number) for number in range(JOBS, 2 * JOBS)]
