"""Shared memory as programs use it, on the engine in memory (docs/do/memory.md)."""

import asyncio

import pytest

from antiphon import Mesh
from antiphon.errors import Conflict, Malformed, Misconfigured, Rejected
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.req("S13")


def opened() -> Mesh:
    return Mesh.open(engine="memory", agent="writer")


async def test_a_document_has_a_value_a_revision_and_a_writer():
    async with opened() as mesh:
        notes = mesh.memory["notes.team"]
        assert await notes.get("plan") is None
        result = await notes.put("plan", {"steps": [1, 2.5, None]})
        assert result.outcome == "written"
        found = await notes.get("plan")
        assert found == result.document
        assert found.value == {"steps": [1, 2.5, None]}
        assert (found.author, found.agent) == (mesh.did, "writer")
        assert found.revision > 0
        assert found.written_at.timestamp() * 1000 == pytest.approx(found.hlc[0])
        later = await notes.put("plan", 2, base=found)
        assert later.document.revision > found.revision
        assert later.document.hlc > found.hlc
        assert await mesh.memory["notes.other"].get("plan") is None


async def test_what_was_not_read_is_not_replaced_and_its_writer_is_told():
    async with opened() as mesh:
        notes = mesh.memory["notes"]
        first = (await notes.put("plan", "first")).document
        assert (await notes.put("plan", "second", base=first)).outcome == "written"
        for late in (
            await notes.put("plan", "blind", base=None),
            await notes.put("plan", "late", base=first),
            await notes.delete("plan", base=first),
        ):
            assert late.outcome == "skipped"
            assert late.document.value == "second"
            assert f"'plan' in notes is at revision {late.document.revision}" in late.why
        assert (await notes.get("plan")).value == "second"


async def test_a_put_of_somebody_who_read_nothing_does_not_fail_in_silence():
    async with opened() as mesh:
        notes = mesh.memory["notes"]
        first = await notes.put("plan", {"steps": 4})
        assert (first.why, first.is_same) == ("", False)
        with pytest.raises(Conflict, match="nothing was written: 'plan' in notes") as refused:
            await notes.put("plan", {"steps": 5})
        assert "base=old" in refused.value.hint
        same = await notes.put("plan", {"steps": 4})
        assert (same.outcome, same.is_same) == ("skipped", True)
        assert same.why.startswith("'plan' in notes has this value already, at revision ")
        beside = await notes.put("plan", 6, base=0, strategy="defer")
        assert "beside" in beside.why
        assert (await notes.get("plan")).value == {"steps": 4}


async def test_a_writer_may_insist():
    async with opened() as mesh:
        notes = mesh.memory["notes"]
        first = (await notes.put("plan", "first")).document
        await notes.put("plan", "second", base=first)
        over = await notes.put("plan", "mine", base=first, strategy="local")
        assert (over.outcome, over.document.value) == ("written", "mine")


async def test_a_merge_function_sees_both_values():
    async with opened() as mesh:
        notes = mesh.memory["notes"]
        first = (await notes.put("tags", ["a"])).document
        await notes.put("tags", ["a", "b"], base=first)

        async def union(theirs, mine):
            return sorted({*theirs, *mine})

        merged = await notes.put("tags", ["a", "c"], base=first, merge=union)
        assert (merged.outcome, merged.document.value) == ("written", ["a", "b", "c"])


async def test_no_increment_of_many_writers_is_lost():
    async with opened() as mesh:
        notes = mesh.memory["notes"]

        async def add() -> None:
            for _ in range(4):
                await notes.update("count", lambda count: (count or 0) + 1)

        await asyncio.gather(add(), add(), add())
        assert (await notes.get("count")).value == 12


async def test_deferred_values_are_listed_until_somebody_resolves_them():
    async with opened() as mesh:
        notes = mesh.memory["notes"]
        first = (await notes.put("plan", "first")).document
        await notes.put("plan", "second", base=first)
        one = await notes.put("plan", "one", base=first, strategy="defer")
        two = await notes.put("plan", "two", base=first, strategy="defer")
        assert (one.outcome, one.document.value, two.document.conflicts) == (
            "conflict",
            "second",
            2,
        )
        listed = await notes.conflicts()
        assert [(each.key, each.value, each.base) for each in listed] == [
            ("plan", "one", first.revision),
            ("plan", "two", first.revision),
        ]
        assert await notes.conflicts("plan") == listed
        part = await notes.resolve("plan", "both", siblings=[one.sibling])
        assert (part.outcome, part.document.conflicts) == ("written", 1)
        gone = await notes.resolve("plan", "x", siblings=[one.sibling, two.sibling])
        assert gone.outcome == "skipped"
        assert (await notes.resolve("plan", "all")).document.value == "all"
        assert await notes.conflicts() == []
        with pytest.raises(Misconfigured, match="no conflict"):
            await notes.resolve("plan", "again")


