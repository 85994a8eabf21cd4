"""Writes golden-log-v2.jsonl: a small log under protocol 2, with the verdict on every record.

    .venv/bin/python -m tests.vectors.golden_log_two

What protocol 1 has is in the first file. This one holds what the second brought: chains of
delegations with each way to lack one, proofs, seals, evictions, reasons within sight, and
manifests that ask for something. The same promise holds: it never changes.
"""

from pathlib import Path

import msgspec

from antiphon.core import ops, proof, signing
from antiphon.core.grants import token_of
from antiphon.core.ids import digest
from tests.unit.core.authors import ALICE, BOB, CAROL, OWNER, Author
from tests.unit.core.ledger import Ledger, Story
from tests.unit.core.test_authority import delegation
from tests.vectors.golden_log import written

PATH = Path(__file__).with_name("golden-log-v2.jsonl")
RENDER = [["like", ".kind", "render.*"]]
KEPT, INLINE = digest(b"kept"), digest(b"hi")
OUTPUTS = (
    ops.Output(name="kept", hash=KEPT, size=4),
    ops.Output(name="said", hash=INLINE, size=2, type="text/plain", text="hi"),
)


class Court:
    """Hands out and takes back, one op each."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def bring(self, by: Author, to: Author, *, brought_by=None, at, **terms) -> str:
        granted = delegation(by, to, **terms)
        body = ops.DelegateBody(token=token_of(granted.raw))
        self.ledger.put(ops.UcanDelegate, body, brought_by or by, at=at)
        return granted.cid

    def revoke(self, cid: str, by: Author, *, at) -> None:
        self.ledger.put(ops.UcanRevoke, ops.RevokeBody(cid=cid), by, at=at)


def proved(story: Story, by: Author, *, outputs=(), status="succeeded", says=None):
    """A completion with its proof; `says` bends what the proof says."""
    body = ops.CompleteBody(
        kind=story.kind, job=story.id, fence=story.fence, status=status, outputs=outputs
    )
    said = proof.Predicate(
        mesh=story.ledger.mesh,
        kind=body.kind,
        job=body.job,
        manifest=proof.manifest_digests(body.job, story.manifest),
        worker=by.did,
        fence=body.fence,
        started=body.fence,
        ended=body.fence,
        status=body.status,
        runner=proof.Runner(name="golden", version="1", platform="any"),
        isolation=proof.Isolation(level="sandbox", held=("network:none", "seccomp")),
        environment="0" * 64,
        usage=proof.Usage(wall_ms=5, cpu_ms=4, max_rss_kb=3),
    )
    payload = proof.statement(msgspec.structs.replace(said, **(says or {})), outputs)
    sealed = proof.seal_in(payload, by.did, lambda kind, data: signing.sign(by.secret, kind, data))
    return msgspec.structs.replace(body, proof=sealed)


def chain_story(ledger: Ledger) -> None:
    """A holder, a sub-holder, and every way of having no right."""
    court = Court(ledger)
    ledger.coordinator(CAROL, at=10)
    mine = court.bring(OWNER, ALICE, pol=RENDER, at=20)
    lent = court.bring(ALICE, BOB, cmd="/job/claim", at=30)
    court.bring(OWNER, BOB, brought_by=CAROL, at=40)  # no_chain: not hers to bring
    story = Story(ledger, kind="render.frame", word="chained")
    story.schedule(BOB, how={"at": 100})  # no_chain
    story.schedule(ALICE, how={"at": 110, "auth": (mine,)})
    other = Story(ledger, kind="build.wheel", word="chained")
    other.schedule(ALICE, how={"at": 120, "auth": (mine,)})  # policy
    story.claim(BOB, auth=(lent,), at=130)  # no_chain: no root
    story.claim(BOB, auth=(mine, lent), begin=True, at=140)
    ledger.put(ops.JobComplete, proved(story, BOB), BOB, auth=(mine, lent), at=150)  # command
    court.revoke(lent, CAROL, at=160)  # no_chain: not hers to take
    court.revoke(lent, ALICE, at=170)
    story.claim(BOB, auth=(mine, lent), at=180)  # revoked, and the lease has ended
    story.claim(ALICE, auth=(mine,), begin=True, at=190)
    end = proved(story, ALICE, outputs=OUTPUTS)
    ledger.put(ops.JobComplete, end, ALICE, auth=(mine,), at=200)
    brief = court.bring(OWNER, CAROL, until_ms=2_000, nonce=b"a short while", at=210)
    late = Story(ledger, kind="render.frame", word="late")
    late.schedule(CAROL, how={"at": 1_900, "stamp": 3_100, "auth": (brief,)})  # chain_expired
    late.schedule(CAROL, how={"at": 3_200, "auth": (brief,)})  # chain_expired


def proof_story(ledger: Ledger) -> None:
    """Results without a proof, with another's, with one of something else; then evictions."""
    story = Story(ledger, kind="render.frame", word="proved")
    story.schedule(OWNER, how={"at": 4_000})
    story.claim(OWNER, begin=True, at=4_010)
    story.complete(OWNER, outputs=OUTPUTS, at=4_020)  # proof: none
    for at, says in (
        (4_030, {"fence": "0" * 16}),
        (4_040, {"worker": ALICE.did}),
        (4_050, {"job": "0" * 64}),
        (4_060, {"status": "failed"}),
    ):
        ledger.put(ops.JobComplete, proved(story, OWNER, says=says), OWNER, at=at)  # proof
    stolen = msgspec.structs.replace(proved(story, ALICE), fence=story.fence)
    ledger.put(ops.JobComplete, stolen, OWNER, at=4_070)  # proof
    story.evict(KEPT, at=4_080)  # not_ended
    ledger.put(ops.JobComplete, proved(story, OWNER, outputs=OUTPUTS), OWNER, at=4_090)
    story.evict(KEPT, BOB, at=4_100)  # no_chain
    story.evict(INLINE, at=4_110)  # no_output
    story.evict(KEPT, at=4_120)
    story.evict(KEPT, CAROL, at=4_130)  # already
    failed = Story(ledger, kind="render.frame", word="failed")
    failed.schedule(OWNER, how={"at": 4_200})
    failed.claim(OWNER, begin=True, at=4_210)
    end = proved(failed, OWNER, status="failed")
    ledger.put(ops.JobComplete, end, OWNER, at=4_220)


