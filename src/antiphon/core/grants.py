"""The book of delegations: what was granted where on the log, and what was revoked (SPEC §6).

Append-only, like the log it follows. Every question names the sequence at which it is asked and
sees what stood before it, so a node that knows more gives the same answer as one that does not.
Chains are put together once and remembered: what a chain amounts to never changes, only whether
one of its links has been revoked by then.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from antiphon.core.ucan import MAX_LINKS, Chain, Delegation, SignatureCache, open_envelope
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from antiphon.core.ucan import Revocations

CHAINS_KEPT: Final = 16_384
TOKENS_KEPT: Final = 4_096
_ANY_TIME: Final = 2**63


@lru_cache(maxsize=TOKENS_KEPT)
def open_token(text: str) -> Delegation:
    """The delegation in a token: unpadded base64url of its envelope, in its one spelling."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as problem:
        raise Malformed("the token is not base64url") from problem
    if token_of(raw) != text:
        raise Malformed("the token is not in its one spelling")
    return open_envelope(raw)


def token_of(raw: bytes) -> str:
    """How an envelope travels inside an op."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Grants:
    """Delegations and revocations of one mesh, by the sequence of their op."""

    def __init__(self) -> None:
        """Nothing is granted."""
        self._granted: dict[str, tuple[int, Delegation]] = {}
        self._to: dict[str, list[str]] = {}
        self._by: dict[str, list[str]] = {}
        self._rooted: dict[str, tuple[int, frozenset[str]]] = {}
        self._revoked: dict[str, list[tuple[int, str]]] = {}
        self._chains: dict[tuple[str, tuple[str, ...]], Chain] = {}
        self.is_signed = SignatureCache()
        self.revocations = 0
        """How many revocations there are: a change is worth a look at what is held."""
        self.revision = 0
        """Counts every entry: what was found out under one revision holds until the next."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grants):
            return NotImplemented
        return self._granted == other._granted and self._revoked == other._revoked

    __hash__ = None  # type: ignore[assignment]  # it grows

    def grant(self, seq: int, delegation: Delegation) -> None:
        """Note a delegation; the first place counts."""
        if delegation.cid in self._granted:
            return
        self._granted[delegation.cid] = (seq, delegation)
        self._to.setdefault(delegation.payload.aud, []).append(delegation.cid)
        self._by.setdefault(delegation.payload.iss, []).append(delegation.cid)
        self.revision += 1

    def revoke(self, seq: int, cid: str, by: str) -> None:
        """Note a revocation."""
        self._revoked.setdefault(cid, []).append((seq, by))
        self.revocations += 1
        self.revision += 1

    def find(self, cid: str, *, before: int) -> Delegation | None:
        """A delegation that stood on the log before a sequence."""
        found = self._granted.get(cid)
        return found[1] if found is not None and found[0] < before else None

    def given_to(self, did: str, *, before: int) -> list[Delegation]:
        """The delegations that name `did` as their audience, oldest first."""
        cids = self._to.get(did, ())
        return [link for cid in cids if (link := self.find(cid, before=before)) is not None]

    def holders_from(self, owner: str, *, before: int) -> frozenset[str]:
        """Everybody to whom delegations lead from the owner, whatever they are worth."""
        known = self._rooted.get(owner) if before >= _ANY_TIME else None
        if known is not None and known[0] == self.revision:
            return known[1]
        found, frontier = {owner}, [owner]
        while frontier:
            giver = frontier.pop()
            for cid in self._by.get(giver, ()):
                seq, link = self._granted[cid]
                if seq < before and link.payload.aud not in found:
                    found.add(link.payload.aud)
                    frontier.append(link.payload.aud)
        rooted = frozenset(found)
        if before >= _ANY_TIME:
            self._rooted[owner] = (self.revision, rooted)
        return rooted

    def everything(self) -> list[tuple[int, Delegation]]:
        """Every delegation with its place, oldest first."""
        return list(self._granted.values())

    def chain(self, root: str, cids: tuple[str, ...], *, before: int) -> Chain | None:
        """The chain that these delegations make; None if one was not on the log by then."""
        known = self._chains.get((root, cids))
        if known is not None and all(self._granted[cid][0] < before for cid in cids):
            return known
        if len(cids) > MAX_LINKS:
            return None
        links = [self.find(cid, before=before) for cid in cids]
        if None in links:
            return None
        chain = Chain.of(root, [link for link in links if link], is_signed=self.is_signed)
        if len(self._chains) >= CHAINS_KEPT:
            del self._chains[next(iter(self._chains))]
        self._chains[root, cids] = chain
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
        """Whether `did` issued this delegation, or one that could stand above it in a chain."""
        issuers, frontier = set[str](), {cid}
        for _ in range(MAX_LINKS):
            links = [link for c in frontier if (link := self.find(c, before=before)) is not None]
            fresh = {link.payload.iss for link in links} - issuers
            if did in fresh:
                return True
            if not fresh:
                return False
            issuers |= fresh
            frontier = {
                link.cid for holder in fresh for link in self.given_to(holder, before=before)
            }
        return False
