"""Pages that are too short for all nodes and holds: one member's do not push out another's."""

import pytest
from msgspec.structs import replace

from antiphon import Mesh
from antiphon.core.presence.cards import Card
from antiphon.runtime.presence.live_nodes import LiveNode
from antiphon.sdk.dashboard import staves, views
from antiphon.sdk.dashboard.staves import staves_view
from antiphon.sdk.dashboard.views import nodes_view
from antiphon.sdk.presence.namespace import Presence
from antiphon.sdk.queries import namespace


def a_node(name: str) -> LiveNode:
    card = Card(node=f"did:key:z{name}", alias=name, role="worker", version="1", at_ms=1)
    return LiveNode(card=card, silent_ms=0, misses=0, level="alive")


@pytest.fixture
def crowd(monkeypatch):
    """Thirty keys of one member are online, and one of another."""
    online = [a_node(f"a{number}") for number in range(30)] + [a_node("friend")]
    dead = [replace(a_node(f"gone{number}"), level="dead") for number in range(9)]

    async def live_and_dead(*_args, **_how):
        return online, dead

    def party(_control, node):
        return node.rstrip("0123456789")

    monkeypatch.setattr(Presence, "live_and_dead", live_and_dead)
    for module in (namespace, views, staves):
        monkeypatch.setattr(module, "party_of_key", party)
    return {one.card.node for one in (*online, *dead)}


async def test_nodes_are_listed_in_turns_by_party_and_pages_go_on_to_the_last(crowd, monkeypatch):
    monkeypatch.setattr(views, "NODES_LISTED", 4)
    async with Mesh.open(engine="memory") as mesh:
        page = await mesh.queries.nodes(limit=3)
        assert "friend" in {one.card.alias for one in page}
        assert [one.card.node for one in page] == sorted(one.card.node for one in page)
        found = [one.card.node for one in page]
        while page.next:
            page = await mesh.queries.nodes(limit=3, after=page.next)
            found += [one.card.node for one in page]
        assert (set(found), len(found)) == (crowd, len(crowd))
        view = await nodes_view(mesh)
        assert "friend" in {one.card.alias for one in view.listed}
        assert (len(view.nodes), len(view.dead), view.silent) == (31, 4, 0), "dead is not online"


async def test_staves_have_workers_and_holds_of_every_party(crowd, monkeypatch):
    monkeypatch.setattr(staves, "HOLDS", 4)
    monkeypatch.setattr(staves, "WORKERS", 4)
    mesh = Mesh.open(engine="memory")

    @mesh.task("work.add")
    async def add(number: int) -> int:
        return number

    async with mesh:
        workers = []
        for jobs in (1, 9):
            async with mesh.worker() as worker:
                workers.append(worker.did)
                for number in range(jobs):
                    await (await add.submit(number)).result()
        view = await staves_view(mesh)
        assert set(view.workers) == {*workers, "did:key:zfriend", "did:key:za0"}
        assert [one.worker for one in view.holds] == [workers[0], *[workers[1]] * 3]
