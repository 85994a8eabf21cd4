"""`bench queries`: what a page of jobs costs by any filter, and what the counters cost.

The jobs are written through the replica's own `note` and `flush`, one record for each in its last
state: of 40 kinds, by 20 submitters and 200 workers, some with labels, plans, errors, and in
graphs. Then every filter is asked for its first page and for pages further back, also filters that
find nothing, and pairs of filters that each find many jobs and together none. `page_p99_ms` and
`counters_ms` are processor time, so other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from antiphon.core.families.jobs.state import State
from antiphon.runtime.replica.job_pages import JobFilter, JobPages
from antiphon.runtime.replica.replica import Replica
from bench.measurement.report import conclude, percentile, say
from bench.meshes.many_jobs import EVERY_MS, KINDS, MESH, START_MS, did, fill

JOBS = 1_000_000
QUICK = 60_000
LIMIT = 100
PAGES = 6
"""Of each filter: the first, and some from further back."""
PAGE_MS_MOST = 50.0
COUNTERS_MS_MOST = 5.0


def filters(jobs: int) -> dict[str, JobFilter]:
    """One of each sort, and the awkward ones."""
    half_ms = START_MS + jobs * EVERY_MS // 2
    ended = (State.FAILED, State.ABORTED)
    return {
        "all": JobFilter(),
        "kind": JobFilter(kind=KINDS[0]),
        "rare kind": JobFilter(kind=KINDS[-2]),
        "kinds below": JobFilter(kind="render"),
        "no such kind": JobFilter(kind="none"),
        "state": JobFilter(states=(State.SUCCEEDED,)),
        "failed": JobFilter(states=ended),
        "open": JobFilter(states=(State.WAITING, State.PENDING, State.RUNNING)),
        "state and kind": JobFilter(states=ended, kind="build"),
        "since": JobFilter(since_ms=half_ms),
        "until": JobFilter(until_ms=half_ms),
        "submitter": JobFilter(submitter=did(1)),
        "rare submitter": JobFilter(submitter=did(19)),
        "worker": JobFilter(worker=did(1_007)),
        "no such worker": JobFilter(worker=did(7)),
        "label": JobFilter(label="gpu=one"),
        "plan": JobFilter(plans=(f"blake3:{3:064x}", f"blake3:{4:064x}")),
        "text": JobFilter(text="connection refused"),
        "one word": JobFilter(text="timeout"),
        "rare text": JobFilter(text="number10"),
        "graph": JobFilter(graph=("graph.step", f"{(jobs // 1_000) * 1_000 - 4:064x}")),
        "worker and state": JobFilter(worker=did(1_007), states=ended),
        "submitter and worker": JobFilter(submitter=did(19), worker=did(1_007)),
        "label and plan": JobFilter(label="gpu=one", plans=(f"blake3:{1:064x}",), kind="render"),
        "nothing in common": JobFilter(submitter=did(0), label="gpu=one", kind="graph"),
        "many and none": JobFilter(submitter=did(0), kind=KINDS[0], worker=did(1)),
        "text and worker": JobFilter(text="refused", worker=did(1_001)),
        "all of it": JobFilter(
            submitter=did(0), kind="build", states=ended, since_ms=half_ms, text="memory"
        ),
    }


def time_pages(replica: Replica, jobs: int) -> dict[str, list[float]]:
    """Processor time of pages, in milliseconds, by filter."""
    pages, chance = replica.ask(JobPages), random.Random(7)
    found: dict[str, list[float]] = {}
    for name, wanted in filters(jobs).items():
        places = [0, *(chance.randrange(jobs) for _ in range(PAGES - 1))]
        for before in places:
            begun = time.process_time()
            pages.page(wanted, before=before, limit=LIMIT)
            found.setdefault(name, []).append((time.process_time() - begun) * 1000)
        visible = ("render.>", "graph.step")
        begun = time.process_time()
        pages.page(wanted, visible=visible, limit=LIMIT)
        found[name].append((time.process_time() - begun) * 1000)
    return found


def time_counters(replica: Replica) -> list[float]:
    """The same of what is shown beside every page: all, one kind, some kinds, each kind."""
    pages = replica.ask(JobPages)
    asked = (
        pages.counts,
        lambda: pages.counts(kind="render"),
        lambda: pages.counts(visible=("render.>", "graph.step")),
        pages.counts_by_kind,
    )
    found = []
    for ask in asked:
        begun = time.process_time()
        ask()
        found.append((time.process_time() - begun) * 1000)
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench queries")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    jobs = QUICK if args.quick else args.jobs
    with tempfile.TemporaryDirectory() as place:
        replica = Replica(Path(place) / "replica.db", mesh=MESH)
        say(f"writing {jobs:,} jobs")
        begun = time.process_time()
        fill(replica, jobs)
        written_us = (time.process_time() - begun) * 1e6 / jobs
        timed = time_pages(replica, jobs)
        counters = time_counters(replica)
        replica.close()
    for name, took in sorted(timed.items(), key=lambda one: -max(one[1])):
        say(f"{name:>22}: first {took[0]:6.2f} ms, most {max(took):6.2f} ms")
    every = [one for took in timed.values() for one in took]
    p99, most = percentile(every, 0.99), max(counters)
    conclude(
        jobs=jobs,
        filters=len(timed),
        pages=len(every),
        page_p50_ms=round(percentile(every, 0.5), 2),
        page_p99_ms=round(p99, 2),
        page_max_ms=round(max(every), 2),
        counters_ms=round(most, 2),
        written_us=round(written_us, 1),
    )
    return 0 if p99 <= PAGE_MS_MOST and most <= COUNTERS_MS_MOST else 1
