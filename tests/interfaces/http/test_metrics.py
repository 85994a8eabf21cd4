"""Metrics say what the log says: counted from records, and compared with the records here."""

import asyncio
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from antiphon.core.families.jobs import ops
from antiphon.core.record.verdict import Verdict
from antiphon.interfaces.http.node_server import worker_server
from antiphon.interfaces.http.prometheus_text import MetricsPage
from antiphon.runtime.caller.submission import wait_for_end
from antiphon.runtime.histogram import BOUNDS_S, Histogram
from antiphon.runtime.tempo.tempo_metrics import TempoMetrics
from antiphon.sdk.http import job_figures
from antiphon.sdk.http.access import HttpAccess
from antiphon.sdk.http.job_figures import MAX_KINDS, OTHERS, KindLabels
from antiphon.sdk.http.node_view import NodeView
from antiphon.sdk.http.operator_token import OperatorToken
from antiphon.sdk.http.worker_view import WorkerView
from antiphon.sdk.jobs.job_lookup import ReplicaJobs
from antiphon.settings import HttpAddress
from tests.interfaces.http.client import OPERATOR, ask
from tests.runtime.meshes import KIND, QUICK, a_mesh, call, eventually

OTHER = "test.other"


def scraped(text: bytes) -> dict[tuple[str, ...], float]:
    """Samples by name and label values, in the order of the labels' names."""
    return {
        (one.name.removeprefix("antiphon_"), *(one.labels[key] for key in sorted(one.labels))): (
            one.value
        )
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


async def shaky(number: int) -> int:
    await asyncio.sleep(0.2)
    if number % 2:
        raise ValueError("odd")
    return number


async def a_story(mesh, node):
    """Jobs that succeed, fail, are retried and lose a lease; one waits for a worker."""
    caller = (await mesh.connection()).session
    stray = (await mesh.connection()).session
    lost = await call(caller, 100)
    await stray.read_lane(KIND, lost.id)
    body = ops.ClaimBody(kind=KIND, job=lost.id, lease_ms=QUICK.lease_ms, begin=True)
    await stray.commit(stray.draft(ops.JobClaim, body, prev=0))
    tail = (await caller.read_lane(KIND, lost.id)).lane.job_tail
    await caller.commit(caller.draft(ops.JobClaim, body, prev=tail))  # rejected: it is held
    worker = await mesh.worker(shaky)
    retry = ops.Retry(attempts=2, base_ms=10, cap_ms=20)
    jobs = [lost, *[await call(caller, number, retry=retry) for number in range(4)]]
    for job in jobs:
        await wait_for_end(caller, KIND, job.id)
    waiting = await call(caller, 1, kind=OTHER)
    await asyncio.sleep(5)
    await node.reached(waiting.seq)
    return worker


@pytest.mark.virtual_time
async def test_a_nodes_metrics_agree_with_the_log():
    async with a_mesh("memory", QUICK) as mesh:
        connection = await mesh.connection(mesh.owner)
        node = await mesh.node(connection=connection, bar_s=1.0)
        seen = node.applied
        view = NodeView(node, TempoMetrics())
        await a_story(mesh, node)
        told = scraped(MetricsPage(view).text("")[0])
        stored = [node.replica.record(seq) for seq in range(1, node.applied + 1)]
        opened = [(one, node.session.open(one.record).op) for one in stored]
        jobs = node.replica.ask(ReplicaJobs).jobs(limit=100)
        now_ms, seals = mesh.wall.now_ms(), node.seals
        sizes = node.replica.sizes.file_bytes()

    def accepted(wanted):
        return [op for one, op in opened if one.verdict is Verdict.OK and isinstance(op, wanted)]

    by_state = Counter((job.kind, job.state.value) for job in jobs)
    assert {key[1:]: told[key] for key in told if key[0] == "jobs"} == by_state
    assert by_state[OTHER, "pending"] == 1
    ended = Counter((job.kind, job.outcome) for job in jobs if job.is_terminal)
    assert {key[1:]: told[key] for key in told if key[0] == "jobs_ended_total"} == ended
    assert ended == {(KIND, "succeeded"): 3, (KIND, "failed"): 2}
    verdicts = Counter(one.verdict.value for one in stored if one.record.seq > seen)
    found = {key[1]: told[key] for key in told if key[0] == "records_verified_total"}
    assert found == verdicts
    assert len(verdicts) > 1, "something was refused"
    assert told["lease_losses_total", KIND] == len(accepted(ops.JobExpire)) == 1
    claims = [op for op in accepted(ops.JobClaim) if op.body.fence is None]
    assert told["claim_seconds_count", KIND] == len(claims) == 8
    ends = accepted(ops.JobComplete | ops.JobYield)
    assert told["tenure_seconds_count", KIND] == len(ends) == 7
    assert told["tenure_seconds_bucket", KIND, "0.1"] == 0
    assert told["tenure_seconds_bucket", KIND, "0.5"] == 7
    assert told["log_bytes",] == sum(len(one.record.payload) for one in stored)
    assert told["log_sequence",] == stored[-1].record.seq
    assert told["replica_bytes",] == sizes
    (waiting,) = [job for job in jobs if job.kind == OTHER]
    assert told["oldest_pending_job_seconds",] == (now_ms - waiting.scheduled_ms) / 1000 >= 5
    assert told["sealed_sequence",] == seals.upto > 1
    assert told["seal_age_seconds",] == (now_ms - seals.state.commit_ms) / 1000
    assert ("disk_bytes",) not in told, "this replica is in memory"


@pytest.mark.virtual_time
async def test_a_view_that_begins_later_counts_the_jobs_that_are_there_already():
    async with a_mesh("memory", QUICK) as mesh:
        node = await mesh.node(caretaking=False)
        caller = (await mesh.connection()).session
        first = await call(caller, 1)
        await node.reached(first.seq)
        view = NodeView(node, TempoMetrics())
        numbers = [await call(caller, n, kind=f"many.k{n}") for n in range(MAX_KINDS + 3)]
        await node.reached(numbers[-1].seq)
        told = scraped(MetricsPage(view).text("")[0])
    assert told["jobs", KIND, "pending"] == 1
    assert told["jobs", OTHERS, "pending"] == 4
    assert len([key for key in told if key[0] == "jobs"]) == MAX_KINDS + 1


@pytest.mark.virtual_time
async def test_a_kind_that_workers_run_is_a_label_however_many_kinds_somebody_made_up():
    async with a_mesh("memory", QUICK) as mesh:
        node = await mesh.node(caretaking=False)
        caller = (await mesh.connection()).session
        view = NodeView(node, TempoMetrics())
        for n in range(MAX_KINDS + 3):
            await call(caller, n, kind=f"many.k{n}")
        await mesh.worker(shaky)
        job = await call(caller, 2)
        await wait_for_end(caller, KIND, job.id)
        last = await call(caller, 0, kind="many.last")
        await node.reached(last.seq)
        told = scraped(MetricsPage(view).text("")[0])
        later = scraped(MetricsPage(NodeView(node, TempoMetrics())).text("")[0])
    assert told["jobs_ended_total", KIND, "succeeded"] == 1
    assert told["claim_seconds_count", KIND] == told["tenure_seconds_count", KIND] == 1
    for one in (told, later):
        jobs = {key[1:]: number for key, number in one.items() if key[0] == "jobs"}
        assert jobs[KIND, "succeeded"] == 1
        assert jobs[OTHERS, "pending"] == 5, "one of them made room"
        assert sum(jobs.values()) == MAX_KINDS + 5
        assert len({kind for kind, _ in jobs}) == MAX_KINDS + 1


def test_of_more_kinds_than_labels_those_with_the_newest_claims_have_one():
    labels = KindLabels(3)
    assert [labels.of(kind) for kind in "abcd"] == ["a", "b", "c", OTHERS]
    assert [labels.claimed(kind) for kind in "bde"] == [None, "a", "c"], "unclaimed ones give way"
    assert labels.claimed("b") is None
    assert labels.claimed("f") == "d", "of the claimed ones, that with the oldest claim"
    assert sorted(labels) == ["b", "e", "f"]
    assert [labels.of(kind) for kind in "bda"] == ["b", OTHERS, OTHERS]


@pytest.mark.virtual_time
async def test_what_a_kind_has_counted_is_not_lost_when_another_takes_its_label(monkeypatch):
    monkeypatch.setattr(job_figures, "MAX_KINDS", 1)
    async with a_mesh("memory", QUICK) as mesh:
        node = await mesh.node(caretaking=False)
        caller = (await mesh.connection()).session
        view = NodeView(node, TempoMetrics())
        for kind in (KIND, OTHER):
            await mesh.worker(shaky, kind=kind)
            job = await call(caller, 2, kind=kind)
            await wait_for_end(caller, kind, job.id)
            await node.reached((await caller.read_lane(kind, job.id)).lane.job_tail)
        told = scraped(MetricsPage(view).text("")[0])
    for kind in (OTHERS, OTHER):
        assert told["jobs", kind, "succeeded"] == 1
        assert told["jobs_ended_total", kind, "succeeded"] == 1
        assert told["claim_seconds_count", kind] == told["tenure_seconds_count", kind] == 1
    assert not [key for key in told if KIND in key]


@pytest.mark.processes
async def test_a_worker_answers_probes_and_metrics_that_agree_with_its_jobs():
    async with a_mesh("memory") as mesh:
        worker = await mesh.worker(shaky)
        access = HttpAccess(worker, OperatorToken(OPERATOR))
        server = worker_server(WorkerView(worker), access, HttpAddress("127.0.0.1", 0))
        async with server as port:
            ready = await ask(port, "/readyz")
            for number in (2, 4, 5):
                job = await call(worker.session, number, retry=ops.Retry(attempts=1))
                await wait_for_end(worker.session, KIND, job.id)
            await eventually(lambda: not worker.busy)
            told = scraped((await ask(port, "/metrics", OPERATOR)).body)
            refused = await ask(port, "/metrics")
            foreign = await ask(port, "/v1/tempo", OPERATOR)
            worker.paused.add("sleep")
            paused = await ask(port, "/readyz", OPERATOR)
    assert (ready.status, ready.body) == (200, b"ok\n")
    assert (refused.status, foreign.status) == (401, 404)
    assert (paused.status, paused.body) == (503, b"not ready\nit pauses: sleep\n")
    assert told["runs_total", KIND, "succeeded"] == 2
    assert told["runs_total", KIND, "failed"] == 1
    assert told["run_seconds_count", KIND] == told["claim_seconds_count", KIND] == 3
    assert told["run_seconds_sum", KIND] >= 0.6
    assert (told["worker_busy",], told["worker_slots",], told["ready",]) == (0, 4, 1)


def test_a_histogram_counts_each_bound_and_everything_below():
    one = Histogram()
    for seconds in (-1.0, 0.005, 0.006, 7200.0):
        one.add(seconds)
    buckets = dict(one.buckets())
    assert (buckets["0.005"], buckets["0.01"], buckets[str(BOUNDS_S[-1])]) == (2, 3, 3)
    assert buckets["+Inf"] == 4
    assert one.sum_s == pytest.approx(7200.011)
