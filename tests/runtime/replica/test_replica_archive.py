"""What an archiver asks of a replica."""

import pytest

from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_archive import ReplicaArchive
from bench.meshes.many_jobs import MESH, fill

PAGE = 50
STEPS = 100
"""Of SQLite's machine, between two counts."""


def walk(replica, *, below=10**9):
    """All old lanes, page by page, and how many steps of SQLite that took."""
    table, queries = replica.tables["jobs"], replica.ask(ReplicaArchive)
    steps, after, found = 0, 0, []

    def count():
        nonlocal steps
        steps += 1

    replica._db.set_progress_handler(count, STEPS)
    try:
        while page := queries.old(table, below, limit=PAGE, after=after):
            found += page
            after = page[-1].first
    finally:
        replica._db.set_progress_handler(None, 0)
    return found, steps


@pytest.fixture
def filled(tmp_path):
    def of(jobs):
        replica = Replica(tmp_path / f"{jobs}.db", mesh=MESH)
        fill(replica, jobs)
        return replica

    return of


def test_a_walk_over_four_times_the_lanes_takes_four_times_the_work(filled):
    (few, few_steps), (many, many_steps) = (walk(filled(jobs)) for jobs in (400, 1_600))
    assert (len(few), len(many)) == (400, 1_600)
    assert many_steps < 6 * few_steps


def test_lanes_come_by_their_first_record_that_is_on_the_log(filled):
    replica = filled(120)
    whole, _ = walk(replica)
    assert [one.first for one in whole] == list(range(1, 121))
    replica.ask(ReplicaArchive).went([one.row for one in whole[:60]], 60)
    rest, _ = walk(replica, below=100)
    assert [one.row for one in rest] == [one.row for one in whole[60:99]]
    assert all(one.first == one.last for one in rest)
