"""The simulator would notice: each deliberate bug is caught, and the system without it is not."""

import json
import re
import shlex
from types import SimpleNamespace

import pytest

from antiphon.core import opened_record, reducer
from antiphon.core.authority import chain_check
from antiphon.core.authority.control import Control
from antiphon.core.authority.delegations import Grants
from antiphon.core.derivations import quorum_derivation
from antiphon.core.derivations.limit_use import LimitUse
from antiphon.core.derivations.offer_derivation import Waiter
from antiphon.core.families.jobs import (
    completion_proof,
    planned,
    questions,
    replicas,
    run_artifacts,
    table,
)
from antiphon.core.families.jobs.ops import JobArtifact, JobClaim, JobExpire, JobOffer, JobYield
from antiphon.core.families.locks import table as lock_table
from antiphon.core.families.locks.ops import LockTake
from antiphon.core.families.locks.state import Hold
from antiphon.core.families.memory import table as memory_table
from antiphon.core.families.plans import table as plan_table
from antiphon.core.families.seals import table as seals_table
from antiphon.core.policy.locks.lock_time import HoldTime
from antiphon.core.ucan import Chain, chain, signatures
from antiphon.engines.memory.log import LogStore
from antiphon.engines.memory.oplog import MemoryLog
from antiphon.runtime.caller.bulk_submission import _Bulk
from antiphon.runtime.coordinator import predecessors
from antiphon.runtime.executors.step import Ask
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.write_turns import WriteTurns, _Waiting
from antiphon.runtime.node.delayed_jobs import DelayedJobs
from antiphon.runtime.node.overdue_jobs import OverdueJobs
from antiphon.runtime.outbox.lane_writes import LaneWriter
from antiphon.runtime.outbox.outbox_sender import OutboxSender
from antiphon.runtime.plans.plan_runner import PlanRunner
from antiphon.runtime.worker import job_claims
from antiphon.runtime.worker.job_deliveries import JobDeliveries
from antiphon.runtime.worker.plain_jobs import PlainJobs
from antiphon.runtime.worker.queue_credits import Credits
from antiphon.runtime.worker.run_slots import RunSlots
from antiphon.runtime.worker.runs.artifact_writer import ArtifactWriter
from antiphon.runtime.worker.runs.model_calls import ModelCalls
from antiphon.runtime.worker.runs.stored_steps import StoredSteps
from antiphon.runtime.worker.runs.stream_writer import StreamWriter
from antiphon.runtime.worker.tenure import Tenure
from simulator.hostile.answers_of_others import ANSWERS_OF_OTHERS
from simulator.hostile.attacks import AUDITED_DEEDS, DEEDS
from simulator.hostile.forgeries import FORGERIES
from simulator.hostile.misused_services import MISUSE
from simulator.hostile.starvation import GREED
from simulator.hostile.steps_of_others import STEPS_OF_OTHERS
from simulator.mutants import command as mutants
from simulator.seeds.fault_schedule import CHAINED_MENU
from simulator.seeds.world import run
from tests.examples import IS_SOAK, size

