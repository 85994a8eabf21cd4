"""The floods of `--over http` reach what they are meant for: the member's right opens it.

An attack that is refused at the door everywhere shows nothing about what is behind it.
"""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from antiphon.interfaces.http.application import NodeRoutes, make_application
from antiphon.interfaces.http.bounded_server import serving
from antiphon.sdk.http.access import open_to
from antiphon.settings import HttpAddress
from chaos.hostile.http.floods import FLOODS, HAS_WHOLE_MESH, Attacks, flood_of, floods_of
from chaos.hostile.http.member import prepare
from chaos.hostile.right_trial import RIGHTS
from chaos.hostile.rights import material
from chaos.hostile.rights.behaviours import BEHAVIOURS
from chaos.outsider.target import target_mesh

REACHED = {200, 201, 206, 409, 422}
"""Answers of a service, which has looked at what was asked, and not of the door."""
FOR_NOBODY = {"strangers", "one document", "connections"}
"""Floods that need no right."""
CLOSED = [("message", "inboxes")]
"""A node's inbox is its own key's: the right to send opens none of it."""
STEP_S = 1.0
"""Streams and waits last longer, and are known to be open by then."""


def test_every_right_has_floods_over_http_and_those_of_records_the_whole_mesh():
    for right in RIGHTS:
        assert set(FLOODS[right]) > FOR_NOBODY
        assert floods_of(right)[-1] == "everything"
        assert ("whole mesh" in floods_of(right)) == (right in HAS_WHOLE_MESH)
        assert set(flood_of(right, "everything").steps) == {
            step for one in FLOODS[right].values() for step in one.steps
        }
    assert set(HAS_WHOLE_MESH) <= set(BEHAVIOURS)


@pytest.mark.nats
@pytest.mark.long
async def test_what_a_right_opens_answers_its_floods(monkeypatch):
    monkeypatch.setattr(material, "RENEWALS", 20)
    monkeypatch.setattr(material, "LISTED", 4)
    found: dict[tuple[str, str], set[int]] = {}
    async with target_mesh(1) as target:
        given = await material.for_http(target.owner, target.owner.messages.address)
        async with open_to(target.owner, target.host.node, None) as shown:
            door = make_application(NodeRoutes(*shown))
            async with serving(door, HttpAddress("127.0.0.1", 0)) as port:
                for right in RIGHTS:
                    home = await target.join(f"only-{right}", can=right)
                    member = await prepare(home, given, every_kind=False)
                    member.port = port
                    await target.host.node.session.sync_control()
                    found |= {
                        (right, name): await statuses_of(member, right, name)
                        for name in {*FLOODS[right]} - FOR_NOBODY
                    }
        assert [one for one, statuses in found.items() if not statuses & REACHED] == CLOSED, found


async def statuses_of(member, right, name) -> set[int]:
    """What a flood is answered, each of its steps twice."""
    before = Counter(member.traffic.statuses)
    attacks, wire = Attacks(member), member.wire()
    for step in flood_of(right, name).steps * 2:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(STEP_S):
                await step(attacks, wire)
    wire.close()
    return set(member.traffic.statuses - before)
