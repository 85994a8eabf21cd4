"""Delegations and revocations of a mesh, by their place on the log (spec §6).

Append-only, like the log. Every query names a sequence and sees only what came before it, so a
node that has read further gives the same answer. Chains are built once and cached: what a chain
grants never changes, only whether one of its links has been revoked by then.

Any key can record delegations that name it, so most of them may be worthless. A delegation is kept
as bytes and opened when it is used: opened, a hostile one takes twenty times the memory.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.ucan import MAX_LINKS, Chain, Delegation, Payload, SignatureCache, open_envelope
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from antiphon.core.ucan import Revocations

MESH_META: Final = "mesh"
"""A delegation whose metadata names a mesh is valid there only: one key may own several meshes."""
CHAINS_KEPT: Final = 16_384
CHAINS_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Limits of the chain cache: number of chains, and bytes of their delegations."""
OPENED_KEPT: Final = 16_384
OPENED_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Limits of the cache of opened delegations: number, and bytes."""
NODE_BYTES: Final = 150
"""Memory of one value in a policy or in metadata, even an empty one."""
ROOTS_KEPT: Final = 4
"""Owners whose reachable keys are cached: the current one and earlier ones."""
ABOVE_KEPT: Final = 256
ABOVE_KEPT_KEYS: Final = 64 * 1024
"""Limits of the cache of issuers above a key: number of keys, and of issuers above all of them."""

_opened: Final = BoundedCache[bytes, Delegation](most=OPENED_KEPT, most_bytes=OPENED_KEPT_BYTES)


def _open(raw: bytes) -> Delegation:
    """The delegation in an envelope, cached."""
    known = _opened.get(raw)
    if known is None:
        known = open_envelope(raw)
        _opened.put(raw, known, _weight(known))
    return known


def _weight(delegation: Delegation) -> int:
    """Approximate memory of an opened delegation."""
    nodes, frontier = 0, [delegation.payload.pol.source, delegation.payload.meta]
    while frontier:
        nodes += 1
        value = frontier.pop()
        if isinstance(value, dict):
            frontier += value.values()
        elif isinstance(value, list):
            frontier += value
    return len(delegation.raw) + nodes * NODE_BYTES


def open_token(text: str) -> Delegation:
    """The delegation in a token: canonical unpadded base64url of its envelope."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as problem:
        raise Malformed("the token is not base64url") from problem
    if token_of(raw) != text:
        raise Malformed("the token is not canonical base64url")
    return _open(raw)


