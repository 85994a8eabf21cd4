"""Values too large for a record, kept while the engine is away: bytes first, names later."""

import errno
import os
import time

import pytest
from msgspec.structs import replace

from antiphon.core.families.memory.ops import Stored
from antiphon.errors import EngineDenied, OutcomeUnknown, Unavailable
from antiphon.runtime.artifacts import safe_file, waiting_blobs
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.memory import document_values
from antiphon.runtime.outbox import outbox_store
from antiphon.runtime.outbox.outbox_item import Put, Store, Submit
from antiphon.runtime.outbox.outbox_store import OutboxStore
from tests.runtime.outbox.test_lane_writes import story, values, wanted
from tests.runtime.outbox.test_outbox_sender import Killed, body, killed_at

pytestmark = pytest.mark.req("P12")
LARGE = "x" * 100_000


def artifacts_of(laptop) -> Artifacts:
    return Artifacts(laptop.session.engine.blobs, waiting=laptop.store.blobs)


async def keep_large(laptop, text: str = LARGE, **how) -> Stored:
    """A large document that waits on this machine; where its value is."""
    stored = await document_values.keep(text, artifacts_of(laptop))
    laptop.keep(Put(replace(wanted(""), value=stored, **how)))
    return stored


async def read(session, stored: Stored) -> str:
    where = {"space": "notes.team", "key": "plan"}
    return await document_values.read(stored, Artifacts(session.engine.blobs), **where)


def test_a_large_value_waits_with_what_names_it_and_is_stored_first(tmp_path):
    async def told(mesh, laptop, other):
        mesh.server.kill()
        stored = await keep_large(laptop)
        assert await read_here(laptop, stored) == LARGE, "this machine reads what it keeps"
        with pytest.raises(Unavailable):
            await laptop.send()
        mesh.server.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(laptop.session, "commit", unanswered)
            with pytest.raises(Unavailable):
                await laptop.send()
        assert await read(other, stored) == LARGE, "the bytes are there before the record"
        (held,) = await laptop.send()
        assert held.state == "held"
        assert laptop.store.blobs.size == 0, "what the mesh has is kept here no more"

    async def read_here(laptop, stored):
        where = {"space": "notes.team", "key": "plan"}
        return await document_values.read(stored, artifacts_of(laptop), **where)

    async def unanswered(*_, **__):
        raise OutcomeUnknown("no answer")

    story(tmp_path, told)


def test_killed_at_any_step_a_large_value_is_never_named_without_its_bytes(tmp_path, monkeypatch):
    async def told(mesh, laptop, other):
        async def run(step: int) -> int:
            with killed_at(step, monkeypatch) as done:
                try:
                    laptop.session.engine.sever()
                    named.append(await keep_large(laptop, f"{step}{LARGE}", strategy="local"))
                    laptop.session.engine.heal()
                    await laptop.send()
                except Killed:
                    pass
            laptop.session.engine.heal()
            return done[0]

        named: list[Stored] = []
        steps = await run(0)
        assert steps > 10
        for step in range(1, steps + 1):
            await run(step)
            await laptop.send()
            assert "waiting" not in laptop.states()
            for one in laptop.store.items():
                laptop.store.remove(one)
        view = await other.read(Put(wanted("")).lane)
        written = [one.opened.op.body.value for one in view.history if one.verdict.is_accepted]
        assert [one for one in named if one not in written] == []
        for one in written:
            assert (await read(other, one)).endswith(LARGE)

    story(tmp_path, told)


def test_blobs_count_for_the_room_that_the_outbox_has(tmp_path, monkeypatch):
    async def told(mesh, laptop, _other):
        monkeypatch.setattr(outbox_store, "MOST_BYTES", 150_000)
        mesh.server.kill()
        await keep_large(laptop)
        with pytest.raises(Unavailable, match="no room for so large a value"):
            await keep_large(laptop, f"another {LARGE}")
        monkeypatch.setattr(outbox_store, "MOST_BYTES", 100_000)
        with pytest.raises(Unavailable, match="outbox is full"):
            laptop.keep(Submit(body(1)))
        (folder,) = [one for one in laptop.store.folder.iterdir() if one.is_dir()]
        assert len(list(folder.iterdir())) == 1, "no half-written file is left"

    story(tmp_path, told)


