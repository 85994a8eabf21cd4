"""A job with replicas on a ledger: the parent, its children, and the op that resolves it."""

from antiphon.core.families.jobs.ops import JobResolve, JobSchedule, ResolveBody, ScheduleBody
from antiphon.core.families.jobs.replicas import child_body
from antiphon.core.manifest import job_id
from antiphon.core.proof.output import Output
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, OWNER
from tests.core.ledger import Ledger, Story


def said(text: str, name: str = "result") -> Output:
    """A small output."""
    kind = "application/json" if name == "result" else None
    return Output(name=name, type=kind, text=text)


TRUE, FALSE = said("42"), said("43")


class Replicated(Story):
    """The parent."""

    def __init__(self, ledger: Ledger, *, replicas=3, quorum=2, by=OWNER, word="twice", how=None):
        super().__init__(ledger, word=word)
        self.body = ScheduleBody(
            kind=self.kind, manifest=self.manifest, replicas=replicas, quorum=quorum
        )
        assert ledger.put(JobSchedule, self.body, by, **(how or {})) is Verdict.OK
        self.named = ledger.dep(len(ledger.log))

    def child(self, index: int) -> Story:
        """A child that need not be on the log."""
        child = Story(self.ledger, kind=self.kind)
        child.body = child_body(self.body, self.named[1], index)
        child.manifest = child.body.manifest
        child.id = job_id(child.manifest)
        return child

    def derive(self, index: int, by=OWNER, **how) -> Verdict:
        """Submit a child."""
        return self.ledger.put(
            JobSchedule, self.child(index).body, by, **{"deps": (self.named,), **how}
        )

    def done(self, index: int, by=ALICE, *outputs, auth=(), status="succeeded") -> Story:
        """A child that was submitted and run."""
        assert self.derive(index) is Verdict.OK
        child = self.child(index)
        assert child.claim(by, begin=True, auth=auth) is Verdict.OK
        assert child.complete(by, outputs=outputs or (TRUE,), status=status, auth=auth) is (
            Verdict.OK
        )
        return child

    def resolve(self, *children, by=OWNER, outputs=(TRUE,), ends=None, **how) -> Verdict:
        """Name these children as the quorum."""
        named = tuple((child.id, child.job.ended_seq) for child in children)
        body = ResolveBody(
            kind=self.kind, job=self.id, children=named if ends is None else ends, outputs=outputs
        )
        return self.ledger.put(JobResolve, body, by, **how)
