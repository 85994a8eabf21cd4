"""Bugs in authority: chains, their bounds, and what ends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.authority import chain_check
from antiphon.core.authority.delegations import Grants
from antiphon.core.authority.register import Register
from antiphon.core.families.jobs import table
from antiphon.core.families.jobs.ops import JobExpire
from antiphon.core.ucan import Chain, signatures
from antiphon.core.ucan import chain as chain_rules
from simulator.patch import patched


@contextmanager
def revocation_ignored() -> Iterator[None]:
    """A lease outlives the revocation of what it was begun under."""
    really_revoked = Grants.revoked

    def revoked(self: Grants, cids: tuple[str, ...], *, before: int, after: int = 0) -> Any:
        # Only who asks about a tenure says since when.
        return {} if after else really_revoked(self, cids, before=before)

    with patched(Grants, "revoked", revoked):
        yield


@contextmanager
def quarantine_ends_no_lease() -> Iterator[None]:
    """Who is quarantined keeps what it holds."""
    really_lost = chain_check.has_lost_authority

    def lost(control: Any, who: str, auth: tuple[str, ...], *, since: int, seq: int) -> bool:
        unseen = replace(control, quarantines=Register())
        return really_lost(unseen, who, auth, since=since, seq=seq)

    with patched(table, "has_lost_authority", lost):
        yield


@contextmanager
def one_clock(at: slice) -> Iterator[None]:
    """Time bounds are held against one of the two clocks only."""
    really_judge = Chain.judge

    def judge(
        self: Chain, invoker: str, command: str, arguments: Any, times: Any, revoked: Any
    ) -> Any:
        return really_judge(self, invoker, command, arguments, times[at], revoked)

    with patched(Chain, "judge", judge):
        yield


def authors_clock_only() -> AbstractContextManager[None]:
    """An author that backdates an op may still use what has expired."""
    return one_clock(slice(0, 1))


def commit_clock_only() -> AbstractContextManager[None]:
    """Whoever signed beforehand, or dates ahead, is not asked when."""
    return one_clock(slice(-1, None))


@contextmanager
def expiry_a_second_late() -> Iterator[None]:
    """A chain holds for a second longer than it says."""
    really_fault = Chain._time_fault  # noqa: SLF001 - as above

    def time_fault(self: Chain, times: Any) -> Any:
        return None if max(times) - 1 == self.expires else really_fault(self, times)

    with patched(Chain, "_time_fault", time_fault):
        yield


@contextmanager
def any_audience() -> Iterator[None]:
    """A chain is valid for every author that names it."""
    really_judge = Chain.judge

    def judge(
        self: Chain, _invoker: str, command: str, arguments: Any, times: Any, revoked: Any
    ) -> Any:
        return really_judge(self, self.holder, command, arguments, times, revoked)

    with patched(Chain, "judge", judge):
        yield


@contextmanager
def any_root() -> Iterator[None]:
    """A chain may begin with any issuer of its first link."""
    really_follow = chain_rules._follow  # noqa: SLF001 - as above

    def follow(root: str, links: Any, is_signed: Any) -> Any:
        return really_follow(links[0].payload.iss if links else root, links, is_signed)

    with patched(chain_rules, "_follow", follow):
        yield


@contextmanager
def any_kind() -> Iterator[None]:
    """What a policy says of the kind is not held against an op."""
    with patched(Chain, "_policy_fault", lambda *_: None):
        yield


@contextmanager
def anyone_revokes() -> Iterator[None]:
    """A revocation counts, no matter who wrote it."""
    with patched(Chain, "may_revoke", lambda *_: True):
        yield


@contextmanager
def forged_delegations() -> Iterator[None]:
    """Nobody looks at the signature under a delegation."""
    with patched(signatures, "is_signed", lambda _: True):
        yield


@contextmanager
def anyone_expires() -> Iterator[None]:
    """Whoever sees that a lease is over may end it, without any right to."""
    really_fault = chain_check.fault

    def fault(control: Any, op: Any, **at: int) -> Any:
        return None if isinstance(op, JobExpire) else really_fault(control, op, **at)

    with patched(chain_check, "fault", fault):
        yield


MUTANTS: Final = (
    revocation_ignored,
    quarantine_ends_no_lease,
    authors_clock_only,
    commit_clock_only,
    expiry_a_second_late,
    any_audience,
    any_root,
    any_kind,
    anyone_revokes,
    forged_delegations,
    anyone_expires,
)
