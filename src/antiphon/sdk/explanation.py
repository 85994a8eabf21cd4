"""What happened to a job, and why this worker got it and others did not.

The first comes from the log. For the second, the workers that answer a roll call now count, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.core.authority_lapse import lapses
from antiphon.core.families.jobs.table import standing
from antiphon.core.history.tenures import Tenure, lost_tenures, lost_words
from antiphon.core.policy.explanation import Explanation, Wait, Waits, WorkerDraw, explain
from antiphon.core.policy.selection import Candidate
from antiphon.core.presence.cards import Card
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.caller.submission import no_job
from antiphon.runtime.presence.live_nodes import cards_of_live

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.opened_record import OpenedRecord
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session


async def history_of(session: Session, view: JobView) -> list[tuple[OpenedRecord, Verdict]]:
    """A lane's records and the control records that ended a tenure on it, oldest first.

    As of the last `sync_control`.
    """
    told = [(judged.opened, judged.verdict) for judged in view.history]
    job = view.lane.job
    if job is None:
        return told
    ended = lapses(session.history, job, told, before=session.confirmed + 1)
    told += [(await session.fetch_opened(seq), Verdict.OK) for seq in ended]
    return sorted(told, key=lambda one: one[0].seq)


def lost_workers(view: JobView, called: Callable[[str], str] = short_node) -> str:
    """Which workers were lost while they ran a job, and when; empty if none was."""
    history = ((judged.opened, judged.verdict) for judged in view.history)
    return lost_words(lost_tenures(history), called)


async def explain_job(
    session: Session, kind: str, job_id: str, *, wait_s: float
) -> tuple[Explanation, list[Card]]:
    """The explanation, and the cards of the nodes that answered within `wait_s`."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(cards_of_live(session, wait_s=wait_s))
        view = await session.read_lane(kind, job_id)
        control = await session.sync_control()
    cards = asking.result()
    job = standing(control, view.lane.job, session.confirmed + 1)
    if job is None or view.first is None:
        raise no_job(kind, job_id)
    known = [candidate_of(card) for card in cards if card.role == "worker"]
    history = await history_of(session, view)
    now_ms = session.wall.now_ms()
    return explain(control, job, view.first.payload, history, known, now_ms=now_ms), cards


def candidate_of(card: Card) -> Candidate:
    """A worker as its answer to a roll call describes it."""
    return Candidate(
        did=card.node,
        kinds=card.kinds,
        labels=card.labels,
        weight=card.weight,
        free=max(card.slots - card.busy, 0),
    )


def selection_words(told: Explanation) -> str:
    """By which selection it goes to a worker, and why."""
    match told.because.value:
        case "requires":
            how = "rendezvous selection, since it requires labels"
        case "rule" if told.selection == "rendezvous":
            how = f"rendezvous selection, by the mesh's rule for {told.prefix}"
        case "rule":
            how = f"queue selection, by the mesh's rule for {told.prefix}"
        case _:
            how = "queue selection, the default"
    if told.selection == "rendezvous":
        how += f"; each rank waits {told.claim_window_ms / 1000:g} s for the one before"
    return how


def wait_words(
    wait: Wait,
    called: Callable[[str], str],
    clock: Callable[[int], str],
    moment: Callable[[int], str],
) -> str:
    """What a job waits for, with nodes as they are called, and times as they are written here."""
    node = called(wait.node) if wait.node else "none"
    return {
        "time": f"it waits until {moment(wait.until_ms)}",
        "node": "its time has come; it waits for a full node to offer it (antiphon node)",
        "offer": f"{_offer_words(wait)}; {node}, the coordinator, offers it then",
        "replicas": f"it waits until enough of its replicas agree; {node} counts them, and submits"
        f" up to {wait.per_minute:,} for one member in a minute (rule derived_per_minute)",
        "retry": "its last attempt has no result; it may be claimed again from"
        f" {clock(wait.until_ms)}",
        "worker": "no worker that is online runs this kind: start one with antiphon worker",
        "labels": f"no worker that is online has {', '.join(wait.labels)}:"
        " antiphon worker … --label",
        "paused": f"such jobs are paused since {moment(wait.since_ms)}, by {node}"
        f"{': ' + wait.reason if wait.reason else ''} (antiphon pause lists what is paused)",
        "route": f"only {node} may claim it, and it is not online with this kind",
        "authority": "workers for this kind are online, but none has permission to claim it"
        " (antiphon who shows who has)",
        "cooldown": "all workers for it that are online lost their lease on it; the first may claim"
        f" it again at {clock(wait.until_ms)}",
        "slot": "all workers that could run it are busy",
        "claim": "a worker can claim it now, and should soon",
    }[wait.what.value]


def _offer_words(wait: Wait) -> str:
    parts = []
    if wait.jobs:
        others = f"{wait.jobs:,} other jobs have ended (antiphon show draws them)"
        parts.append(f"until {'another job has ended' if wait.jobs == 1 else others}")
    if wait.labels:
        parts.append(f"for room under {wait.labels[0]} (antiphon limits)")
    return f"it waits {' and '.join(parts)}"


__all__ = [
    "Explanation",
    "Tenure",
    "Wait",
    "Waits",
    "WorkerDraw",
    "explain_job",
    "history_of",
    "lost_words",
    "lost_workers",
    "selection_words",
    "wait_words",
]
