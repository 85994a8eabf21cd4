"""What each page of the dashboard is about, read through `mesh.queries` and the SDK's handles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, structs

from antiphon.core.authority.parties import party_of_key
from antiphon.core.authority.scope import EVERY_KIND
from antiphon.core.history.tenures import WORKER_LOST
from antiphon.core.party_turns import shared
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, JobFailed
from antiphon.runtime.caller.retry import RetryLinks
from antiphon.runtime.caller.submission import ended_of
from antiphon.runtime.replica.job_pages import is_visible
from antiphon.sdk.dashboard.job_parts import JobParts, job_parts, printed_by
from antiphon.sdk.dashboard.live_output import NOTHING, LiveOutputs, Printed
from antiphon.sdk.dashboard.node_names import aliases, in_order
from antiphon.sdk.dashboard.tenures import Timeline, timeline
from antiphon.sdk.explanation import lost_workers
from antiphon.sdk.proofs import bundles
from antiphon.sdk.proofs.verification import Verification, verify_in_steps
from antiphon.sdk.results.job_details import details_of

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job
    from antiphon.core.history.story import Line
    from antiphon.core.proof.output import Output
    from antiphon.runtime.presence.live_nodes import LiveNode
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.queries.page import Page

JOBS_LISTED: Final = 25
NODES: Final = 500
"""That are looked at."""
NODES_LISTED: Final = 200
RESULT_LETTERS: Final = 2_000


class JobsView(Struct, frozen=True, kw_only=True):
    """A page of the list of jobs."""

    jobs: Page[Job]
    counts: dict[str, int]
    names: dict[str, str]
    kinds: str
    """The kinds that this machine can read, in words; empty: all."""
    applied: int
    """The newest record that the answering replica has verified."""


class JobView(Struct, frozen=True, kw_only=True):
    """One job."""

    job: Job
    sentence: str
    """Where it stands, in words."""
    story: list[Line]
    names: dict[str, str]
    arguments: str
    result: str
    error: str
    traceback: str
    timeline: Timeline
    parts: JobParts
    printed: Printed
    links: RetryLinks
    proof: Verification | str
    """What its bundle proves, or why there is no bundle."""


async def jobs_view(mesh: Mesh, after: str, filters: dict[str, Any]) -> JobsView:
    """The jobs that match, newest first."""
    found = await mesh.queries.jobs(limit=JOBS_LISTED, after=after, **filters)
    counts = await mesh.queries.counts(kind=filters.get("kind", ""))
    nodes = {one for job in found for one in (job.claimer, job.scheduler) if one}
    async with mesh.replica() as replica:
        applied = replica.cursor.seq
    return JobsView(
        jobs=found,
        counts=counts,
        names=await aliases(mesh, nodes),
        kinds=kinds_in_words(await mesh.queries.readable()),
        applied=applied,
    )


def kinds_in_words(readable: Sequence[str]) -> str:
    """Kind filters as people write them; empty for all kinds."""
    if EVERY_KIND in readable:
        return ""
    return ", ".join(one.replace(".>", ".*") for one in readable) or "no kind of job"


async def job_view(mesh: Mesh, text: str, live: LiveOutputs) -> JobView:
    """Everything about a job."""
    found = await mesh.queries.job(text)
    if not found.is_terminal:
        live.look(found.kind, found.id)  # whoever prints soon is heard from now on
    handle = mesh.job(found.kind, found.id)
    job = await handle.state()
    view, story = await handle.lane(), await handle.story()
    if view.lane.job is not None and view.lane.job.hlc > job.hlc:
        job = view.lane.job  # it went on meanwhile, and the page tells of one moment
    details = details_of(view)
    result, error = "", ""
    if job.is_terminal:
        try:
            result = _short(await handle.result())
        except JobFailed as failed:
            error = ": ".join(filter(None, (failed.error_type, failed.error_message)))
    names = await aliases(mesh, {line.author for line in story if line.author})
    life = timeline(view.history)
    ended = ended_of(view)
    outputs = ended.outputs if ended is not None else ()

    def called(node: str) -> str:
        return names.get(node) or short_node(node)

    parts = await job_parts(mesh, job, view, outputs, names=called)
    sentence = _sentence(job, life, names, error, lost_workers(view, called))
    if not job.is_terminal and not job.claimer and any(one.is_open for one in parts.questions):
        sentence = "It waits for an answer."
    return JobView(
        job=job,
        sentence=sentence,
        story=list(_named(story, names)),
        names=names,
        arguments=details.words,
        result=result,
        error=error,
        traceback=details.failure.traceback or "" if details.failure is not None else "",
        timeline=life,
        parts=parts,
        printed=await _printed(mesh, job, outputs, live),
        links=await handle.links(),
        proof=await _proof(mesh, job),
    )


async def _printed(mesh: Mesh, job: Job, outputs: Iterable[Output], live: LiveOutputs) -> Printed:
    """What it stored of what it printed, or what was heard of it."""
    if not job.is_terminal:
        return live.look(job.kind, job.id)
    heard, stored = live.ended(job.id), await printed_by(mesh, job, outputs)
    return stored if stored.is_stored else heard


class JobWatch:
    """One job, looked at again and again: it is told anew only when something changed."""

    def __init__(self, mesh: Mesh, text: str, live: LiveOutputs) -> None:
        self._mesh = mesh
        self._text = text
        self._live = live
        self._seen: tuple[Job, int] | None = None
        self._told: JobView | None = None
        self.is_output = False
        """Whether nothing but what it prints is new."""
        self.is_over = False
        """Whether it has ended and is proved, so that nothing will change."""

    async def look(self) -> JobView | None:
        """The job, or None if it is as before."""
        job, upto = await self._mesh.queries.job(self._text), 0
        if job.is_terminal:  # now it waits for a seal
            upto = (await bundles.seal_status(self._mesh)).upto
        told = self._told
        self.is_output = told is not None and self._seen == (job, upto)
        if told is not None and self.is_output:
            if job.is_terminal:
                return None
            printed = self._live.look(job.kind, job.id)
            if printed.mark == told.printed.mark:
                return None
            self._told = structs.replace(told, printed=printed)
            return self._told
        self._seen = (job, upto)
        heard = told.printed if told is not None else NOTHING
        view = await job_view(self._mesh, job.id, self._live)
        if view.job.is_terminal and not view.printed.pieces:
            view = structs.replace(view, printed=heard)  # it stored nothing of that
        self._told = view
        self.is_over = view.job.is_terminal and not isinstance(view.proof, str)
        return view


def _sentence(job: Job, life: Timeline, names: dict[str, str], error: str, lost: str) -> str:
    def named(node: str) -> str:
        return names.get(node) or short_node(node)

    if job.question is not None:
        words = _question_words(job, named)
    elif job.state.value == "succeeded":
        words = f"{named(job.claimer)} finished it." if job.claimer else "It succeeded."
    elif job.state.value == "failed":
        words = f"It failed{': ' if error else ''}{error}."
    elif job.is_terminal:
        words = f"It was not finished: {job.outcome}."
    elif job.claimer:
        words = f"{named(job.claimer)} holds it."
    else:
        words = "It waits for other jobs, or for its time." if job.state.value == "waiting" else ""
        words = words or "It waits for a worker."
    if lost and not error.startswith(WORKER_LOST):  # which says so
        words += f" {lost[0].upper()}{lost[1:]}."
    late = [one for one in life.refused if one.verdict == Verdict.FENCE]
    return words + (" A late result was refused." if late else "")


def _question_words(job: Job, named: Callable[[str], str]) -> str:
    if job.state.value in {"succeeded", "failed"}:
        return f"{named(job.claimer)} answered it." if job.claimer else "It was answered."
    if job.is_terminal:
        return f"Nobody answered it: {job.outcome}."
    return "It waits for an answer."


async def _proof(mesh: Mesh, job: Job) -> Verification | str:
    if not job.is_terminal:
        return "It has not ended, so there is nothing to prove yet."
    try:
        data = await bundles.export(mesh, job.kind, job.id, wait_s=0)
    except AntiphonError as problem:
        return f"{problem.message[:1].upper()}{problem.message[1:]}."
    owner = (await mesh.authority.who()).owner
    # A job may have thousands of records, and whoever else this process serves does not wait.
    return await asyncio.to_thread(verify_in_steps, data, owner=owner)


class NodesView(Struct, frozen=True, kw_only=True):
    """The nodes that are online, and those that died within the last day."""

    nodes: list[LiveNode]
    """Who is silent comes first, then workers, by name; of kinds, those that can be read here."""
    listed: list[LiveNode]
    """As many as a page shows; where there are more, parties share it."""
    dead: list[LiveNode]
    """Those that died, the newest first, shared in the same way."""
    can_dismiss: bool
    """Whether this node can dismiss one for everybody."""
    is_cut: bool
    """Whether there are more."""

    @property
    def silent(self) -> int:
        """How many were not heard lately."""
        return sum(one.level != "alive" for one in self.nodes)

    @property
    def busy(self) -> int:
        """How many of their slots run something."""
        return sum(one.card.busy for one in self.nodes)

    @property
    def slots(self) -> int:
        """How many slots they have."""
        return sum(one.card.slots for one in self.nodes)


async def nodes_view(mesh: Mesh) -> NodesView:
    """Who is online, and who died."""
    found, readable = await mesh.queries.nodes(limit=NODES), await mesh.queries.readable()
    nodes = [
        structs.replace(
            one,
            card=structs.replace(
                one.card, kinds=tuple(kind for kind in one.card.kinds if is_visible(kind, readable))
            ),
        )
        for one in found
    ]
    dead = sorted((one for one in nodes if one.level == "dead"), key=lambda one: one.silent_ms)
    nodes = [one for one in nodes if one.level != "dead"]
    nodes.sort(
        key=lambda one: (
            one.level == "alive",
            one.card.role != "worker",
            in_order(one.card.alias),
            one.card.node,
        )
    )
    party = partial(party_of_key, mesh.connection.session.control)
    listed = shared(nodes, lambda one: party(one.card.node), NODES_LISTED)
    return NodesView(
        nodes=nodes,
        listed=listed,
        dead=shared(dead, lambda one: party(one.card.node), NODES_LISTED),
        can_dismiss=mesh.dismissals.can_be_made,
        is_cut=bool(found.next) or len(dead) > NODES_LISTED,
    )


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    if len(text) <= RESULT_LETTERS:
        return text
    return f"{text[:RESULT_LETTERS]}… ({len(text):,} letters)"


def _named(story: Iterable[Line], names: dict[str, str]) -> Iterable[Line]:
    """The lines with their authors by name."""
    for line in story:
        fragment = short_node(line.author) if line.author else ""
        name = names.get(line.author, fragment)
        words = line.words
        if fragment and words.startswith(fragment):
            words = words.removeprefix(fragment).strip()
        else:
            name = ""
        yield structs.replace(line, author=name, words=words)
