"""The interface of a family of ops: one sort of thing on the log, such as jobs.

The reducer (`antiphon.core.reducer`) makes the checks that all ops share and asks the family for
the rest. A family is data and pure functions. To add one, write a folder in `core/families` and a
line in `antiphon.core.protocol`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from antiphon.core.authority.control import Change, Control
from antiphon.core.record.branches import Branch, LaneKey
from antiphon.core.record.op import Op
from antiphon.core.record.verdict import Verdict

NEVER_MS: Final = 2**62


class Evicted(NamedTuple):
    """Bytes that a lane no longer keeps."""

    digest: str
    named_as: Literal["output", "arguments", "checkpoint"] = "output"
    """Anybody can name any bytes as a job's arguments or as a checkpoint: nobody has shown that
    they are."""


class Over(NamedTuple):
    """Since when nothing can change on a lane any more."""

    time_ms: int
    is_asked_again: bool = False
    """Whether somebody may ask for it again."""


class Lane(Struct, frozen=True, gc=False):
    """What follows from all records about one thing, up to some record.

    Each family has its own lane type, with one tail per subject and its own type of state, so
    that a replica can store it.
    """

    tails: tuple[int, ...] = (0,)
    """The last sequence on each of the lane's subjects, in the order of their slots."""
    state: Any = None
    """The state that the accepted ops result in; None before the first."""
    floor: int = 0
    """The newest archive before the first of them: records below it do not count."""
    time_ms: int = 0
    """The later of the clocks, its author's and the log's, of the last accepted op."""

    def over(self, _control: Control) -> Over | None:
        """Since when nothing can change any more, at the end of this control state.

        None before that, and for what never leaves the log.
        """
        return None


class Mark(Struct, frozen=True):
    """A node's own count and Merkle root of all records up to some sequence."""

    size: int
    root: str


UNSEEN_ROOT: Final = Mark(-1, "")
"""The mark of a reader that does not read the whole log."""


class Dep(Struct, frozen=True, gc=False):
    """The record at a sequence that an op names."""

    op_id: str
    kind: str
    """Empty if the record is not about a kind."""
    read_by: tuple[str, ...]
    may_leave_ms: int = NEVER_MS
    """Its stamp, if its lane can be archived."""
    is_cut: bool = False
    """Whether it may leave the log while its lane is in use."""
    op: Op | None = None
    """The op, where its family is one that others judge by, and the record holds a valid one.

    Nobody has judged it: it is known who signed it, not that it took effect.
    """


class Needs(Struct, frozen=True, gc=False):
    """What a verdict needs beyond control and the lane; requested after all other checks."""

    records: tuple[int, ...] = ()
    """Sequences whose records are needed."""
    upto: int = 0
    """A sequence up to which the reader's own mark is needed."""
    shown: tuple[str, ...] = ()
    """Records inside the op, to be opened."""
    lanes: tuple[tuple[LaneKey, int], ...] = ()
    """Lanes as they were before the record, each with a sequence that it should have.

    A verdict must not depend on what those lanes name in turn, which light readers do not read.
    """


class Reads(Struct, frozen=True, gc=False):
    """What a reader found for `Needs`."""

    records: Mapping[int, Dep | None] = {}
    """By sequence; None if there is no record."""
    mark: Mark | None = None
    shown: tuple[Any, ...] = ()
    """The records inside the op, opened (`antiphon.core.opened_record`)."""
    lanes: Mapping[LaneKey, Lane] = {}
    """As of their last record before the op's place."""


NOTHING: Final = Reads()


class At(Struct, frozen=True, gc=False):
    """Where and under which control state an op is judged, and what was read for it."""

    seq: int
    commit_ms: int
    control: Control
    key: LaneKey
    reads: Reads = NOTHING
    family: Family | None = None
    """The op's."""
    is_verified: bool = False
    """See `OpenedRecord.is_verified`: the signatures inside are known to be valid."""


class Moved(Struct, frozen=True, gc=False):
    """A result of `step` that is more than the next state of a lane."""

    verdict: Verdict
    state: Any = None
    change: Change | None = None
    """What the op changes in the control state."""
    on_behalf: Op | None = None
    """The op as somebody else would have written it, who must be allowed to, here and now."""


class Column(Struct, frozen=True):
    """A value of a lane's state that a replica stores in its own column, for queries."""

    name: str
    type: str
    value: Callable[[Any], object]
    """Computes the value from the state, which is never None here."""
    is_fixed: bool = False
    """Whether it stays the same for as long as the lane has a state: it is written once."""
    is_told: bool = True
    """Whether `antiphon show` says it; others are there for lists."""


