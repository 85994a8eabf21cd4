"""A log in a list, and a mesh that judges it: the smallest reader of spec §5.

There is no compare-and-set here: whatever is put lands at the next sequence, as it would if the
engine's own check failed. The rules alone have to hold.

Times are milliseconds after `T0`. An op's wall time is `at`; the engine stamps it with `stamp`,
which is `at` too unless a test says otherwise. `prev` is what the subject's tail is, likewise.
"""

from dataclasses import dataclass

from antiphon.core import codec, lanes, ops, records, seals, signing, subjects
from antiphon.core.control_history import ControlHistory
from antiphon.core.deps import Dep
from antiphon.core.ids import digest, mesh_id
from antiphon.core.jobs import Job
from antiphon.core.manifest import Manifest, job_id
from antiphon.core.merkle import Frontier
from antiphon.core.reasons import Reason
from antiphon.core.rules import Rules
from antiphon.errors import Malformed
from tests.unit.core.authors import ALICE, BOB, OWNER, RECOVERY, Author, Signed, proved, signed

T0 = 1_763_158_000_000
LEASE_MS = 10_000
NO_FENCE = "0" * 16
CURRENT = object()
TRUE = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the engine holds."""

    seq: int
    commit_ms: int
    subject: str
    payload: bytes


def dep_of(record: Record) -> Dep:
    """What a record is to an op that names it."""
    try:
        op_bytes, _ = signing.unframe(record.payload)
    except Malformed:
        op_bytes = record.payload
    return Dep(digest(op_bytes), record.subject)


class Reader:
    """Judges records in order. `log` is where it looks named records up."""

    def __init__(self, mesh: str, log: list[Record]) -> None:
        self.mesh = mesh
        self.log = log
        self.history = ControlHistory(mesh)
        self.lanes: dict[tuple[str, str], lanes.Lane] = {}
        self.seals = seals.NONE
        self.verdicts: dict[int, Reason] = {}

    def judge(self, record: Record) -> Reason:
        verdict = self.verdicts[record.seq] = self._judge(record)
        return verdict

    def mark_at(self, upto: int) -> seals.Mark:
        """Size and root of the log up to a sequence, as this reader judged it."""
        tree = Frontier()
        for record in self.log[:upto]:
            verdict = self.verdicts[record.seq].value
            tree.append(
                seals.leaf_of(record.seq, record.commit_ms, record.subject, record.payload, verdict)
            )
        return seals.Mark(tree.size, tree.root().hex())

    def _judge(self, record: Record) -> Reason:
        entry = records.open_record(
            self.mesh, record.seq, record.commit_ms, record.subject, record.payload
        )
        named = entry.op.deps if entry.op is not None else ()
        deps = {seq: dep_of(self.log[seq - 1]) for seq, _ in named if 0 < seq <= len(self.log)}
        if subjects.matches(subjects.all_control(self.mesh), record.subject):
            return self.history.apply(entry)
        if record.subject == subjects.seal(self.mesh):
            own = self.mark_at if len(self.verdicts) == record.seq - 1 else None
            control = self.history.at(record.seq, record.commit_ms)
            told = seals.judge(control, self.seals, entry, own)
            self.seals = told.seals
            return told.verdict
        pair = subjects.lane_of(record.subject)
        if pair is None:
            assert entry.fault is not None
            return entry.fault
        lane = self.lanes.get(pair, lanes.EMPTY)
        outcome = lanes.apply(self.history.at(record.seq, record.commit_ms), lane, entry, deps)
        self.lanes[pair] = outcome.lane
        return outcome.verdict


class Ledger:
    """A founded mesh, its log, and the verdicts so far."""

    def __init__(self, **rules) -> None:
        body = ops.Genesis(
            name="test",
            owner=OWNER.did,
            recovery=RECOVERY.did,
            rules=Rules(**{"authority": "open", **rules}),
        )
        op = ops.MeshGenesis(
            v=1, mesh="", author=OWNER.did, hlc=(T0, 0), prev=0, deps=(), auth=(), body=body
        )
        founding = signed(OWNER, op)
        self.mesh = mesh_id(founding.op_bytes)
        self.log: list[Record] = []
        self.verdicts: list[Reason] = []
        self.reader = Reader(self.mesh, self.log)
        self.now = 0
        assert self.append(founding.subject, founding.payload) is Reason.OK

    @property
    def history(self) -> ControlHistory:
        return self.reader.history

    def append(self, subject: str, payload: bytes, *, stamp: int = 0) -> Reason:
        """Commit raw bytes."""
        record = Record(
            seq=len(self.log) + 1, commit_ms=T0 + stamp, subject=subject, payload=payload
        )
        self.log.append(record)
        verdict = self.reader.judge(record)
        self.verdicts.append(verdict)
        return verdict

    def tail(self, subject: str) -> int:
        """The last sequence on a subject, straight from the log."""
        return max((record.seq for record in self.log if record.subject == subject), default=0)

    def draft(
        self, kind, body, by: Author, *, at=None, logical=0, prev=None, deps=(), mesh=None, auth=()
    ):
        """A signed op that has not been committed."""
        self.now = self.now + 10 if at is None else at
        op = kind(
            v=1,
            mesh=self.mesh if mesh is None else mesh,
            author=by.did,
            hlc=(T0 + self.now, logical),
            prev=0 if prev is None else prev,
            deps=deps,
            auth=auth,
            body=body,
        )
        if prev is None:
            subject = ops.subject_of(op, codec.encode(op))
            return self.draft(
                kind, body, by, at=self.now, logical=logical, prev=self.tail(subject), deps=deps,
                mesh=mesh, auth=auth,
            )  # fmt: skip
        return signed(by, op)

    def commit(self, draft: Signed, *, stamp: int | None = None) -> Reason:
        return self.append(draft.subject, draft.payload, stamp=self.now if stamp is None else stamp)

    def put(self, kind, body, by: Author, *, stamp=None, **how) -> Reason:
        """Author, sign and commit one op."""
        return self.commit(self.draft(kind, body, by, **how), stamp=stamp)

    def dep(self, seq: int) -> tuple[int, str]:
        """How an op names the record at `seq`."""
        return seq, dep_of(self.log[seq - 1]).op_id

    # --- control ------------------------------------------------------------------------------

    def rules(self, by: Author = OWNER, /, *, how=None, **values) -> Reason:
        body = ops.RulesBody(rules=Rules(**{"authority": "open", **values}))
        return self.put(ops.MeshRules, body, by, **(how or {}))

    def route(self, kind: str, target: Author | None, by: Author = OWNER, **how) -> Reason:
        body = ops.RouteBody(kind=kind, target=target.did if target else None)
        return self.put(ops.MeshRoute, body, by, **how)

    def coordinator(self, node: Author, by: Author = OWNER, **how) -> Reason:
        return self.put(ops.MeshCoordinator, ops.CoordinatorBody(node=node.did), by, **how)


def manifest(word: str = "true") -> Manifest:
    return Manifest(command=(word,), args=(), timeout=30)


class Story:
    """One job on a ledger; each verb authors one op about it and returns the verdict."""

    def __init__(self, ledger: Ledger | None = None, *, kind="render", word="true", **rules):
        self.ledger = ledger or Ledger(**rules)
        self.kind = kind
        self.manifest = manifest(word)
        self.id = job_id(self.manifest)

    @property
    def lane(self) -> lanes.Lane:
        return self.ledger.reader.lanes.get((self.kind, self.id), lanes.EMPTY)

    @property
    def job(self) -> Job:
        assert self.lane.job is not None
        return self.lane.job

    @property
    def state(self) -> str:
        return self.job.state.value

    @property
    def fence(self) -> str:
        """The current tenure's fence, or one that no tenure has."""
        return (self.lane.job.fence if self.lane.job else "") or NO_FENCE

    def _put(self, kind, body_type, by, fields, how) -> Reason:
        body = body_type(kind=self.kind, job=self.id, **fields)
        return self.ledger.put(kind, body, by, **how)

    def schedule(self, by=OWNER, *, how=None, **fields) -> Reason:
        body = ops.ScheduleBody(kind=self.kind, manifest=self.manifest, **fields)
        return self.ledger.put(ops.JobSchedule, body, by, **(how or {}))

    def offer(self, by=OWNER, *, urgency=1, **how) -> Reason:
        return self._put(ops.JobOffer, ops.OfferBody, by, {"urgency": urgency}, how)

    def claim(self, by=ALICE, *, lease_ms=LEASE_MS, begin=False, fence=None, **how) -> Reason:
        fields = {"lease_ms": lease_ms, "begin": begin, "fence": fence}
        return self._put(ops.JobClaim, ops.ClaimBody, by, fields, how)

    def start(self, by=ALICE, *, fence=None, **how) -> Reason:
        return self._put(ops.JobStart, ops.StartBody, by, {"fence": fence or self.fence}, how)

    def complete(
        self, by=ALICE, *, fence=None, status="succeeded", outputs=(), proof=TRUE, **how
    ) -> Reason:
        """By default with a proof of just that."""
        body = ops.CompleteBody(
            kind=self.kind,
            job=self.id,
            fence=fence or self.fence,
            status=status,
            outputs=outputs,
            proof=None if proof is TRUE else proof,
        )
        if proof is TRUE:
            body = proved(by, self.ledger.mesh, body)
        return self.ledger.put(ops.JobComplete, body, by, **how)

    def give_back(self, by=ALICE, *, fence=None, reason="drain", retry_after_ms=0, **how) -> Reason:
        fields = {
            "fence": fence or self.fence,
            "reason": reason,
            "retry_after_ms": retry_after_ms,
        }
        return self._put(ops.JobYield, ops.YieldBody, by, fields, how)

    def expire(self, by=BOB, *, fence=CURRENT, **how) -> Reason:
        """By default the current tenure; `fence=None` is about the wait."""
        fields = {"fence": self.fence if fence is CURRENT else fence}
        return self._put(ops.JobExpire, ops.ExpireBody, by, fields, how)

    def cancel(self, by=OWNER, **how) -> Reason:
        return self._put(ops.JobCancel, ops.CancelBody, by, {}, how)

    def evict(self, which, by=OWNER, **how) -> Reason:
        return self._put(ops.JobEvict, ops.EvictBody, by, {"hash": which}, how)
