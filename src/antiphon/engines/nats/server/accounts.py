"""Whom a NATS server trusts: its operator, the accounts of a mesh, and the logins of users.

All three are JWTs that are made here; the server only checks signatures. A mesh has two accounts,
because a publisher chooses the *reply subject* of what it publishes, the server checks no
permission on that, and answers there with its own permissions. A client that may publish one
record into a stream of its own account can therefore make the server's acknowledgement delete
that stream. So:

    mesh      has JetStream; the owner's machine and the gate log in here, with all permissions
    members   has all others, and imports from the mesh account the few subjects that
              members need; an answer that comes back across the border is published in *this*
              account, which has no streams and no management interface

Invariants: a login with permissions is always one of the members' account; every login ends
within `MAX_LOGIN_S`; a user that was revoked is admitted again only by a later login; used tickets
never keep a member's login from being revoked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from antiphon.core.bus import subjects as bus_subjects
from antiphon.decoding import UNREADABLE
from antiphon.engines.nats.credentials.jwts import signed
from antiphon.engines.nats.credentials.keypairs import AccountKey, OperatorKey, check_user
from antiphon.engines.nats.server.permissions import Permissions
from antiphon.errors import Corrupt, Malformed, Misconfigured, Unavailable
from antiphon.files import replace_file

MAX_LOGIN_S: Final = 400 * 24 * 3600
"""No login is valid for longer, so a revocation may be forgotten after that."""
MAX_REVOKED: Final = 8192
"""They travel in one message of the server's, which may have a megabyte."""
MAX_USED_TICKETS: Final = 100
"""Of the most recently used ones the logins are revoked until they end. An older one can still ask
to join until then, and the gate refuses it, since it keeps a record of every used ticket."""
MAX_SUBSCRIPTIONS: Final = 16_384
"""Of one member's connection: three queues for each of some hundred kinds, and room."""
_NO_LIMIT: Final = -1

# What members reach in the mesh account. A pull has many answers, everything else one.
_SERVED: Final = (
    ("ap.>", "Singleton"),
    ("$JS.API.DIRECT.GET.*.ap.*.ctl.genesis", "Singleton"),
    ("$JS.API.CONSUMER.MSG.NEXT.*.*", "Stream"),
    ("$JS.ACK.>", "Singleton"),
)
# What they hear from it: committed records, and the gate's answers to their reads.
_SHOWN: Final = ("apr.>", "_I.>")
# What it hears from them: their reads, and the bus.
_HEARD: Final = ("apg.>", f"{bus_subjects.ROOT}.>")
# The bus the other way. As a service: two accounts may not show each other the same subjects.
_TOLD: Final = (f"{bus_subjects.ROOT}.>",)
PULL_WAITS_NS: Final = 300 * 1_000_000_000
"""How long the server remembers where the answers to a pull go; pulls end sooner."""


class AccountKeys(Struct, frozen=True):
    """The keys that sign accounts and logins: their holder decides who gets in."""

    operator: OperatorKey
    system: AccountKey
    mesh: AccountKey
    members: AccountKey

    @classmethod
    def new(cls) -> Self:
        """Fresh ones."""
        return cls(OperatorKey.new(), AccountKey.new(), AccountKey.new(), AccountKey.new())

    @classmethod
    def load(cls, path: Path) -> Self:
        """What `store` wrote."""
        try:
            kept = json.loads(path.read_text())
            return cls(
                operator=OperatorKey.from_seed(kept["operator"]),
                system=AccountKey.from_seed(kept["system"]),
                mesh=AccountKey.from_seed(kept["mesh"]),
                members=AccountKey.from_seed(kept["members"]),
            )
        except FileNotFoundError as error:
            raise Misconfigured(
                f"there are no account keys at {path}",
                hint="run this on the machine where you ran 'antiphon init'",
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, Malformed) as error:
            raise Corrupt(f"the account keys in {path} cannot be read") from error

    def store(self, path: Path) -> None:
        """One file that only its owner can read."""
        seeds = {
            "operator": self.operator.seed,
            "system": self.system.seed,
            "mesh": self.mesh.seed,
            "members": self.members.seed,
        }
        replace_file(path, json.dumps(seeds).encode())


class Revocation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a user's logins."""

    since_s: int
    """Every login issued up to this second is revoked."""
    ends_s: int
    """When the last of them ends by itself: then this is forgotten."""
    by_ticket: bool = False
    """Whether the user is a ticket that was used."""


