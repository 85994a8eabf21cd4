"""What can be said about a poll, where, and by whom.

Three subjects make up a poll's lane. Votes name the record that opened the poll. Closing goes
through the gate, so that nobody can close what the rules would not let it close.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from antiphon.core.record.branches import READS_ALL, Branch
from antiphon.core.record.op import Body, Kind, Op, Text

READ_BY: Final = ("/poll/read", "/poll/vote", "/poll/open", READS_ALL)
POLL: Final = Branch(stem="poll", read_by=READ_BY, written_by=("/poll/open",))
VOTE: Final = Branch(stem="vote", read_by=READ_BY, written_by=("/poll/vote",))
CLOSE: Final = Branch(stem="close", read_by=READ_BY, via_gate=True)

Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}\Z")]


class OpenBody(Body, frozen=True):
    """Asks something."""

    kind: Kind
    poll: Name
    question: Text


class VoteBody(Body, frozen=True):
    """Answers it."""

    kind: Kind
    poll: Name
    choice: bool


class CloseBody(Body, frozen=True):
    """Ends it."""

    kind: Kind
    poll: Name


class _PollOp(Op, frozen=True):
    def subject(self, mesh: str) -> str:
        return self.BRANCH.subject(mesh, self.body.kind, self.body.poll)


class PollOpen(_PollOp, frozen=True, tag="poll.open"):
    """Opens a poll."""

    body: OpenBody
    COMMAND: ClassVar[str] = "/poll/open"
    BRANCH: ClassVar[Branch] = POLL

    def words(self) -> str:
        return f"asked {self.body.question!r}"


class PollVote(_PollOp, frozen=True, tag="poll.vote"):
    """Casts a vote."""

    body: VoteBody
    COMMAND: ClassVar[str] = "/poll/vote"
    BRANCH: ClassVar[Branch] = VOTE

    def words(self) -> str:
        return f"voted {'yes' if self.body.choice else 'no'}"


class PollClose(_PollOp, frozen=True, tag="poll.close"):
    """Closes a poll."""

    body: CloseBody
    COMMAND: ClassVar[str] = "/poll/open"
    BRANCH: ClassVar[Branch] = CLOSE

    def words(self) -> str:
        return "closed the poll"
