"""Rows of many parties in a replica, written without a log: a list is too short for all of them."""

from contextlib import asynccontextmanager

from antiphon import Mesh
from antiphon.core.families.jobs.ops import ArtifactBody, JobArtifact
from antiphon.core.families.jobs.state import Job, JobLane, RunArtifacts, State, job_key
from antiphon.core.families.locks.state import Hold, Lock, LockLane, lock_key
from antiphon.core.families.memory.ops import Inline, Sibling
from antiphon.core.families.memory.state import Document, DocumentLane, document_key
from antiphon.core.proof.answer import Question
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.session import Session
from antiphon.runtime.replica.replica import Replica

SPAMMER, FRIEND = (SeedKeyring(bytes([one]) * 32).did for one in b"sf")
START_MS = 1_700_000_000_000
LATER_MS = 4_000_000_000_000


def digest_of(number: int) -> str:
    return f"{number:064x}"


class Crowd:
    """Writes rows; each is newer than the one before."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.seq = 0
        replica.begin_anew((">",))

    def put(self, key: LaneKey, lane: object, payload: bytes = b"{}", subject: str = "x") -> None:
        self.seq += 1
        at_ns = (START_MS + self.seq) * 1_000_000
        self.replica.note(Record(self.seq, at_ns, subject, payload), Verdict.OK, key, lane)

    def job(self, by: str, kind: str, **given) -> Job:
        """A pending job, or what is said of it."""
        at_ms = START_MS + self.seq + 1
        made = {
            "kind": kind,
            "id": digest_of(self.seq + 1),
            "state": State.PENDING,
            "scheduler": by,
            "scheduled_seq": self.seq + 1,
            "scheduled_ms": at_ms,
            "hlc": (at_ms, 0),
            "hlc_author": by,
            "priority": "normal",
            "start_by_ms": LATER_MS,
            "start_window_ms": 1,
            "attempts_max": 1,
            "lease_ms": 1,
            "lease_ms_max": 1,
        }
        job = Job(**(made | given))
        self.put(job_key(job.kind, job.id), JobLane(state=job))
        return job

    def question(self, by: str, kind: str, **given) -> Job:
        return self.job(by, kind, state=State.WAITING, question=Question(text=f"{by}?"), **given)

    def dead(self, by: str, kind: str, **given) -> Job:
        return self.job(by, kind, state=State.FAILED, outcome="failed", claimer=by, **given)

    def calling(self, by: str, kind: str) -> Job:
        """A job that made model calls."""
        return self.job(by, kind, state=State.SUCCEEDED, artifacts=RunArtifacts(snapshots=1))

    def escalated(self, by: str, kind: str, session: Session) -> Job:
        """A job that has asked for somebody, in a record that this session signs."""
        job = self.job(by, kind, state=State.RUNNING, artifacts=RunArtifacts(escalations=1))
        said = {"as_": "escalation", "name": "needs-attention", "n": 0, "value": "why"}
        body = ArtifactBody(kind=kind, job=job.id, fence="0" * 16, **said)
        draft = session.draft(JobArtifact, body, prev=0)
        self.put(job_key(kind, job.id), JobLane(state=job), draft.payload, draft.subject)
        return job

    def lock(self, by: str, scope: str, key: str) -> None:
        hold = Hold(
            node=by,
            agent="main",
            fence="0" * 16,
            taken_ms=START_MS,
            deadline_ms=LATER_MS,
            ttl_ms=1,
            auth_by=by,
            auth=(),
            auth_seq=0,
        )
        lock = Lock(
            kind=scope,
            key=key,
            hold=hold,
            last_fence="0" * 16,
            entry_seq=self.seq + 1,
            hlc=(START_MS, 0),
            hlc_author=by,
        )
        self.put(lock_key(scope, key), LockLane(state=lock))

    def document(self, by: str, space: str, key: str, *, conflicts: int = 0) -> None:
        siblings = tuple(
            Sibling(op=f"blake3:{digest_of(one)}", seq=one + 1) for one in range(conflicts)
        )
        at = (START_MS + self.seq, 0)
        document = Document(
            key=key,
            revision=self.seq + 1,
            value=Inline(text="1"),
            op_id=f"blake3:{digest_of(self.seq + 1)}",
            author=by,
            agent="main",
            written=at,
            hlc=at,
            hlc_author=by,
            whose=by,
            siblings=siblings,
        )
        self.put(document_key(space, key), DocumentLane(state=document))

    def repeat(self, table: str, times: int) -> None:
        """The newest row of a table so many times more: what is written is the same."""
        self.replica.flush()
        db = self.replica._db
        columns = [name for _, name, *_ in db.execute(f"pragma table_info({table})")]
        other = {"id": "id + n", "first_seq": "first_seq + n", "name": "name || n"}
        other["key"] = "key || n"
        values = ", ".join(other.get(name, name) for name in columns)
        db.execute(
            "with recursive more(n) as (select 1 union all select n + 1 from more where n < ?)"
            f" insert into {table} ({', '.join(columns)}) select {values} from {table}, more"
            f" where id = (select max(id) from {table})",
            (times,),
        )
        self.seq += times
        self.replica._load()


@asynccontextmanager
async def crowded():
    """A mesh in memory as it is seen beside such a replica, and what writes there."""
    async with Mesh.open(engine="memory") as mesh:
        replica = Replica(":memory:", mesh=mesh.id)
        crowd = Crowd(replica)
        yield Mesh(mesh.connection.beside(replica)), crowd
        replica.close()
