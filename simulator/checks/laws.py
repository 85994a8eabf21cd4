"""The laws: what is true at every record, whatever happens (spec §15).

Each law is a function from what is known of the lane so far and the record just committed to the
sentences that say how it was broken. Laws read facts (`plain_record.py`), the verdict and the
ledger (`law_state.py`), their own memory; they do not ask the core.

`LAWS` is the whole list. `commit` applies it to one record and then moves the ledger on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from antiphon.core.record.verdict import Verdict
from simulator.checks import artifact_laws, question_laws
from simulator.checks.law_state import (
    Committed,
    LaneFacts,
    LawState,
    origin_of,
    told,
)
from simulator.checks.plain_record import (
    Key,
    PlainRecord,
    answered,
    signed_part,
    stated,
)

NEVER_HONEST: Final = frozenset(
    {
        Verdict.PREV,
        Verdict.SIGNATURE,
        Verdict.SUBJECT,
        Verdict.MALFORMED,
        Verdict.FRAME,
        Verdict.CANONICAL,
        Verdict.SIZE,
        Verdict.VERSION,
        Verdict.TYPE,
        Verdict.AUTHOR,
        Verdict.MESH,
        Verdict.PLAN,
        Verdict.DERIVED,
        Verdict.AUDIT,
    }
)
"""Verdicts that only a broken or lying writer earns."""

ABOUT_AUTHORITY: Final = frozenset(
    {"no_chain", "chain_expired", "revoked", "command", "policy", "not_owner", "quarantined"}
)
BEFORE_AUTHORITY: Final = frozenset(
    {*(reason.value for reason in NEVER_HONEST), "drift", "too_old", "genesis"}
)
"""Verdicts on what is looked at before the author's authority is."""

UNREAD: Final = "may not read jobs of kind"
"""How a job ends whose submitter or worker may not read what it waits for."""


class Violation(Struct, frozen=True):
    """One broken law."""

    law: str
    what: str
    key: Key | None = None
    seq: int = 0


Law = Callable[[LawState, LaneFacts, Committed, PlainRecord], Iterator[str]]


