"""Whether the delegations that an op names allow its author to write it (spec §6).

They must be on the log before the op, lead from the owner to its author, cover its command, allow
its body, be valid at the author's time *and* at the commit time (otherwise the holder of an expired
delegation could backdate its ops), and not be revoked by then. The reducer decides who needs no
chain.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import fields

from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import ChainVerdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.record.op import Op

_REASONS: Final = {
    ChainVerdict.NO_CHAIN: Verdict.NO_CHAIN,
    ChainVerdict.MALFORMED: Verdict.NO_CHAIN,
    ChainVerdict.BAD_SIGNATURE: Verdict.NO_CHAIN,
    ChainVerdict.MISALIGNED: Verdict.NO_CHAIN,
    ChainVerdict.REVOKED: Verdict.REVOKED,
    ChainVerdict.NOT_YET: Verdict.CHAIN_EXPIRED,
    ChainVerdict.EXPIRED: Verdict.CHAIN_EXPIRED,
    ChainVerdict.COMMAND: Verdict.COMMAND,
    ChainVerdict.POLICY: Verdict.POLICY,
}


def fault(control: Control, op: Op, *, seq: int, commit_ms: int) -> Verdict | None:
    """Why the chain that an op names does not allow its author to write it here, or None."""
    if not op.auth or not op.COMMAND:
        return Verdict.NO_CHAIN
    grants = control.grants
    chain = grants.chain(control.owner, op.auth, before=seq)
    if chain is None:
        return Verdict.NO_CHAIN
    outcome = chain.judge(
        op.author,
        op.command_of(op.body),
        arguments_of(op.body, chain.reads),
        (op.hlc[0] // 1000, commit_ms // 1000),
        grants.revoked(op.auth, before=seq),
    )
    return None if outcome.ok else _REASONS[outcome.verdict]


def leads_to_author(control: Control, op: Op, *, seq: int, commit_ms: int) -> bool:
    """Whether the chain that an op names leads to its author and holds, whatever it permits."""
    return fault(control, op, seq=seq, commit_ms=commit_ms) in {
        None,
        Verdict.COMMAND,
        Verdict.POLICY,
    }


def arguments_of(body: Struct, only: Collection[str] | None = None) -> dict[str, Any]:
    """The arguments that policies are checked against: the op's body, defaults included.

    A record leaves defaults out, but a policy may be about one. `only` is what the policies
    depend on: a body may name a thousand jobs that none of them is about.
    """
    return {
        written: _plain(value)
        for name, written in _fields(type(body))
        if (only is None or written in only) and (value := getattr(body, name)) is not UNSET
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return arguments_of(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return to_builtins(value)


@lru_cache(maxsize=64)
def _fields(type_: type[Struct]) -> tuple[tuple[str, str], ...]:
    """The fields of a body, and the name of each in JSON."""
    return tuple((field.name, field.encode_name) for field in fields(type_))


def stands_for(control: Control, op: Op, seq: int, node: str) -> bool:
    """Whether an op is `node`'s: by its own key, or by a key that it delegates everything to.

    A machine's key signs only delegations. Its ops are signed by its processes, which have its
    permissions by powerlines.
    """
    if op.author == node:
        return True
    chain = control.grants.chain(control.owner, op.auth, before=seq) if op.auth else None
    if chain is None or chain.fault is not None:
        return False
    for link in reversed(chain.links):
        if link.payload.subject is not None:
            return False
        if link.payload.iss == node:
            return True
    return False


def path_to_author(control: Control, op: Op, seq: int, node: str) -> tuple[str, ...]:
    """The keys from `node` down to the author of this op; empty if `node` is not in its chain.

    A node that delegates a permission can delegate it to keys it made itself, and nobody can
    tell those from another node's. So an op counts for every issuer in its chain too.
    """
    if op.author == node:
        return (node,)
    chain = control.grants.chain(control.owner, op.auth, before=seq) if op.auth else None
    issuers = [link.payload.iss for link in chain.links] if chain is not None else []
    return (*issuers[issuers.index(node) :], op.author) if node in issuers else ()


def has_lost_authority(
    control: Control, who: str, auth: tuple[str, ...], *, since: int, seq: int
) -> bool:
    """Whether the authority for what `who` began or renewed at `since` has ended before `seq`.

    It ends with evidence against its holder, and with a revocation in its chain.
    """
    if control.rules.authority == "open" and not control.quarantines:
        return False
    shown = control.quarantine_of(who)
    if shown is not None and shown.shown_seq > since:
        return True
    if control.rules.authority == "open":
        return False
    return is_revoked_since(control, who, auth, since=since, seq=seq)


def is_revoked_since(
    control: Control, who: str, auth: tuple[str, ...], *, since: int, seq: int
) -> bool:
    """Whether the chain that an op named at `since` has been revoked, or its root replaced."""
    if not auth:
        return who != control.owner  # another owner's op, or one of an open mesh
    chain = control.grants.chain(control.owner, auth, before=seq)
    if chain is None or chain.fault is not None:
        return True
    revoked = control.grants.revoked(auth, before=seq, after=since)
    return any(chain.may_revoke(did, cid) for cid, by in revoked.items() for did in by)
