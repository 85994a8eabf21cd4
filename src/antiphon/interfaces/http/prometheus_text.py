"""A node's numbers in Prometheus' text format.

The numbers are counted elsewhere, without a library; a scrape reads them as they are at that
moment. Label values come from fixed lists (states, verdicts, reasons), and kinds are limited, so
the number of series is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from antiphon.sdk.http.worker_view import WorkerView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from antiphon.sdk.http.job_figures import Histogram
    from antiphon.sdk.http.node_view import NodeNumbers, NodeStatus, NodeView, TempoMetrics
    from antiphon.sdk.http.worker_view import WorkerStatus


class MetricsPage:
    """What `/metrics` answers."""

    def __init__(self, view: NodeView | WorkerView) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(
            _WorkerCollector(view) if isinstance(view, WorkerView) else _NodeCollector(view)
        )
        ProcessCollector(registry=self._registry)

    def text(self, accept: str) -> tuple[bytes, str]:
        """The metrics, and their content type: the newest format that the scraper accepts."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _NodeCollector(Collector):
    def __init__(self, view: NodeView) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        numbers = self._view.numbers()
        yield from _node(numbers)
        yield from _jobs(numbers)
        yield from _sizes(numbers)
        yield from _pulse(numbers.tempo)
        yield from _reverb(numbers.tempo)


class _WorkerCollector(Collector):
    def __init__(self, view: WorkerView) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        status, figures = self._view.status(), self._view.figures
        yield from _about("worker", status)
        yield _gauge("worker_slots", "Jobs that it can run at the same time.", status.slots)
        yield _gauge("worker_busy", "Jobs that it runs now.", status.busy)
        ended = "Runs, by how they ended."
        yield _counted_by("runs", ended, ("kind", "outcome"), figures.ended)
        yield _histogram("claim_seconds", CLAIM_SECONDS, figures.claim_s)
        yield _histogram("run_seconds", "How long runs took.", figures.run_s)


CLAIM_SECONDS: Final = "From when a job could be claimed to its claim."


def _about(what: str, status: NodeStatus | WorkerStatus) -> Iterator[Metric]:
    labels = ("version", "mesh", "node")
    about = GaugeMetricFamily(f"antiphon_{what}_info", "Always 1.", labels=labels)
    about.add_metric((status.version, status.mesh, status.node), 1)
    yield about
    yield _gauge(
        "ready", f"1 while the {what} does not answer 'not ready'.", status.readiness != "not ready"
    )
    yield _gauge("engine_connected", "1 while it is connected to the engine.", status.is_connected)


def _node(numbers: NodeNumbers) -> Iterator[Metric]:
    yield from _about("node", numbers.status)
    yield _gauge("log_sequence", "Newest record that it has verified.", numbers.status.applied)
    records = numbers.figures.records
    yield _counted("records_verified", "Records that it verified.", "verdict", records)


def _jobs(numbers: NodeNumbers) -> Iterator[Metric]:
    figures = numbers.figures
    jobs = GaugeMetricFamily("antiphon_jobs", "Jobs on its replica.", labels=("kind", "state"))
    for labels, number in sorted(figures.jobs.items()):
        jobs.add_metric(labels, number)
    yield jobs
    oldest = "How long the oldest job that could be claimed has waited; 0: there is none."
    yield _gauge("oldest_pending_job_seconds", oldest, numbers.oldest_pending_s)
    ended = "Jobs that ended, by outcome."
    yield _counted_by("jobs_ended", ended, ("kind", "outcome"), figures.ended)
    yield _histogram("claim_seconds", CLAIM_SECONDS, figures.claim_s)
    yield _histogram("tenure_seconds", "From a claim to the end of the tenure.", figures.run_s)
    yield _counted("lease_losses", "Leases that expired.", "kind", figures.lease_losses)


