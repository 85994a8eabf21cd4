"""The largest op of each type: it fits into a record, or every reader refuses it alike.

A record has at most 256 KiB (262,144 bytes) of op. The largest body that each schema admits takes:

    mesh.route, coordinator, recover, readmit, seal; job.claim, start, expire, evict;
    ucan.revoke; plan.drop               below 1 KB
    lock.take, release, break            2.5 KB: a key of 512 characters
    ucan.delegate                        24.6 KB: the token
    job.cancel                           25 KB: the reason
    memory.put                           204 KB: 32,768 characters in the op, and 16 siblings
    mesh.tempo                           216 KB: rates of 128 classes of devices, with notes

These are more than a record holds if everything in them is at its largest, and can be written up to
256 KiB. Each of their lists fits at its cap, with items as people write them:

    job.yield                            after 204 KB, an error 51 KB
    job.schedule, plan.put               after 204 KB, give_up_on 98 KB, a manifest of any size
    job.complete, resolve, offer         outputs and results, of which each may have 128 KiB of text
    mesh.genesis, mesh.rules             256 limits with 64 prefixes of kinds each
    mesh.evidence                        two records of 96 KiB
"""

import pytest
from msgspec import inspect
from msgspec.structs import replace

from antiphon.core import reducer
from antiphon.core.families.jobs.derivation import Reaction
from antiphon.core.families.jobs.ops import (
    CompleteBody,
    JobComplete,
    JobOffer,
    JobResolve,
    JobSchedule,
    JobYield,
    OfferBody,
    ResolveBody,
    Result,
    Retry,
    ScheduleBody,
)
from antiphon.core.families.mesh.ops import (
    MeshEvidence,
    MeshGenesis,
    MeshRules,
    MeshTempo,
    RulesBody,
)
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.family import NOTHING, Needs
from antiphon.core.manifest import Manifest, job_id
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.proof.output import Output
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.core.record.op import MAX_AUTH, MAX_DEPS, Op, subject_of
from antiphon.core.record.signing import frame
from antiphon.core.record.verdict import Verdict
from antiphon.engines.memory.log import MAX_PAYLOAD
from antiphon.engines.nats.log.streams import MAX_RECORD_BYTES
from tests.core.authors import ALICE, BOB, OWNER, proved
from tests.core.largest_ops import Fullest, largest
from tests.core.ledger import T0, Ledger, Record, Story, manifest, open_stored
from tests.core.quorums import Replicated
from tests.cpu_cost import times_the_cost

TOO_LARGE = {
    *(JobYield, JobSchedule, PlanPut, JobComplete, JobResolve, JobOffer),
    *(MeshGenesis, MeshRules, MeshEvidence),
}
"""Whose schema admits more than a record holds: their authors are told so in words."""
EVERY_OP = [pytest.param(op, id=op.type_name()) for op in PROTOCOL.family_of]
NEWEST = (T0 + 10, 0)


def enveloped(op: type[Op], body, mesh: str) -> Op:
    """The body in the largest envelope."""
    return op(
        v=1,
        mesh="" if op.CREATES_MESH else mesh,
        author=OWNER.did,
        hlc=NEWEST,
        prev=codec.MAX_INTEGER,
        deps=((codec.MAX_INTEGER, f"blake3:{'f' * 64}"),) * MAX_DEPS,
        auth=("\x01" * 128,) * MAX_AUTH,
        body=body,
    )


@pytest.mark.parametrize("op", EVERY_OP)
def test_the_largest_op_fits_into_a_record_or_every_reader_refuses_it_alike(op):
    ledger, other = Ledger(), Ledger()
    made = enveloped(op, largest(op), ledger.mesh)
    op_bytes = codec.encode(made)
    assert (len(op_bytes) > codec.MAX_OP_BYTES) == (op in TOO_LARGE), f"{len(op_bytes):,} bytes"
    payload = frame(op_bytes, OWNER.sign(op_bytes))
    subject = subject_of(made, op_bytes)
    verdicts = {one.append(subject, payload, stamp=10) for one in (ledger, other)}
    assert len(verdicts) == 1
    assert not verdicts & {Verdict.MALFORMED, Verdict.CANONICAL}, "its schema admits it"
    assert (verdicts == {Verdict.SIZE}) == (op in TOO_LARGE)
    assert ledger.reader.all_lanes == other.reader.all_lanes


def test_every_engine_stores_what_readers_accept():
    longest_block = 1_024
    assert codec.MAX_OP_BYTES + longest_block < min(MAX_PAYLOAD, MAX_RECORD_BYTES - 1_024)


# --- lists ----------------------------------------------------------------------------------------

MOST = 3.0
"""How many times as long as opening a record, which decodes and hashes it, judging it may take."""
MOST_OF_TEXTS = 12.0
"""The same where the record has a thousand tiny outputs: their digests are not in it, so they are
computed. That is a few milliseconds, for a list that has no longer form."""


def full(op: type[Op], option: int = 0, **fixed):
    return Fullest(option).of(op, **fixed)


def schedule(option: int):
    """All lists of a schedule; its inputs are of this sort."""

    def made(ledger: Ledger):
        alone = {
            "retry": Retry(),
            "score": None,
            "budget": None,
            "replica": None,
            "derived": None,
            "question": None,
        }
        return ledger.draft(JobSchedule, full(JobSchedule, option, kind="x", **alone), ALICE)

    return made


