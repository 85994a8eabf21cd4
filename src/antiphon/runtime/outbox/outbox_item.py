"""One item of an outbox: what is to be written, and what became of it.

An item has what its author means and not the signed bytes. It is signed when it is sent, since its
predecessor and the permissions that it names are part of what is signed. Signing a submit or a
message anew is safe: a job's id follows from its content, and a message's from its key. So whatever
form arrived, the job is on its lane, and the message in its inbox, once.
"""

from __future__ import annotations

from typing import Final, Literal

from blake3 import blake3
from msgspec import Struct

from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.manifest import job_id
from antiphon.core.messages import envelope as envelopes
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.policy.tentative_order import Ranking, Tentative, rank

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


class OutboxItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that waits to be written, or did."""

    what: Submit | Send
    author: str
    """The key that made it. A message is sent by that key alone, a job by any of this machine."""
    hlc: tuple[int, int]
    """Its timestamp: its place in the order."""
    at_ms: int
    """When it was made, by this machine's clock."""
    state: State = "waiting"
    sent_ms: int = 0
    """No form of it was sent before this time; 0: none was sent."""
    seq: int = 0
    """Its place on the log, if it has one."""
    why: str = ""
    """Why it asks, or was dropped."""

    @property
    def id(self) -> str:
        """By which a person names it."""
        made = f"{self.author}\0{self.hlc}\0{self.what.name}".encode()
        return blake3(made).hexdigest()[:ID_DIGITS]

    @property
    def is_tentative(self) -> bool:
        """Whether it may still be sent."""
        return self.state in ("waiting", "asks")

    def may_be_sent_by(self, did: str) -> bool:
        """A message names its sender's key; a job is the same whoever submits it."""
        return isinstance(self.what, Submit) or self.author == did

    def needs(self) -> frozenset[tuple[str, str]]:
        """The jobs, by kind and id, that have to be on the log before it."""
        return frozenset(self.what.body.predecessors) if isinstance(self.what, Submit) else NO_JOBS

    def job(self) -> tuple[str, str] | None:
        """The job that it submits, by kind and id."""
        return (self.what.body.kind, self.what.name) if isinstance(self.what, Submit) else None


NO_JOBS: Final[frozenset[tuple[str, str]]] = frozenset()


def ranked(items: list[OutboxItem]) -> Ranking:
    """Items, by id, in the order in which they are sent, and those that never are (spec §5)."""
    return rank(Tentative(one.id, one.author, one.hlc) for one in items)