def sight_story(ledger: Ledger) -> None:
    """Reasons that every reader of the op can read, and such that not every one can."""
    one = Story(ledger, kind="render.frame", word="one")
    one.schedule(OWNER, how={"at": 5_000})
    there = ledger.dep(len(ledger.log))
    two = Story(ledger, kind="build.wheel", word="two")
    two.schedule(OWNER, how={"at": 5_010, "deps": (there,)})  # missing_dep: another kind
    two.schedule(OWNER, how={"at": 5_020, "deps": (ledger.dep(1),)})
    ledger.route("build", BOB, at=5_030, deps=(there,))  # missing_dep: not control
    ledger.route("build", BOB, at=5_040, deps=(ledger.dep(2),))
    three = Story(ledger, kind="render.frame", word="three")
    three.schedule(OWNER, how={"at": 5_050, "deps": (there,)})
    asking = Story(ledger, kind="render.frame", word="asks")
    asking.manifest = msgspec.structs.replace(
        asking.manifest, outputs=("*.txt",), secrets=("token",), network=True
    )
    asking.schedule(OWNER, how={"at": 5_060})


def quarantine_story(ledger: Ledger) -> None:
    """Two things said with one timestamp, shown; what their author says then, and readmission."""
    story = Story(ledger, kind="render.frame", word="twice")
    drafts = [
        ledger.draft(ops.JobCancel, ops.CancelBody(kind=story.kind, job=story.id, reason=why), BOB,
                     at=6_000, prev=0)
        for why in ("one", "other")
    ]  # fmt: skip
    first, second = (draft.payload.decode() for draft in drafts)
    body = ops.EvidenceBody(node=BOB.did, first=first, second=second)
    ledger.put(ops.MeshEvidence, body, ALICE, at=6_010)
    story.schedule(BOB, how={"at": 6_020})  # quarantined
    ledger.put(ops.MeshReadmit, ops.ReadmitBody(node=BOB.did), OWNER, at=6_030)
    story.schedule(BOB, how={"at": 6_040})  # no_chain


def seal_story(ledger: Ledger) -> None:
    """Seals by the coordinator and by others, true and false."""

    def seal(by: Author, *, at: int, back: int = 0, **changes) -> None:
        upto = len(ledger.log) - back
        mark = ledger.reader.mark_at(upto)
        body = ops.SealBody(upto=upto, size=mark.size, root=mark.root)
        ledger.put(ops.MeshSeal, msgspec.structs.replace(body, **changes), by, at=at)

    seal(OWNER, at=7_000)  # not_coordinator
    seal(CAROL, at=7_010, root="0" * 64)  # seal
    seal(CAROL, at=7_020)
    seal(CAROL, at=7_030, back=20)  # stale
    ledger.coordinator(OWNER, at=7_040)
    seal(CAROL, at=7_050)  # not_coordinator
    seal(OWNER, at=7_060)


def build() -> str:
    """The whole file."""
    ledger = Ledger(protocol=2, authority="chain")
    for part in (chain_story, proof_story, sight_story, quarantine_story, seal_story):
        part(ledger)
    return written(ledger, protocol=2)


if __name__ == "__main__":
    PATH.write_text(build(), encoding="utf-8")
    print(f"wrote {PATH.name}")
