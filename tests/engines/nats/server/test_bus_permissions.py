"""What members, tickets, refresh keys and the gate may do on the bus, written out by hand."""

import pytest

from antiphon.core.authority.scope import EVERYTHING, NOTHING
from antiphon.engines.nats import UserKey
from antiphon.engines.nats.server.permissions import (
    Permissions,
    of_ear,
    of_member,
    of_refresh_key,
    of_ticket,
)
from tests.job_scopes import BRANCHES, job_scope

USER = UserKey.new().public
OWN = f"apb.m.inbox.{USER}.>"
HEARTBEAT = f"apb.m.heartbeat.{USER}"


def on_bus(granted: Permissions) -> tuple[list[str], list[str], list[str]]:
    lists = (granted.publish, granted.subscribe, granted.unheard)
    publish, subscribe, unheard = (sorted(x for x in one if x.startswith("apb.")) for one in lists)
    return publish, subscribe, unheard


@pytest.mark.parametrize(
    "scope, publish, subscribe, unheard",
    [
        (
            NOTHING,
            [HEARTBEAT, "apb.m.inbox.>"],
            [
                "apb.m.address",
                "apb.m.beat",
                "apb.m.heartbeat.>",
                OWN,
                "apb.m.meshstatus",
                "apb.m.messagegate",
                "apb.m.roll",
                "apb.m.roots",
            ],
            [],
        ),
        (
            EVERYTHING,
            [
                "apb.m.attention",
                "apb.m.await.>",
                "apb.m.bar",
                "apb.m.beat",
                HEARTBEAT,
                "apb.m.inbox.>",
                "apb.m.live.>",
                "apb.m.meshstatus",
                "apb.m.promise.>",
                "apb.m.status.>",
                "apb.m.work.>",
            ],
            [
                "apb.m.address",
                "apb.m.attention",
                "apb.m.await.>",
                "apb.m.bar",
                "apb.m.beat",
                "apb.m.heartbeat.>",
                OWN,
                "apb.m.live.>",
                "apb.m.meshstatus",
                "apb.m.messagegate",
                "apb.m.promise.>",
                "apb.m.roll",
                "apb.m.roots",
                "apb.m.status.>",
                "apb.m.work.>",
            ],
            [],
        ),
        (
            job_scope(reads=("render.video",)),
            [HEARTBEAT, "apb.m.inbox.>"],
            [
                "apb.m.address",
                "apb.m.beat",
                "apb.m.heartbeat.>",
                OWN,
                "apb.m.live.render.video.*",
                "apb.m.meshstatus",
                "apb.m.messagegate",
                "apb.m.promise.render.video.*",
                "apb.m.roll",
                "apb.m.roots",
                "apb.m.status.render.video",
            ],
            [
                "apb.m.live.render.video.*.>",
                "apb.m.promise.render.video.*.>",
                "apb.m.status.render.video.>",
            ],
        ),
        (
            job_scope(reads=("a", "a.b", "c.>"), works=("c.d", "e.>"), calls=("c.d",)),
            [
                HEARTBEAT,
                "apb.m.inbox.>",
                "apb.m.live.c.d.*",
                "apb.m.live.e.*.>",
                "apb.m.promise.c.d.*",
                "apb.m.promise.e.*.>",
                "apb.m.status.c.d",
                "apb.m.status.e.>",
                "apb.m.work.c.d",
                "apb.m.work.e.>",
            ],
            [
                "apb.m.address",
                "apb.m.beat",
                "apb.m.heartbeat.>",
                OWN,
                "apb.m.live.a.b.*",
                "apb.m.live.c.*.>",
                "apb.m.meshstatus",
                "apb.m.messagegate",
                "apb.m.promise.a.b.*",
                "apb.m.promise.c.*.>",
                "apb.m.roll",
                "apb.m.roots",
                "apb.m.status.a.b",
                "apb.m.status.c.>",
                "apb.m.work.c.d",
                "apb.m.work.e.>",
            ],
            ["apb.m.live.a.b.*.>", "apb.m.promise.a.b.*.>", "apb.m.status.a.b.>"],
        ),
    ],
)
def test_what_a_member_may_follows_from_its_scope(scope, publish, subscribe, unheard):
    granted = of_member("m", USER, scope, [], BRANCHES)
    assert on_bus(granted) == (publish, subscribe, unheard)
    assert len(set(granted.publish)) == len(granted.publish)
    assert len(set(granted.subscribe)) == len(granted.subscribe)


@pytest.mark.parametrize(
    "granted, publish, subscribe",
    [
        (of_ticket("m", USER), [f"apb.m.gate.{USER}.join"], [OWN]),
        (of_refresh_key("m", USER), [f"apb.m.gate.{USER}.login"], [OWN]),
        (
            of_ear("m", USER),
            ["apb.m.address", "apb.m.inbox.>", "apb.m.messagegate"],
            ["apb.m.gate.>", OWN],
        ),
    ],
)
def test_what_everybody_else_may(granted, publish, subscribe):
    assert on_bus(granted) == (publish, subscribe, [])