def plan(ledger: Ledger):
    alone = {"score": None, "budget": None, "replica": None, "derived": None, "question": None}
    trigger = Reaction(on="failed", kinds="y")
    body = full(PlanPut, 1, kind="x", name="p", trigger=trigger, **alone)
    inputs = body.manifest.inputs[1:]  # a derived job has one more
    body = replace(body, manifest=replace(body.manifest, inputs=inputs))
    return ledger.draft(PlanPut, body, ALICE)


def offer(ledger: Ledger):
    story = Story(ledger)
    inputs = Fullest(2).value(inspect.type_info(Manifest)).inputs
    story.manifest = replace(story.manifest, inputs=inputs)
    story.id = job_id(story.manifest)
    assert story.schedule() is Verdict.OK
    results = tuple(Result(hash=digest(b"%d" % one), size=one) for one in range(len(inputs)))
    return ledger.draft(JobOffer, OfferBody(kind=story.kind, job=story.id, results=results), OWNER)


def claimed(ledger: Ledger) -> Story:
    story = Story(ledger)
    assert story.schedule() is Verdict.OK
    assert story.claim(begin=True) is Verdict.OK
    return story


def give_back(ledger: Ledger):
    story = claimed(ledger)
    fixed = {"kind": story.kind, "job": story.id, "fence": story.fence, "cost": None}
    return ledger.draft(JobYield, full(JobYield, reason="after", **fixed), ALICE)


def outputs() -> tuple[Output, ...]:
    return Fullest().of(JobResolve, kind="x", job="0" * 64, children=()).outputs


def complete(ledger: Ledger):
    story = claimed(ledger)
    body = CompleteBody(
        kind=story.kind, job=story.id, fence=story.fence, status="succeeded", outputs=outputs()
    )
    return ledger.draft(JobComplete, proved(ALICE, ledger.mesh, body), ALICE)


def resolve(ledger: Ledger):
    parent, said = Replicated(ledger), outputs()
    ended = [parent.done(number, by, *said) for number, by in ((0, ALICE), (1, BOB))]
    named = tuple((child.id, child.job.ended_seq) for child in ended)
    body = ResolveBody(kind=parent.kind, job=parent.id, children=named, outputs=said)
    return ledger.draft(JobResolve, body, OWNER)


def rules(ledger: Ledger):
    body = full(MeshRules)
    limits = tuple(replace(one, at_once=1) for one in body.rules.limits)
    return ledger.draft(MeshRules, RulesBody(rules=replace(body.rules, limits=limits)), OWNER)


def tempo(ledger: Ledger):
    return ledger.draft(MeshTempo, full(MeshTempo), OWNER)


FULL_LISTS = {
    "job.schedule, blobs": schedule(0),
    "job.schedule, nonces": schedule(1),
    "job.schedule, results": schedule(2),
    "plan.put": plan,
    "job.offer": offer,
    "job.yield": give_back,
    "job.complete": complete,
    "job.resolve": resolve,
    "mesh.rules": rules,
    "mesh.tempo": tempo,
}


@pytest.mark.parametrize("case", FULL_LISTS)
def test_a_list_at_its_cap_is_judged_in_the_time_that_reading_it_takes(case):
    ledger = Ledger()
    draft = FULL_LISTS[case](ledger)
    record = Record(
        seq=len(ledger.log) + 1,
        commit_ms=T0 + ledger.now,
        subject=draft.subject,
        payload=draft.payload,
    )
    opened = open_stored(ledger.mesh, record)
    judge = judging(ledger, opened)
    assert judge().verdict is Verdict.OK, "all of it was looked at"
    assert len(draft.payload) > 8_000
    most = MOST_OF_TEXTS if case in {"job.complete", "job.resolve"} else MOST
    assert times_the_cost(judge, lambda: open_stored(ledger.mesh, record), rounds=3) < most


def judging(ledger: Ledger, opened: OpenedRecord):
    """Judges a record, with what it needs at hand."""
    if opened.is_control:
        return lambda: ledger.history.judge(opened)
    key, control = opened.place.key, ledger.history.at(opened.seq, opened.commit_ms)
    lane = ledger.reader.all_lanes.get(key) or PROTOCOL.empty(key)
    needs = reducer.judge(control, lane, opened)
    reads = ledger.reader._read(needs, True, opened.seq) if isinstance(needs, Needs) else NOTHING
    return lambda: reducer.judge(control, lane, opened, reads)


def test_full_rules_make_no_job_more_expensive():
    plain, full_rules = Ledger(), Ledger()
    draft = rules(full_rules)
    assert full_rules.commit(draft) is Verdict.OK
    work = []
    for ledger in (plain, full_rules):
        body = ScheduleBody(kind="render.video", manifest=manifest())
        made = ledger.draft(JobSchedule, body, OWNER, at=100)
        record = Record(seq=9, commit_ms=T0 + 100, subject=made.subject, payload=made.payload)
        judge = judging(ledger, open_stored(ledger.mesh, record))
        assert judge().verdict is Verdict.OK
        work.append(lambda judge=judge: [judge() for _ in range(100)])
    assert times_the_cost(work[1], of=work[0]) < MOST