CAUGHT_BY = {
    "no_fence_check": {"one_result", "final"},
    "early_ack": {"acks_are_true"},
    "no_compare_and_set": {"chained", "no_racing"},
    "expiry_by_local_time": {"not_early"},
    "subject_unchecked": {"own_subject", "routed"},
    "routes_unread": {"routed"},
    "pauses_unread": {"not_while_paused"},
    "proofs_unread": {"proved"},
    "seals_unread": {"seals_are_true"},
    "second_life": {"one_run_per_fence"},
    "cooldown_skipped": {"patient"},
    "start_by_ignored": {"begun_in_time"},
    "delays_unread": {"not_before_its_time"},
    "delays_by_local_time": {"not_before_its_time"},
    "delays_unheeded": {"begins_on_time"},
    "limits_forgotten": {"within_limits"},
    "predecessors_forgotten": {"after_its_predecessors"},
    "quorum_of_one": {"agreed"},
    "leases_without_bound": {"bounded"},
    "tenures_without_end": {"bounded"},
    "attempts_uncounted": {"final"},
    "slots_uncounted": {"within_slots"},
    "plain_ends_unread": {"acks_are_true"},
    "stolen_calls_unheeded": {"every_job_ends"},
    "first_page_only": {"light_equals_full"},
    "ticks_doubled": {"derived_once", "ticks_in_order"},
    "turn_results_mixed": {"acks_are_true", "claimed_first", "within_limits"},
    "torn_turn_believed": {"acks_are_true"},
    "rest_of_group_unsent": {"promises_kept"},
    "base_ignored": {"nothing_overwritten"},
    "forms_unsearched": {"written_once", "dropped_is_not_there"},
    "forms_unnoted": {"written_once", "dropped_is_not_there"},
    "unanswered_is_held": {"held_is_there"},
    "unsent_is_forgotten": {"kept_until_told"},
    "locks_by_one_clock": {"one_holder"},
    "fence_kept_on_pass": {"lock_fences_rise", "one_fence_one_holder"},
    "holders_never_stop": {"stops_in_time"},
    "calendars_endless": {"no_bugs"},
    "repeats_accepted": {"named_once"},
    "shorter_renewal_kept": {"entered_as_read"},
    "anyone_stores": {"stored_by_holder"},
    "old_fences_store": {"stored_by_holder"},
    "numbers_unread": {"stored_by_holder"},
    "stored_steps_unread": {"computed_once"},
    "steps_return_unstored": {"stored_first"},
    "unanswered_is_stored": {"stored_first"},
    "calls_unread": {"calls_accounted_for"},
    "calls_unstored": {"calls_accounted_for", "honest_writers"},
    "streams_begin_anew": {"parts_in_order", "streams_go_on"},
    "unanswered_parts_dropped": {"parts_in_order", "streams_go_on"},
    "askers_answer": {"taken_by_others"},
    "questions_run": {"taken_by_others"},
    "answers_unread": {"only_answered", "proved"},
    "answers_unsigned": {"proved"},
    "questions_used_up": {"begun_in_time", "answers_are_given"},
    "asked_anew": {"asked_once"},
    "answers_swapped": {"answers_are_given"},
    "answers_by_kind": {"answers_are_given", "asked_once"},
}
ON_CHAINED_WORLDS = {
    "first_verdicts_kept": {"claimed_first", "acks_are_true"},
    "revocation_ignored": {"leases_end", "truly_held"},
    "quarantine_ends_no_lease": {"leases_end", "truly_held"},
    "authors_clock_only": {"authorised"},
    "commit_clock_only": {"authorised"},
    "expiry_a_second_late": {"authorised"},
    "any_audience": {"authorised"},
    "any_root": {"authorised", "put_by_right"},
    "any_kind": {"authorised"},
    "anyone_revokes": {"authorised", "fences_rise"},
    "forged_delegations": {"by_right"},
    "anyone_expires": {"authorised"},
    "readers_unasked": {"read_by_right"},
    "workers_unasked": {"read_by_right"},
    "asked_too_late": {"read_by_right"},
}
KNOWN_TO_CATCH = {
    "no_fence_check": 13,
    "early_ack": 2,
    "subject_unchecked": 4,
    "cooldown_skipped": 3,
    "start_by_ignored": 3,
    "delays_by_local_time": 6,
    "delays_unheeded": 2,
    "attempts_uncounted": 1,
    "proofs_unread": 1,
    "leases_without_bound": 4,
    "seals_unread": 2,
    "tenures_without_end": 13,
    "limits_forgotten": 4,
    "first_page_only": 1,
    "quarantine_ends_no_lease": 19,
    "authors_clock_only": 17,
    "commit_clock_only": 7,
    "expiry_a_second_late": 21,
    "anyone_expires": 3,
    "slots_uncounted": 8,
    "stolen_calls_unheeded": 2,
    "first_verdicts_kept": 265,
    "turn_results_mixed": 8,
    "torn_turn_believed": 12,
    "locks_by_one_clock": 4,
    "holders_never_stop": 5,
    "shorter_renewal_kept": 4,
    "any_root": 3,
    "quorum_of_one": 11,
    "expiry_by_local_time": 2,
    "delays_unread": 0,
    "second_life": 10,
    "readers_unasked": 3,
    "workers_unasked": 3,
    "asked_too_late": 3,
    "repeats_accepted": 4,
    "calendars_endless": 4,
    "routes_unread": 5,
    "anyone_stores": 1,
    "numbers_unread": 2,
    "pauses_unread": 4,
    "old_fences_store": 8,
    "calls_unread": 2,
    "calls_unstored": 1,
    "answers_unread": 3,
    "answers_unsigned": 4,
    "questions_run": 8,
    "questions_used_up": 1,
    "unanswered_parts_dropped": 1,
    "forms_unnoted": 1,
    "unanswered_is_held": 10,
    "answers_by_kind": 0,
    "streams_begin_anew": 3,
    "askers_answer": 4,
}
"""Seeds to begin with where the first one catches nothing, or late. If what happens in a world
changes, the hunt goes on from the first seed: the table only saves time."""


