"""A poll as its records leave it."""

from msgspec import Struct

from antiphon.core.family import Lane


class Poll(Struct, frozen=True, kw_only=True):
    """One poll."""

    question: str
    opened_seq: int
    hlc: tuple[int, int]
    hlc_author: str
    is_open: bool = True
    voters: tuple[str, ...] = ()
    ayes: int = 0


class PollLane(Lane, frozen=True):
    """The last sequences on poll, vote and close, and the poll."""

    tails: tuple[int, ...] = (0, 0, 0)
    state: Poll | None = None
