"""Stories of a closed mesh for the golden log (`golden_log.py`): every op needs a chain.

Chains of delegations with each way to lack one, proofs, evictions, reasons within sight,
manifests that ask for something, quarantine, seals, and a recovery.
"""

import msgspec

from antiphon.core.authority.delegations import token_of
from antiphon.core.cost.usage import Usage
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import CancelBody, CompleteBody, JobCancel, JobComplete
from antiphon.core.families.mesh.ops import (
    EvidenceBody,
    MeshEvidence,
    MeshReadmit,
    MeshRecover,
    ReadmitBody,
    RecoverBody,
)
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.proof import statement
from antiphon.core.proof.output import Output, Stored
from antiphon.core.record.ids import digest
from tests.core import authors
from tests.core.authority.test_chain_check import delegation
from tests.core.authors import ALICE, BOB, CAROL, OWNER, RECOVERY, Author
from tests.core.ledger import Ledger, Story

DAY = 86_400_000
CONTROL = 7  # the place of a control op that took effect
RENDER = [["like", ".kind", "render.*"]]
KEPT, INLINE = digest(b"kept"), digest(b"hi")
OUTPUTS = (
    Output(name="kept", stored=Stored(hash=KEPT, size=4)),
    Output(name="said", type="text/plain", text="hi"),
)


class Court:
    """Hands out and takes back, one op each."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def bring(self, by: Author, to: Author, *, brought_by=None, at, **terms) -> str:
        granted = delegation(by, to, **terms)
        body = DelegateBody(token=token_of(granted.raw))
        self.ledger.put(UcanDelegate, body, brought_by or by, at=at)
        return granted.cid

    def revoke(self, cid: str, by: Author, *, at) -> None:
        self.ledger.put(UcanRevoke, RevokeBody(cid=cid), by, at=at)


def proved(story: Story, by: Author, *, outputs=(), status="succeeded", says=None):
    """A completion with its proof; `says` bends what the proof says."""
    body = CompleteBody(
        kind=story.kind, job=story.id, fence=story.fence, status=status, outputs=outputs
    )
    ours = {
        "runner": statement.Runner(name="golden", version="1", platform="any"),
        "isolation": statement.Isolation(level="sandbox", held=("network:none", "seccomp")),
        "environment": "0" * 64,
        "usage": Usage(wall_ms=5, cpu_ms=4, max_rss_kb=3),
    }
    return authors.proved(by, story.ledger.mesh, body, **{**ours, **(says or {})})


def chain_story(ledger: Ledger) -> None:
    """The mesh is closed; a holder, a sub-holder, and every way of having no right."""
    court = Court(ledger)
    ledger.rules(authority="chain", artifact_ttl_ms=DAY, how={"at": 60_010})
    mine = court.bring(OWNER, ALICE, pol=RENDER, at=60_020)
    lent = court.bring(ALICE, BOB, cmd="/job/claim", at=60_030)
    court.bring(OWNER, BOB, brought_by=CAROL, at=60_040)  # no_chain: not hers to bring
    story = Story(ledger, kind="render.frame", word="chained")
    story.schedule(BOB, how={"at": 60_100})  # no_chain
    story.schedule(ALICE, how={"at": 60_110, "auth": (mine,)})
    other = Story(ledger, kind="build.wheel", word="chained")
    other.schedule(ALICE, how={"at": 60_120, "auth": (mine,)})  # policy
    story.claim(BOB, auth=(lent,), at=60_130)  # no_chain: no root
    story.claim(BOB, auth=(mine, lent), begin=True, at=60_140)
    ledger.put(JobComplete, proved(story, BOB), BOB, auth=(mine, lent), at=60_150)  # command
    court.revoke(lent, CAROL, at=60_160)  # no_chain: not hers to take
    court.revoke(lent, ALICE, at=60_170)
    story.claim(BOB, auth=(mine, lent), at=60_180)  # revoked, and the lease has ended
    story.claim(ALICE, auth=(mine,), begin=True, at=60_190)
    end = proved(story, ALICE, outputs=OUTPUTS)
    ledger.put(JobComplete, end, ALICE, auth=(mine,), at=60_200)
    brief = court.bring(OWNER, CAROL, until_ms=62_000, nonce=b"a short while", at=60_210)
    late = Story(ledger, kind="render.frame", word="late")
    late.schedule(CAROL, how={"at": 61_900, "stamp": 63_100, "auth": (brief,)})  # chain_expired
    late.schedule(CAROL, how={"at": 63_200, "auth": (brief,)})  # chain_expired


def proof_story(ledger: Ledger) -> None:
    """Results without a proof, with another's, with one of something else; then evictions."""
    story = Story(ledger, kind="render.frame", word="proved")
    story.schedule(OWNER, how={"at": 64_000})
    story.claim(OWNER, begin=True, at=64_010)
    story.complete(OWNER, outputs=OUTPUTS, proof=None, at=64_020)  # proof: none
    for at, says in (
        (64_030, {"fence": "0" * 16}),
        (64_040, {"worker": ALICE.did}),
        (64_050, {"job": "0" * 64}),
        (64_060, {"status": "failed"}),
    ):
        ledger.put(JobComplete, proved(story, OWNER, says=says), OWNER, at=at)  # proof
    stolen = msgspec.structs.replace(proved(story, ALICE), fence=story.fence)
    ledger.put(JobComplete, stolen, OWNER, at=64_070)  # proof
    story.evict(KEPT, at=64_080)  # not_ended
    ledger.put(JobComplete, proved(story, OWNER, outputs=OUTPUTS), OWNER, at=64_090)
    story.evict(KEPT, BOB, at=64_100)  # no_chain
    story.evict(INLINE, at=64_110)  # no_output
    story.evict(KEPT, at=64_120)
    story.evict(KEPT, CAROL, at=64_130)  # already
    failed = Story(ledger, kind="render.frame", word="failed")
    failed.schedule(OWNER, how={"at": 64_200})
    failed.claim(OWNER, begin=True, at=64_210)
    end = proved(failed, OWNER, status="failed")
    ledger.put(JobComplete, end, OWNER, at=64_220)


