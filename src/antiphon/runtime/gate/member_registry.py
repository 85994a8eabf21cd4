"""The members of a mesh: which engine users belong to which machine, as the gate records it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.authority.scope import NOTHING, Scope
from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt
from antiphon.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_MEMBERS: Final = 100_000


class Member(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine that joined."""

    node: str
    user: str
    refresh_key: str
    alias: str
    kinds: tuple[str, ...] = ()
    """The kinds that it asked queues for."""
    scope: Scope = NOTHING
    """What its present login permits."""


class MemberRegistry:
    """All members, one small file each, and all of them in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._by_user: dict[str, Member] = {}
        self._by_refresh_key: dict[str, Member] = {}
        self._by_node: dict[str, set[str]] = {}
        if directory.is_dir():
            for path in sorted(directory.glob("*.json")):
                self._index(_read(path))

    def _index(self, member: Member) -> None:
        self._by_user[member.user] = member
        self._by_refresh_key[member.refresh_key] = member
        self._by_node.setdefault(member.node, set()).add(member.user)

    def keep(self, member: Member) -> None:
        """Store a member, on disk first."""
        name = hashlib.sha256(member.user.encode()).hexdigest()[:32]
        replace_file(self._directory / f"{name}.json", msgspec.json.encode(member))
        self._index(member)

    def by_user(self, user: str) -> Member | None:
        """The member with this engine user."""
        return self._by_user.get(user)

    def by_refresh_key(self, refresh_key: str) -> Member | None:
        """The member with this refresh key."""
        return self._by_refresh_key.get(refresh_key)

    def users_of(self, nodes: Iterable[str]) -> set[str]:
        """The engine users of those nodes that are members."""
        return {user for node in nodes for user in self._by_node.get(node, ())}

    def everyone(self) -> list[Member]:
        """All members."""
        return list(self._by_user.values())


def _read(path: Path) -> Member:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Member)
    except UNREADABLE as problem:
        raise Corrupt(f"{path} cannot be read: {problem}") from problem
