"""Bugs that seeds have found, each as the shortest story that shows it."""

import asyncio

import pytest

from antiphon.core.families.jobs.ops import JobClaim, JobOffer, JobSchedule, OfferBody, ScheduleBody
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.record import subjects
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.errors import Corrupt, Unavailable
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.worker.tenure import Tenure, TenureLost
from simulator.actors.machines import LOAN_S
from simulator.network import READS, Network
from simulator.seeds.final_audit import Auditor
from simulator.seeds.world import Plan, run
from tests.simulation.cluster import call, ended, key_of, lane, play, submit, types_on, until


def test_a_worker_stopped_past_its_lease_tries_to_complete_and_is_refused(tmp_path, monkeypatch):
    """The stop strikes when the result is signed and not yet sent."""
    slow = call(kind="render.slow", duration_ms=3_000, lease_ms=5_000)
    refused = []
    really_write = Tenure.write

    async def write(self, kind, body, *more):
        try:
            return await really_write(self, kind, body, *more)
        except TenureLost as lost:
            refused.append((kind.type_name(), lost.verdict.value))
            raise

    monkeypatch.setattr(Tenure, "write", write)

    async def story(world):
        first, second = world.workers[0], world.workers[1]
        world.full[0].boot()
        first.boot()
        trapped = []

        def trap(kind_of_op, host):
            if kind_of_op != "job.complete" or host is not first.host:
                return False
            host.freeze()
            trapped.append(asyncio.get_running_loop().time())
            return True

        world.cluster.referee.traps.append(trap)
        await submit(world, slow)
        await until(lambda: trapped)
        second.boot()
        await until(ended(world, key_of(slow)))
        first.host.thaw()
        await asyncio.sleep(30)
        assert lane(world, key_of(slow)).claimer == second.keyring.did

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    assert refused == [("job.complete", "fence")]
    assert types_on(world, key_of(slow)).count(("complete", "ok")) == 1


def test_a_job_called_again_while_it_runs_is_not_run_twice_by_the_same_worker(tmp_path):
    """Seed 1: the second announcement was claimed, which counted as a renewal."""
    slow = call(kind="render.slow", duration_ms=8_000)

    async def story(world):
        world.workers[0].boot()
        await submit(world, slow)
        await until(lambda: world.workload.runs == 1)
        session = world.submitters[0].connect()
        await session.sync_control()
        again = ScheduleBody(kind=slow.kind, manifest=slow.manifest, priority="low")
        await session.commit(session.draft(JobSchedule, again, prev=0))
        await until(ended(world, key_of(slow)))
        await asyncio.sleep(3 * LOAN_S)

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    assert world.workload.runs == 1
    assert ("schedule", "exists") in types_on(world, key_of(slow))


def lagging(*wanted, by=8):
    """A network on which these reads are answered by a copy that is behind."""

    def request(self, what):
        return Fate(lag=by) if what in wanted and self._weather.everywhere else FINE

    return request


@pytest.mark.parametrize("read", sorted(READS))
def test_a_copy_that_lags_neither_kills_nor_misleads_a_worker(tmp_path, monkeypatch, read):
    """Seeds 5, 6, 11: it acknowledged unread jobs, and died of a record that was not there yet."""
    monkeypatch.setattr(Network, "request", lagging(read))
    calls = [call(number, duration_ms=6_000, lease_ms=5_000, names_dep=True) for number in range(4)]

    async def story(world):
        world.full[0].boot()
        world.workers[0].boot()
        await asyncio.sleep(1)
        world.cluster.weather.everywhere = 1.0
        submitter = world.submitters[0]
        world.workload.calls[0].extend(calls)
        submitter.boot()
        await asyncio.sleep(40)
        world.cluster.weather.clear()
        await until(lambda: submitter.is_finished)
        await until(ended(world, *map(key_of, calls)))
        await Auditor(world.cluster).light_equals_full([])

    _, outcome = play(tmp_path, story)
    assert not outcome.violations


def test_a_renewal_that_fails_for_any_reason_does_not_end_the_worker(tmp_path, monkeypatch):
    """Seed 11: the renewal's task belongs to the worker's own group."""
    slow = call(kind="render.slow", duration_ms=15_000, lease_ms=20_000)
    really_write = Tenure.write
    broken = []

    async def write(self, kind, body, *more):
        if kind is JobClaim and not broken:
            broken.append(kind)
            raise Corrupt("what was read cannot be true")
        return await really_write(self, kind, body, *more)

    monkeypatch.setattr(Tenure, "write", write)

    async def story(world):
        world.workers[0].boot()
        await submit(world, slow)
        await until(ended(world, key_of(slow)))

    _, outcome = play(tmp_path, story)
    assert broken
    assert not outcome.violations
    assert outcome.runs == 1


