"""Writes golden-log-v1.jsonl: a small log of protocol 1, with the verdict on every record.

    .venv/bin/python -m tests.vectors.golden_log

Keys and times are fixed and Ed25519 is deterministic, so the file never changes while the bytes,
the order of the checks and the meaning of the protocol do not. If a change to the code changes this
file, it changes the protocol. Until the first release it is then written anew, and the change says
which verdicts moved; from the first release on, the change gets a new number and a file of its own.

The first line names the mesh and the digest of the state at the end; then one record per line.
"""

import json
from pathlib import Path

from msgspec.structs import replace

from antiphon.core.authority.rules import Limit
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobSchedule, Result, Retry, ScheduleBody
from antiphon.core.families.jobs.state import Job
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.inference.snapshot import SNAPSHOT_TYPE
from antiphon.core.manifest import ResultInput, job_id
from antiphon.core.proof.output import Output
from antiphon.core.proof.statement import UNSIGNED, Proof, Runner
from antiphon.core.record import codec, signing, subjects
from antiphon.core.record.ids import did_of, digest
from antiphon.core.tempo.policy import policy_hash
from tests.core.authors import ALICE, BOB, CAROL, OWNER, sign_batch, sign_bytes
from tests.core.ledger import T0, Ledger, Reader, Story
from tests.vectors import (
    golden_log_archive,
    golden_log_closed,
    golden_log_erasures,
    golden_log_locks,
    golden_log_memory,
    golden_log_pauses,
    golden_log_plans,
    golden_log_questions,
    golden_log_quorum,
    golden_log_tempo,
)

PATH = Path(__file__).with_name("golden-log-v1.jsonl")
DAY = 86_400_000


def artifacts_of(job: Job) -> list[object]:
    """What the runs of a job have stored."""
    found = job.artifacts
    if found is None:
        return []
    counts = [found.steps, found.parts, found.snapshots, found.text_bytes]
    return [*counts, list(found.outside), found.snapshots_digest]


def state_digest(reader: Reader) -> str:
    """The state in the protocol's own terms, not in the names of today's fields."""
    control = reader.history.current
    lanes = [
        [
            kind,
            job_id,
            list(lane.tails),
            lane.job
            and [
                lane.job.state.value,
                lane.job.outcome,
                lane.job.claimer,
                lane.job.fence,
                lane.job.deadline_ms,
                lane.job.start_by_ms,
                lane.job.retry_after_ms,
                lane.job.attempts,
                lane.job.yields,
                lane.job.postponed,
                lane.job.checkpoint and lane.job.checkpoint.hash,
                *artifacts_of(lane.job),
                list(lane.job.hlc),
            ],
        ]
        for (kind, job_id), lane in sorted(reader.lanes.items())
    ]
    mesh = [
        control.owner,
        control.coordinator,
        list(control.owner_hlc),
        sorted(control.routes.items()),
        policy_hash(control.tempo),
        codec.encode(control.rules).decode(),
    ]
    return digest(codec.encode_checked([mesh, lanes]))


def control_story(ledger: Ledger) -> None:
    """Owner's ops, right and wrong; at the end the mesh is open and Carol coordinates."""
    early = Story(ledger, word="early")
    early.schedule(ALICE, how={"at": 10})  # no_chain
    early.claim(OWNER, at=20)  # no_job
    ledger.append(ledger.log[0].subject, ledger.log[0].payload, stamp=30)  # genesis
    ledger.rules(ALICE, how={"at": 40})  # not_owner
    ledger.rules(attempts=101, how={"at": 50})  # rules
    ledger.rules(how={"at": 60})  # ok: open from here on
    ledger.coordinator(CAROL, at=60)  # equivocation
    ledger.coordinator(CAROL, at=59)  # stale
    ledger.coordinator(CAROL, at=9_999, stamp=70)  # drift
    ledger.coordinator(CAROL, at=80)  # ok
    ledger.route("a.b", BOB, at=90, prev=7)  # prev
    ledger.route("a.b", BOB, at=100)  # ok
    ledger.route("a.b", ALICE, at=110, deps=((1, "blake3:" + "0" * 64),))  # missing_dep


