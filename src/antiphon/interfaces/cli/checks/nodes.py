"""Checks of the nodes that are online: workers, full nodes, clocks, routes, beats."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from antiphon.interfaces.cli.checks.findings import Finding, Look, ok, warning, wrong
from antiphon.interfaces.cli.checks.log import CLOCK_LIMIT_MS
from antiphon.interfaces.cli.screen.node_names import NodeName
from antiphon.interfaces.cli.screen.options import short, short_node
from antiphon.interfaces.cli.screen.terminal import ago, clock, counted, span

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from antiphon.sdk.mesh import Card, CoordinatorStatus, Job

MAX_HELD: Final = 1_000
"""Held jobs that are compared with who is online."""


async def nodes(look: Look) -> AsyncIterator[Finding]:
    """Who is online, whose clock is wrong, and whose jobs nobody answers for."""
    from antiphon.sdk.jobs.job_lookup import ReplicaJobs
    from antiphon.sdk.mesh import State

    cards = await look.calling
    for finding in clock_findings(cards, now_ms=time.time() * 1000):
        yield finding
    workers = [card for card in cards if card.role == "worker"]
    if workers:
        kinds = sorted({kind for card in workers for kind in card.kinds})
        yield ok("workers", f"{counted(len(workers), 'worker')} for {', '.join(kinds)}")
    else:
        yield warning("workers", "no worker is online", "antiphon worker MODULE")
    from antiphon.sdk.jobs.unserved_kinds import unserved_here

    for one in await unserved_here(look.mesh, cards=cards):
        yield warning("workers", one.words, one.hint)
    async with look.mesh.replica() as replica:
        held = replica.ask(ReplicaJobs).jobs(states=(State.CLAIMED, State.RUNNING), limit=MAX_HELD)
    for finding in silent_findings(held, {card.node for card in cards}, await look.names()):
        yield finding
    if len(workers) < len(cards):
        yield ok("nodes", counted(len(cards) - len(workers), "full node"))
    else:
        words = "no full node is online: nobody ends expired leases"
        yield warning("nodes", words, "antiphon node")


def silent_findings(
    held: Sequence[Job], online: set[str], name: NodeName = short_node
) -> list[Finding]:
    """Jobs whose worker does not answer: it hangs, it was killed, or the job ended its process."""
    silent = [job for job in held if job.claimer not in online]
    if not silent:
        return []
    who = ", ".join(sorted({name(job.claimer) for job in silent}))
    which = ", ".join(f"{job.kind} {short(job.id)}" for job in silent[:3])
    more = ", …" if len(silent) > 3 else ""  # noqa: PLR2004 - as many as fit a line
    last = max(job.deadline_ms for job in silent)
    words = f"{counted(len(silent), 'job')} held by {who}, which does not answer: {which}{more}"
    hint = (
        f"look at that worker and its log; its leases end by {clock(last)}, then others run the"
        " jobs. A job that ends every worker it meets: antiphon cancel"
    )
    return [warning("held", words, hint)]


def clock_findings(cards: Sequence[Card], *, now_ms: float) -> list[Finding]:
    """Which clocks differ from this machine's; if most do, this machine's is the wrong one."""
    off = [(card, now_ms - card.at_ms) for card in cards]
    off = [(card, ahead_ms) for card, ahead_ms in off if abs(ahead_ms) > CLOCK_LIMIT_MS]
    if not off:
        return []
    if 2 * len(off) <= len(cards):
        names = ", ".join(f"{card.alias} ({_away(-ahead_ms)})" for card, ahead_ms in off)
        words = f"{counted(len(off), 'node')} with a different clock: {names}"
        return [warning("clocks", words, "set the clocks of those machines")]
    middle = sorted(ahead_ms for _, ahead_ms in off)[len(off) // 2]
    words = (
        f"this machine's clock is {_away(middle)}, compared with {len(off)} of the {len(cards)}"
        " nodes that are online: what it signs may be rejected"
    )
    return [wrong("clocks", words, "timedatectl set-ntp true")]


def _away(ahead_ms: float) -> str:
    return f"{span(abs(ahead_ms) / 1000)} {'ahead' if ahead_ms > 0 else 'behind'}"


async def routes(look: Look) -> AsyncIterator[Finding]:
    """Whether the nodes that kinds are routed to can claim them, and are online."""
    from antiphon.sdk.authority.delegation import acts_through, stuck_routes

    held = await look.mesh.authority.who()
    stuck = stuck_routes(held)
    for one in stuck:
        yield wrong("routes", one.words, one.hint)
    online = {card.node for card in await look.calling if card.role == "worker"}
    for kind, node in held.routes.items():
        if any(one.kind == kind for one in stuck):
            continue
        name = held.name(node)
        if online.isdisjoint({node, *acts_through(held, node)}):
            words = f"{kind} is routed to {name}, and no worker of it is online"
            yield warning("routes", words, f"antiphon worker, on {name}")
        else:
            yield ok("routes", f"{kind} is routed to {name}, which is online")


async def pauses(look: Look) -> AsyncIterator[Finding]:
    """Jobs that nobody may begin."""
    from antiphon.sdk.authority.pauses import described, resumed_by

    held = await look.mesh.authority.who()
    for one in look.mesh.authority.pauses:
        yield warning("pauses", described(one, held), resumed_by(one))


async def coordinator(look: Look) -> AsyncIterator[Finding]:
    """The node that offers waiting jobs."""
    yield coordinator_finding(await look.mesh.authority.coordinator())


def coordinator_finding(told: CoordinatorStatus) -> Finding:
    """Whether the one node that may offer waiting jobs is online; only a person names another."""
    node = short_node(told.coordinator)
    name = f"{told.alias} ({node})" if told.alias else f"node {node}"
    wrote = f"its last op was {ago(told.last_op_ms)}" if told.last_op_ms is not None else ""
    another = "name one that is online: antiphon coordinator NODE"
    if told.answers:
        words = f"{name} coordinates and is online; {wrote or 'it has written nothing recently'}"
    elif told.is_owner and not told.waiting:
        words = "the owner's key coordinates, and no process uses it; no job needs one now"
    elif told.is_owner:
        words = f"{counted(told.waiting, 'job')} cannot start: the owner's key coordinates,"
        return warning("coordinator", f"{words} and no process uses it", another)
    elif told.is_quiet:
        words = f"{name} coordinates but does not answer, and "
        words += wrote or "none of the newest records is from it"
        return warning("coordinator", words, f"start it again, or {another}")
    else:
        words = f"{name} coordinates; it does not answer, but {wrote}"
    return ok("coordinator", words)


async def tempo(look: Look) -> AsyncIterator[Finding]:
    """Who sends the beats."""
    from antiphon.sdk.tempo.policy_file import policy_hash

    policy, able = look.mesh.tempo.policy, look.mesh.tempo.timekeepers(await look.calling)
    for finding in tempo_findings(
        able,
        policy_hash=policy_hash(policy),
        bpm=policy.initial_bpm,
        bar_len=policy.bar_len_beats,
    ):
        yield finding


def tempo_findings(
    able: Sequence[Card], *, policy_hash: str, bpm: int, bar_len: int
) -> list[Finding]:
    """Whether a node sends beats, and whether all that may follow the policy of the log."""
    behind = [card for card in able if card.pulse and card.pulse.policy != policy_hash]
    if behind:
        names = ", ".join(f"{card.alias} ({short_node(card.node)})" for card in behind)
        words = f"{names} counts by another tempo policy than the one on the log"
        return [warning("tempo", words, "restart that node: it is behind the log")]
    first = able[0] if able else None
    if first is None or first.pulse is None:
        words = f"{bpm} bpm, {bar_len} beats a bar; nobody sends beats:"
        hint = "run 'antiphon up' or 'antiphon node' on the owner's machine: one of them sends them"
        return [warning("tempo", f"{words} each node counts by its own clock", hint)]
    name = f"{first.alias} ({short_node(first.node)})"
    leads = f"no node leads now, and {name} can take over"
    if first.pulse.leads:
        leads = f"the beats come from {name}"
    return [ok("tempo", f"{first.pulse.bpm} bpm, {bar_len} beats a bar; {leads}")]
