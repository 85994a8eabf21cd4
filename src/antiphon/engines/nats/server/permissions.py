"""Server permissions: the NATS subjects that a scope admits (docs/decisions/0010).

A member may publish what its kinds need, read the newest record of the subjects it may read, pull
from the queues that were made for it, and ask the gate for the rest. It publishes no control ops:
delegations, revocations and evidence go through the gate (`relay_protocol`), and so do roll calls
(`roll_call_service`). A member cannot access a stream, make a consumer, or send a request whose
body the server would obey without checking permissions.

Refuses nothing by itself: the server does. Lists are never empty, which a server takes to mean
everything. What a scope admits of the log is the core's to say (`core.authority.subject_rights`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from antiphon.core.authority.scope import EVERY_KIND, Scope
from antiphon.core.authority.subject_rights import below, hearing, rights_on
from antiphon.core.bus import subjects as bus_subjects
from antiphon.core.bus.subjects import BUS, HELD_FOR, BusSubject, Party
from antiphon.core.record import subjects
from antiphon.core.record.branches import Branch
from antiphon.engines.nats.credentials.keypairs import check_user
from antiphon.engines.nats.log.streams import log_name
from antiphon.errors import Malformed

_QUEUE = re.compile(r"[A-Za-z0-9_=-]+", re.ASCII)


class Permissions(Struct, frozen=True):
    """The subjects, with wildcards, that a user may publish on and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    unheard: tuple[str, ...] = ()
    """What it does not receive of that, whatever wildcards it subscribes with."""
    hears_many: bool = False
    """Whether it has as many subscriptions as there are members."""


def of_member(
    mesh: str, user: str, scope: Scope, queues: Sequence[str], branches: Sequence[Branch]
) -> Permissions:
    """A member with a scope on a log with these branches, who may pull from the queues named."""
    check_user(user)
    rights = rights_on(branches, scope)
    stream = log_name(mesh)
    publish = [
        *_under(subjects.root(mesh), rights.written),
        f"$JS.API.DIRECT.GET.{stream}.{subjects.control(mesh, 'genesis')}",
    ]
    for queue in queues:
        if _QUEUE.fullmatch(queue) is None:
            raise Malformed(f"{queue!r} is not the name of a queue", reason="queue")
        publish.append(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{queue}")
        publish.append(f"$JS.ACK.{stream}.{queue}.>")
    publish.append(f"apg.{mesh}.{user}.>")
    live = f"apr.{mesh}"
    kinds = {party: scope.of(*commands) for party, commands in HELD_FOR.items()}
    audible, bounded = hearing(kinds[Party.READERS])
    said, heard = _bus(
        mesh,
        user,
        {Party.USER: (), Party.SELF: (), Party.MEMBERS: (), **kinds, Party.READERS: audible},
    )
    further = {Party.READERS: [f"{kind}.>" for kind in bounded]}
    unheard = (*_under(live, rights.unheard), *_bus(mesh, user, further)[1])
    subscribe = (f"_I.{user}.>", *_under(live, rights.heard), *heard)
    return Permissions((*publish, *said), subscribe, unheard)


def of_ear(mesh: str, user: str) -> Permissions:
    """The gate's own: listens to members in their account, and answers requests for a login."""
    publish, subscribe = _of_one(mesh, user, Party.GATE)
    return Permissions(publish, (*subscribe, f"apg.{mesh}.>"), hears_many=True)


def of_ticket(mesh: str, user: str) -> Permissions:
    """A ticket's holder may ask the gate to join, and receive its answer."""
    return Permissions(*_of_one(mesh, user, Party.TICKET))


def of_refresh_key(mesh: str, user: str) -> Permissions:
    """The login that can only ask the gate for a new login: as little as a ticket may."""
    return Permissions(*_of_one(mesh, user, Party.REFRESH_KEY))


def _under(root: str, filters: Iterable[str]) -> list[str]:
    return [f"{root}.{one}" for one in filters]


def _of_one(mesh: str, user: str, party: Party) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a client that is not a member may publish and receive."""
    said, heard = _bus(mesh, check_user(user), {Party.USER: (), party: ()})
    return tuple(said), (f"_I.{user}.>", *heard)


def _bus(
    mesh: str, user: str, parties: Mapping[Party, Sequence[str]]
) -> tuple[list[str], list[str]]:
    """What nodes with these roles may publish and receive on the bus, each for these kinds."""

    def admitted(subject: BusSubject, among: tuple[Party, ...]) -> list[str]:
        held = (party for party in among if party in parties)
        return [one for party in held for one in _filters(subject, party, user, parties[party])]

    said = [one for each in BUS if not each.via_gate for one in admitted(each, each.publishers)]
    heard = [one for each in BUS for one in admitted(each, each.listeners)]
    root = f"{bus_subjects.ROOT}.{mesh}"
    return [f"{root}.{one}" for one in said], [f"{root}.{one}" for one in dict.fromkeys(heard)]


def _filters(subject: BusSubject, party: Party, user: str, kinds: Sequence[str]) -> list[str]:
    """As much of a subject as a party to it is concerned with."""
    pattern = subject.pattern
    match party:
        case Party.READERS | Party.WORKERS | Party.LOCKERS if "{kind}" in pattern:
            named = pattern.replace("{kind}.{job}", "{jobs}").replace("{kind}.{thread}", "{jobs}")
            return [named.format(kind=one, jobs=below(one)) for one in kinds]
        case Party.READERS | Party.WORKERS:
            return [pattern] if kinds else []
        case Party.TEMPO:
            return [pattern] if EVERY_KIND in kinds else []
        case Party.MEMBERS | Party.GATE:
            head, is_cut, _ = pattern.partition("{")
            return [f"{head}>" if is_cut else pattern]
        case _:
            return [subject.at(user=user, place=">")]