def one_result(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """At most one accepted result, by the holder, with the fence of the newest accepted claim."""
    if fact.type != "job.complete" or not now.took_effect:
        return
    if lane.results:
        yield "a second result was accepted"
    if lane.held is None:
        yield "a result was accepted while nobody held the job"
    elif lane.held.claimer != fact.author:
        yield "a result was accepted from someone who does not hold the job"
    newest = lane.fences[-1] if lane.fences else "none"
    if fact.fence != newest:
        yield f"the result carries fence {fact.fence}, the newest accepted claim began {newest}"


def proved(ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """A result is accepted only with its author's own proof of just that."""
    if fact.type != "job.complete" or not now.took_effect:
        return
    said = stated(fact.mesh, fact.author, fact.body) if fact.body.get("proof") else b""
    if fact.body.get("answered"):
        said = answered(fact.mesh, fact.author, fact.body)
    if said not in ledger.signed.get(fact.author, ()):
        yield "the result's author did not sign a proof of just that"


def fences_rise(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Each tenure's fence is above all earlier ones, and nobody claims what is held."""
    if fact.type != "job.claim" or not now.took_effect:
        return
    if lane.held is None:
        if lane.fences and fact.own_fence <= lane.fences[-1]:
            yield f"fence {fact.own_fence} is not above {lane.fences[-1]}"
        return
    if lane.held.claimer != fact.author:
        yield "a claim was accepted on a job that someone else held"
    if fact.fence and fact.fence != lane.held.fence:
        yield f"a renewal of {fact.fence} was accepted in the tenure {lane.held.fence}"
    if max(fact.wall_ms, now.record.commit_ms) > lane.held.deadline_ms:
        yield "a renewal was accepted after the deadline"


def not_early(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """No expiry before both the author's clock and the engine's have passed the deadline."""
    if fact.type != "job.expire" or not now.took_effect:
        return
    due_ms = lane.held.deadline_ms if lane.held else lane.start_by_ms
    if fact.wall_ms <= due_ms:
        yield f"expired {due_ms - fact.wall_ms} ms early by its author's clock"
    if now.record.commit_ms <= due_ms:
        yield f"expired {due_ms - now.record.commit_ms} ms early by the engine's clock"


def not_before_its_time(
    ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """No delayed job is offered before both clocks have reached its time, nor claimed before that.

    An engine's clock may be set back after the offer: what is claimed then may bear any stamp.
    """
    if not now.took_effect or not lane.is_waiting:
        return
    if fact.type == "job.claim":
        yield "claimed before it was offered"
    elif fact.type == "job.offer" and lane.quorum:
        yield "a job was offered that its replicas are run for"
    elif fact.type == "job.offer":
        if min(fact.wall_ms, now.record.commit_ms) < lane.not_before_ms:
            early_ms = lane.not_before_ms - min(fact.wall_ms, now.record.commit_ms)
            yield f"offered {early_ms} ms before its time"
        if lane.needs_coordinator and fact.author != ledger.authority_model.coordinator:
            yield "a job that waits for the coordinator was offered by somebody else"


def after_its_predecessors(
    ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """An honest coordinator offers a job when those before it have ended, and cancels no other.

    What a hostile one writes is not judged: a false offer can only waste work.
    """
    if not now.is_honest or not now.took_effect or not lane.is_waiting:
        return
    before = [ledger.lanes.get(key, LaneFacts()) for key in lane.awaited]
    is_known = all(one.is_scheduled for one in before)
    if not lane.children:
        is_known = is_known and all(one.called.seq < lane.called.seq for one in before)
    if fact.type == "job.offer":
        if not is_known or not all(one.ended_seq for one in before):
            yield "offered before every job that it waits for had ended"
        elif lane.children:
            if len(fact.body.get("results", [])) != len(lane.children):
                yield "offered with other results than those of its children"
        elif not all(one.has_succeeded or lane.any_outcome for one in before):
            yield "offered although a job that it waits for did not succeed"
        elif not all(ledger.lanes[key].has_succeeded for key in lane.reads):
            yield "offered without a result that it reads"
        elif len(fact.body.get("results", [])) != len(lane.reads):
            yield "offered with other results than it reads"
    elif fact.type == "job.cancel" and fact.body.get("reason", "").startswith("predecessor:"):
        is_well = is_known and all(one.has_succeeded or lane.children for one in before)
        model = ledger.authority_model
        # On an open mesh everyone may read who was never quarantined.
        who = (lane.called.author, lane.yielded_by)
        may_be_unread = not model.is_open or any(model.was_shown(one, 0) for one in who)
        is_unread = UNREAD in fact.body["reason"] and may_be_unread
        if is_well and not lane.reads and not is_unread:
            yield "cancelled although every job that it waits for has succeeded"


def read_by_right(
    ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """An honest coordinator reads no job for who may not, and does not tell them how it ended.

    It may have asked a moment ago: who could read it when the wait began is not held against it.
    """
    if not now.is_honest or not now.took_effect or not lane.is_waiting or not lane.unread:
        return
    is_told = fact.type == "job.offer"
    if fact.type == "job.cancel" and fact.body.get("reason", "").startswith("predecessor:"):
        is_told = UNREAD not in fact.body["reason"]
    unread = ledger.unread(lane, now.record.commit_ms) if is_told else ""
    if unread:
        yield f"{fact.type} tells about what it waits for, and {unread}"


def named_once(_: LawState, __: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """No job is given back until one job has ended several times over."""
    after = [tuple(one) for one in fact.body.get("after", [])] if now.took_effect else []
    if fact.type == "job.yield" and len(set(after)) < len(after):
        yield "given back for one job several times"


def within_limits(
    ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """An honest coordinator offers no job under a label that has no room."""
    if fact.type != "job.offer" or not now.is_honest or not now.took_effect:
        return
    most = ledger.limits.get(lane.label)
    if lane.is_waiting and most is not None and ledger.counted[lane.label] >= most:
        yield f"offered under {lane.label} beside {ledger.counted[lane.label]} others of {most}"


def agreed(ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """A job with replicas gets the result that enough of them have, for different parties."""
    if fact.type != "job.resolve" or not now.took_effect:
        return
    if fact.author != ledger.authority_model.coordinator:
        yield "resolved by somebody else than the coordinator"
    result, parties = told(fact.body), set[str]()
    for child, _ in fact.body["children"]:
        found = ledger.lane((fact.body["kind"], child))
        if found.parent_seq != lane.called.seq:
            yield f"{child[:8]} is not a replica of it"
        elif found.told != result:
            yield f"{child[:8]} has another result"
        else:
            parties.add(ledger.authority_model.party(found.done))
    if not lane.quorum or len(parties) < lane.quorum:
        yield f"resolved by {len(parties)} that agree, and {lane.quorum} are needed"


def patient(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """No tenure begins within a retry pause, or by one whose lease expired, within a lease."""
    if fact.type != "job.claim" or not now.took_effect or lane.held is not None:
        return
    if fact.wall_ms < lane.retry_after_ms:
        yield f"claimed {lane.retry_after_ms - fact.wall_ms} ms before the retry was due"
    if fact.wall_ms < lane.cooling.get(fact.author, 0):
        yield "claimed by a worker that had to wait one lease after its expiry"


def begun_in_time(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """No tenure begins after the time by which the job had to be begun."""
    if fact.type != "job.claim" or not now.took_effect or lane.held is not None:
        return
    if fact.wall_ms > lane.start_by_ms:
        yield f"claimed {fact.wall_ms - lane.start_by_ms} ms after it had to be begun"


def bounded(ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """A lease is as long as the rules and the job let it be, and a tenure ends with its timeout."""
    if fact.type != "job.claim" or not now.took_effect:
        return
    lease_ms, least_ms = int(fact.body["lease_ms"]), ledger.rules["lease_min_ms"]
    if not least_ms <= lease_ms <= lane.lease_ms_max:
        yield f"a lease of {lease_ms} ms was accepted, not {least_ms} to {lane.lease_ms_max}"
    if lane.held is not None and lane.tenure_ms_max:
        held_ms = fact.wall_ms - (int(lane.held.fence, 16) >> 16)
        if held_ms > lane.tenure_ms_max:
            yield f"renewed after {held_ms} ms, and a tenure may last {lane.tenure_ms_max}"


def own_subject(_: LawState, __: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Nothing is accepted on a subject that is not its own."""
    if now.is_accepted and fact.home != now.record.subject:
        yield f"accepted on {now.record.subject}, but it belongs on {fact.home}"


def chained(_: LawState, __: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Whatever is accepted names the record before it on its subject."""
    if now.is_accepted and fact.prev != now.tail:
        yield f"accepted although it names {fact.prev} as its predecessor, not {now.tail}"


def in_order(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Along accepted ops of a lane, time rises strictly."""
    if now.key is not None and now.took_effect and (fact.wall_ms, fact.logical) <= lane.newest:
        yield f"accepted at {fact.wall_ms}.{fact.logical}, not after {lane.newest}"


def in_time(ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Nothing is accepted that lies further ahead of its commit than the drift."""
    ahead_ms = fact.wall_ms - now.record.commit_ms
    if now.is_accepted and ahead_ms > ledger.rules["max_drift_ms"]:
        yield f"accepted {ahead_ms} ms ahead of its commit"


def final(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """A job that has ended never changes again, and none acts that was not called.

    That what it wrote is kept no longer changes nothing of its end, and comes after it.
    """
    if now.key is None or not now.took_effect:
        return
    if fact.type == "job.evict":
        if not lane.results:
            yield "an output was evicted before there was any"
    elif lane.ended_seq:
        yield f"{fact.type} took effect after the job had ended at {lane.ended_seq}"
    if lane.is_scheduled == (fact.type == "job.schedule"):
        yield f"{fact.type} took effect; was the job called before? {lane.is_scheduled}"


def authentic(ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Nothing is accepted that its author never signed."""
    signed = signed_part(now.record.payload)
    if now.is_accepted and signed not in ledger.signed.get(fact.author, ()):
        yield f"accepted in the name of {fact.author}, who never signed it"


def honest_writers(_: LawState, __: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """The real runtime never writes what only a broken or lying writer writes."""
    if now.is_honest and now.verdict in NEVER_HONEST:
        yield f"an honest {fact.type} was rejected as {now.verdict.value}"


def no_racing(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """An honest worker writes no claim on a job that it could know to be held or ended."""
    if not now.is_honest or fact.type != "job.claim" or fact.fence:
        return
    if lane.ended_seq or (lane.held is not None and lane.held.claimer != fact.author):
        yield "an honest worker claimed a job that was " + ("over" if lane.ended_seq else "held")


def authorised(
    ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """Authority on a job is as the log has it: nothing passes without, and reasons are true."""
    if now.key is None or now.verdict.value in BEFORE_AUTHORITY:
        return
    commit_ms = now.record.commit_ms
    if "derived" in fact.body and fact.author == ledger.authority_model.coordinator:
        yield from _by_its_plan(ledger, now, fact)
        return
    if fact.type == "job.schedule" and "replica" in fact.body and now.took_effect:
        caller = ledger.parent(fact).called
        fault = ledger.authority_model.fault_of_caller(fact, caller, commit_ms=commit_ms)
        if fault:
            yield f"a replica was submitted for a caller who may not: {fault}"
    expected = ledger.authority_model.fault(fact, lane.called, commit_ms=commit_ms)
    said = now.verdict.value
    if not expected and "replica" in fact.body and said in ABOUT_AUTHORITY:
        caller = ledger.parent(fact).called
        expected = ledger.authority_model.fault_of_caller(fact, caller, commit_ms=commit_ms)
    if said != expected and (expected or said in ABOUT_AUTHORITY):
        yield f"{fact.type} got {said}; by the delegations on the log it is {expected or 'allowed'}"


def _by_its_plan(ledger: LawState, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """What the coordinator derives counts by the right of the plan's author, here and now."""
    model, said = ledger.authority_model, now.verdict.value
    expected = "quarantined" if model.is_shut_out(fact.author) else ""
    plan = ledger.plan_of(fact)
    if plan is None:
        if now.took_effect:
            yield "a job was derived from no plan"
        return
    expected = expected or model.schedule_fault(
        plan.author, plan.auth, fact, commit_ms=now.record.commit_ms
    )
    if (said == "ok" and expected) or (said in ABOUT_AUTHORITY and said != expected):
        yield f"{fact.type} got {said}; by its plan's author it is {expected or 'allowed'}"


def derived_once(
    ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """The coordinator alone derives, at no tick before its time, and from each thing one job."""
    derived = fact.body.get("derived")
    if fact.type != "job.schedule" or derived is None or not now.took_effect:
        return
    if fact.author != ledger.authority_model.coordinator:
        yield "derived by somebody else than the coordinator"
    plan, origin = ledger.plan_of(fact), origin_of(derived)
    before = ledger.derived.get((plan.op_id, origin)) if plan is not None else None
    if before is not None:
        yield f"a second job for {origin}; the first is {before[1]}"
    tick_ms = int(derived.get("tick_ms", 0))
    if tick_ms > min(fact.wall_ms, now.record.commit_ms):
        yield f"derived {tick_ms - min(fact.wall_ms, now.record.commit_ms)} ms before its tick"


def ticks_in_order(
    ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """An honest coordinator leaves no tick out of a plan that makes up for every one.

    The plans of simulated worlds have a tick every so many seconds of a minute.
    """
    derived = fact.body.get("derived", {})
    if not now.is_honest or not now.took_effect or "tick_ms" not in derived:
        return
    plan = ledger.plan_of(fact)
    if plan is None or plan.trigger.get("missed") != "all":
        return
    step_ms = int(plan.trigger["at"].split()[0].removeprefix("*/")) * 1000
    since_ms = ledger.newest_tick.get(plan.op_id, plan.put_ms)
    due_ms = (since_ms // step_ms + 1) * step_ms
    if derived["tick_ms"] != due_ms:
        yield f"the tick {derived['tick_ms']} was derived, and {due_ms} was next"


def by_right(ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Control ops count from those alone whose they are, and are refused to nobody else."""
    said = now.verdict.value
    if now.key is not None or not (now.took_effect or said in {*ABOUT_AUTHORITY, "proof"}):
        return
    expected = ledger.authority_model.control_fault(
        fact,
        lambda did, raw: raw in ledger.signed.get(did, ()),
        latest_ms=now.record.commit_ms + ledger.rules["max_drift_ms"],
    )
    if (expected or "ok") != said:
        yield f"{fact.type} got {said}; by the log so far it is {expected or 'allowed'}"


def leases_end(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """No lease outlives the revocation of what it was begun under, or its holder's quarantine."""
    if now.key is not None and now.took_effect and fact.fence in lane.cut_off:
        yield f"{fact.type} took effect under a lease whose authority had ended"


def truly_held(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Nobody is turned away by a lease that is no more."""
    if now.key is not None and now.verdict is Verdict.HELD and lane.held is None:
        yield f"{fact.type} was refused as held, and nobody holds the job"


def routed(ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """While a kind is routed, nobody else begins a tenure on it."""
    if fact.type != "job.claim" or not now.took_effect or lane.held is not None:
        return
    if ledger.authority_model.is_routed_away(fact.body["kind"], fact.author, fact.auth):
        yield "claimed by somebody else than the kind is routed to"


def not_while_paused(
    ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """While jobs are paused nobody begins one, and who holds one is not stopped."""
    if now.key is None:
        return
    is_paused = ledger.authority_model.is_paused(fact.body.get("kind", ""), lane.label)
    if fact.type == "job.claim" and lane.held is None:
        if is_paused and now.took_effect:
            yield "claimed while it was paused"
        if not is_paused and now.verdict is Verdict.PAUSED:
            yield "refused as paused, and it is not"
    elif now.verdict is Verdict.PAUSED:
        yield f"{fact.type} was refused because of a pause"


def put_by_right(
    ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """A plan is put and dropped by those alone who may submit its jobs."""
    said = now.verdict.value
    if said in BEFORE_AUTHORITY:
        return
    model = ledger.authority_model
    expected = "quarantined" if model.is_shut_out(fact.author) else ""
    expected = expected or model.schedule_fault(
        fact.author, fact.auth, fact, commit_ms=now.record.commit_ms
    )
    if said != expected and (expected or said in ABOUT_AUTHORITY):
        yield f"{fact.type} got {said}; by the delegations on the log it is {expected or 'allowed'}"


LAWS: Final[tuple[Law, ...]] = (
    authorised,
    by_right,
    leases_end,
    truly_held,
    routed,
    not_while_paused,
    one_result,
    proved,
    fences_rise,
    not_early,
    not_before_its_time,
    after_its_predecessors,
    read_by_right,
    named_once,
    within_limits,
    agreed,
    patient,
    begun_in_time,
    bounded,
    own_subject,
    chained,
    in_order,
    in_time,
    final,
    authentic,
    honest_writers,
    no_racing,
    derived_once,
    ticks_in_order,
    *artifact_laws.LAWS,
    *question_laws.LAWS,
)


OF_ALL: Final[tuple[Law, ...]] = (own_subject, chained, in_time, authentic, honest_writers)
"""What holds of the records of every family."""


def commit(
    ledger: LawState, now: Committed, of_guest: tuple[Law, ...] | None = None
) -> list[Violation]:
    """Hold one record against every law, then let the ledger move on.

    `of_guest` are the laws of the family that it is of, where that is a guest in this cluster.
    """
    broken: list[Violation] = []
    fact, seq = now.fact, now.record.seq
    if fact is None:
        if now.is_accepted or now.is_honest:
            who = "an honest" if now.is_honest else "a hostile"
            what = f"{who} record that cannot be read got {now.verdict.value}"
            broken.append(Violation("readable", what, now.key, seq))
        return broken
    lane = ledger.lane(now.key)
    if fact.type.startswith("plan."):
        of_guest = (put_by_right,)
        ledger.move(now)
    for law in LAWS if of_guest is None else (*OF_ALL, *of_guest):
        found = law(ledger, lane, now, fact)
        broken.extend(Violation(law.__name__, what, now.key, seq) for what in found)
    if of_guest is None:
        ledger.move(now)
    return broken
