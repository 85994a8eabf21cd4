"""A log in a list, and a mesh that judges it: the smallest reader of spec §5.

There is no compare-and-set here: whatever is put lands at the next sequence, as it would if the
engine's own check failed. The rules alone have to hold.

Times are milliseconds after `T0`. An op's wall time is `at`; the engine stamps it with `stamp`,
which is `at` too unless a test says otherwise. `prev` is what the subject's tail is, likewise.
"""

from dataclasses import dataclass

from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import (
    ArtifactBody,
    CancelBody,
    ClaimBody,
    CompleteBody,
    EvictBody,
    ExpireBody,
    JobArtifact,
    JobCancel,
    JobClaim,
    JobComplete,
    JobEvict,
    JobExpire,
    JobOffer,
    JobResolve,
    JobSchedule,
    JobStart,
    JobYield,
    OfferBody,
    ResolveBody,
    ScheduleBody,
    StartBody,
    YieldBody,
)
from antiphon.core.families.jobs.run_artifacts import count_of
from antiphon.core.families.jobs.state import EMPTY, Job, JobLane
from antiphon.core.families.mesh.ops import (
    CoordinatorBody,
    Genesis,
    MeshCoordinator,
    MeshGenesis,
    MeshRoute,
    MeshRules,
    RouteBody,
    RulesBody,
)
from antiphon.core.families.seals.state import SealLane, leaf_of
from antiphon.core.family import UNSEEN_ROOT, Lane, Mark, Needs, Reads
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.manifest import Manifest, job_id
from antiphon.core.opened_record import OpenedRecord, dep_of, open_record
from antiphon.core.proof.merkle import Frontier
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record import codec
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import mesh_id
from antiphon.core.record.op import subject_of
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, OWNER, RECOVERY, Author, Signed, proved, signed

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


def open_stored(mesh: str, record: Record, protocol: Protocol = PROTOCOL) -> OpenedRecord:
    """A record, opened."""
    return open_record(protocol, mesh, record.seq, record.commit_ms, record.subject, record.payload)


class Reader:
    """Judges records in order. `log` is where it looks named records up."""

    def __init__(self, mesh: str, log: list[Record], protocol: Protocol = PROTOCOL) -> None:
        self.mesh = mesh
        self.log = log
        self.protocol = protocol
        self.history = ControlHistory(protocol, mesh)
        self.all_lanes: dict[LaneKey, Lane] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.accepted: dict[LaneKey, int] = {}
        self.afters: dict[int, int] = {}
        """Of rejected records: the last one before that their lane accepted."""

    @property
    def lanes(self) -> dict[tuple[str, str], JobLane]:
        """Those of jobs."""
        return {key[1:]: lane for key, lane in self.all_lanes.items() if key.family == "jobs"}

    @property
    def seals(self) -> SealLane:
        return self.all_lanes.get(LaneKey("seals", "", ""), SealLane())

    def judge(self, record: Record) -> Verdict:
        verdict = self.verdicts[record.seq] = self._judge(record)
        return verdict

    def mark_at(self, upto: int) -> Mark:
        """Size and root of the log up to a sequence, as this reader judged it."""
        tree = Frontier()
        for record in self.log[:upto]:
            verdict, after = self.verdicts[record.seq], self.afters.get(record.seq, 0)
            at = (record.seq, record.commit_ms, record.subject)
            tree.append(leaf_of(*at, record.payload, verdict.value, after))
        return Mark(tree.size, tree.root().hex())

    def _judge(self, record: Record) -> Verdict:
        opened = open_stored(self.mesh, record, self.protocol)
        if opened.is_control:
            return self.history.apply(opened)
        if opened.place is None:
            return self.history.settle(Lane(), opened, self._read).verdict
        key = opened.place.key
        lane = self.all_lanes.get(key) or self.protocol.empty(key)
        sees_all = len(self.verdicts) == record.seq - 1
        outcome = self.history.settle(
            lane, opened, lambda needs: self._read(needs, sees_all, record.seq)
        )
        self.all_lanes[key] = outcome.lane
        if outcome.verdict is Verdict.OK:
            self.accepted[key] = record.seq
        elif outcome.lane.state is not None:
            self.afters[record.seq] = self.accepted.get(key, 0)
        return outcome.verdict

    def _read(self, needs: Needs, sees_all: bool = True, seq: int = 0) -> Reads:
        there = {record.seq: record for record in self.log}
        found = {seq: there.get(seq) for seq in needs.records}
        mark = self.mark_at(needs.upto) if sees_all else UNSEEN_ROOT
        return Reads(
            records={
                seq: dep_of(self.protocol, one.subject, one.payload, one.commit_ms) if one else None
                for seq, one in found.items()
            },
            mark=mark if needs.upto else None,
            lanes={key: self._lane_before(key, seq) for key, _ in needs.lanes},
        )

    def _lane_before(self, key: LaneKey, seq: int) -> Lane:
        """A lane that an op names, as a light reader has it: what it names in turn is empty."""
        lane = self.protocol.empty(key)
        for record in self.log[: seq - 1]:
            if self.protocol.lane_of(record.subject) == key:
                opened = open_stored(self.mesh, record, self.protocol)
                lane = self.history.settle(lane, opened, self._read).lane
        return lane


