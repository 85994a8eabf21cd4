"""Nothing about one item ends a node: it is set aside with its reason, and the rest goes on."""

import asyncio
from itertools import pairwise

import pytest

from antiphon.errors import Corrupt, EngineDenied, Rejected, Unavailable
from antiphon.runtime.attention.attention_table import KEPT
from antiphon.runtime.attention.item_guard import MOST_OF_ONE, ItemGuard, keep_running
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from tests.runtime.meshes import a_mesh, call, eventually

pytestmark = pytest.mark.virtual_time
WHOSE = "did:key:zAda"


def guard_of(node, name="offers"):
    return ItemGuard[str](name, node.session, node.replica.attention)


def told(node):
    return [(one.service, one.item, one.reason) for one in node.replica.attention.newest(limit=9)]


async def test_what_goes_wrong_with_an_item_is_kept_with_its_reason_until_it_is_dealt_with():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False)
        guard = guard_of(node)
        with guard.about("a", whose=WHOSE):
            raise Rejected("it is too large")
        with guard.about("b"):
            raise KeyError("b")
        assert guard.rests("a")
        assert sorted(told(node)) == [
            ("offers", "a", "it is too large"),
            ("offers", "b", "KeyError: 'b' (a bug: the node's log has its traceback)"),
        ]
        with guard.about("a", whose=WHOSE):
            raise Rejected("it is too large")
        by_item = {one.item: one for one in node.replica.attention.newest(limit=9)}
        assert (by_item["a"].tries, by_item["a"].whose) == (2, WHOSE)
        guard.drop("a")
        assert not guard.rests("a")
        assert [item for _, item, _ in told(node)] == ["b"]
        guard_of(node).begin()
        assert told(node) == []


@pytest.mark.parametrize("error", [Unavailable("away"), EngineDenied("no"), Corrupt("replaced")])
async def test_what_is_not_the_items_fault_passes(error):
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False)
        guard = guard_of(node)
        with pytest.raises(type(error)), guard.about("a"):
            raise error
        assert told(node) == []


async def test_so_many_items_are_kept_and_no_more():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False)
        guard = guard_of(node)
        for at in range(KEPT + 10):
            guard.put(f"{at}", "no")
            await asyncio.sleep(0.01)
        kept = node.replica.attention.newest(limit=2 * KEPT)
        assert len(kept) == KEPT
        assert kept[0].item == f"{KEPT + 9}"


async def test_what_is_wrong_with_one_member_s_items_does_not_hide_what_is_wrong_with_others():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False)
        guard = guard_of(node)
        guard.put("another's", "no", whose="did:key:zBob")
        for at in range(2 * KEPT):
            guard.put(f"{at}", "no", whose=WHOSE)
            await asyncio.sleep(0.001)
        kept = node.replica.attention.newest(limit=2 * KEPT)
        assert kept[-1].item == "another's"
        assert len(kept) == 1 + MOST_OF_ONE
        assert guard.rests(f"{2 * KEPT - 1}"), "those that are not listed rest like others"
        guard.drop("0")
        guard.put("once more", "no", whose=WHOSE)
        assert "once more" in [one.item for one in node.replica.attention.newest(limit=2)]


async def test_a_service_that_fails_is_started_again_after_growing_pauses():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False)
        loop, began_s = asyncio.get_running_loop(), []

        async def serve():
            began_s.append(loop.time())
            if len(began_s) < 4:
                raise ZeroDivisionError("a bug")

        await keep_running(guard_of(node, "reports"), serve)
        pauses = [later - before for before, later in pairwise(began_s)]
        assert pauses == sorted(pauses)
        assert pauses[0] >= 1
        reason = "ZeroDivisionError: a bug (a bug: the node's log has its traceback)"
        assert told(node) == [("reports", "", reason)]


async def test_a_refused_login_and_a_replaced_log_end_a_service():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False)

        async def serve():
            raise Corrupt("the log was replaced")

        with pytest.raises(Corrupt):
            await keep_running(guard_of(node), serve)


async def test_a_watcher_that_fails_on_a_record_does_not_end_its_node():
    async with a_mesh("memory") as mesh:
        connection = await mesh.connection()
        node = await mesh.node()
        seen = []

        def watch(applied):
            seen.append(applied.record.seq)
            raise ValueError("cannot read this")

        node.watchers.insert(0, watch)
        first = await call(connection.session, 1)
        second = await call(connection.session, 2)
        await node.reached(second.seq)
        assert {first.seq, second.seq} <= set(seen)
        assert node.replica.ask(ReplicaJobs).job("test.work", second.id) is not None
        await eventually(lambda: told(node))
        assert {service for service, _, _ in told(node)} == {"records"}
        assert any(item.endswith(f" {first.seq}") for _, item, _ in told(node))
