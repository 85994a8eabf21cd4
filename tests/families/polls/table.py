"""A poll as its records leave it, and what an op does to it."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.parties import whose
from antiphon.core.family import At, Lane
from antiphon.core.record.verdict import Verdict
from tests.families.polls.ops import PollClose, PollOpen, PollVote

MAX_VOTERS = 64


class Poll(Struct, frozen=True, kw_only=True):
    """One poll."""

    question: str
    opened_seq: int
    hlc: tuple[int, int]
    hlc_author: str
    whose: str
    """For whom it was opened."""
    is_open: bool = True
    voters: tuple[str, ...] = ()
    ayes: int = 0


class PollLane(Lane, frozen=True):
    """The last sequences on poll, vote and close, and the poll."""

    tails: tuple[int, ...] = (0, 0, 0)
    state: Poll | None = None


def step(poll, op, at: At):
    """The poll after an op, or why there is none."""
    match poll, op:
        case None, PollOpen():
            return _opened(op, at.seq)
        case None, _:
            return Verdict.NO_JOB
        case _, PollOpen():
            return Verdict.EXISTS
        case Poll(is_open=False), _:
            return Verdict.FINISHED
        case _, PollVote():
            return _vote(poll, op)
        case _, PollClose():
            return replace(poll, is_open=False, hlc=op.hlc, hlc_author=op.author)


def enter(op, seq: int, _op_id: str):
    """The poll after an accepted op, from the op alone; a vote says nothing of the others.

    Only lanes of one subject are really entered, and a poll has three.
    """
    return _opened(op, seq) if isinstance(op, PollOpen) else None


def entry(poll: Poll) -> int:
    """The sequence of the op from which this state follows, with those after it."""
    return poll.opened_seq


def _opened(op: PollOpen, seq: int) -> Poll:
    return Poll(
        question=op.body.question,
        opened_seq=seq,
        hlc=op.hlc,
        hlc_author=op.author,
        whose=whose(op.auth, op.author),
    )


def _vote(poll: Poll, op: PollVote):
    if poll.opened_seq not in {seq for seq, _ in op.deps}:
        return Verdict.MISSING_DEP
    if op.author in poll.voters:
        return Verdict.ALREADY
    if len(poll.voters) >= MAX_VOTERS:
        return Verdict.HELD
    return replace(
        poll,
        voters=(*poll.voters, op.author),
        ayes=poll.ayes + op.body.choice,
        hlc=op.hlc,
        hlc_author=op.author,
    )