class Revocations:
    """Revoked users, each until its logins end by themselves; kept in a file if one is given."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._by_user: dict[str, Revocation] = {}
        if path is not None and path.exists():
            try:
                self._by_user = msgspec.json.decode(path.read_bytes(), type=dict[str, Revocation])
            except UNREADABLE as error:
                raise Corrupt(f"the revocations in {path} cannot be read") from error

    @property
    def since(self) -> Mapping[str, int]:
        """By user: every login issued up to this second is revoked."""
        return {user: one.since_s for user, one in self._by_user.items()}

    def since_of(self, user: str) -> int:
        """The second up to which this user's logins are revoked; 0 if they are not."""
        known = self._by_user.get(user)
        return 0 if known is None else known.since_s

    def add(self, users: Iterable[str], since_s: int) -> None:
        """Revoke these users' logins; on disk before it takes effect."""
        kept = self._lasting(since_s)
        for user in users:
            # Above the last revocation: a login given since then is at most one second later.
            since = max(since_s, self.since_of(check_user(user)) + 1)
            kept[user] = Revocation(since_s=since, ends_s=since + MAX_LOGIN_S)
        if sum(not one.by_ticket for one in kept.values()) > MAX_REVOKED:
            raise Unavailable(
                f"{len(kept)} users would be revoked; the server takes {MAX_REVOKED}",
                hint="make new account keys, and have the members join again",
            )
        self._store(kept)

    def add_tickets(self, ends_s: Mapping[str, int], since_s: int) -> None:
        """Revoke the logins of used tickets, of which it is known when each ends."""
        kept = self._lasting(since_s)
        for user, ends in ends_s.items():
            kept.pop(check_user(user), None)  # to the end: the one that was used last
            kept[user] = Revocation(since_s=since_s, ends_s=ends, by_ticket=True)
        tickets = [user for user, one in kept.items() if one.by_ticket]
        for user in tickets[:-MAX_USED_TICKETS]:
            del kept[user]
        self._store(kept)

    def _lasting(self, now_s: int) -> dict[str, Revocation]:
        return {user: one for user, one in self._by_user.items() if one.ends_s >= now_s}

    def _store(self, kept: dict[str, Revocation]) -> None:
        if self._path is not None:
            replace_file(self._path, msgspec.json.encode(kept))
        self._by_user = kept


