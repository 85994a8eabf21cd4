"""Delegates and revokes permissions: `mesh.authority.grant`, `mesh.authority.revoke`.

What is known to be rejected raises an error with a reason before anything is signed.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.core.authority.chain_choice import chains_to
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_reach import Grant, State
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.grant_tree import Holder, bearers, is_reserved
from antiphon.core.authority.rules import NOTICE_MS
from antiphon.core.authority.scope import admits, filter_of, kinds_of
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.state import HELD, Job
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import short_node
from antiphon.core.ucan import ChainVerdict
from antiphon.errors import AntiphonError, Conflict, Rejected
from antiphon.runtime.caller.holdings import Holdings, may_claim, stuck_route, stuck_routes
from antiphon.runtime.log.writer import BEHIND, Intent, write
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.authority.governance import (
    MEANINGS,
    SELECTIONS,
    Changed,
    RulesChanged,
    acts_through,
    rule_values,
)
from antiphon.sdk.authority.holdings import (
    find_node,
    in_words,
    require_not_quarantined,
    rights_in_words,
    rights_of,
    who,
)

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.sdk.connection.connection import Connection

JOBS_LOOKED_AT: Final = 1_000
CID_FRAGMENT: Final = 4
"""With fewer characters, a text is not taken for a grant's id."""
_ANY_TIME: Final = 2**63


def right_words() -> list[str]:
    """The words that a grant's `can` is made of."""
    return list(PROTOCOL.rights.words)


# --- granting ---------------------------------------------------------------------------------


class Granted(Struct, frozen=True, kw_only=True):
    """A grant that was just made."""

    node: str
    issuer: str
    terms: Terms
    cids: tuple[str, ...]
    ends_s: int | None
    """When it really ends: no later than what the issuer itself has."""
    revived: tuple[Grant, ...]
    """What the node had delegated under an earlier grant, and what is valid again now."""


async def grant(connection: Connection, to: str, wanted: Terms) -> Granted:
    """Grant a permission: as the owner, or as a node that has it and may delegate it."""
    held, keyring = await who(connection), connection.keyring
    control = connection.session.control
    node = find_node(held, to)
    require_not_quarantined(held)
    _check_audience(held, node)
    if wanted.alias:
        _check_alias(held, control, node, wanted.alias)
    else:
        wanted = msgspec.structs.replace(wanted, alias=_known_as(held, node))
    payloads = connection.session.protocol.rights.payloads(
        wanted,
        issuer=keyring.did,
        audience=node,
        owner=control.owner,
        mesh=connection.session.mesh,
        nonce=connection.session.entropy.token,
    )
    ends_s = wanted.until_s
    if keyring.did != control.owner:
        ends_s = _covered_until(held, control, wanted)
    signed = [keyring.delegate(payload) for payload in payloads]
    bodies = [DelegateBody(token=token_of(one.raw)) for one in signed]
    intents = [Intent(UcanDelegate, body) for body in bodies]
    for written in await write(connection.session, intents, BEHIND):
        written.check()
    cids = tuple(one.cid for one in signed)
    return Granted(
        node=node,
        issuer=keyring.did,
        terms=wanted,
        cids=cids,
        ends_s=ends_s,
        revived=_live_now(await who(connection), but=_live_cids(held) | set(cids)),
    )


def _live_cids(held: Holdings) -> set[str]:
    return {one.cid for one in held.tree.grants() if one.state is State.LIVE}


def _live_now(held: Holdings, *, but: set[str]) -> tuple[Grant, ...]:
    live = (one for one in held.tree.grants() if one.state is State.LIVE)
    return tuple(one for one in live if one.cid not in but)


def _check_audience(held: Holdings, node: str) -> None:
    if node == held.owner:
        raise Rejected("the owner already has all permissions", reason="owner")
    if node == held.me:
        raise Rejected("a node cannot grant itself anything", reason="audience")