class Index(Struct, frozen=True):
    """An index of a replica over the family's lanes."""

    columns: tuple[str, ...]
    """The family's own columns, and `kind`, `name` and `first_seq`, which every lane has."""
    of: str
    """Only lanes with a value in this column are in the index."""


def by_party(of: str, *, by_value: bool = False) -> tuple[Index, Index]:
    """The indexes of a list that parties share: of each party, and of its lanes of each kind.

    Its family has a column `whose`. `by_value`: one list for each value of the column.
    """
    first = (of,) if by_value else ()
    return (
        Index((*first, "whose", "first_seq"), of=of),
        Index((*first, "whose", "kind", "first_seq"), of=of),
    )


def _needs_chain(_control: Control, _state: Any, _op: Any, _at: At) -> Verdict | bool:
    return False


def _before_genesis(_op: Any, _seq: int, _commit_ms: int) -> Moved | Verdict:
    return Verdict.GENESIS


def _as_it_was(_control: Control, state: Any, _seq: int) -> Any:
    return state


def _last_op(_control: Control, state: Any, _op: Any) -> tuple[tuple[int, int], str] | None:
    return None if state is None else (state.hlc, state.hlc_author)


class Family(Struct, frozen=True, kw_only=True, eq=False):
    """One family: its ops, its pure functions, and data for readers, engines and people."""

    name: str
    ops: tuple[type[Op], ...]
    branches: tuple[Branch, ...]
    """Its subjects, in the order of a lane's slots."""
    step: Callable[[Any, Any, At], Any]
    """`step(state, op, at)`: the next state, a `Verdict` if there is none, `Needs`, or `Moved`.

    Time, predecessor, authority, deps and order have been checked before.
    """
    rights: Mapping[str, tuple[str, ...]] = {}
    """What `antiphon invite --can` grants: words, and the commands of each. The first command is
    what the word is named after; others that it cannot be used without come with it."""
    lane: type[Lane] = Lane
    genesis: Callable[[Any, int, int], Moved | Verdict] = _before_genesis
    """The result of an op on a mesh that has not been created yet."""
    entitled: Callable[[Control, Any, Any, At], Verdict | bool] = _needs_chain
    """Whether an author may write an op without a chain: True; a `Verdict` if not even with
    one; False if the chain decides."""
    standing: Callable[[Control, Any, int], Any] = _as_it_was
    """The state before a sequence: a control op may have ended a tenure."""
    last: Callable[[Control, Any, Any], tuple[tuple[int, int], str] | None] = _last_op
    """Timestamp and author of the accepted op that this one must be newer than, if any."""
    lane_before: Callable[[Any], Lane] | None = None
    """The lane before an op as the op implies it, for readers that do not read such lanes."""
    enter: Callable[[Any, int, str], Any] | None = None
    """`enter(op, seq, op_id)`: the state after an accepted op, from the op and its place alone.

    None where it does not follow from that. Without this function a lane is always read whole.
    """
    entry: Callable[[Any], int] = lambda _state: 0
    """The sequence of the accepted op from which `enter` gives this state, or one that later ops
    lead to it from; 0 if there is none."""
    is_asked_again: Callable[[Any], bool] | None = None
    """Whether a first op on a lane makes something that somebody may ask for again: it is
    archived later. None: its lanes are never archived."""
    deps_checked: Callable[[Any], int] = lambda _op: 0
    """How many of an op's first deps the family checks itself: they may be older than others."""
    is_cut: bool = False
    """Whether a lane's older records may leave the log before its thing has ended."""
    read_newer: Callable[[bytes, int], Op | None] = lambda _op_bytes, _protocol: None
    """Reads an op of a newer protocol as far as this code must understand it; None if the
    bytes are not one."""
    unfinished: Callable[[Any], str] = lambda _state: ""
    """Why a thing cannot be exported as a bundle yet, as the end of a sentence; empty if it can."""
    columns: tuple[Column, ...] = ()
    """A replica also counts lanes by the values of a column named `state`."""
    indexes: tuple[Index, ...] = ()
    is_named: bool = False
    """Whether other ops are judged by its ops, which they name as deps."""
    lanes_named: Callable[[Any], tuple[LaneKey, ...]] = lambda _op: ()
    """The lanes that the verdict on an op is read from, besides its own."""
    blobs: Callable[[Any], tuple[tuple[str, ...], tuple[Evicted, ...]]] | None = None
    """Digests that a state still needs, and those that it no longer needs."""
    follows: Callable[[Any], tuple[tuple[str, str], ...]] | None = None
    """Lanes of this family that a state waits or waited for, as kind and name: a replica finds it
    by them."""

    @property
    def is_control(self) -> bool:
        """Whether its ops are control ops, which every node follows."""
        return all(branch.shape == "control" for branch in self.branches)
