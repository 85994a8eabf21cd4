"""The hostile member as a node's HTTP interface sees it: its keys, their tokens and signatures.

It has a key of its own, and further ones to which that one passes everything on: they sign in
parallel, and are one party.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Sequence
from typing import Final

from antiphon import assembly
from antiphon.assembly.mesh_connection import HTTP
from antiphon.core.bar_tokens.bar_token import EVERY_PROJECT, ROLES, Role
from antiphon.core.bus.http_request import Asked, sign_request
from antiphon.ports import Keyring
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from chaos.cluster.delegating import chain_of, pass_on, token_by
from chaos.hostile.rights.material import Material
from chaos.network.http_wire import Answer, Traffic, Wire, bearer

SIBLINGS: Final = 8
PROJECT: Final = "render"
TOKEN_S: Final = 10.0
"""How long a token is used; it is good for twice as long at the fastest tempo."""


class HttpMember:
    """One party that asks a node."""

    def __init__(
        self,
        mesh: str,
        keys: Sequence[Keyring],
        chains: dict[tuple[str, Role], tuple[str, ...]],
        project: str,
        material: Material,
    ) -> None:
        """`chains`: by key and role, the delegations that a token names."""
        self.mesh = mesh
        self.keys = tuple(keys)
        self.material = material
        self.port = 0
        self.traffic = Traffic()
        self._chains = chains
        self._project = project
        self._tokens: dict[tuple[str, Role], tuple[float, str]] = {}
        self._numbers = itertools.count()

    @property
    def did(self) -> str:
        """Its first key."""
        return self.keys[0].did

    @property
    def roles(self) -> tuple[Role, ...]:
        """What its tokens can be narrowed to."""
        return tuple(role for role in ROLES if (self.did, role) in self._chains)

    def number(self) -> int:
        """Another one each time."""
        return next(self._numbers)

    def wire(self) -> Wire:
        """A new connection, as others have."""
        return Wire(self.port, self.traffic)

    def key(self) -> Keyring:
        """One of its keys, in turn."""
        return self.keys[self.number() % len(self.keys)]

    def token(self, role: Role, key: Keyring | None = None) -> str:
        """A header with a token of this role; of one of its keys, in turn."""
        key = key or self.key()
        known = self._tokens.get((key.did, role))
        if known is None or known[0] < time.monotonic():
            known = (time.monotonic() + TOKEN_S, self._issue(role, key))
            self._tokens[key.did, role] = known
        return bearer(known[1])

    def _issue(self, role: Role, key: Keyring) -> str:
        chain = self._chains[key.did, role]
        return token_by(key, chain, mesh=self.mesh, project=self._project, role=role)

    def signature(self, asked: Asked, key: Keyring | None = None) -> str:
        """The header of a request that one of its keys signs."""
        key = key or self.key()
        return sign_request(
            asked,
            (key.did, key.sign),
            mesh=self.mesh,
            at_ms=time.time_ns() // 1_000_000,
            nonce=secrets.token_urlsafe(18),
        )

    async def sign(self, wire: Wire, method: str, target: str, body: bytes = b"") -> Answer:
        """Ask as a member that signs each request."""
        header = self.signature(Asked(method, target, body))
        return await wire.ask(method, target, body, authorization=header)


class Steps:
    """What a member does, again and again: each method that takes a connection is one step."""

    def __init__(self, member: HttpMember) -> None:
        self.member = member


async def prepare(home: StateDirectory, material: Material, *, every_kind: bool) -> HttpMember:
    """The member, once it has delegated to its further keys: by its login at the engine."""
    siblings = [SeedKeyring(os.urandom(32)) for _ in range(SIBLINGS)]
    async with assembly.join(home, "client") as connection:
        session, giver = connection.session, connection.keyring
        for did in (*(one.did for one in siblings), _did_over_http(home)):
            await pass_on(session, giver, did)
        keys = (giver, *siblings)
        await session.sync_control()
        project = EVERY_PROJECT if every_kind else PROJECT
        chains = {}
        for key in keys:
            for role in ROLES:
                found = chain_of(session, key.did, project=project, role=role)
                if found:
                    chains[key.did, role] = found
        return HttpMember(session.mesh, keys, chains, project, material)


def http_home(home: StateDirectory) -> StateDirectory:
    """Where the key is with which it reaches the whole mesh over HTTP."""
    return StateDirectory(home.path / "over-http")


def _did_over_http(home: StateDirectory) -> str:
    place = http_home(home)
    place.make()
    place.key(HTTP, SystemEntropy()).release()
    return place.signer(HTTP).did