def _known_as(held: Holdings, node: str) -> str:
    """The alias that the owner or this key gave it last; aliases by others do not count."""
    givers = {held.owner, held.me}
    names = [one.alias for one in held.tree.said if one.audience == node and one.issuer in givers]
    return names[-1] if names else ""


def _check_alias(held: Holdings, control: Control, node: str, alias: str) -> None:
    """Two nodes with one alias would make commands mean the wrong one."""
    others = bearers(control, alias, held.now_s, namers={held.owner, held.me}) - {node}
    if others or is_reserved(alias):
        taken = f": that is {held.called(others.pop())}" if others else ""
        raise Rejected(
            f"{alias!r} cannot be an alias for {short_node(node)}{taken}",
            reason="alias",
            hint="choose another --alias",
        )


def _covered_until(held: Holdings, control: Control, wanted: Terms) -> int | None:
    """When a delegated permission ends; `Rejected` if the issuer does not have it."""
    ends = [] if wanted.until_s is None else [wanted.until_s]
    chains = chains_to(control.grants, control.owner, held.me, before=_ANY_TIME)
    for word, glob in ((word, glob) for word in wanted.can for glob in wanted.kinds):
        for command in PROTOCOL.rights.words[word]:
            until: list[int | None] = []
            for chain in chains:
                cids = tuple(link.cid for link in chain.links)
                revoked = control.grants.revoked(cids, before=_ANY_TIME)
                verdict = chain.judge(held.me, command, {}, (held.now_s,), revoked).verdict
                policy = [one for _, policy in chain.policies for one in policy.source]
                is_within = any(admits(one, filter_of(glob) or "") for one in kinds_of(policy))
                if verdict in {ChainVerdict.OK, ChainVerdict.POLICY} and is_within:
                    until.append(chain.expires)
            if not until:
                raise _not_covered(held, word, glob)
            if None not in until:
                ends.append(max(one for one in until if one is not None))
    return min(ends, default=None)


def _not_covered(held: Holdings, word: str, glob: str) -> Rejected:
    holds = in_words(held.tree.live_to(held.me)) or "nothing"
    wanted = rights_in_words([word], (glob,))
    return Rejected(
        f"this machine ({short_node(held.me)}) cannot grant {wanted!r}: it has {holds}",
        reason="no_chain",
        hint=f"ask the owner, {short_node(held.owner)}; 'antiphon who' shows all permissions",
    )


# --- revoking ---------------------------------------------------------------------------------


class Revoked(Struct, frozen=True, kw_only=True):
    """What was just revoked."""

    grants: tuple[Grant, ...]
    """The grants that were named."""
    below: tuple[Grant, ...]
    """The grants below them, which ended too."""
    jobs: tuple[Job, ...]
    """Jobs held under any of them, as far as this machine's replica knows; other workers take them
    over."""


async def revoke(connection: Connection, *targets: str) -> Revoked:
    """Revoke grants by id, or everything that this key granted to a node.

    A grant that cannot be revoked does not stop the rest: `Conflict` is raised at the end and names
    it.
    """
    held, control = await who(connection), connection.session.control
    require_not_quarantined(held)
    named: dict[str, Grant] = {}
    for text in targets:
        named |= {one.cid: one for one in _find_grants(held, text.strip())}
    for one in named.values():
        _check_revocable(held, control, one)
    jobs = await _jobs_under(connection, set(named))
    intents = [Intent(UcanRevoke, RevokeBody(cid=cid)) for cid in named]
    held_up: list[str] = []
    for cid, written in zip(named, await write(connection.session, intents, BEHIND), strict=True):
        if isinstance(written.problem, Conflict):
            held_up.append(cid[-8:])
        else:
            written.check()
    if held_up:
        raise Conflict(
            f"{len(held_up)} of {len(named)} grants are not revoked, since other records came"
            f" first: {', '.join(held_up)}; the others are revoked",
            hint=f"antiphon revoke {' '.join(held_up)}",
        )
    below = _live_now(held, but=_live_cids(await who(connection)) | set(named))
    return Revoked(grants=tuple(named.values()), below=below, jobs=tuple(jobs))


