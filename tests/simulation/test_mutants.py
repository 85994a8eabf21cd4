"""The simulator would notice: each deliberate bug is caught, and the system without it is not."""

import json

import pytest

from antiphon.core import authority, lanes, records, seals, transitions
from antiphon.core.grants import Grants
from antiphon.core.ops import JobExpire
from antiphon.core.ucan import Chain, chain, signatures
from antiphon.engines.memory.log import LogStore
from antiphon.runtime import worker
from antiphon.runtime.serving import Server
from antiphon.testing import mutants

CAUGHT_BY = {
    "no_fence_check": {"one_result", "final"},
    "early_ack": {"acks_are_true"},
    "no_compare_and_set": {"chained"},
    "expiry_by_local_time": {"not_early"},
    "subject_unchecked": {"own_subject"},
    "routes_unread": {"routed"},
    "proofs_unread": {"proved"},
    "seals_unread": {"seals_are_true"},
    "second_life": {"one_run_per_fence"},
}
ON_CHAINED_WORLDS = {
    "revocation_ignored": {"leases_end", "truly_held"},
    "quarantine_ends_no_lease": {"leases_end", "truly_held"},
    "authors_clock_only": {"authorised"},
    "commit_clock_only": {"authorised"},
    "expiry_a_second_late": {"authorised"},
    "any_audience": {"authorised"},
    "any_root": {"authorised"},
    "any_kind": {"authorised"},
    "anyone_revokes": {"authorised", "fences_rise"},
    "forged_delegations": {"by_right"},
}


def patchable():
    return [
        transitions._holder_fault,
        transitions.stands_for,
        transitions._is_proved,
        seals._judge_content,
        worker.HELD,
        Server._write,
        LogStore.append,
        lanes._judge,
        dict(transitions.TRANSITIONS[JobExpire]),
        records.open_record,
        authority.has_ended,
        Grants.revoked,
        Chain.judge,
        Chain.may_revoke,
        Chain._policy_fault,
        Chain._time_fault,
        chain._follow,
        signatures.is_signed,
    ]


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_mutant_is_caught_and_its_seed_passes_without_it(name):
    is_chained = name in ON_CHAINED_WORLDS
    catch = mutants.hunt(name, range(is_chained, mutants.SEEDS, 1 + is_chained))
    assert catch is not None, f"{name} survived {mutants.SEEDS} seeds"
    assert catch.law in (CAUGHT_BY | ON_CHAINED_WORLDS)[name], catch
    assert mutants.unmutated([catch.seed], name) == []


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_mutant_leaves_nothing_behind(name):
    before = patchable()
    with mutants.MUTANTS[name]():
        assert patchable() != before
    assert patchable() == before


def test_a_survivor_fails_the_command(capsys, monkeypatch):
    harmless = {"harmless": mutants.MUTANTS["early_ack"]}
    monkeypatch.setattr(mutants, "MUTANTS", harmless)
    monkeypatch.setattr(mutants, "hunt", lambda *_: None)
    monkeypatch.setattr(mutants, "unmutated", lambda *_: [])
    assert mutants.main(["--seeds", "2"]) == 1
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["mutants"], report["caught"], report["seeds_max"]) == (1, 0, 2)
