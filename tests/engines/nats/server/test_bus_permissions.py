"""What members, tickets, doors and the gate may do on the bus, written out by hand."""

import pytest

from antiphon.core.authority.scope import EVERYTHING, NOTHING
from antiphon.engines.nats import UserKey
from antiphon.engines.nats.server.permissions import (
    Permissions,
    of_door,
    of_ear,
    of_member,
    of_ticket,
)
from tests.job_scopes import BRANCHES, job_scope

USER = UserKey.new().public
OWN = f"apb.m.inbox.{USER}.>"


def on_bus(granted: Permissions) -> tuple[list[str], list[str], list[str]]:
    lists = (granted.publish, granted.subscribe, granted.unheard)
    publish, subscribe, unheard = (sorted(x for x in one if x.startswith("apb.")) for one in lists)
    return publish, subscribe, unheard


@pytest.mark.parametrize(
    "scope, publish, subscribe, unheard",
    [
        (NOTHING, ["apb.m.inbox.>"], [OWN, "apb.m.roll"], []),
        (
            EVERYTHING,
            ["apb.m.care", "apb.m.inbox.>", "apb.m.live.>", "apb.m.work.>"],
            ["apb.m.care", OWN, "apb.m.live.>", "apb.m.roll", "apb.m.work.>"],
            [],
        ),
        (
            job_scope(reads=("render.video",)),
            ["apb.m.inbox.>"],
            [OWN, "apb.m.live.render.video.*", "apb.m.roll"],
            ["apb.m.live.render.video.*.>"],
        ),
        (
            job_scope(reads=("a", "a.b", "c.>"), works=("c.d", "e.>"), calls=("c.d",)),
            [
                "apb.m.care",
                "apb.m.inbox.>",
                "apb.m.live.c.d.*",
                "apb.m.live.e.*.>",
                "apb.m.work.c.d",
                "apb.m.work.e.>",
            ],
            [
                "apb.m.care",
                OWN,
                "apb.m.live.a.b.*",
                "apb.m.live.c.*.>",
                "apb.m.roll",
                "apb.m.work.c.d",
                "apb.m.work.e.>",
            ],
            ["apb.m.live.a.b.*.>"],
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
        (of_door("m", USER), [f"apb.m.gate.{USER}.login"], [OWN]),
        (of_ear("m", USER), ["apb.m.inbox.>"], ["apb.m.gate.>", OWN]),
    ],
)
def test_what_everybody_else_may(granted, publish, subscribe):
    assert on_bus(granted) == (publish, subscribe, [])