def patchable():
    return [
        table._holder_fault,
        table.stands_for,
        Control.pause_of,
        replicas.quorum_fault,
        quorum_derivation.derive,
        completion_proof.is_proved,
        completion_proof.are_accounted_for,
        ModelCalls.account,
        questions.claim_fault,
        questions.answer_fault,
        Ask.__init__,
        Ask._read,
        dict(table.TRANSITIONS[JobExpire]),
        seals_table._matches,
        memory_table._fits,
        LaneWriter.__init__,
        LaneWriter._arrived,
        OutboxSender._settle,
        Hold.is_over,
        HoldTime.stop_after_ms,
        dict(lock_table.TRANSITIONS[LockTake]),
        lock_table._held,
        job_claims.HELD,
        JobDeliveries._complete,
        PlainJobs._ran,
        RunSlots.enter,
        run_artifacts.with_artifact,
        dict(table.TRANSITIONS[JobArtifact]),
        StoredSteps._read_all,
        ArtifactWriter.write,
        StreamWriter.begin,
        Tenure.store,
        WriteTurns._read_back,
        _Waiting.goes_on,
        _Bulk._resolve,
        Session.send,
        Session.judge,
        LogStore.append,
        reducer._fault,
        *(dict(table.TRANSITIONS[op]) for op in (JobExpire, JobClaim, JobOffer, JobYield)),
        Credits.admit,
        OverdueJobs._point_to,
        DelayedJobs.look,
        LimitUse.room,
        predecessors.derive_in_steps,
        Waiter.unread_kind,
        plan_table.LATEST_BEGIN_MS,
        table._names_twice,
        MemoryLog.read_lane,
        planned._is_said,
        PlanRunner._derived_ms,
        chain_check.fault,
        opened_record.open_record,
        table.has_lost_authority,
        Grants.revoked,
        Chain.judge,
        Chain.may_revoke,
        Chain._policy_fault,
        Chain._time_fault,
        chain._follow,
        signatures.is_signed,
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_mutant_is_caught_and_its_world_passes_without_it(name):
    """In CI the hunt begins with a world that has caught it, and few pass without a mutant too."""
    known = [KNOWN_TO_CATCH[name]] if name in KNOWN_TO_CATCH and not IS_SOAK else []
    plans = mutants.at_once(name, [*known, *range(mutants.SEEDS)])
    catch = mutants.hunt(name, plans)
    assert catch is not None, f"{name} survived {len(plans)} seeds"
    assert catch.law in (CAUGHT_BY | ON_CHAINED_WORLDS)[name], catch
    if list(mutants.MUTANTS).index(name) % size(12, soak=1) == 0:
        assert not run(catch.plan, mutants.guests_for(name)).violations


def test_a_quick_hunt_goes_where_a_mutant_can_do_harm_and_provokes_it():
    assert set(ON_CHAINED_WORLDS) == mutants.ABOUT_CHAINS
    assert [one.seed for one in mutants.at_once("any_root", range(4))] == [1, 3]
    assert [one.seed for one in mutants.at_once("early_ack", range(4))] == [0, 1, 2, 3]
    assert [one.seed for one in mutants.anywhere("any_root", range(4))] == [0, 1, 2, 3]
    assert mutants.at_once("any_root", [1])[0].stress == ("self_made",)
    assert mutants.anywhere("any_root", [1])[0].stress == ()


def test_what_provokes_a_mutant_is_something_that_happens():
    happens = {*CHAINED_MENU, *DEEDS, *GREED, *MISUSE, *FORGERIES, "unquenchable"}
    happens |= {*STEPS_OF_OTHERS, *AUDITED_DEEDS, *ANSWERS_OF_OTHERS}
    assert {name for names in mutants.PROVOKED_BY.values() for name in names} <= happens
    assert set(mutants.PROVOKED_BY) <= set(mutants.MUTANTS)


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_mutant_leaves_nothing_behind(name):
    before = patchable()
    with mutants.MUTANTS[name]():
        assert patchable() != before
    assert patchable() == before


@pytest.fixture
def told(monkeypatch, capsys):
    """Runs the command on three mutants of which nothing is really run; what it told and did."""
    checked, printed = [], []

    def command(*arguments, caught, broken=()):
        catches = {
            name: mutants.Catch(name, mutants.at_once(name, [seed])[0], "law", "what", "")
            for name, seed in caught.items()
        }
        monkeypatch.setattr(
            mutants, "MUTANTS", dict.fromkeys(("early_ack", "any_root", "seals_unread"))
        )
        monkeypatch.setattr(mutants, "hunt", lambda name, _: catches.get(name))

        def run(plan):
            checked.append((plan.seed, *plan.stress))
            found = ["a law"] if plan.seed in broken else []
            digest = f"of {plan}"
            return SimpleNamespace(
                seed=plan.seed, broken=len(found), violations=found, digest=digest
            )

        monkeypatch.setattr(mutants, "run", run)
        checked.clear()
        printed.clear()
        code = mutants.main(["--processes", "1", *arguments])
        out = capsys.readouterr()
        printed.extend(re.findall(r"replay it alone: +python -m simulator.mutants (.+)", out.err))
        return code, json.loads(out.out.splitlines()[-1]), checked

    command.printed = printed
    return command


ALL = {"early_ack": 0, "any_root": 3, "seals_unread": 1}


def test_a_survivor_fails_the_command(told):
    code, report, _ = told("--seeds", "2", caught={"early_ack": 0, "seals_unread": 1})
    assert code == 1
    assert (report["mutants"], report["caught"], report["seeds_max"]) == (3, 2, 2)
    assert told("--quick", caught={"early_ack": 0})[0] == 1


def test_without_mutants_every_seed_is_checked_that_was_needed_and_quickly_those_that_caught(told):
    code, report, checked = told(caught=ALL)
    assert code == 0
    assert checked == [(seed,) for seed in range(4)]
    assert (report["seeds_max"], report["unmutated_worlds"]) == (4, 4)
    code, report, checked = told("--quick", caught=ALL)
    assert code == 0
    assert checked == [(0, "crash"), (3, "self_made"), (1, "false_seal")]
    assert (report["seeds_max"], report["unmutated_worlds"]) == (4, 3)


@pytest.mark.parametrize("how", [(), ("--quick",)])
def test_a_law_that_breaks_without_a_mutant_fails_the_command(told, how):
    code, report, _ = told(*how, caught=ALL, broken={1})
    assert (code, report["unmutated_violations"]) == (1, 1)


@pytest.mark.parametrize("how", [(), ("--quick",)])
def test_the_command_printed_at_a_broken_law_replays_that_world_alone(told, how):
    _, report, _ = told(*how, caught=ALL, broken={3})
    arguments = shlex.split(told.printed[-1])
    _, again, checked = told(*arguments, caught=ALL, broken={3})
    assert len(checked) == 1
    assert again["broken"] == report["broken"] != {}


@pytest.mark.soak
def test_the_command_printed_at_a_catch_replays_that_world_alone(capsys):
    """The second of a hunt: nothing that the first has left behind matters."""
    one = ["--processes", "1", "--quick", "--mutant", "forms_unnoted"]
    assert mutants.main(one) == 0
    out = capsys.readouterr()
    (printed,) = re.findall(r"replay it alone: +python -m simulator.mutants (.+)", out.err)
    assert mutants.main([*shlex.split(printed), "--processes", "1"]) == 0
    reports = [json.loads(one.splitlines()[-1]) for one in (out.out, capsys.readouterr().out)]
    assert reports[0]["by"] == reports[1]["by"]
    assert reports[0]["seeds_max"] > reports[1]["seeds_max"] == 1