def test_a_strangers_control_op_with_deps_ends_nobody_while_the_engine_is_silent(
    tmp_path, monkeypatch
):
    """Seed 201: what it depends on could not be read, and worker and full node gave up."""

    def request(self, what):
        return Fate(lost=True) if what == "fetch" and self._weather.everywhere else FINE

    monkeypatch.setattr(Network, "request", request)
    ends = []

    async def story(world):
        world.full[0].boot()
        world.workers[0].boot()
        await asyncio.sleep(1)
        session = world.hostile_member.connect()
        body = CoordinatorBody(node=session.author.did)
        genesis = await session.fetch_opened(1)
        deps = ((1, genesis.op_id),)
        world.cluster.weather.everywhere = 1.0
        draft = session.draft(MeshCoordinator, body, prev=0, deps=deps)
        await session.commit(draft)
        for machine in (world.full[0], world.workers[0]):
            monkeypatch.setattr(machine, "_died", ends.append)
        await asyncio.sleep(30)
        world.cluster.weather.clear()
        await until(lambda: world.full[0].node.applied == world.cluster.referee.log.last_seq)
        assert world.cluster.referee.verdicts[-1].value == "not_owner"

    _, outcome = play(tmp_path, story)
    assert ends == []
    assert not outcome.violations


def test_junk_outside_the_lanes_gets_the_same_verdict_from_a_node_that_confirmed_ahead(tmp_path):
    """Found by reading: it was taken for an old control op, and recorded as malformed."""

    async def story(world):
        log = world.cluster.server.mesh(world.cluster.mesh).log
        log.append(f"{subjects.root(world.cluster.mesh)}.seal", b"junk", "junk", 0)
        world.owner.boot()
        world.owner.rule(attempts=5)
        await until(lambda: world.owner.is_idle)
        session = world.full[0].connect()
        await session.sync_control()
        node = FullNode(session, Replica(":memory:", mesh=world.cluster.mesh))
        await node.apply([log.at(seq) for seq in (1, 2, 3)])
        found = [node.replica.record(seq).verdict.value for seq in (1, 2, 3)]
        node.replica.close()
        assert found == ["ok", "frame", "ok"]

    _, outcome = play(tmp_path, story)
    assert not outcome.violations


@pytest.mark.req("M12")
def test_a_refused_claimer_settles_the_announcement_once_and_waits(tmp_path, monkeypatch):
    """Found by reading: it read the lane eight times and then waited for a random minute."""
    flaky = call(kind="fetch.flaky", duration_ms=100, fails=1)
    naks = []

    async def story(world):
        worker = world.workers[0]
        worker.boot()
        await until(lambda: worker.engine is not None)
        really_post = worker.engine._connection.post

        def post(what, work):
            if what == "nak":
                naks.append(asyncio.get_running_loop().time())
            really_post(what, work)

        worker.engine._connection.post = post
        await submit(world, flaky)
        await until(lambda: lane(world, key_of(flaky)).attempts == 1)
        # It has yielded with a pause of 200 to 400 ms, and is called again at once.
        session = world.submitters[1].connect()
        view = await session.read_lane(*key_of(flaky))
        offer = OfferBody(kind=flaky.kind, job=key_of(flaky)[1])
        await session.commit(session.draft(JobOffer, offer, prev=view.lane.call_tail))
        await until(ended(world, key_of(flaky)))
        assert asyncio.get_running_loop().time() < 3.0

    world, outcome = play(tmp_path, story)
    assert not outcome.violations
    assert types_on(world, key_of(flaky)).count(("claim", "ok")) == 2
    assert len(naks) == 2, "one for the yield, one for the call that came too early"


def test_a_worker_whose_clock_is_a_little_behind_claims_at_once(tmp_path):
    """Found on the way: it had not merged the call's time, so its claim would have been stale."""
    one = call(duration_ms=10)

    async def story(world):
        world.workers[0].clock.step(-800)
        world.workers[0].boot()
        await asyncio.sleep(1)
        await submit(world, one)
        began = asyncio.get_running_loop().time()
        await until(ended(world, key_of(one)))
        assert asyncio.get_running_loop().time() - began < 0.3

    _, outcome = play(tmp_path, story)
    assert not outcome.violations


def test_a_full_node_that_restarts_on_a_copy_that_lags_does_not_call_the_log_cut_off(
    tmp_path, monkeypatch
):
    """Seed 3044: both looks were answered by a copy that was one record behind."""
    answers = []

    def request(self, what):
        late = what in {"fetch", "last"} and len(answers) < 4 and self._weather.everywhere
        answers.append(what)
        return Fate(lag=2) if late else FINE

    monkeypatch.setattr(Network, "request", request)

    async def story(world):
        machine = world.full[0]
        machine.boot()
        await submit(world, call())
        await until(lambda: machine.node.applied == world.cluster.referee.log.last_seq)
        machine.kill()
        answers.clear()
        world.cluster.weather.everywhere = 1.0
        machine.boot()
        await until(lambda: machine.node is not None and machine.node.ready.is_set())

    _, outcome = play(tmp_path, story)
    assert not outcome.violations


def test_what_an_op_depends_on_is_never_decided_by_a_copy_that_lags(tmp_path, monkeypatch):
    monkeypatch.setattr(Network, "request", lagging("fetch", "fetch_many", "confirm"))

    async def story(world):
        session = world.submitters[0].connect()
        await session.sync_control()
        assert (await session.record_at(1)).seq == 1
        world.cluster.weather.everywhere = 1.0
        with pytest.raises(Unavailable):
            await session.record_at(1)

    play(tmp_path, story)


def test_a_clock_that_is_made_fast_twice_is_right_again_after_the_storm():
    # The second fault took the first one's rate for the usual one: its calls never arrived.
    storm = {"chaos_s": 150.0, "faults_per_hour": 1_800.0}
    assert not run(Plan(seed=11, stress=("jump", "race", "engine_jump"), **storm)).violations