def _sizes(numbers: NodeNumbers) -> Iterator[Metric]:
    yield _gauge("log_bytes", "Bytes of the records that it holds.", numbers.figures.log_bytes)
    yield _gauge("replica_bytes", "Bytes of the replica.", numbers.replica_bytes)
    if numbers.disk is not None:
        yield _gauge("disk_bytes", "Bytes of the disk with the replica.", numbers.disk[0])
        yield _gauge("disk_free_bytes", "Bytes that are free there.", numbers.disk[1])
    yield _gauge("sealed_sequence", "Newest record that a seal covers.", numbers.sealed)
    if numbers.seal_age_s is not None:
        yield _gauge("seal_age_seconds", "Age of the newest seal.", numbers.seal_age_s)
    asked = "Requests to join and for logins that the gate beside this node answered."
    yield _counted_by("gate_requests", asked, ("request", "outcome"), numbers.gate_requests)


def _pulse(tempo: TempoMetrics) -> Iterator[Metric]:
    yield _gauge("tempo_bpm", "Tempo in force, in beats per minute; 0: none.", tempo.bpm)
    yield _gauge("tempo_bar_beats", "Beats in a bar; 0: no tempo.", tempo.bar_len)
    drift = "Its beat minus the leader's, or the median's, in seconds."
    yield _gauge("tempo_drift_seconds", drift, tempo.drift_ms / 1000)
    yield _gauge("tempo_frozen", "1 while the tempo may not change.", tempo.is_frozen)
    yield _by("tempo_mode", "1 for the beats that it follows.", "mode", {tempo.mode: 1})
    degraded = "1 while its tempo is not the leader's, with the reason."
    yield _by("degraded", degraded, "reason", {tempo.degraded: bool(tempo.degraded)})
    yield _gauge("pulse_leader", "1 while it leads the pulse.", tempo.is_leader)
    yield _counter("pulse_beats_sent", "Beat frames that it published.", tempo.beats_sent)
    yield _counter("pulse_takeovers", "Times that it became the leader.", tempo.takeovers)
    yield _counter("tempo_changes", "Changes of the tempo in force.", tempo.tempo_changes)
    failures = "Requests of pulse and reverb that the engine did not answer or refused."
    yield _counter("tempo_engine_failures", failures, tempo.engine_failures)


def _reverb(tempo: TempoMetrics) -> Iterator[Metric]:
    claims = {"received": tempo.claims_received, "refused": tempo.claims_refused}
    yield _counted("status_claims", "Status claims, by what became of them.", "outcome", claims)
    late = "Status claims that came after the report of their bar."
    yield _counter("status_claims_late", late, tempo.claims_late)
    yield SummaryMetricFamily(
        "antiphon_bar_aggregation_seconds",
        "Time that summing up a bar took.",
        count_value=tempo.bars_reported,
        sum_value=tempo.aggregation_s,
    )
    last = "Time that summing up the newest bar took."
    yield _gauge("bar_last_aggregation_seconds", last, tempo.last_aggregation_s)
    known = {name: value for name, value in tempo.kpis.items() if value is not None}
    yield _by("kpi", "KPIs of the newest bar.", "name", known)
    yield _by("alarm", "1 for each alarm that is on.", "name", dict.fromkeys(tempo.alarms, 1))


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"antiphon_{name}", about, value=float(value))


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(f"antiphon_{name}", about, value=value)


def _by(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"antiphon_{name}", about, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), float(value))
    return family


def _counted(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"antiphon_{name}", about, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), value)
    return family


def _counted_by(
    name: str, about: str, labels: tuple[str, str], values: Mapping[tuple[str, str], float]
) -> Metric:
    family = CounterMetricFamily(f"antiphon_{name}", about, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def _histogram(name: str, about: str, values: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(f"antiphon_{name}", about, labels=("kind",))
    for kind, one in sorted(values.items()):
        family.add_metric((kind,), one.buckets(), one.sum_s)
    return family