def revocable(connection: Connection, held: Holdings, *, by: str) -> frozenset[str]:
    """The ids of the live grants that a key can revoke: those that it gave, and those below."""
    grants = connection.session.control.grants
    live = _live_cids(held)
    if by == held.owner:
        return frozenset(live)
    return frozenset(cid for cid in live if grants.is_above(by, cid, before=_ANY_TIME))


def _find_grants(held: Holdings, text: str) -> list[Grant]:
    everything = [*held.tree.grants(), *held.tree.void]
    is_long = len(text) >= CID_FRAGMENT
    by_id = [one for one in everything if is_long and one.cid.endswith(text)]
    try:
        node = find_node(held, text)
    except Rejected as problem:
        if len(by_id) == 1:
            return by_id
        if by_id or problem.reason != "no_node":
            raise
        raise Rejected(
            f"{text!r} is neither a grant nor a node with a grant",
            reason="no_grant",
            hint="'antiphon who' lists both",
        ) from problem
    if by_id:
        raise Rejected(
            f"{text!r} matches both a grant's id and a node's", reason="ambiguous", hint="type more"
        )
    live = held.tree.live_to(node)
    mine = [one for one in live if held.me in {held.owner, one.issuer}]
    if not mine:
        holds = "has no grants now" if not live else "has no grants from this key"
        raise Rejected(f"{held.called(node)} {holds}", reason="no_grant", hint="antiphon who --all")
    return mine


def _check_revocable(held: Holdings, control: Control, one: Grant) -> None:
    grants, name = control.grants, one.cid[-8:]
    revokers = grants.revoked((one.cid,), before=_ANY_TIME).get(one.cid, ())
    if {held.owner, one.issuer} & set(revokers):
        raise Rejected(f"{name} is already revoked", reason="already")
    if one.until_s is not None and one.until_s < held.now_s:
        raise Rejected(f"{name} has already expired", reason="already")
    if held.me != held.owner and not grants.is_above(held.me, one.cid, before=_ANY_TIME):
        raise Rejected(
            f"{name} can be revoked by {held.called(one.issuer)}, who issued it, and by those"
            f" above: not by {short_node(held.me)}",
            reason="no_chain",
        )


async def _jobs_under(connection: Connection, cids: set[str]) -> list[Job]:
    """Held jobs whose claim named one of these, if a replica is at hand."""
    if connection.memory is not None:
        async with connection.replica() as replica:
            return _held_under(replica, cids)
    path = connection.home.replica
    if not path.is_file():
        return []
    try:
        replica = Replica(path, mesh=connection.session.mesh, read_only=True)
    except (sqlite3.Error, AntiphonError):
        return []
    try:
        return _held_under(replica, cids)
    finally:
        replica.close()


def _held_under(replica: Replica, cids: set[str]) -> list[Job]:
    # Every job that has not ended has a due time, and held jobs are due first.
    live = replica.ask(ReplicaJobs).overdue(_ANY_TIME - 1, limit=JOBS_LOOKED_AT)
    return [job for job in live if job.state in HELD and not cids.isdisjoint(job.auth)]


__all__ = [
    "MEANINGS",
    "NOTICE_MS",
    "SELECTIONS",
    "Changed",
    "Grant",
    "Granted",
    "Holder",
    "Holdings",
    "Revoked",
    "RulesChanged",
    "State",
    "Terms",
    "acts_through",
    "find_node",
    "grant",
    "in_words",
    "may_claim",
    "revocable",
    "revoke",
    "right_words",
    "rights_in_words",
    "rights_of",
    "rule_values",
    "stuck_route",
    "stuck_routes",
]