def token_of(raw: bytes) -> str:
    """An envelope as the token inside an op."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Link(Struct, frozen=True, gc=False):
    """A recorded delegation: issuer, audience, and its sequence on the log."""

    seq: int
    cid: str
    issuer: str
    audience: str
    is_powerline: bool
    raw: bytes

    @property
    def delegation(self) -> Delegation:
        """The opened delegation."""
        return _open(self.raw)

    @property
    def payload(self) -> Payload:
        """Its claims."""
        return self.delegation.payload


class Grants:
    """Delegations and revocations of one mesh, by the sequence of their op."""

    def __init__(self) -> None:
        """Start empty."""
        self._granted: dict[str, Link] = {}
        self._to: dict[str, list[Link]] = {}
        self._by: dict[str, list[Link]] = {}
        self._reached: dict[str, dict[str, int]] = {}
        self._givers: dict[str, dict[str, None]] = {}
        """Who delegates to a key, each once."""
        self._above: dict[str, dict[str, int]] = {}
        """By key: who is above it, and by how many delegations at least."""
        self._newest = 0
        self._revoked: dict[str, list[tuple[int, str]]] = {}
        self._chains = BoundedCache[tuple[str, tuple[str, ...]], Chain](
            most=CHAINS_KEPT, most_bytes=CHAINS_KEPT_BYTES
        )
        self.is_signed = SignatureCache()
        self.revocations = 0
        """Number of revocations: when it changes, check what is held again."""
        self.revision = 0
        """Rises with every change: cached answers are valid within one revision."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grants):
            return NotImplemented
        return self._granted == other._granted and self._revoked == other._revoked

    __hash__ = None  # type: ignore[assignment]  # it grows

    def grant(self, seq: int, delegation: Delegation) -> None:
        """Add a delegation; its first sequence counts."""
        if delegation.cid in self._granted:
            return
        claims = delegation.payload
        is_powerline = claims.subject is None
        link = Link(seq, delegation.cid, claims.iss, claims.aud, is_powerline, delegation.raw)
        self._granted[link.cid] = link
        _opened.put(link.raw, delegation, _weight(delegation))
        self._to.setdefault(link.audience, []).append(link)
        self._by.setdefault(link.issuer, []).append(link)
        for reached in self._reached.values():
            self._reach(reached, link)
        givers = self._givers.setdefault(link.audience, {})
        if link.issuer not in givers:
            givers[link.issuer] = None
            for above in self._above.values():
                self._rise(above, link.audience, (link.issuer,))
            self._forget_above()
        self._newest = max(self._newest, seq)
        self.revision += 1

    def revoke(self, seq: int, cid: str, by: str) -> None:
        """Add a revocation."""
        self._revoked.setdefault(cid, []).append((seq, by))
        self.revocations += 1
        self.revision += 1

    def find(self, cid: str, *, before: int) -> Link | None:
        """A delegation that is on the log before a sequence."""
        found = self._granted.get(cid)
        return found if found is not None and found.seq < before else None

    def given_to(self, did: str, *, before: int) -> list[Link]:
        """The delegations that name `did` as their audience, oldest first."""
        return [link for link in self._to.get(did, ()) if link.seq < before]

    def is_held_by(self, did: str, *, root: str, before: int) -> bool:
        """Whether delegations lead from the root to `did`, valid or not."""
        reached = self._reached.get(root)
        if reached is None:
            reached = {root: 0}
            for link in self._granted.values():
                self._reach(reached, link)
            if len(self._reached) >= ROOTS_KEPT:
                del self._reached[next(iter(self._reached))]
            self._reached[root] = reached
        return reached.get(did, before) < before

    def _reach(self, reached: dict[str, int], link: Link) -> None:
        """Add the keys that one more delegation leads to, each once, and since when."""
        if link.issuer not in reached or link.audience in reached:
            return
        reached[link.audience] = link.seq
        frontier = [link.audience]
        while frontier:
            for below in self._by.get(frontier.pop(), ()):
                if below.audience not in reached and below.seq <= link.seq:
                    reached[below.audience] = link.seq
                    frontier.append(below.audience)

    def everything(self) -> list[Link]:
        """Every delegation, oldest first."""
        return list(self._granted.values())

    def chain(self, root: str, cids: tuple[str, ...], *, before: int) -> Chain | None:
        """The chain of these delegations; None if one was not on the log by then."""
        known = self._chains.get((root, cids))
        if known is not None and all(self._granted[cid].seq < before for cid in cids):
            return known
        if len(cids) > MAX_LINKS:
            return None
        links = [link for cid in cids if (link := self.find(cid, before=before)) is not None]
        if len(links) < len(cids):
            return None
        chain = Chain.of(root, [link.delegation for link in links], is_signed=self.is_signed)
        self._chains.put((root, cids), chain, sum(map(_weight, chain.links)))
        return chain

    def revoked(self, cids: tuple[str, ...], *, before: int, after: int = 0) -> Revocations:
        """Who revoked each of these between two sequences, both excluded."""
        if not self._revoked:
            return {}
        found = {
            cid: {by for seq, by in self._revoked[cid] if after < seq < before}
            for cid in cids
            if cid in self._revoked
        }
        return {cid: who for cid, who in found.items() if who}

    def is_above(self, did: str, cid: str, *, before: int) -> bool:
        """Whether `did` issued this delegation, or one that can be above it in a chain.

        Anyone may delegate to anyone, and revoke: thousands may be above a key, and thousands of
        revocations ask. So those above are found once and kept up to date.
        """
        first = self.find(cid, before=before)
        if first is None:
            return False
        if before <= self._newest:  # a look back: what is kept counts all delegations
            return did in self._found_above(first.issuer, before)
        return did in self._kept_above(first.issuer)

    def _kept_above(self, key: str) -> dict[str, int]:
        above = self._above.get(key)
        if above is None:
            above = {key: 0}
            self._rise(above, key, self._givers.get(key, ()))
            self._above[key] = above
            self._forget_above()
        return above

    def _rise(self, above: dict[str, int], key: str, givers: Iterable[str]) -> None:
        """Add givers of a key, and who is above them, each with the fewest delegations between."""
        frontier: list[tuple[str, Iterable[str]]] = [(key, givers)]
        while frontier:
            higher: list[tuple[str, Iterable[str]]] = []
            for holder, found in frontier:
                links = above.get(holder, MAX_LINKS) + 1
                for giver in found:
                    if links < above.get(giver, MAX_LINKS):
                        above[giver] = links
                        if giver in self._givers:
                            higher.append((giver, self._givers[giver]))
            frontier = higher

    def _forget_above(self) -> None:
        kept = sum(map(len, self._above.values()))
        while self._above and (len(self._above) > ABOVE_KEPT or kept > ABOVE_KEPT_KEYS):
            kept -= len(self._above.pop(next(iter(self._above))))

    def _found_above(self, key: str, before: int) -> set[str]:
        """Who was above a key before a sequence."""
        found, fresh = {key}, {key}
        for _ in range(MAX_LINKS - 1):
            links = (link for one in fresh for link in self.given_to(one, before=before))
            fresh = {link.issuer for link in links} - found
            found |= fresh
        return found
