"""The protocol: the list of families, and everything that follows from it (spec §2, §4.1).

A protocol is a number and its families, and never changes; every reader of a log is given one. It
determines the decoder of ops, their names and subjects, who reads and writes those, and what a
replica stores. `PROTOCOL` is the newest that this code has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Final, Union

import msgspec

from antiphon.core.authority.grant_terms import Rights
from antiphon.core.authority.job_rights import SEND_BY, TEMPO_BY
from antiphon.core.families.erasures import ERASURES
from antiphon.core.families.grants import GRANTS
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.locks import LOCKS
from antiphon.core.families.memory import MEMORY
from antiphon.core.families.mesh import MESH
from antiphon.core.families.plans import PLANS
from antiphon.core.families.seals import SEALS
from antiphon.core.family import Family, Lane
from antiphon.core.record.branches import CONTROL, Branch, Grammar, LaneKey, Place
from antiphon.core.record.op import Op

PLACES_KEPT: Final = 4096
LONGEST_KEPT: Final = 256
"""How many subjects are cached with their place: each of a job's is read several times in a row.
Subjects longer than any op's are not: a node that may write on a lane chooses how they end."""

_OF_SERVICES: Final = {"message": SEND_BY, "tempo": TEMPO_BY}
"""Rights that are about no record: messages go through the gate, and beats over the bus."""


@dataclass(frozen=True)
class Protocol:
    """A number, and the families that records can be about while it is in force."""

    number: int
    families: tuple[Family, ...]

    def adding(self, *families: Family) -> Protocol:
        """A protocol with more families; its number rises if their ops say so."""
        since = (op.SINCE for family in families for op in family.ops)
        return Protocol(max(self.number, *since), (*self.families, *families))

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Reads the bytes of any op."""
        return msgspec.json.Decoder(Union[tuple(self.family_of)])  # noqa: UP007 - a list, not a |

    @cached_property
    def family_of(self) -> Mapping[type[Op], Family]:
        """The family of each op class."""
        return MappingProxyType({op: family for family in self.families for op in family.ops})

    @cached_property
    def ops(self) -> Mapping[str, type[Op]]:
        """The op classes by the names of their types."""
        return MappingProxyType({op.type_name(): op for op in self.family_of})

    @cached_property
    def rights(self) -> Rights:
        """The words that people grant permissions with."""
        words = {word: given for one in self.families for word, given in one.rights.items()}
        return Rights({**words, **_OF_SERVICES})

    @cached_property
    def _grammar(self) -> Grammar:
        return Grammar((family.name, family.branches) for family in self.families)

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Every branch of the log; engines and scopes are built from these."""
        return tuple(self._grammar)

    @cached_property
    def place_of(self) -> Callable[[str], Place | None]:
        """Returns the lane of a subject and its slot there; None if it belongs to no lane."""
        find = self._grammar.place_of
        remembered = lru_cache(PLACES_KEPT)(find)
        return lambda subject: (remembered if len(subject) <= LONGEST_KEPT else find)(subject)

    def lane_of(self, subject: str) -> LaneKey | None:
        """The lane of a subject; None if it has none, or is a control subject."""
        place = self._grammar.place_of(subject)
        return None if place is None or place.key.family == CONTROL else place.key

    def read_by(self, place: Place) -> tuple[str, ...]:
        """A member that holds one of these commands may read there; empty: every member may."""
        branch = self._grammar.branch_at(place)
        return branch.read_by if branch is not None else ()

    def is_named(self, place: Place) -> bool:
        """Whether other ops are judged by what is there."""
        family = self.family_at(place)
        return family is not None and family.is_named

    def family_at(self, place: Place) -> Family | None:
        """The family of what is there; None for control."""
        return self._by_name.get(place.key.family)

    def subjects_of(self, mesh: str, key: LaneKey) -> tuple[str, ...]:
        """The literal subjects of a lane, in the order of its slots."""
        return self._grammar.lane(mesh, key)

    def family(self, name: str) -> Family:
        """The family of that name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, Family]:
        return {family.name: family for family in self.families}

    def empty(self, key: LaneKey) -> Lane:
        """The lane before its first record."""
        return Lane() if key.family == CONTROL else self._by_name[key.family].lane()


PROTOCOL: Final = Protocol(1, (MESH, GRANTS, JOBS, SEALS, PLANS, LOCKS, MEMORY, ERASURES))
