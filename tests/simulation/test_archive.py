"""A simulated log that is archived and purged: every law holds, and each bug breaks one."""

import json
import re
import shlex

import pytest

from simulator.archive import archive_mutants, command
from simulator.archive.archive_laws import ArchiveLaws
from simulator.archive.archive_world import ArchivePlan, run
from simulator.archive.snapshot_world import ForgettingWorld, SnapshotWorld

CAUGHT_BY = {
    archive_mutants.archive_forgotten: (0, "all_agree"),
    archive_mutants.replay_accepted: (4, "nothing_comes_back"),
    archive_mutants.purged_too_early: (0, "all_agree"),
    archive_mutants.half_purged: (1, "all_agree"),
    archive_mutants.tick_again: (10, "no_tick_twice"),
    archive_mutants.key_forgotten: (3, "nothing_comes_back"),
    archive_mutants.known_lanes_kept: (9, "all_agree"),
    archive_mutants.snapshot_stale: (0, "it_begins"),
    archive_mutants.frontier_wrong: (0, "it_begins"),
    archive_mutants.seals_forgotten: (4, "same_root"),
    archive_mutants.gap_unnoticed: (4, "same_root"),
    archive_mutants.half_read: (0, "all_agree"),
    archive_mutants.live_left_out: (4, "snapshot_whole"),
    archive_mutants.erased_too_early: (27, "all_agree"),
}
"""For each bug a seed that shows it, and the law that it breaks."""


SEEDS = {mutant: seed for mutant, (seed, _) in CAUGHT_BY.items()}
WITH_NODES = {seed for one, seed in SEEDS.items() if one in archive_mutants.WITH_NODES} - {27}


@pytest.mark.parametrize("seed", sorted({*SEEDS.values()} - (WITH_NODES - {0})))
def test_nothing_comes_back_and_every_reader_agrees(seed):
    outcome = run(ArchivePlan(seed=seed))
    assert outcome.violations == []
    assert outcome.archives > 3
    assert outcome.purged > 3
    assert outcome.lives > 0, "something began again"


@pytest.mark.parametrize("seed", sorted(WITH_NODES))
def test_full_nodes_that_begin_with_a_snapshot_or_come_back_agree_with_those_that_read_all(seed):
    outcome = run(ArchivePlan(seed=seed), SnapshotWorld)
    assert outcome.violations == []
    assert outcome.purged > 3
    assert outcome.joined > 3


@pytest.mark.parametrize("seed", [4, 27])
def test_no_reader_notices_that_nodes_erase_what_was_forgotten(seed):
    outcome = run(ArchivePlan(seed=seed), ForgettingWorld)
    assert outcome.violations == []
    assert outcome.erased > 3


@pytest.mark.parametrize("mutant", archive_mutants.MUTANTS, ids=lambda one: one.__name__)
def test_a_bug_breaks_a_law(mutant):
    seed, law = CAUGHT_BY[mutant]
    with mutant():
        broken = run(ArchivePlan(seed=seed), archive_mutants.world_of(mutant)).violations
    assert any(one.startswith(law) for one in broken)


def test_the_command_printed_at_a_broken_law_replays_that_world_alone(monkeypatch, capsys):
    """In each of a seed's three worlds; one ends at its first broken law."""
    really_read = ArchiveLaws.read

    def read(laws, who, key, view):
        if len(laws.records) > 20:
            laws.break_("a law", "")
        really_read(laws, who, key, view)

    monkeypatch.setattr(ArchiveLaws, "read", read)

    def broken(*arguments):
        assert command.main(list(arguments)) == 1
        out = capsys.readouterr()
        printed = re.findall(r"replay it alone: +python -m simulator.archive (.+)", out.err)
        found = json.loads(out.out.splitlines()[-1])["broken"]
        return list(zip(found.items(), printed, strict=True))

    worlds = broken("--seed", "3", "--seeds", "1")
    assert len({digest for (_, digest), _ in worlds}) == 3
    assert all(broken(*shlex.split(printed)) == [(one, printed)] for one, printed in worlds)
