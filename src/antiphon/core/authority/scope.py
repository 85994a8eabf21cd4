"""Scopes: which commands a node has for which kinds, as far as server permissions can express it.

Server permissions are about subjects, and a kind is the part of a subject that a delegation can
restrict. So only what a policy says about `.kind` counts here. The log's rules judge the rest; a
condition on `.kind` that subjects cannot express admits nothing. Only commands that allow reading
or writing a branch of the log count; `subject_rights` turns them into subjects.

A *kind filter* is `>` (every kind), `render.>` (every kind below `render`) or a kind itself.

Anyone may delegate to anyone. So delegations by others than the owner count only for kinds that the
node asked for, and only if they add something: nobody can narrow, shorten or bloat another node's
scope by lending (delegating) to it or by revoking that.

`/tempo` opens no branch of the log, only subjects of the bus, and `/message/send` only the
gate's message service; both count here like the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.core.authority.chain_choice import chains_to
from antiphon.core.authority.job_rights import SEND_BY, TEMPO_BY
from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.record import subjects
from antiphon.core.ucan import TOP, Chain, Selector, covers
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antiphon.core.authority.control import Control
    from antiphon.core.record.branches import Branch
    from antiphon.core.ucan import Delegation

EVERY_KIND: Final = ">"
MAX_FILTERS: Final = 64
"""A delegation with more kind filters than this admits none here: a login could not list them.
The same limit applies to all filters from others than the owner."""
REMEMBERED: Final = 8192
REMEMBERED_BYTES: Final = 4 * 1024 * 1024
"""Limits of the cache of kinds by delegation: number, and bytes of their names."""
_NO_END: Final = 2**63


class Scope(Struct, frozen=True, kw_only=True):
    """Kind filters by the command that was delegated for them."""

    by_command: dict[str, tuple[str, ...]] = {}
    """No value is empty."""
    until_s: int | None = None
    """When the first of its grants ends and it must be requested again."""

    def __hash__(self) -> int:
        return hash((frozenset(self.by_command.items()), self.until_s))

    def of(self, *commands: str) -> tuple[str, ...]:
        """The kinds for which it has at least one of these commands."""
        held = self.by_command.items()
        return fewest(
            kind for command, kinds in held if _serves(command, commands) for kind in kinds
        )

    def admits(self, kind: str, *commands: str) -> bool:
        """Whether it has one of these commands for a kind."""
        return any(admits(one, kind) for one in self.of(*commands))


EVERYTHING: Final = Scope(by_command={TOP: (EVERY_KIND,)})
NOTHING: Final = Scope()


def admits(kind_filter: str, kind: str) -> bool:
    """Whether a kind filter covers a kind."""
    if kind_filter == EVERY_KIND:
        return True
    if kind_filter.endswith(".>"):
        return kind.startswith(kind_filter[:-1])
    return kind == kind_filter


def narrower(scope: Scope, than: Scope, branches: Iterable[Branch]) -> bool:
    """Whether `than` admits anything on these branches that `scope` does not."""
    return any(beyond(than.of(*one), scope.of(*one)) for one in _uses(branches))


def filter_of(glob: str) -> str | None:
    """The kind filter that equals a `like` pattern; None if there is none."""
    if glob == "*":
        return EVERY_KIND
    if glob.endswith(".*") and subjects.is_kind(glob[:-2]):
        return glob[:-1] + ">"
    return glob if subjects.is_kind(glob) else None


def scope_of(
    control: Control,
    branches: Iterable[Branch],
    did: str,
    now_s: int,
    asked: tuple[str, ...] = (),
) -> Scope:
    """The current scope of a node on these branches.

    `asked` are the kinds that it asked for.
    """
    if control.is_quarantined(did):
        return NOTHING
    if control.rules.authority == "open" or did == control.owner:
        return EVERYTHING
    gathered, lent = _Gathered(_uses(branches)), list[Chain]()
    for chain in chains_to(control.grants, control.owner, did, before=_NO_END):
        if has_ended(control, chain, now_s):
            continue
        is_lent = len(chain.links) > 1
        if chain.not_before is not None and chain.not_before > now_s:
            if not is_lent:
                gathered.changes.append(chain.not_before)
        elif is_lent:
            lent.append(chain)
        else:
            gathered.take(chain, kinds_of_chain(chain))
    if gathered.is_empty:
        gathered.take_first_lenders(lent)
    if asked:
        for chain in sorted(lent, key=_end, reverse=True):
            gathered.take_lent(chain, meet((kinds_of_chain(chain), asked)))
    return gathered.scope()


def may_keep_time(control: Control, did: str, now_s: int) -> bool:
    """Whether a node may send beats and reports now: it holds `/tempo`, for whatever kind."""
    if control.is_quarantined(did):
        return False
    if control.rules.authority == "open" or did == control.owner:
        return True
    return any(
        _serves(chain.command, TEMPO_BY)
        and EVERY_KIND in kinds_of_chain(chain)
        and not (chain.not_before is not None and chain.not_before > now_s)
        and not has_ended(control, chain, now_s)
        for chain in chains_to(control.grants, control.owner, did, before=_NO_END)
    )


class _Gathered:
    """A scope that is being built."""

    def __init__(self, uses: Iterable[tuple[str, ...]]) -> None:
        self._by_command: dict[str, list[str]] = {}
        self._by_use: dict[tuple[str, ...], list[str]] = {use: [] for use in uses}
        self.changes: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not any(self._by_use.values())

    def take(self, chain: Chain, kinds: tuple[str, ...]) -> None:
        """Add what a chain admits, until it ends."""
        served = [held for use, held in self._by_use.items() if _serves(chain.command, use)]
        for held in served:
            held.extend(kinds)
        if served and kinds:
            self._by_command.setdefault(chain.command, []).extend(kinds)
        if chain.expires is not None:
            self.changes.append(chain.expires)

    def take_lent(self, chain: Chain, kinds: tuple[str, ...]) -> None:
        """The same, if it adds anything and stays within the limit."""
        adds = any(
            _serves(chain.command, use) and beyond(kinds, held)
            for use, held in self._by_use.items()
        )
        most = max(map(len, self._by_use.values()), default=0)
        if adds and most + len(kinds) <= MAX_FILTERS:
            self.take(chain, kinds)

    def take_first_lenders(self, lent: list[Chain]) -> None:
        """Add what the first lender gives, so that the node does not end up without any scope."""
        lending = [chain for chain in lent if kinds_of_chain(chain)]
        for chain in sorted(lending, key=_end, reverse=True):
            if _lender(chain) == _lender(lending[0]):
                self.take_lent(chain, kinds_of_chain(chain))

    def scope(self) -> Scope:
        """The scope so far."""
        return Scope(
            by_command={one: fewest(kinds) for one, kinds in sorted(self._by_command.items())},
            until_s=min(self.changes, default=None),
        )


def _uses(branches: Iterable[Branch]) -> tuple[tuple[str, ...], ...]:
    """Lists of commands: any of a list allows something on a branch, the bus or messages."""
    uses = (use for branch in branches for use in (branch.read_by, branch.written_by) if use)
    return tuple(dict.fromkeys((*uses, TEMPO_BY, SEND_BY)))


def _serves(command: str, use: Iterable[str]) -> bool:
    return any(covers(command, one) for one in use)


def has_ended(control: Control, chain: Chain, now_s: int) -> bool:
    """Whether a link has been revoked by an entitled key, or has expired."""
    if chain.expires is not None and chain.expires < now_s:
        return True
    cids = tuple(link.cid for link in chain.links)
    revoked = control.grants.revoked(cids, before=_NO_END)
    return any(chain.may_revoke(by, cid) for cid, who in revoked.items() for by in who)


def _lender(chain: Chain) -> str:
    """The node to which the owner delegated what is lent."""
    return chain.links[0].payload.aud


def _end(chain: Chain) -> int:
    return _NO_END if chain.expires is None else chain.expires


_known_kinds: Final = BoundedCache[str, tuple[str, ...]](
    most=REMEMBERED, most_bytes=REMEMBERED_BYTES
)


def kinds_of_chain(chain: Chain) -> tuple[str, ...]:
    """The kinds that all links of a chain admit; cached per link."""
    return meet(map(_kinds_of_link, chain.links))


def _kinds_of_link(link: Delegation) -> tuple[str, ...]:
    known = _known_kinds.get(link.cid)
    if known is None:
        found = kinds_of(link.payload.pol.source)
        known = found if len(found) <= MAX_FILTERS else ()
        _known_kinds.put(link.cid, known, sum(map(len, known)))
    return known


def kinds_of(statements: list[Any]) -> tuple[str, ...]:
    """The kind filters that a policy admits: all of its statements must be true."""
    return meet(_kinds_of_one(one) for one in statements)


def _kinds_of_one(statement: Any) -> tuple[str, ...]:
    match statement:
        case ["and", list() as inner]:
            return kinds_of(inner)
        case ["or", list() as inner] if inner:
            return fewest(kind for one in inner for kind in _kinds_of_one(one))
        case ["==", ".kind", str() as kind]:
            return (kind,) if subjects.is_kind(kind) else ()
        case ["like", ".kind", str() as glob]:
            kind_filter = filter_of(glob)
            return () if kind_filter is None else (kind_filter,)
        case _:
            return () if _speaks_of_kind(statement) else (EVERY_KIND,)


def _speaks_of_kind(statement: Any) -> bool:
    """Whether a statement that subjects cannot express could be about the kind."""
    match statement:
        case [str(), str() as selector, _] if selector[:1] == ".":
            return _first_field(selector) in {None, "kind"}
        case ["not", [str(), str(), _] as inner]:
            return _speaks_of_kind(inner)
        case _:
            return True


def _first_field(selector: str) -> str | None:
    try:
        return Selector(selector).first_field
    except Malformed:
        return None


def meet(each: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The kinds that every one of these admits."""
    left: tuple[str, ...] = (EVERY_KIND,)
    for filters in each:
        here, there = set(left), set(filters)
        narrower_ones = [one for one in left if _is_covered(one, there)]
        narrower_ones += [one for one in filters if _is_covered(one, here)]
        left = fewest(narrower_ones)
    return left


def beyond(filters: Iterable[str], others: Iterable[str]) -> bool:
    """Whether any of these admits a kind that no single one of `others` covers."""
    known = set(others)
    return any(not _is_covered(one, known) for one in filters)


def fewest(filters: Iterable[str]) -> tuple[str, ...]:
    """The same kinds with as few filters as possible."""
    distinct = set(filters)
    return tuple(
        sorted(one for one in distinct if not any(above in distinct for above in _above(one)))
    )


def _is_covered(one: str, others: set[str]) -> bool:
    return one in others or any(above in others for above in _above(one))


def _above(one: str) -> Iterator[str]:
    """The wider filters that cover all of a filter: as many as it has dots."""
    if one == EVERY_KIND:
        return
    yield EVERY_KIND
    kind = one.removesuffix(".>")
    at = kind.find(".")
    while at >= 0:
        yield f"{kind[:at]}.>"
        at = kind.find(".", at + 1)
