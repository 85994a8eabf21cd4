"""OpenTelemetry traces of jobs, where the program has set OpenTelemetry up; otherwise nothing.

A submission is a span, and so is every run of the job; both belong to one trace, because the
schedule carries the W3C `traceparent`. OpenTelemetry is used only if the program has loaded it,
and it gives spans only if the program has installed an SDK, so it is no dependency of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from antiphon.core.manifest import job_id

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import Failure, ScheduleBody
    from antiphon.core.inference.exchange import Exchange

NAME: Final = "antiphon"
NOWHERE: Final = "opentelemetry.trace"
"""Where the providers are that give no spans, until the program installs one that does."""
_known: Final[list[Any]] = []
"""The newest provider, how it was asked, and its tracer: asking takes half as long as a span."""
_TRACE_PARTS: Final = 4
_OPERATIONS: Final = {"completions": "text_completion", "embeddings": "embeddings"}
"""What the conventions call these; everything else is `chat`."""


def _api() -> Any:
    """`opentelemetry.trace`, if the program has loaded it."""
    return sys.modules.get("opentelemetry.trace")


def _tracer(api: Any) -> Any:
    provider, ask = api.get_tracer_provider(), api.get_tracer
    if not _known or _known[0] is not provider or _known[1] is not ask:
        _known[:] = provider, ask, ask(NAME)
    return _known[2]


def is_wanted(trace: str | None) -> bool:
    """Whether a run has a span, or a trace that its own submissions belong to."""
    api = _api()
    if api is None:
        return False
    return trace is not None or not type(api.get_tracer_provider()).__module__.startswith(NOWHERE)


def current() -> str | None:
    """The present span as a `traceparent`; None: there is none."""
    api = _api()
    if api is None:
        return None
    here = api.get_current_span().get_span_context()
    if not here.is_valid:
        return None
    return f"00-{here.trace_id:032x}-{here.span_id:016x}-{int(here.trace_flags):02x}"


def traced(body: ScheduleBody) -> ScheduleBody:
    """The same with the trace that its submission belongs to, which is a span of its own.

    A body that has a trace already keeps it: it is submitted again.
    """
    api = _api()
    if api is None or body.trace is not None:
        return body
    about = {"antiphon.kind": body.kind, "antiphon.job": job_id(body.manifest)}
    with _tracer(api).start_as_current_span(
        f"submit {body.kind}", kind=api.SpanKind.PRODUCER, attributes=about
    ):
        return replace(body, trace=current())


class RunSpan:
    """The span of one run; told how that ended."""

    def __init__(self, api: Any = None, span: Any = None) -> None:
        """Without a span, nothing is kept."""
        self._api = api
        self._span = span

    def end(self, outcome: str, failure: Failure | None = None) -> None:
        """The run succeeded, failed, waits or was stopped."""
        if self._span is None:
            return
        self._span.set_attribute("antiphon.outcome", outcome)
        if failure is None:
            return
        said = {"exception.type": failure.name, "exception.message": failure.message}
        if failure.traceback:
            said["exception.stacktrace"] = failure.traceback
        self._span.add_event("exception", said)
        self._span.set_status(self._api.Status(self._api.StatusCode.ERROR, failure.name))


@contextmanager
def running(kind: str, job: str, attempt: int, trace: str | None) -> Iterator[RunSpan]:
    """A span for one run, as a part of its job's trace."""
    api = _api()
    if api is None:
        yield RunSpan()
        return
    from opentelemetry import context

    # `start_as_current_span` would record the error as well, with a traceback without limits.
    span = _tracer(api).start_span(
        f"run {kind}",
        context=_parent(api, trace),
        kind=api.SpanKind.CONSUMER,
        attributes={"antiphon.kind": kind, "antiphon.job": job, "antiphon.attempt": attempt},
    )
    token = context.attach(api.set_span_in_context(span))
    try:
        yield RunSpan(api, span)
    finally:
        context.detach(token)
        span.end()


def begin_model_call() -> Any:
    """A span for a call of a model, below the present one; None without OpenTelemetry."""
    api = _api()
    return None if api is None else _tracer(api).start_span("model call", kind=api.SpanKind.CLIENT)


def end_model_call(span: Any, exchange: Exchange) -> None:
    """End that span, with what the conventions for generative models ask for; never the texts."""
    if span is None:
        return
    from antiphon.core.inference.call_reader import parts_of

    parts = parts_of(exchange) if span.is_recording() else None
    if parts is not None:
        provider, _, what = parts.api.partition(".")
        operation = _OPERATIONS.get(what, "chat")
        span.update_name(f"{operation} {parts.model}".strip())
        said = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": parts.model,
            "gen_ai.response.model": parts.version,
            "gen_ai.usage.input_tokens": parts.input_tokens,
            "gen_ai.usage.output_tokens": parts.output_tokens,
            "gen_ai.response.finish_reasons": [one.stop for one in parts.answers or () if one.stop],
        }
        span.set_attributes(
            {name: value for name, value in said.items() if value not in ("", None, [])}
        )
    span.set_attribute("url.full", exchange.url)
    if exchange.status is not None:
        span.set_attribute("http.response.status_code", exchange.status)
    if exchange.error:
        span.set_attribute("error.type", exchange.error.partition(":")[0])
    span.end()


@contextmanager
def continued(trace: str | None) -> Iterator[None]:
    """Make a span of another process the parent of those that the block begins."""
    api = _api()
    parent = _parent(api, trace) if api is not None else None
    if parent is None:
        yield
        return
    from opentelemetry import context

    token = context.attach(parent)
    try:
        yield
    finally:
        context.detach(token)


def _parent(api: Any, trace: str | None) -> Any:
    """A context whose span is the one that a `traceparent` names; None: there is none."""
    if trace is None:
        return None
    _, trace_id, span_id, flags = trace.split("-", _TRACE_PARTS - 1)
    remote = api.SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=api.TraceFlags(int(flags, 16)),
    )
    return api.set_span_in_context(api.NonRecordingSpan(remote)) if remote.is_valid else None