def sight_story(ledger: Ledger) -> None:
    """Reasons that every reader of the op can read, and such that not every one can."""
    one = Story(ledger, kind="render.frame", word="one")
    one.schedule(OWNER, how={"at": 65_000})
    there = ledger.dep(len(ledger.log))
    two = Story(ledger, kind="build.wheel", word="two")
    two.schedule(OWNER, how={"at": 65_010, "deps": (there,)})  # missing_dep: another kind
    two.schedule(OWNER, how={"at": 65_020, "deps": (ledger.dep(1),)})
    ledger.route("build", BOB, at=65_030, deps=(there,))  # missing_dep: not control
    ledger.route("build", BOB, at=65_040, deps=(ledger.dep(CONTROL),))
    three = Story(ledger, kind="render.frame", word="three")
    three.schedule(OWNER, how={"at": 65_050, "deps": (there,)})
    asking = Story(ledger, kind="render.frame", word="asks")
    asking.manifest = msgspec.structs.replace(
        asking.manifest, outputs=("*.txt",), secrets=("token",), network=True
    )
    asking.schedule(OWNER, how={"at": 65_060})


def quarantine_story(ledger: Ledger) -> None:
    """Two things said with one timestamp, shown; what their author says then, and readmission."""
    story = Story(ledger, kind="render.frame", word="twice")
    drafts = [
        ledger.draft(JobCancel, CancelBody(kind=story.kind, job=story.id, reason=why), BOB,
                     at=66_000, prev=0)
        for why in ("one", "other")
    ]  # fmt: skip
    first, second = (draft.payload.decode() for draft in drafts)
    body = EvidenceBody(node=BOB.did, first=first, second=second)
    ledger.put(MeshEvidence, body, ALICE, at=66_010)
    story.schedule(BOB, how={"at": 66_020})  # quarantined
    ledger.put(MeshReadmit, ReadmitBody(node=BOB.did), OWNER, at=66_030)
    story.schedule(BOB, how={"at": 66_040})  # no_chain


def seal_story(ledger: Ledger) -> None:
    """Seals by the coordinator and by others, true and false."""

    def seal(by: Author, *, at: int, back: int = 0, **changes) -> None:
        upto = len(ledger.log) - back
        mark = ledger.reader.mark_at(upto)
        body = SealBody(upto=upto, size=mark.size, root=mark.root)
        ledger.put(MeshSeal, msgspec.structs.replace(body, **changes), by, at=at)

    seal(OWNER, at=67_000)  # not_coordinator
    seal(CAROL, at=67_010, root="0" * 64)  # seal
    seal(CAROL, at=67_020)
    seal(CAROL, at=67_030, back=20)  # stale
    ledger.coordinator(OWNER, at=67_040)
    seal(CAROL, at=67_050)  # not_coordinator
    seal(OWNER, at=67_060)


def recovery_story(ledger: Ledger) -> None:
    """A thief of the owner's key announces a protocol; the recovery key takes it back."""
    ledger.rules(protocol=2, authority="open", how={"at": 68_000})
    body = RecoverBody(owner=BOB.did, recovery=CAROL.did)
    ledger.put(MeshRecover, body, ALICE, at=68_010)  # not_owner
    ledger.put(MeshRecover, body, RECOVERY, at=68_020)
    ledger.coordinator(OWNER, at=68_030)  # not_owner
    ledger.route("build", None, BOB, at=68_040 + 8 * DAY)


STORIES = (
    chain_story,
    proof_story,
    sight_story,
    quarantine_story,
    seal_story,
    recovery_story,
)