async def test_a_document_with_too_many_conflicts_takes_no_more():
    async with opened() as mesh:
        notes = mesh.memory["notes"]
        first = (await notes.put("plan", 0)).document
        await notes.put("plan", 1, base=first)
        for number in range(16):
            await notes.put("plan", number, base=first, strategy="defer")
        with pytest.raises(Rejected) as caught:
            await notes.put("plan", 17, base=first, strategy="defer")
        assert caught.value.reason == "unresolved"
        assert "antiphon memory conflicts notes" in caught.value.hint


async def test_what_was_deleted_is_gone_and_can_be_written_again():
    async with opened() as mesh:
        notes = mesh.memory["notes"]
        await notes.put("plan", 1)
        await notes.put("pages/1", 1)
        await notes.put("pages/2", 1)
        deleted = await notes.delete("plan")
        assert (deleted.outcome, deleted.document.is_deleted) == ("written", True)
        assert await notes.get("plan") is None
        assert await notes.keys() == ["pages/1", "pages/2"]
        assert await notes.keys("pages/2") == ["pages/2"]
        assert (await notes.delete("plan")).outcome == "skipped"
        assert (await notes.put("plan", 2)).outcome == "written"
        assert "plan" in await notes.keys()


async def test_a_large_value_is_an_artifact_and_reads_like_any_other():
    async with opened() as mesh:
        notes, large = mesh.memory["notes"], "x" * 100_000
        assert (await notes.put("book", large)).outcome == "written"
        assert (await notes.get("book")).value == large
        base = (await notes.get("book")).revision
        await notes.put("book", large + "y", base=base)
        late = await notes.put("book", large + "z", base=base, strategy="defer")
        (sibling,) = await notes.conflicts("book")
        assert (late.outcome, sibling.value) == ("conflict", large + "z")


async def test_agents_may_defer_the_same_large_value_and_full_nodes_go_on():
    async with opened() as mesh:
        notes, large = mesh.memory["notes"], "x" * 100_000
        first = (await notes.put("book", "short")).document
        await notes.put("book", large, base=first)
        for _ in range(2):
            late = await notes.put("book", large, base=first, strategy="defer")
            assert late.outcome == "conflict"
        assert len(await notes.conflicts("book")) == 2
        assert (await notes.resolve("book", "done")).document.value == "done"


async def test_a_watcher_sees_each_change_and_reads_nothing_meanwhile(monkeypatch):
    async with opened() as mesh:
        notes = mesh.memory["notes"]
        first = (await notes.put("plan", 1)).document
        async with notes.watch("plan") as changes, notes.watch() as all_changes:
            seen = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            log, reads = type(mesh.connection.session.log), []
            for name in ("read", "read_lane", "read_lanes", "fetch_many", "confirm", "newest"):
                was = getattr(log, name)
                monkeypatch.setattr(
                    log, name, lambda *a, _n=name, _w=was, **k: (reads.append(_n), _w(*a, **k))[1]
                )
            for _ in range(20):
                await asyncio.sleep(0)
            assert reads == []
            await mesh.memory["elsewhere"].put("plan", "other space")
            await notes.put("other", "other key")
            await notes.put("plan", 2, base=first)
            async with asyncio.timeout(PATIENCE_S):
                assert (await seen).value == 2
                keys = [(one.key, one.value) for one in [await anext(all_changes) for _ in "ab"]]
        assert keys == [("other", "other key"), ("plan", 2)]


@pytest.mark.parametrize("key", ["", "x" * 513])
async def test_a_key_has_a_length(key):
    async with opened() as mesh:
        with pytest.raises(Malformed, match="1 to 512"):
            await mesh.memory["notes"].put(key, 1)


async def test_mistakes_are_sentences():
    async with opened() as mesh:
        with pytest.raises(Malformed, match="not a kind"):
            mesh.memory["No Space"]
        with pytest.raises(Misconfigured, match="not a strategy"):
            await mesh.memory["notes"].put("a", 1, strategy="newest")
        with pytest.raises(Misconfigured, match="needs a function"):
            await mesh.memory["notes"].put("a", 1, strategy="merge")
        with pytest.raises(Malformed):
            await mesh.memory["notes"].put("a", object())
