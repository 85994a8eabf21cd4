"""A worker under rendezvous whose ranks a test sets, and calls for it."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from antiphon.core.families.jobs.ops import JobOffer, JobSchedule, OfferBody, ScheduleBody
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.policy.rendezvous_turns import Instant, MessageStamp, RendezvousTurns, Step
from antiphon.core.policy.selection import Candidate, Need
from antiphon.core.record.op import Op
from tests.core.authors import ALICE, signed
from tests.core.ledger import T0, Story, manifest

ME = "did:key:me"
WINDOW_S = 0.5
KIND = "render"
ONE, TWO = MessageStamp(1_000, "did:key:one"), MessageStamp(2_000, "did:key:two")


class Shown(NamedTuple):
    """A record as `RendezvousTurns` sees it, and the op in it."""

    seq: int
    subject: str
    payload: bytes
    op: Op

    @property
    def job_id(self) -> str:
        return self.subject[-64:]


def shown(body, seq=7, prev=0, op_type: Callable[..., Op] = JobSchedule) -> Shown:
    common = {"v": 1, "mesh": "a" * 16, "author": ALICE.did, "hlc": (T0, 0), "auth": ()}
    record = signed(ALICE, op_type(**common, prev=prev, deps=(), body=body))
    return Shown(seq, record.subject, record.payload, record.op)


def a_call(word="1", seq=7, prev=0, **fields) -> Shown:
    body = ScheduleBody(**{"kind": KIND, "manifest": manifest(word), **fields})
    return shown(body, seq, prev)


def an_offer(job_id: str) -> Shown:
    return shown(OfferBody(kind=KIND, job=job_id), op_type=JobOffer)


def at(now_s: float, chance: float = 0.0) -> Instant:
    return Instant(now_s, round(WINDOW_S * 1000), chance)


class Worker:
    """Turns of a worker whose ranks a test can set."""

    def __init__(self, labels=(), **how) -> None:
        self.places: dict[str, tuple[int, int]] = {}
        self.revision = 0
        me = Candidate(did=ME, kinds=(KIND,), labels=labels)
        self.turns = RendezvousTurns[Shown](me, self._places, **how)

    def _places(self, need: Need) -> tuple[int, int]:
        return self.places.get(need.job_id, (0, 0))

    def met(self, call: Shown, now_s: float = 0.0, rank: int = 0, **how) -> Step:
        self.places.setdefault(call.job_id, (rank, rank))
        return self.turns.met(call, call.op, at(now_s), **how)

    def pick(self, now_s: float, **how):
        """The job to hand out, or how long to wait."""
        call, pause_s = self.turns.pick("normal", at(now_s), revision=self.revision, **how)
        return pause_s if call is None else call.need.job_id

    def hand_out(self, now_s: float):
        call, _ = self.turns.pick("normal", at(now_s), revision=self.revision)
        self.turns.hand_out(call)
        return call

    def found(self, call: Shown, job: Job | None, now_s: float = 0.0, chance: float = 0.0, **need):
        said = Need(kind=KIND, job_id=call.job_id, seed=bytes(32), **need)
        self.turns.found(call, job, said, at(now_s, chance), now_ms=T0)

    @property
    def looks(self) -> float | None:
        """When something that lies aside is looked up."""
        return self.turns.next_look_s()


def a_job(call: Shown, state: State = State.PENDING, **fields) -> Job:
    story = Story()
    story.schedule()
    given = {"kind": KIND, "id": call.job_id, "state": state, "priority": "normal", **fields}
    return replace(story.job, **given)
