"""One item of an outbox: what is to be written, and what became of it.

An item has what its author means and not the signed bytes. It is signed when it is sent, since its
predecessor and the permissions that it names are part of what is signed. Signing a submit or a
message anew is safe: a job's id follows from its content, and a message's from its key. So whatever
form arrived, the job is on its lane, and the message in its inbox, once.

The other ops (`LaneWrite`) are one of many on their lane, and two of them may have the same
content. So their items remember every form that was signed, and where it would stand.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.families.jobs.ops import (
    ArtifactBody,
    CompleteBody,
    JobArtifact,
    JobComplete,
    JobYield,
    ScheduleBody,
    YieldBody,
)
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.locks.ops import LockRelease, ReleaseBody
from antiphon.core.families.locks.state import lock_key
from antiphon.core.families.memory.ops import MemoryPut
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.memory.writing import Wanted
from antiphon.core.manifest import job_id
from antiphon.core.messages import envelope as envelopes
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.policy.tentative_order import Ranking, Tentative, rank
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.op import Op

ID_DIGITS: Final = 8

State = Literal["waiting", "asks", "held", "dropped"]
"""`asks`: a person decides, with `retry` or `drop`. `held`: the mesh has it. `dropped`: it never
will."""


class Submit(Struct, frozen=True, tag="submit"):
    """A job to be scheduled."""

    body: ScheduleBody

    @property
    def name(self) -> str:
        """The job's id."""
        return job_id(self.body.manifest)

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"submit {self.body.kind} {self.name[:8]}"


class Send(Struct, frozen=True, tag="message"):
    """A message to be put into an inbox."""

    sender: str
    """The address of the agent that sends it: the message's id depends on it."""
    body: MessageBody

    @property
    def name(self) -> str:
        """The message's id."""
        return envelopes.message_id(self.sender, self.body.to, self.body.key)

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"message {self.name[:8]} to {self.body.node[-8:]}/{self.body.agent}"


class Store(Struct, frozen=True, tag="store"):
    """A file whose content is to be stored on the mesh."""

    file: str
    hash: str

    @property
    def name(self) -> str:
        """Its digest."""
        return self.hash.removeprefix("blake3:")

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"store {self.file} {self.name[:8]}"


class Put(Struct, frozen=True, tag="put"):
    """A value for a document; what is written follows from its strategy and what is there then."""

    wanted: Wanted
    OP: ClassVar[type[Op]] = MemoryPut

    @property
    def name(self) -> str:
        """The document, for people."""
        return f"{self.wanted.space}/{self.wanted.key}"

    @property
    def lane(self) -> LaneKey:
        """The document's lane."""
        return document_key(self.wanted.space, self.wanted.key)

    @property
    def words(self) -> str:
        """What it is, for people."""
        did = "delete" if self.wanted.value is None else "put"
        return f"{did} {self.wanted.key!r} in {self.wanted.space}"


class Release(Struct, frozen=True, tag="release"):
    """A lock to be released, as long as its hold is the one with this fence."""

    body: ReleaseBody
    OP: ClassVar[type[Op]] = LockRelease

    @property
    def name(self) -> str:
        """The lock, for people."""
        return f"{self.body.kind}/{self.body.key}"

    @property
    def lane(self) -> LaneKey:
        """The lock's lane."""
        return lock_key(self.body.kind, self.body.key)

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"release the lock {self.body.key} in {self.body.kind}"


class OfJob(Struct, frozen=True):
    """What a run made of its job: an artifact, or its end."""

    body: ArtifactBody | CompleteBody | YieldBody
    VERB: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The job's id."""
        return self.body.job

    @property
    def lane(self) -> LaneKey:
        """The job's lane."""
        return job_key(self.body.kind, self.body.job)

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"{self.VERB} {self.body.kind} {self.name[:8]}"


class Artifact(OfJob, frozen=True, tag="artifact"):
    """What such a run stored before its end."""

    body: ArtifactBody
    OP: ClassVar[type[Op]] = JobArtifact

    @property
    def words(self) -> str:
        """What it is, for people."""
        body = self.body
        return f"store the {body.as_} {body.name!r} of {body.kind} {self.name[:8]}"