def byte_story(ledger: Ledger) -> None:
    """Records that are no ops, or not where or whose they say."""
    story = Story(ledger, word="bytes")
    good = ledger.draft(
        JobSchedule, ScheduleBody(kind="render", manifest=story.manifest), ALICE, at=200
    )
    text = good.op_bytes
    job = job_subjects.job(ledger.mesh, "render", story.id)
    for payload, subject in [
        (b"junk", good.subject),  # frame
        (text + b"\n{}", good.subject),  # malformed: the block
        (sign_bytes(ALICE, b"{}"), good.subject),  # malformed: the op
        (sign_bytes(ALICE, text.replace(b'"v":1', b'"v": 1')), good.subject),  # canonical
        (sign_bytes(ALICE, text.replace(b'"v":1', b'"v":2')), good.subject),  # version
        (sign_bytes(ALICE, text.replace(b"job.schedule", b"job.wish")), good.subject),  # type
        (
            sign_bytes(ALICE, text.replace(ALICE.did.encode(), did_of(bytes(32)).encode())),
            good.subject,
        ),  # author: a point of small order
        (sign_bytes(BOB, text), good.subject),  # signature
        (sign_bytes(ALICE, text.replace(ledger.mesh.encode(), b"a" * 16)), good.subject),  # mesh
        (good.payload, job),  # subject
        (good.payload, f"ap.{ledger.mesh}.jobs.9.render.{story.id}"),  # subject: no lane
    ]:
        ledger.append(subject, payload, stamp=200)
    body = ScheduleBody(kind="render", manifest=story.manifest)
    last = ledger.draft(JobSchedule, body, ALICE, at=210)  # ok, signed as one of three
    block = sign_batch(ALICE, ledger.mesh, [b"one", last.op_bytes, b"three"])[1]
    ledger.append(last.subject, signing.frame(last.op_bytes, block), stamp=210)


def tenure_story(ledger: Ledger) -> None:
    """A job that is expired, yielded, and completed in its third tenure."""
    story = Story(ledger, word="tenures")
    story.schedule(how={"at": 1_000}, start_by=T0 + 500_000)
    story.start(ALICE, at=1_010)  # not_claimed
    story.schedule(BOB, priority="high", how={"at": 1_020})  # exists
    story.offer(BOB, at=1_030)
    story.offer(BOB, priority="low", at=1_040)  # priority
    story.claim(ALICE, at=1_100, lease_ms=4_999)  # lease
    story.claim(ALICE, at=1_200)
    first = story.fence
    story.claim(BOB, at=1_300)  # held
    story.claim(BOB, at=1_150, stamp=1_310)  # stale
    story.claim(ALICE, at=1_200, lease_ms=20_000)  # equivocation
    story.offer(BOB, at=1_320)  # held
    story.start(ALICE, at=1_400)
    story.start(ALICE, at=1_410)  # already
    story.start(BOB, at=1_420)  # not_claimer
    story.claim(ALICE, at=5_000, fence=first)  # a renewal: until 15,000
    story.expire(BOB, at=15_001, stamp=15_000)  # early
    story.expire(BOB, at=15_000, stamp=15_001)  # early
    story.claim(ALICE, at=15_000, stamp=15_001)  # lease_over
    story.expire(BOB, at=15_001)
    story.expire(CAROL, fence=first, at=15_002)  # already
    story.claim(ALICE, at=15_010)  # cooldown
    story.claim(BOB, at=15_020, begin=True)
    story.complete(ALICE, fence=first, at=15_030)  # fence
    story.give_back(BOB, reason="error", retry_after_ms=5_000, at=15_040)
    story.claim(CAROL, at=20_039)  # not_yet
    story.claim(CAROL, at=20_040, prev=3)  # prev
    story.claim(CAROL, at=9_000_000, stamp=20_045)  # drift
    story.claim(CAROL, at=20_050, deps=(ledger.dep(1),))
    good = Output(name="out", type="text/plain", text="hi")
    junk = Proof(
        sig=UNSIGNED,
        ended="0" * 16,
        runner=Runner(name="none", version="1", platform="any"),
        usage=Usage(wall_ms=1),
    )
    story.complete(CAROL, proof=junk, at=20_070)  # proof
    story.complete(CAROL, outputs=(good,), at=20_080)
    story.complete(CAROL, outputs=(good,), at=20_090)  # finished
    story.claim(BOB, at=20_100)  # finished
    story.cancel(at=20_110)  # finished