class Accounts:
    """The JWTs that a server and its users need, for one mesh."""

    def __init__(
        self, keys: AccountKeys, name: str, *, revocations: Revocations | None = None
    ) -> None:
        self.keys = keys
        self.name = name
        self.revocations = Revocations() if revocations is None else revocations
        self._latest_s = 0

    @classmethod
    def open(cls, directory: Path, name: str) -> Self:
        """The accounts kept in a directory, made there the first time."""
        path = directory / "accounts.json"
        if not path.exists():
            AccountKeys.new().store(path)
        revocations = Revocations(directory / "revoked.json")
        return cls(AccountKeys.load(path), name, revocations=revocations)

    # --- for the server ---------------------------------------------------------------------

    def operator_jwt(self, issued_s: int) -> str:
        """Whom the server trusts."""
        key = self.keys.operator
        nats = {"type": "operator", "system_account": self.keys.system.public}
        return signed(key, key.public, f"{self.name}-operator", nats, issued_s=issued_s)

    def account_jwts(self, issued_s: int) -> dict[str, str]:
        """All accounts, by public key."""
        return {
            self.keys.system.public: self.system_account_jwt(issued_s),
            self.keys.mesh.public: self.mesh_account_jwt(issued_s),
            self.keys.members.public: self.members_account_jwt(issued_s),
        }

    def system_account_jwt(self, issued_s: int) -> str:
        """The account for questions about the server and for changing accounts."""
        return self._account(self.keys.system, "system", {}, issued_s, stores=False)

    def mesh_account_jwt(self, issued_s: int) -> str:
        """The account with the streams."""
        members = self.keys.members.public
        nats: dict[str, Any] = {
            "exports": [
                *(_export(subject, "service", response) for subject, response in _SERVED),
                *(_export(subject, "stream") for subject in _SHOWN),
            ],
            "imports": [
                *(_import(subject, "stream", members) for subject in _HEARD),
                *(_import(subject, "service", members) for subject in _TOLD),
            ],
        }
        return self._account(self.keys.mesh, "mesh", nats, issued_s, stores=True)

    def members_account_jwt(self, issued_s: int) -> str:
        """The account of members with limited permissions."""
        mesh = self.keys.mesh.public
        nats: dict[str, Any] = {
            "exports": [
                *(_export(subject, "stream") for subject in _HEARD),
                *(_export(subject, "service") for subject in _TOLD),
            ],
            "imports": [
                *(_import(subject, "service", mesh) for subject, _ in _SERVED),
                *(_import(subject, "stream", mesh) for subject in _SHOWN),
            ],
        }
        return self._account(self.keys.members, "members", nats, issued_s, stores=False)

    def _account(
        self, key: AccountKey, what: str, nats: dict[str, Any], issued_s: int, *, stores: bool
    ) -> str:
        limits: dict[str, Any] = dict.fromkeys(
            ("subs", "data", "payload", "imports", "exports", "conn"), _NO_LIMIT
        )
        limits |= {"wildcards": True, "disallow_bearer": True}
        if stores:
            storage = ("mem_storage", "disk_storage", "streams", "consumer")
            limits |= dict.fromkeys(storage, _NO_LIMIT)
        nats = {"type": "account", "limits": limits, **nats}
        if since := self.revocations.since:
            nats["revocations"] = since
        name = f"{self.name}-{what}"
        return signed(self.keys.operator, key.public, name, nats, issued_s=issued_s)

    # --- for users --------------------------------------------------------------------------

    def user_jwt(
        self,
        public: str,
        permissions: Permissions | None,
        *,
        expires_s: int | None,
        name: str,
        issued_s: int,
    ) -> str:
        """A login: with permissions in the members' account, without them in the mesh's."""
        if permissions is None:
            return self._user(self.keys.mesh, public, _user_claims(), expires_s, name, issued_s)
        nats = member_claims(permissions)
        return self._user(self.keys.members, public, nats, expires_s, name, issued_s)

    def system_user_jwt(self, public: str, *, name: str, issued_s: int) -> str:
        """A login to the system account."""
        return self._user(self.keys.system, public, _user_claims(), None, name, issued_s)

    def _user(
        self,
        account: AccountKey,
        public: str,
        nats: dict[str, Any],
        expires_s: int | None,
        name: str,
        issued_s: int,
    ) -> str:
        issued_s = max(issued_s, self.revocations.since_of(check_user(public)) + 1)
        self._latest_s = max(self._latest_s, issued_s)
        latest_s = issued_s + MAX_LOGIN_S
        expires_s = latest_s if expires_s is None else min(expires_s, latest_s)
        return signed(account, public, name, nats, issued_s=issued_s, expires_s=expires_s)

    def revoke(self, users: Iterable[str], now_s: int) -> None:
        """Store that these users' logins so far are revoked; the server must be told separately.

        A clock that was set back since they were issued must not spare them.
        """
        self.revocations.add(users, max(now_s, self._latest_s))

    def revoke_tickets(self, ends_s: Mapping[str, int], now_s: int) -> None:
        """Store the same for the logins of used tickets; by user, when each ends."""
        self.revocations.add_tickets(ends_s, max(now_s, self._latest_s))


def member_claims(permissions: Permissions) -> dict[str, Any]:
    """What a login in the members' account says to the server."""
    return {
        **_user_claims(),
        "pub": _allowed(permissions.publish),
        "sub": _allowed(permissions.subscribe, permissions.unheard),
        "subs": _NO_LIMIT if permissions.hears_many else MAX_SUBSCRIPTIONS,
    }


def _user_claims() -> dict[str, Any]:
    unlimited = dict.fromkeys(("subs", "data", "payload"), _NO_LIMIT)
    return {"type": "user", **unlimited, "allowed_connection_types": ["STANDARD"]}


def _allowed(subjects: tuple[str, ...], denied: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """To the server an empty list would mean everything."""
    if not subjects:
        return {"deny": [">"]}
    return {"allow": list(subjects), **({"deny": list(denied)} if denied else {})}


def _export(subject: str, kind: str, response: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"name": f"{kind} {subject}", "subject": subject, "type": kind}
    if response:
        found["response_type"] = response
    if response == "Stream":
        found["response_threshold"] = PULL_WAITS_NS
    return found


def _import(subject: str, kind: str, account: str) -> dict[str, str]:
    return {"name": f"{kind} {subject}", "subject": subject, "type": kind, "account": account}