class Complete(OfJob, frozen=True, tag="complete"):
    """A job's outcome, from a worker that finished while it had no connection."""

    body: CompleteBody
    OP: ClassVar[type[Op]] = JobComplete
    VERB: ClassVar[str] = "complete"


class Yield(OfJob, frozen=True, tag="yield"):
    """A job that such a worker gives back, for another try or until others have ended."""

    body: YieldBody
    OP: ClassVar[type[Op]] = JobYield
    VERB: ClassVar[str] = "give back"


LaneWrite = Put | Release | Artifact | Complete | Yield
"""Ops whose identity is not their content."""
What = Submit | Send | Store | Put | Release | Artifact | Complete | Yield


class Form(Struct, frozen=True):
    """One signed form of an op, which may have been sent. It stands behind `prev`, or nowhere."""

    subject: str
    prev: int
    hlc: tuple[int, int]
    digest: str
    """Of its bytes, by which it is recognized."""


class OutboxItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that waits to be written, or did."""

    what: What
    author: str
    """The key that made it. It is sent by that key alone, except a job or a file: by any of this
    machine."""
    hlc: tuple[int, int]
    """Its timestamp: its place in the order."""
    at_ms: int
    """When it was made, by this machine's clock."""
    state: State = "waiting"
    sent_ms: int = 0
    """No form of it was sent before this time; 0: none was sent. For jobs and messages."""
    forms: tuple[Form, ...] = ()
    """The forms of a lane's op that may have been sent and may still arrive."""
    seq: int = 0
    """Its place on the log, if it has one."""
    why: str = ""
    """Why it asks, or was dropped."""
    is_unsure: bool = False
    """Whether it asks because nobody can tell whether a form that was sent was accepted."""
    is_confirmed: bool = False
    """Whether a person was asked and wants it sent, however old it is."""

    @property
    def id(self) -> str:
        """By which a person names it."""
        made = f"{self.author}\0{self.hlc}\0{self.what.name}".encode()
        return blake3(made).hexdigest()[:ID_DIGITS]

    @property
    def is_tentative(self) -> bool:
        """Whether it may still be sent."""
        return self.state in ("waiting", "asks")

    def unsure(self, why: str) -> OutboxItem:
        """The same, asking whether to send what the mesh may have."""
        return replace(self, state="asks", why=why, is_unsure=True)

    def tried_again(self) -> OutboxItem:
        """What asked, as a person wants it sent; anything else is as it is.

        What may have been sent is forgotten only if the question was about that.
        """
        if self.state != "asks":
            return self
        again = replace(self, state="waiting", why="", is_unsure=False, is_confirmed=True)
        return replace(again, sent_ms=0, forms=()) if self.is_unsure else again

    def may_be_sent_by(self, did: str) -> bool:
        """Whether a key may send it: a job or a file is the same whoever does."""
        return isinstance(self.what, Submit | Store) or self.author == did

    def needs(self) -> frozenset[Part]:
        """What has to be on the log before it: jobs, or what its run made before."""
        match self.what:
            case Submit(body=body):
                return frozenset(body.predecessors)
            case OfJob(body=body):
                return frozenset({(body.kind, body.job, body.fence)})
            case _:
                return NO_JOBS

    def part_of(self) -> Part | None:
        """What others may need: the job that it submits, or the run whose records come in order."""
        match self.what:
            case Submit():
                return self.job()
            case OfJob(body=body):
                return body.kind, body.job, body.fence
            case _:
                return None

    def job(self) -> tuple[str, str] | None:
        """The job that it submits, by kind and id."""
        return (self.what.body.kind, self.what.name) if isinstance(self.what, Submit) else None


NO_JOBS: Final[frozenset[tuple[str, str]]] = frozenset()
Part = tuple[str, ...]
"""A job by kind and id, or one of its runs by its fence, too."""


def ranked(items: list[OutboxItem]) -> Ranking:
    """Items, by id, in the order in which they are sent, and those that never are (spec §5)."""
    return rank(Tentative(one.id, one.author, one.hlc) for one in items)