def test_a_full_disk_is_told_before_anything_names_the_value(tmp_path, monkeypatch):
    async def told(mesh, laptop, _other):
        mesh.server.kill()

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(safe_file.os, "write", full)
            with pytest.raises(Unavailable, match="no space left") as told:
                await keep_large(laptop)
            assert "make room" in told.value.hint
        assert (laptop.states(), laptop.store.blobs.size) == ([], 0)

    story(tmp_path, told)


def test_what_a_person_drops_takes_its_bytes_along_unless_another_item_needs_them(tmp_path):
    async def told(mesh, laptop, _other):
        mesh.server.kill()
        stored = await keep_large(laptop)
        named = laptop.keep(Store("plan.json", stored.hash))
        first, second = laptop.store.items()
        laptop.store.remove(first)
        assert laptop.store.blobs.has(stored.hash)
        assert second == named
        laptop.store.remove(second)
        assert not laptop.store.blobs.has(stored.hash)

    story(tmp_path, told)


def test_bytes_that_nothing_came_to_name_go_after_a_while(tmp_path, monkeypatch):
    async def told(mesh, laptop, _other):
        mesh.server.kill()
        stored = await document_values.keep(LARGE, artifacts_of(laptop))
        mesh.server.start()
        await laptop.send()
        assert laptop.store.blobs.has(stored.hash), "whoever stored it may be about to name it"
        later_s = time.time() + waiting_blobs.UNNAMED_S + 1
        monkeypatch.setattr(waiting_blobs.time, "time", lambda: later_s)
        await laptop.send()
        assert not laptop.store.blobs.has(stored.hash)

    story(tmp_path, told)


def test_a_file_is_stored_by_any_key_of_the_machine(tmp_path):
    async def told(mesh, laptop, other):
        mesh.server.kill()
        stored = await document_values.keep(LARGE, artifacts_of(laptop))
        laptop.keep(Store("plan.json", stored.hash), author="did:key:another")
        mesh.server.start()
        (held,) = await laptop.send()
        assert (held.state, held.what.words) == ("held", f"store plan.json {stored.hash[7:15]}")
        assert await read(other, stored) == LARGE

    story(tmp_path, told)


def test_a_value_that_cannot_be_read_holds_up_nothing_else(tmp_path, monkeypatch):
    async def told(mesh, laptop, other):
        mesh.server.kill()
        await keep_large(laptop)
        laptop.keep(Submit(body(1)))
        mesh.server.start()

        def refused(*_):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(waiting_blobs.os, "read", refused)
            await laptop.send()
        first, _ = laptop.store.items()
        assert ("cannot be read" in first.why, laptop.states()) == (True, ["asks", "held"])
        laptop.store.update(first.tried_again())
        await laptop.send()
        assert laptop.states() == ["held", "held"]
        assert len(await values_of(other)) == 1

    async def values_of(session):
        return (await session.read(Put(wanted("")).lane)).history

    story(tmp_path, told)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_value_that_the_mesh_does_not_take_is_left_to_a_person(tmp_path, monkeypatch, is_damaged):
    async def told(mesh, laptop, other):
        mesh.server.kill()
        stored = await keep_large(laptop)
        laptop.keep(Submit(body(1)))
        mesh.server.start()
        if is_damaged:
            (laptop.store.folder / "blobs" / stored.hash[7:]).write_bytes(b"damaged")
        else:

            async def denied(*_, **__):
                raise EngineDenied("this key may not store anything")

            monkeypatch.setattr(laptop.session.engine.blobs, "put", denied)
        await laptop.send()
        assert laptop.states() == ["asks", "held"], "and the next one is sent"
        assert await values(other) == []

    story(tmp_path, told)


def test_who_does_not_want_to_wait_is_told_by_an_error(tmp_path):
    async def told(mesh, laptop, _other):
        mesh.server.kill()
        with pytest.raises(Unavailable):
            await document_values.keep(LARGE, artifacts_of(laptop).at_once)
        assert OutboxStore(laptop.store.folder).blobs.size == 0

    story(tmp_path, told)