def waiting_story(ledger: Ledger) -> None:
    """Waits, routes and windows."""
    first = Story(ledger, word="first", kind="a.b")
    first.schedule(how={"at": 30_000})
    first.claim(ALICE, at=30_010)  # not_routed
    first.claim(BOB, at=30_020)
    then = Story(ledger, word="then", kind="a")
    delay = {"not_before": T0 + 30_055}
    then.schedule(**delay, concurrency="gpu", how={"at": 30_040, "deps": (ledger.dep(1),)})
    then.claim(ALICE, at=30_050)  # waiting
    then.offer(OWNER, at=30_060)  # not_coordinator
    then.offer(CAROL, at=30_070)
    then.cancel(BOB, at=30_080)
    later = Story(ledger, word="later", kind="a")
    later.schedule(not_before=T0 + 30_083 + 30 * DAY, how={"at": 30_082})  # delay
    later.schedule(not_before=T0 + 30_086, how={"at": 30_083})
    later.offer(ALICE, at=30_085)  # early
    later.offer(ALICE, at=30_086)
    later.cancel(OWNER, at=30_087)
    ledger.route("a.b", None, at=30_090)
    first.give_back(BOB, reason="drain", at=30_100)
    first.claim(CAROL, at=30_110)
    late = Story(ledger, word="late")
    late.schedule(start_by=T0 + 30_000, how={"at": 30_200})  # too_late
    late.schedule(retry=Retry(attempts=101), how={"at": 30_210})  # attempts
    late.schedule(lease_ms=1, how={"at": 30_220})  # lease
    late.schedule(start_by=T0 + 40_000, how={"at": 30_230})
    late.claim(ALICE, at=40_001)  # too_late
    late.expire(fence=None, at=40_000, stamp=40_001)  # early
    late.expire(fence=None, at=40_002)
    late.expire(fence=None, at=40_003)  # already
    once = Story(ledger, word="once")
    once.schedule(retry=Retry(attempts=1), how={"at": 40_100})
    once.claim(ALICE, begin=True, at=40_200)
    once.expire(at=50_201)  # exhausted
    once.complete(ALICE, at=50_300)  # finished
    old = Story(ledger, word="old")
    old.schedule(how={"at": 50_400, "stamp": 50_401 + 30 * DAY})  # too_old


