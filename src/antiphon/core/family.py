"""What a family of ops is: one thing on the log, from its ops to the words for people.

The reducer (`antiphon.core.reducer`) makes the checks that all ops share and asks the family for
the rest. A family is data and pure functions; adding one is a folder below `core/families` and a
line in `antiphon.core.protocol`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from antiphon.core.authority.control import Change, Control
from antiphon.core.record.branches import Branch, LaneKey
from antiphon.core.record.op import Op
from antiphon.core.record.verdict import Verdict


class Lane(Struct, frozen=True, gc=False):
    """All records about one thing, up to some record: what follows from them.

    Families have lanes of their own, with as many tails as they have subjects and their state's
    own type, so that a replica can keep them.
    """

    tails: tuple[int, ...] = (0,)
    """The last sequence on each of the lane's subjects, in the order of their slots."""
    state: Any = None
    """What the accepted ops come to; None before the first."""


class Mark(Struct, frozen=True):
    """What a node makes of the whole log up to some sequence: how many records, and their root."""

    size: int
    root: str


UNSEEN_ROOT: Final = Mark(-1, "")
"""What a reader says that does not see the whole log."""


class Dep(Struct, frozen=True, gc=False):
    """What the log holds at a sequence that an op names."""

    op_id: str
    kind: str
    """Empty where the record is about no kind."""
    read_by: tuple[str, ...]


class Needs(Struct, frozen=True, gc=False):
    """What a verdict takes beyond control and the lane; asked for when all else has passed."""

    records: tuple[int, ...] = ()
    """Sequences: what the log holds there."""
    upto: int = 0
    """A sequence: the reader's own mark up to there."""
    shown: tuple[str, ...] = ()
    """Records that the op itself shows, to be opened."""


class Reads(Struct, frozen=True, gc=False):
    """What a reader found of what was needed."""

    records: Mapping[int, Dep | None] = {}
    """By sequence; None where the log holds nothing."""
    mark: Mark | None = None
    shown: tuple[Any, ...] = ()
    """As entries, see `antiphon.core.opened_record`."""


NOTHING: Final = Reads()


class At(Struct, frozen=True, gc=False):
    """Where and under which control state an op is judged, and what was read for it."""

    seq: int
    commit_ms: int
    control: Control
    key: LaneKey
    reads: Reads = NOTHING
    is_own: bool = False
    """See `OpenedRecord.is_own`: signatures inside are the reader's, and need no verification."""


class Moved(Struct, frozen=True, gc=False):
    """A result that says more than the next state of a lane."""

    verdict: Verdict
    state: Any = None
    change: Change | None = None
    """What the op changes of control."""


class Column(Struct, frozen=True):
    """What a replica keeps of a lane's state in a column of its own, to be asked by."""

    name: str
    type: str
    value: Callable[[Any], object]
    """From the state, which is never None here."""


class Index(Struct, frozen=True):
    """What a replica finds lanes by without looking at all of them."""

    columns: tuple[str, ...]
    """Of the family's own, and `kind`, `name` and `first_seq`, which every lane has."""
    of: str
    """It holds the lanes that have a value in this column."""


def _needs_chain(_control: Control, _state: Any, _op: Any, _at: At) -> Verdict | bool:
    return False


def _before_genesis(_op: Any, _seq: int, _commit_ms: int) -> Moved | Verdict:
    return Verdict.GENESIS


def _as_it_was(_control: Control, state: Any, _seq: int) -> Any:
    return state


def _last_op(_control: Control, state: Any, _op: Any) -> tuple[tuple[int, int], str] | None:
    return None if state is None else (state.hlc, state.hlc_author)


class Family(Struct, frozen=True, kw_only=True, eq=False):
    """One family. Everything that is not a function is data for readers, engines and people."""

    name: str
    ops: tuple[type[Op], ...]
    branches: tuple[Branch, ...]
    """Its subjects, in the order of a lane's slots."""
    step: Callable[[Any, Any, At], Any]
    """`step(state, op, at)`: the next state, a `Verdict` for there being none, `Needs`, or `Moved`.

    Time, predecessor, authority, deps and order were checked before.
    """
    words: Callable[[Any], str]
    """What an op did, as the end of a sentence that begins with its author."""
    lane: type[Lane] = Lane
    genesis: Callable[[Any, int, int], Moved | Verdict] = _before_genesis
    """What an op at a sequence and time makes of a mesh that was not founded yet."""
    entitled: Callable[[Control, Any, Any, At], Verdict | bool] = _needs_chain
    """Whether an author may write an op without a chain: True, a `Verdict` for why not even
    with one, or False where the chain decides."""
    standing: Callable[[Control, Any, int], Any] = _as_it_was
    """The state as it stands before a sequence: control may have ended what somebody held."""
    last: Callable[[Control, Any, Any], tuple[tuple[int, int], str] | None] = _last_op
    """Time and author of the accepted op that this one has to be newer than, if there is one."""
    lane_before: Callable[[Any], Lane] | None = None
    """The lane before an op, by the op's own word, for readers that do not read such lanes."""
    read_newer: Callable[[bytes, int], Op | None] = lambda _op_bytes, _protocol: None
    """Reads what only code of a newer protocol can read in full, as far as this code must know
    of it; None where the bytes are no such thing."""
    unfinished: Callable[[Any], str] = lambda _state: ""
    """Why a state is not worth showing to others yet, as the end of a sentence; empty if it is."""
    columns: tuple[Column, ...] = ()
    """A column named `state` is also counted by its values."""
    indexes: tuple[Index, ...] = ()
    blobs: Callable[[Any], tuple[tuple[str, ...], tuple[str, ...]]] | None = None
    """Digests that a state still needs, and those that were given up."""

    @property
    def is_control(self) -> bool:
        """Whether its ops change control, which everybody follows."""
        return all(branch.shape == "control" for branch in self.branches)
