"""Chains: whether a list of delegations leads from a root to an invoker.

A chain is a list from root to leaf, like the `prf` of UCAN invocations. `Chain.of` computes once
what depends on the delegations alone; `judge` then answers for one invocation in a few
microseconds.

A chain admits an invocation if

- the first link is issued by the root about the root: no powerline may begin a chain;
- each link is issued by the audience of the one before, and the invoker is the last audience;
- each link is about the root, or is a powerline, which takes over the subject before it;
- each link's command covers the invocation's, and no link widens: its command is within what the
  links above grant. A powerline delegates whatever its issuer has: a narrower command narrows,
  a wider one changes nothing;
- each link is valid at every given time, both ends inclusive;
- no link has been revoked by its issuer or by an issuer above it;
- each link's policy is true for the arguments, all of them within one budget;
- each link is signed by its issuer.

An empty chain admits the root itself, and nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from antiphon.core.ucan.budget import Budget, Exhausted
from antiphon.core.ucan.command import TOP, covers
from antiphon.core.ucan.envelope import Delegation
from antiphon.core.ucan.policy import Policy
from antiphon.core.ucan.signatures import is_signed as verify

MAX_LINKS: Final = 16

# The DIDs that have revoked each delegation, by its CID.
Revocations = Mapping[str, Collection[str]]
NOTHING_REVOKED: Final[Revocations] = {}


class ChainVerdict(StrEnum):
    """The verdict of a chain on an invocation."""

    OK = "ok"
    NO_CHAIN = "no_chain"
    MALFORMED = "malformed"
    BAD_SIGNATURE = "bad_signature"
    MISALIGNED = "misaligned"
    REVOKED = "revoked"
    NOT_YET = "not_yet"
    EXPIRED = "expired"
    COMMAND = "command"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, and the index of the link that decided it (0 is the root's), if one did."""

    verdict: ChainVerdict
    link: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the invocation is admitted."""
        return self.verdict is ChainVerdict.OK


ADMITTED: Final = Outcome(ChainVerdict.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Delegations from root to leaf, and what they grant together.

    `fault` is what is wrong with the chain itself, for every invocation; the other fields are
    meaningful only if it is None.
    """

    links: tuple[Delegation, ...]
    fault: Outcome | None
    holder: str
    command: str
    not_before: int | None
    expires: int | None
    policies: tuple[tuple[int, Policy], ...]
    reads: frozenset[str] | None
    """The fields of the arguments that its policies depend on; None: all of them."""
    says: frozenset[str]
    """The names that the metadata of some link sets to true."""

    @classmethod
    def of(
        cls,
        root: str,
        links: Iterable[Delegation],
        *,
        is_signed: Callable[[Delegation], bool] = verify,
    ) -> Chain:
        """Build a chain from a list of delegations. `is_signed` may be a `SignatureCache`."""
        links = tuple(links)
        command, fault = _follow(root, links, is_signed)
        payloads = [link.payload for link in links]
        starts = [p.not_before for p in payloads if p.not_before is not None]
        ends = [p.exp for p in payloads if p.exp is not None]
        fields = [p.pol.reads for p in payloads]
        named = [one for one in fields if one is not None]
        return cls(
            links=links,
            fault=fault,
            holder=payloads[-1].aud if payloads else root,
            command=command,
            not_before=max(starts, default=None),
            expires=min(ends, default=None),
            policies=tuple((i, p.pol) for i, p in enumerate(payloads) if p.pol.statements),
            reads=frozenset().union(*named) if len(named) == len(fields) else None,
            says=frozenset(name for p in payloads for name in _true_in(p.meta)),
        )

    def judge(
        self,
        invoker: str,
        command: str,
        arguments: dict[str, Any],
        times: Sequence[int],
        revoked: Revocations = NOTHING_REVOKED,
    ) -> Outcome:
        """Whether the chain allows `invoker` to do `command` with `arguments` at all of `times`.

        Times are Unix seconds; at least one is needed to check expiry.
        """
        if self.fault is not None:
            return self.fault
        if invoker != self.holder:
            if not self.links:
                return Outcome(ChainVerdict.NO_CHAIN)
            return Outcome(ChainVerdict.MISALIGNED, len(self.links) - 1)
        if not times:
            return Outcome(ChainVerdict.MALFORMED)
        if not self.links:
            return ADMITTED
        return (
            (self._revocation(revoked) if revoked else None)
            or self._time_fault(times)
            or self._command_fault(command)
            or self._policy_fault(arguments)
            or ADMITTED
        )

    def may_revoke(self, did: str, cid: str) -> bool:
        """Whether `did` issued the link `cid`, or one above it: only those may revoke it."""
        issuers: set[str] = set()
        for link in self.links:
            issuers.add(link.payload.iss)
            if link.cid == cid:
                return did in issuers
        return False

    def _revocation(self, revoked: Revocations) -> Outcome | None:
        for at, link in enumerate(self.links):
            for did in revoked.get(link.cid, ()):
                if self.may_revoke(did, link.cid):
                    return Outcome(ChainVerdict.REVOKED, at)
        return None

    def _time_fault(self, times: Sequence[int]) -> Outcome | None:
        if self.not_before is not None and min(times) < self.not_before:
            starts = [link.payload.not_before for link in self.links]
            return Outcome(ChainVerdict.NOT_YET, starts.index(self.not_before))
        if self.expires is not None and max(times) > self.expires:
            ends = [link.payload.exp for link in self.links]
            return Outcome(ChainVerdict.EXPIRED, ends.index(self.expires))
        return None

    def _command_fault(self, command: str) -> Outcome | None:
        if covers(self.command, command):
            return None
        narrow = (i for i, d in enumerate(self.links) if not covers(d.payload.cmd, command))
        return Outcome(ChainVerdict.COMMAND, next(narrow, None))

    def _policy_fault(self, arguments: dict[str, Any]) -> Outcome | None:
        budget = Budget()
        for at, policy in self.policies:
            try:
                holds = policy.judge(arguments, budget)
            except Exhausted:
                holds = False
            if not holds:
                return Outcome(ChainVerdict.POLICY, at)
        return None


def _true_in(meta: object) -> list[str]:
    found = meta.items() if isinstance(meta, dict) else ()
    return [name for name, value in found if value is True]


def _follow(
    root: str, links: tuple[Delegation, ...], is_signed: Callable[[Delegation], bool]
) -> tuple[str, Outcome | None]:
    """The command that a chain grants at its end, and its first fault."""
    if len(links) > MAX_LINKS:
        return TOP, Outcome(ChainVerdict.MALFORMED, MAX_LINKS)
    holder, granted = root, TOP
    for at, link in enumerate(links):
        claim = link.payload
        subject = claim.subject
        if claim.iss != holder or (subject != root and (subject is not None or at == 0)):
            return granted, Outcome(ChainVerdict.MISALIGNED, at)
        holder = claim.aud
        if covers(granted, claim.cmd):
            granted = claim.cmd
        elif subject is not None or not covers(claim.cmd, granted):
            return granted, Outcome(ChainVerdict.COMMAND, at)
    # Signatures last: a chain with another fault does not need them.
    for at, link in enumerate(links):
        if not is_signed(link):
            return granted, Outcome(ChainVerdict.BAD_SIGNATURE, at)
    return granted, None
