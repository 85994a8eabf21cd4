"""The branches of a mesh's log: which subjects there are, who reads and who writes there.

A branch is data. From the branches of a protocol follow the lane that a subject belongs to, the
subjects of a lane, what a scope shows of the log, what a login may publish, and what goes through
the gate; engines are given the result and know no op.

    ctl.<what>…                    control: every subject is a lane of its own, everybody reads it
    <stem>.<kind…>.<name>          a thing of some kind; filters and permissions follow kinds
    <stem>.<variant>.<kind…>.<name>   the same, with a further token in front of the kind
    <stem>                         one lane for the whole mesh
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from antiphon.core.record import subjects

CONTROL: Final = "control"
"""The family name of what everybody follows; its lanes are single subjects below `ctl`."""


class Branch(Struct, frozen=True):
    """Subjects of one shape. Two ops of a family may share one."""

    stem: str
    shape: Literal["kind", "control", "single"] = "kind"
    variants: tuple[str, ...] = ()
    """Tokens of which one follows the stem; each makes a subject of its own in every lane."""
    read_by: tuple[str, ...] = ()
    """Commands of which one lets a member read here; none: every member may."""
    written_by: tuple[str, ...] = ()
    """Commands of which one lets a member write here; none: no member may."""
    via_gate: bool = False
    """Whether members hand such records to the gate, which puts them on the log."""

    @property
    def stems(self) -> tuple[str, ...]:
        """What its subjects begin with, in the order of their slots."""
        return tuple(f"{self.stem}.{one}" for one in self.variants) or (self.stem,)

    @property
    def pattern(self) -> str:
        """The same as one filter."""
        return f"{self.stem}.*" if self.variants else self.stem

    def subject(self, mesh: str, kind: str, name: str, variant: object = "") -> str:
        """The subject of one thing's records here."""
        stem = f"{self.stem}.{variant}" if self.variants else self.stem
        return f"{subjects.ROOT}.{mesh}.{stem}.{kind}.{name}"


class LaneKey(NamedTuple):
    """Which lane: the family whose things it is about, and which of them."""

    family: str
    kind: str
    name: str


class Place(NamedTuple):
    """Where a subject belongs: a lane, and which of the lane's subjects it is."""

    key: LaneKey
    slot: int


class Grammar:
    """Every subject that belongs to something, from the branches of all families."""

    def __init__(self, families: Iterable[tuple[str, tuple[Branch, ...]]]) -> None:
        """Each family with its branches; `ValueError` where two of them would share a subject."""
        self.branches: dict[str, tuple[Branch, ...]] = {}
        self._plain: dict[str, tuple[str, int]] = {}
        self._varied: dict[str, dict[str, tuple[str, int]]] = {}
        self._single: dict[str, LaneKey] = {}
        self._slots: dict[str, list[Branch]] = {}
        self._stems: dict[str, list[str]] = {}
        for family, branches in families:
            self.branches[family] = branches
            self._slots[family] = []
            self._stems[family] = [stem for branch in branches for stem in branch.stems]
            for branch in branches:
                self._add(family, branch)

    def _add(self, family: str, branch: Branch) -> None:
        if branch.shape == "control":
            if branch.stem.split(".", 1)[0] != "ctl":
                raise ValueError(f"{branch.stem} is no control subject: it must begin with ctl")
            return
        slot = len(self._slots[family])
        self._slots[family] += [branch] * len(branch.stems)
        known = {"ctl", *self._plain, *self._varied, *self._single}
        if branch.stem in known or "." in branch.stem:
            raise ValueError(f"the branch {branch.stem} is taken, or more than one token")
        if branch.shape == "single":
            self._single[branch.stem] = LaneKey(family, "", "")
        elif branch.variants:
            self._varied[branch.stem] = {
                token: (family, slot + at) for at, token in enumerate(branch.variants)
            }
        else:
            self._plain[branch.stem] = (family, slot)

    def place_of(self, subject: str) -> Place | None:
        """The lane of a subject and its slot there; None where it belongs to nothing."""
        parts = subject.split(".", _SHORTEST)
        if len(parts) <= _SHORTEST:
            single = self._single.get(parts[-1]) if len(parts) == _SHORTEST else None
            return Place(single, 0) if single is not None else None
        stem, rest = parts[2], parts[3]
        found = self._plain.get(stem)
        if found is None:
            if stem == "ctl":
                return Place(LaneKey(CONTROL, "", rest), 0)
            variant, _, rest = rest.partition(".")
            found = self._varied.get(stem, {}).get(variant)
            if found is None:
                return None
        kind, _, name = rest.rpartition(".")
        return Place(LaneKey(found[0], kind, name), found[1]) if kind else None

    def branch_at(self, place: Place) -> Branch | None:
        """The branch of a subject; None for control."""
        slots = self._slots.get(place.key.family)
        return slots[place.slot] if slots else None

    def lane(self, mesh: str, key: LaneKey) -> tuple[str, ...]:
        """The literal subjects that make up one lane, in the order of their slots."""
        root = subjects.root(mesh)
        if key.family == CONTROL:
            return (f"{root}.ctl.{key.name}",)
        end = f".{key.kind}.{key.name}" if key.kind else ""
        return tuple([f"{root}.{stem}{end}" for stem in self._stems[key.family]])

    def __iter__(self) -> Iterator[Branch]:
        """Every branch once."""
        return iter(dict.fromkeys(one for each in self.branches.values() for one in each))


_SHORTEST: Final = 3
"""Tokens of `ap.<mesh>.<stem>`."""
