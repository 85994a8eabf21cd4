"""What a scope means in subjects: the second wall's own table (docs/decisions/0010).

A member may publish what its kinds need, read the newest record of the subjects it may read, pull
from the queues that were made for it, and ask the gate for the rest. It publishes no control ops:
delegations, revocations and evidence go through the gate (`letters`), and so do roll calls
(`roll_gate`). A member reaches no stream, makes no consumer, and asks no question whose body the
server would obey without looking at permissions.

Refuses nothing by itself: the server does. Lists are never empty, which a server takes to mean
everything. To a server the wildcard in a subscription, or at the end of a read, is an ordinary
token while it looks at permissions: whoever may ask for `render.video.*` may ask for
`render.video.>`. So a kind that is named exactly needs care, below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from antiphon.core import subjects
from antiphon.core.scope import EVERY_KIND, Scope
from antiphon.engines.nats.keypairs import check_user
from antiphon.engines.nats.streams import log_name
from antiphon.errors import Malformed

_QUEUE = re.compile(r"[A-Za-z0-9_=-]+", re.ASCII)


class Permissions(Struct, frozen=True):
    """The subjects, with wildcards, that a user may publish on and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    unheard: tuple[str, ...] = ()
    """What it does not hear of that, whatever wildcards it subscribes with."""
    hears_many: bool = False
    """Whether it has as many subscriptions as there are members."""


def of_member(mesh: str, user: str, scope: Scope, queues: Sequence[str]) -> Permissions:
    """A member with a scope, who may pull from the queues named."""
    check_user(user)
    log = subjects.root(mesh)
    stream = log_name(mesh)
    publish = [
        *_each(log, ("job",), scope.works),
        *_each(log, ("call.*", "wait"), scope.calls),
        f"$JS.API.DIRECT.GET.{stream}.{subjects.control(mesh, 'genesis')}",
    ]
    for queue in queues:
        if _QUEUE.fullmatch(queue) is None:
            raise Malformed(f"{queue!r} is not the name of a queue", reason="queue")
        publish.append(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{queue}")
        publish.append(f"$JS.ACK.{stream}.{queue}.>")
    publish.append(f"apg.{mesh}.{user}.>")
    publish += [f"apb.{mesh}.inbox.>", *_company(mesh, scope)]
    publish += _each(f"apb.{mesh}", ("live",), scope.works)
    live = f"apr.{mesh}"
    audible, bounded = _audible(scope.reads)
    subscribe = [
        *_own(mesh, user),
        f"{live}.ctl.>",
        f"{live}.seal",
        *_each(live, ("job", "wait", "call.*"), audible),
        f"apb.{mesh}.roll",
        *_each(f"apb.{mesh}", ("live",), audible),
        *_company(mesh, scope),
    ]
    further = [f"{kind}.>" for kind in bounded]
    unheard = _each(live, ("job", "wait", "call.*"), further)
    unheard += _each(f"apb.{mesh}", ("live",), further)
    return Permissions(tuple(publish), tuple(subscribe), tuple(unheard))


def _audible(reads: Sequence[str]) -> tuple[list[str], list[str]]:
    """The filters that may be heard live, and the kinds below which nothing may be.

    What is denied below a kind would be denied to a filter there, too. So a kind that is named
    exactly beside a part of what lies below it is not heard live; the gate still shows it.
    """
    audible: list[str] = []
    bounded: list[str] = []
    for one in reads:
        if one.endswith(EVERY_KIND) or f"{one}.>" in reads:
            audible.append(one)
        elif not any(other.startswith(f"{one}.") for other in reads):
            audible.append(one)
            bounded.append(one)
    return audible, bounded


def of_ear(mesh: str, user: str) -> Permissions:
    """The gate's own: hears members where they are, and answers those who ask for a login."""
    heard = (f"apg.{mesh}.>", f"apb.{mesh}.gate.>")
    own = _own(mesh, check_user(user))
    return Permissions((f"apb.{mesh}.inbox.>",), (*own, *heard), hears_many=True)


def of_ticket(mesh: str, user: str) -> Permissions:
    """Whoever holds a ticket may ask the gate to join, and hear its answer."""
    check_user(user)
    return Permissions((f"apb.{mesh}.gate.{user}.join",), _own(mesh, user))


def of_door(mesh: str, user: str) -> Permissions:
    """A member's door key may ask the gate for a login: as little as a ticket may."""
    check_user(user)
    return Permissions((f"apb.{mesh}.gate.{user}.login",), _own(mesh, user))


def below(kind_filter: str) -> str:
    """What follows `job.` and the like for the kinds of a filter: the job's id comes last.

    `render.>` means the kinds below `render`, so at least one token of a kind and the id.
    """
    if kind_filter == EVERY_KIND:
        return kind_filter
    if kind_filter.endswith(".>"):
        return f"{kind_filter[:-1]}*.>"
    return f"{kind_filter}.*"


def _each(root: str, branches: Iterable[str], kind_filters: Iterable[str]) -> list[str]:
    filters = [below(one) for one in kind_filters]
    return [f"{root}.{branch}.{kinds}" for branch in branches for kinds in filters]


def _company(mesh: str, scope: Scope) -> list[str]:
    """Where those talk who work on its kinds, and those who look after them."""
    if not scope.works:
        return []
    return [f"apb.{mesh}.care", *(f"apb.{mesh}.work.{kinds}" for kinds in scope.works)]


def _own(mesh: str, user: str) -> tuple[str, ...]:
    """Where answers to this user arrive, and nobody else listens."""
    return (f"_I.{user}.>", f"apb.{mesh}.inbox.{user}.>")
