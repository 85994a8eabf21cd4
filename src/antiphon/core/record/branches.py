"""The branches of a mesh's log: its subjects, and who reads and writes them.

A branch is data. The branches of a protocol determine the lane of a subject, the subjects of a
lane, what a scope may read, what a login may publish, and what goes through the gate. Engines get
the result and know nothing about ops.

    ctl.<what>…                    control: every subject is its own lane, every member reads it
    <stem>.<kind…>.<name>          a thing of some kind; filters and permissions follow kinds
    <stem>.<variant>.<kind…>.<name>   the same, with one more token before the kind; branches of
                                   one family with the same readers may share the stem, so that
                                   `<stem>.*.<kind…>.<name>` is a whole lane
    <stem>                         one lane for the whole mesh
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from antiphon.core.record import subjects

CONTROL: Final = "control"
"""The family name of control records; each subject below `ctl` is one lane."""
READS_ALL: Final = "/job/read"
"""Whoever holds this for every kind reads the whole log, and can check seals: so every branch that
not all members read names it among its readers."""


class Branch(Struct, frozen=True):
    """Subjects of one shape. Two ops of a family may share one."""

    stem: str
    shape: Literal["kind", "control", "single"] = "kind"
    variants: tuple[str, ...] = ()
    """One of these tokens follows the stem; a lane has one subject for each. Branches that share
    a stem have other variants and the same readers."""
    read_by: tuple[str, ...] = ()
    """A member that holds one of these commands, `READS_ALL` among them, may read here; empty:
    every member may."""
    written_by: tuple[str, ...] = ()
    """A member that holds one of these commands may write here; empty: no member may."""
    via_gate: bool = False
    """Whether members send these records to the gate, which writes them to the log."""

    @property
    def stems(self) -> tuple[str, ...]:
        """The beginnings of its subjects, in the order of their slots."""
        return tuple(f"{self.stem}.{one}" for one in self.variants) or (self.stem,)

    @property
    def pattern(self) -> str:
        """One filter for them and for those of the branches that share the stem."""
        return f"{self.stem}.*" if self.variants else self.stem

    def subject(self, mesh: str, kind: str, name: str, variant: object = "") -> str:
        """The subject for the records of one thing on this branch."""
        stem = f"{self.stem}.{variant}" if self.variants else self.stem
        return f"{subjects.ROOT}.{mesh}.{stem}.{kind}.{name}"


class LaneKey(NamedTuple):
    """Identifies a lane: the family, the kind and the name of the thing it is about."""

    family: str
    kind: str
    name: str


class Place(NamedTuple):
    """Where a subject belongs: its lane, and its slot among the lane's subjects."""

    key: LaneKey
    slot: int


class Grammar:
    """Every valid subject, from the branches of all families."""

    def __init__(self, families: Iterable[tuple[str, tuple[Branch, ...]]]) -> None:
        """Each family with its branches; `ValueError` if two of them share a subject."""
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
                raise ValueError(f"{branch.stem} is not a control subject: it must begin with ctl")
            return
        if branch.read_by and READS_ALL not in branch.read_by:
            raise ValueError(
                f"the readers of {branch.stem} lack {READS_ALL}: nodes that read every job would no"
                " longer read the whole log, and could not check seals"
            )
        slot = len(self._slots[family])
        self._slots[family] += [branch] * len(branch.stems)
        if "." in branch.stem or not self._is_free(family, branch):
            raise ValueError(
                f"the branch {branch.stem} is already used, or has more than one token"
            )
        if branch.shape == "single":
            self._single[branch.stem] = LaneKey(family, "", "")
        elif branch.variants:
            tokens = self._varied.setdefault(branch.stem, {})
            for at, token in enumerate(branch.variants):
                tokens[token] = (family, slot + at)
        else:
            self._plain[branch.stem] = (family, slot)

    def _is_free(self, family: str, branch: Branch) -> bool:
        """Whether no other branch has its subjects, nor those that its `pattern` covers."""
        others = self._varied.get(branch.stem)
        if not others or not branch.variants or branch.shape != "kind":
            return branch.stem not in {"ctl", *self._plain, *self._varied, *self._single}
        slots = self._slots[family]
        return others.keys().isdisjoint(branch.variants) and all(
            of == family and slots[slot].read_by == branch.read_by for of, slot in others.values()
        )

    def place_of(self, subject: str) -> Place | None:
        """The lane of a subject and its slot there; None if it belongs to no lane."""
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
        """The literal subjects of one lane, in the order of their slots."""
        root = subjects.root(mesh)
        if key.family == CONTROL:
            return (f"{root}.ctl.{key.name}",)
        end = f".{key.kind}.{key.name}" if key.kind else ""
        return tuple([f"{root}.{stem}{end}" for stem in self._stems[key.family]])

    def __iter__(self) -> Iterator[Branch]:
        """Each branch once."""
        return iter(dict.fromkeys(one for each in self.branches.values() for one in each))


_SHORTEST: Final = 3
"""Tokens of `ap.<mesh>.<stem>`."""
