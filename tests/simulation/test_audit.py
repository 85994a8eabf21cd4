"""What the referee hears and the audit reads can be wrong, and then they say so."""

import json
from contextlib import closing
from types import SimpleNamespace

from antiphon.core.record.verdict import Verdict
from simulator.actors.workload import Promise
from simulator.seeds import world
from simulator.seeds.final_audit import Auditor
from tests.simulation.cluster import call, ended, key_of, play, submit, until

KEY = ("build.fast", "a" * 64)


def accused(tmp_path, tamper):
    """Laws broken in a quiet world after something was tampered with."""
    one = call(duration_ms=100)

    async def story(made):
        for machine in (*made.full, made.workers[0]):
            machine.boot()
        await submit(made, one)
        await until(ended(made, key_of(one)))
        log = made.cluster.referee.log
        await until(lambda: all(one.node.applied == log.last_seq for one in made.full))
        assert not made.cluster.referee.violations
        with closing(Auditor(made.cluster)) as auditor:
            found = tamper(made)
            if found is not None:
                await found
            auditor.every_job_ends(made.workers)
            auditor.promises_kept(made.workload)
            auditor.seals_are_true()
            await auditor.light_equals_full(made.full)
            await auditor.running_equals_replay(made.full)

    _, outcome = play(tmp_path, story)
    return {violation.law for violation in outcome.violations}


def test_a_quiet_world_passes_its_audit(tmp_path):
    assert accused(tmp_path, lambda made: None) == set()


def test_an_acknowledgement_of_a_job_that_has_not_ended(tmp_path):
    async def story(made):
        made.workers[0].boot()
        await submit(made, call(duration_ms=5_000))
        referee = made.cluster.referee
        referee.acked("worker-0", referee.log.at(2))
        before = len(referee.violations)
        await until(ended(made, key_of(call(duration_ms=5_000))))
        referee.acked("worker-0", referee.log.at(2))
        assert (before, len(referee.violations)) == (1, 1)

    _, outcome = play(tmp_path, story)
    assert {violation.law for violation in outcome.violations} == {"acks_are_true"}


def test_a_full_node_with_another_verdict(tmp_path):
    def tamper(made):
        applied = SimpleNamespace(record=made.cluster.referee.log.at(3), verdict=Verdict.HELD)
        made.cluster.referee.applied("full-0", applied)

    assert accused(tmp_path, tamper) == {"all_agree"}


def test_a_light_reader_with_another_verdict(tmp_path):
    def tamper(made):
        made.cluster.referee.verdicts[2] = Verdict.HELD

    assert accused(tmp_path, tamper) == {"light_equals_full"}


def test_a_replica_that_recorded_something_else(tmp_path):
    def tamper(made):
        made.full[0].replica._db.execute("update records set verdict = 'held' where seq = 3")

    assert accused(tmp_path, tamper) == {"light_equals_full", "restart_equals_replay"}


def test_a_replica_that_restarts_elsewhere(tmp_path):
    async def restart(made):
        made.full[1].replica._db.execute("update lanes_jobs set state = 'pending', due_ms = 1")
        with closing(Auditor(made.cluster)) as auditor:
            await auditor.restart_equals_replay(made.full[1:])
        made.full[1].boot()
        await until(lambda: made.full[1].replica is not None)

    assert "restart_equals_replay" in accused(tmp_path, restart)


def test_a_job_that_never_ends_and_a_promise_that_is_not_kept(tmp_path):
    def tamper(made):
        made.workload.promises.append(Promise(3, b"something else"))
        made.workload.promises.append(Promise(999, b""))

    assert accused(tmp_path, tamper) == {"promises_kept"}

    async def story(made):
        await submit(made, call())
        Auditor(made.cluster).every_job_ends(made.workers)

    _, outcome = play(tmp_path / "open", story)
    assert {violation.law for violation in outcome.violations} == {"every_job_ends"}


def test_a_handler_that_runs_twice_under_one_fence(tmp_path):
    def tamper(made):
        referee = made.cluster.referee
        referee.ledger.lane(KEY).fences += ["f", "g"]
        referee.ran("worker-0", KEY, "f")
        referee.ran("worker-1", KEY, "g")
        assert not referee.violations
        referee.ran("worker-1", KEY, "f")

    assert accused(tmp_path, tamper) == {"one_run_per_fence"}


def test_a_handler_that_runs_without_an_accepted_claim(tmp_path):
    def tamper(made):
        made.cluster.referee.ran("worker-0", KEY, "f")

    assert accused(tmp_path, tamper) == {"claimed_first"}


def test_two_ops_with_one_timestamp(tmp_path):
    def tamper(made):
        op = {"type": "job.cancel", "author": "x", "hlc": [5, 0], "prev": 0}
        for job in ("a" * 64, "b" * 64):
            op["body"] = {"kind": KEY[0], "job": job}
            raw = json.dumps(op).encode()
            made.cluster.referee.signed("x", raw, is_honest=True)
            made.cluster.referee.signed("x", raw, is_honest=True)

    assert accused(tmp_path, tamper) == {"one_time_one_op"}


def test_a_bug_that_a_service_survives(tmp_path):
    async def story(made):
        def watch(_applied):
            raise ValueError("no idea")

        full = made.full[0]
        full.boot()
        await until(lambda: full.node is not None)
        full.node.watchers.append(watch)
        await submit(made, call(duration_ms=100))
        await until(lambda: made.cluster.referee.violations)

    _, outcome = play(tmp_path, story)
    assert {violation.law for violation in outcome.violations} == {"no_bugs"}


def test_a_process_that_dies_of_its_own(tmp_path, monkeypatch):
    async def story(made):
        async def run():
            raise ValueError("no idea")

        monkeypatch.setattr(made.workers[0], "run", run)
        made.workers[0].boot()
        await until(lambda: made.cluster.referee.violations)

    _, outcome = play(tmp_path, story)
    assert {violation.law for violation in outcome.violations} == {"nobody_dies"}


def test_a_run_that_does_not_come_to_rest_is_told(tmp_path, monkeypatch):
    """With nobody to run them, jobs stay open, and the audit says which."""
    monkeypatch.setattr(world, "HEALING_S", 60.0)
    monkeypatch.setattr(world, "KINDS_OF_WORKERS", ())
    plan = world.Plan(seed=2, chaos_s=30.0, jobs_per_hour=600.0, faults_per_hour=0.0)
    outcome = world.run(plan)
    assert {violation.law for violation in outcome.violations} == {"every_job_ends"}
    assert outcome.stories


def test_a_seal_over_something_else(tmp_path):
    def tamper(made):
        referee = made.cluster.referee
        sealed = next(
            seq
            for seq in range(1, referee.log.last_seq + 1)
            if referee.log.at(seq).subject.endswith(".seal")
        )
        assert referee.verdicts[sealed - 1] is Verdict.OK
        referee.verdicts[sealed - 2] = Verdict.STALE  # as if the log had said so all along

    async def story(made):
        made.owner.boot()
        made.full[0].boot()
        made.owner.coordinate(made.full[0].keyring.did)
        await until(lambda: made.cluster.referee.sealed)
        auditor = Auditor(made.cluster)
        auditor.seals_are_true()
        assert not made.cluster.referee.violations
        tamper(made)
        auditor.seals_are_true()

    _, outcome = play(tmp_path, story, seed=2)
    assert {violation.law for violation in outcome.violations} == {"seals_are_true"}