class Ledger:
    """A founded mesh, its log, and the verdicts so far."""

    def __init__(self, code: Protocol = PROTOCOL, **rules) -> None:
        body = Genesis(
            name="test",
            owner=OWNER.did,
            recovery=RECOVERY.did,
            rules=Rules(**{"authority": "open", **rules}),
        )
        op = MeshGenesis(
            v=1, mesh="", author=OWNER.did, hlc=(T0, 0), prev=0, deps=(), auth=(), body=body
        )
        founding = signed(OWNER, op)
        self.mesh = mesh_id(founding.op_bytes)
        self.log: list[Record] = []
        self.verdicts: list[Verdict] = []
        self.reader = Reader(self.mesh, self.log, code)
        self.now = 0
        assert self.append(founding.subject, founding.payload) is Verdict.OK

    @property
    def history(self) -> ControlHistory:
        return self.reader.history

    def append(self, subject: str, payload: bytes, *, stamp: int = 0) -> Verdict:
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
            subject = subject_of(op, codec.encode(op))
            return self.draft(
                kind, body, by, at=self.now, logical=logical, prev=self.tail(subject), deps=deps,
                mesh=mesh, auth=auth,
            )  # fmt: skip
        return signed(by, op)

    def commit(self, draft: Signed, *, stamp: int | None = None) -> Verdict:
        return self.append(draft.subject, draft.payload, stamp=self.now if stamp is None else stamp)

    def put(self, kind, body, by: Author, *, stamp=None, **how) -> Verdict:
        """Author, sign and commit one op."""
        return self.commit(self.draft(kind, body, by, **how), stamp=stamp)

    def dep(self, seq: int) -> tuple[int, str]:
        """How an op names the record at `seq`."""
        one = self.log[seq - 1]
        return seq, dep_of(self.reader.protocol, one.subject, one.payload, one.commit_ms).op_id

    # --- control ------------------------------------------------------------------------------

    def rules(self, by: Author = OWNER, /, *, how=None, **values) -> Verdict:
        body = RulesBody(rules=Rules(**{"authority": "open", **values}))
        return self.put(MeshRules, body, by, **(how or {}))

    def route(self, kind: str, target: Author | None, by: Author = OWNER, **how) -> Verdict:
        body = RouteBody(kind=kind, target=target.did if target else None)
        return self.put(MeshRoute, body, by, **how)

    def coordinator(self, node: Author, by: Author = OWNER, **how) -> Verdict:
        return self.put(MeshCoordinator, CoordinatorBody(node=node.did), by, **how)


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
    def lane(self) -> JobLane:
        return self.ledger.reader.lanes.get((self.kind, self.id), EMPTY)

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

    def _put(self, kind, body_type, by, fields, how) -> Verdict:
        body = body_type(kind=self.kind, job=self.id, **fields)
        return self.ledger.put(kind, body, by, **how)

    def schedule(self, by=OWNER, *, how=None, **fields) -> Verdict:
        body = ScheduleBody(kind=self.kind, manifest=self.manifest, **fields)
        return self.ledger.put(JobSchedule, body, by, **(how or {}))

    def offer(self, by=OWNER, *, priority="normal", results=(), **how) -> Verdict:
        fields = {"priority": priority, "results": tuple(results)}
        return self._put(JobOffer, OfferBody, by, fields, how)

    def claim(
        self,
        by=ALICE,
        *,
        lease_ms=LEASE_MS,
        begin=False,
        fence=None,
        checkpoint=None,
        beats_left=None,
        progress=None,
        answers=False,
        **how,
    ) -> Verdict:
        fields = {
            "answers": answers,
            "lease_ms": lease_ms,
            "begin": begin,
            "fence": fence,
            "checkpoint": checkpoint,
            "beats_left": beats_left,
            "progress": progress,
        }
        return self._put(JobClaim, ClaimBody, by, fields, how)

    def start(self, by=ALICE, *, fence=None, **how) -> Verdict:
        return self._put(JobStart, StartBody, by, {"fence": fence or self.fence}, how)

    def complete(
        self,
        by=ALICE,
        *,
        fence=None,
        status="succeeded",
        outputs=(),
        calls=None,
        proof=TRUE,
        **how,
    ) -> Verdict:
        """By default with a proof of just that."""
        body = CompleteBody(
            kind=self.kind,
            job=self.id,
            fence=fence or self.fence,
            status=status,
            outputs=outputs,
            calls=calls,
            proof=None if proof is TRUE else proof,
        )
        if proof is TRUE:
            body = proved(by, self.ledger.mesh, body)
        return self.ledger.put(JobComplete, body, by, **how)

    def give_back(
        self,
        by=ALICE,
        *,
        fence=None,
        reason="drain",
        retry_after_ms=0,
        after=(),
        until=None,
        checkpoint=None,
        error=None,
        **how,
    ) -> Verdict:
        fields = {
            "fence": fence or self.fence,
            "checkpoint": checkpoint,
            "reason": reason,
            "error": error,
            "after": tuple(after),
            "until": until,
            "retry_after_ms": retry_after_ms,
        }
        return self._put(JobYield, YieldBody, by, fields, how)

    def artifact(self, by=ALICE, *, fence=None, how=None, **fields) -> Verdict:
        """By default the next step, with a short value."""
        sort = fields.get("as_", "step")
        given = {
            "fence": fence or self.fence,
            "as_": sort,
            "name": "fetch",
            "n": count_of(self.lane.job, sort) if self.lane.job is not None else 0,
            "value": None if "digest" in fields else "1",
            **fields,
        }
        return self._put(JobArtifact, ArtifactBody, by, given, how or {})

    def expire(self, by=BOB, *, fence=CURRENT, **how) -> Verdict:
        """By default the current tenure; `fence=None` is about the wait."""
        fields = {"fence": self.fence if fence is CURRENT else fence}
        return self._put(JobExpire, ExpireBody, by, fields, how)

    def resolve(self, by=OWNER, **how) -> Verdict:
        """By no replica at all."""
        return self._put(JobResolve, ResolveBody, by, {"children": ()}, how)

    def cancel(self, by=OWNER, **how) -> Verdict:
        return self._put(JobCancel, CancelBody, by, {}, how)

    def evict(self, which, by=OWNER, **how) -> Verdict:
        return self._put(JobEvict, EvictBody, by, {"hash": which}, how)