def following_story(ledger: Ledger) -> None:
    """A job that reads a result, waits for a child, is counted under a limit, and stores a step."""
    ledger.rules(limits=(Limit(label="gpu", kinds=("gpu",), at_once=1),), how={"at": 50_410})
    before = Story(ledger, word="before", kind="gpu")
    before.schedule(how={"at": 50_411})  # limit
    before.schedule(concurrency="gpu", how={"at": 50_412})
    before.offer(CAROL, at=50_413)
    before.claim(ALICE, begin=True, at=50_414)
    reader = Story(ledger, word="reader", kind="a")
    result = ResultInput(of=("gpu", before.id), name="in")
    reader.manifest = replace(reader.manifest, inputs=(result,))
    reader.id = job_id(reader.manifest)
    reader.schedule(how={"at": 50_415})
    out = Output(name="result", text="1")
    before.complete(ALICE, outputs=(out,), at=50_416)
    reader.offer(CAROL, at=50_417)  # results
    reader.offer(BOB, results=[Result(text="1")], at=50_418)  # not_coordinator
    reader.offer(CAROL, results=[Result(text="1")], at=50_419)
    reader.claim(BOB, begin=True, at=50_420)
    reader.give_back(BOB, reason="after", at=50_421)  # after
    reader.give_back(BOB, reason="after", after=[("gpu", before.id)], at=50_422)
    reader.claim(BOB, at=50_423)  # waiting
    reader.offer(CAROL, results=[Result(text="1")], at=50_424)
    reader.claim(ALICE, begin=True, at=50_425)
    reader.artifact(ALICE, how={"at": 50_426})
    reader.artifact(ALICE, n=0, how={"at": 50_427})  # artifact
    reader.artifact(BOB, how={"at": 50_428})  # not_claimer
    outside = {"digest": digest(b"2"), "size": 1, "of": digest(b"1")}
    reader.artifact(ALICE, as_="part", **outside, how={"at": 50_429})
    reader.artifact(ALICE, as_="snapshot", value="{}", how={"at": 50_430})
    why = {"name": "needs-attention", "value": "it used up its 1 beat of waiting for io"}
    reader.artifact(ALICE, as_="escalation", **why, how={"at": 50_431})
    reader.complete(ALICE, calls=1, at=50_432)  # audit
    snapshot = Output(name="snapshot-0", type=SNAPSHOT_TYPE, text="{}")
    reader.complete(ALICE, calls=1, outputs=(snapshot,), at=50_433)


def stray_seal_story(ledger: Ledger) -> None:
    """Seals that are none: of another log, on another subject, by another key, in other bytes."""
    body = SealBody(upto=1, size=1, root="0" * 64)
    seal = ledger.draft(MeshSeal, body, CAROL, at=50_500)
    text = seal.op_bytes
    call = job_subjects.call(ledger.mesh, "normal", "render", Story(ledger, word="sealed").id)
    for payload, subject in [
        (seal.payload, seal.subject),  # seal
        (seal.payload, call),  # subject
        (seal.payload, subjects.control(ledger.mesh, "rules")),  # subject
        (sign_bytes(BOB, text), seal.subject),  # signature
        (sign_bytes(CAROL, text.replace(b'"v":1', b'"v": 1')), seal.subject),  # canonical
        (sign_bytes(CAROL, text.replace(b'"upto":1', b'"upto":0')), seal.subject),  # malformed
    ]:
        ledger.append(subject, payload, stamp=50_500)


STORIES = (
    control_story,
    byte_story,
    tenure_story,
    waiting_story,
    following_story,
    stray_seal_story,
    golden_log_quorum.story,
    golden_log_pauses.story,
    golden_log_questions.story,
    *golden_log_closed.STORIES,
    *golden_log_plans.STORIES,
    golden_log_tempo.story,
    *golden_log_locks.STORIES,
    golden_log_memory.story,
    golden_log_archive.story,
    golden_log_erasures.story,
)


def build() -> str:
    """The whole file."""
    ledger = Ledger(authority="chain")
    for story in STORIES:
        story(ledger)
    header = {
        "mesh": ledger.mesh,
        "protocol": ledger.history.current.rules.protocol,
        "records": len(ledger.log),
        "state": state_digest(ledger.reader),
    }
    records = [
        {
            "seq": record.seq,
            "stamp_ns": record.commit_ms * 1_000_000 + record.seq * 1_009 % 1_000_000,
            "subject": record.subject,
            "payload": record.payload.decode(),
            "verdict": verdict.value,
        }
        for record, verdict in zip(ledger.log, ledger.verdicts, strict=True)
    ]
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in (header, *records))


if __name__ == "__main__":
    PATH.write_text(build(), encoding="utf-8")
    print(f"wrote {PATH.name}")
