"""An outbox: what waits is sent in order, each once, whatever breaks in between."""

import asyncio
import errno
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from blake3 import blake3
from msgspec import Raw
from msgspec.structs import replace

from antiphon import files
from antiphon.core import lane_archive, manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.messages.envelope import MessageBody
from antiphon.core.record.verdict import Verdict
from antiphon.errors import (
    EngineDenied,
    Forked,
    InboxFull,
    LogReplaced,
    Outdated,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.runtime.caller import submission
from antiphon.runtime.log.session import Session
from antiphon.runtime.outbox import outbox_store
from antiphon.runtime.outbox.outbox_item import OutboxItem, Send, Store, Submit
from antiphon.runtime.outbox.outbox_sender import FORGOTTEN_MS, OLDEST_MS, OutboxSender
from antiphon.runtime.outbox.outbox_store import OutboxStore
from tests.runtime.timeless import in_no_time

NODE = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
OTHER = "did:key:z6MkegWJ8zsAm8wbtH5JFbBGwHLLLtzT5Ns5q8ndRYE26kcx"


def body(number: int, after: tuple[tuple[str, str], ...] = ()) -> ScheduleBody:
    content = manifest.author({"command": ["@test.work"], "args": [f"[{number}]"], "timeout": 30})
    return ScheduleBody(kind="test.work", manifest=content, after=after)


def key(one: ScheduleBody) -> tuple[str, str]:
    return one.kind, manifest.job_id(one.manifest)


class Laptop:
    """A machine with an outbox, and the inbox that its messages reach."""

    def __init__(self, folder: Path, session) -> None:
        self.store, self.session = OutboxStore(folder), session
        self.inbox: list[str] = []
        self.archive: set[tuple[str, str]] = set()

    def keep(self, what, **how) -> OutboxItem:
        stamp = self.session.author.tick()
        made = {"author": self.session.author.did, "hlc": (stamp[0], stamp[1])}
        item = OutboxItem(what=what, at_ms=self.session.wall.now_ms(), **made | how)
        self.store.put(item)
        return item

    def message(self, text: str, **how) -> Send:
        named = {"node": NODE, "agent": "main", "sender": "main", "kind": "message"}
        body = MessageBody(**named, key=text, payload=Raw(f'"{text}"'.encode()), **how)
        return Send(f"{self.session.author.did}/main", body)

    async def deliver(self, one: MessageBody) -> None:
        await self.session.log.last()
        if one.key not in self.inbox:
            self.inbox.append(one.key)

    async def _archived(self, kind: str, job_id: str) -> bool:
        return (kind, job_id) in self.archive

    async def send(self) -> list[OutboxItem]:
        sender = OutboxSender(
            self.store, self.session, deliver=self.deliver, archived=self._archived
        )
        lock = self.store.lock()
        try:
            return await sender.send()
        finally:
            lock.release()

    def states(self) -> list[str]:
        return [one.state for one in self.store.items()]


def story(tmp_path, told):
    async def go(mesh):
        laptop = Laptop(tmp_path / "outbox", (await mesh.connection("laptop")).session)
        await told(mesh, laptop)

    in_no_time(go)


async def scheduled(session, bodies) -> list[int]:
    """Where each job was scheduled; 0: nowhere. None was twice."""
    places: list[int] = []
    for one in bodies:
        view = await session.read_lane(*key(one))
        found = [judged.opened.seq for judged in view.history if judged.verdict is Verdict.OK]
        assert len(found) <= 1, "a job is scheduled once"
        places.append(found[0] if found else 0)
    return places


@pytest.mark.req("P12", "S16")
def test_what_waits_is_sent_in_the_order_in_which_it_was_made(tmp_path):
    async def told(mesh, laptop):
        bodies = [body(number) for number in range(4)]
        mesh.server.kill()
        for number, one in enumerate(bodies):
            await asyncio.sleep(1)
            laptop.keep(Submit(one))
            laptop.keep(laptop.message(f"m{number}"))
        with pytest.raises(Unavailable):
            await laptop.send()
        assert set(laptop.states()) == {"waiting"}
        mesh.server.start()
        ended = await laptop.send()
        assert [one.state for one in ended] == ["held"] * 8
        places = await scheduled(laptop.session, bodies)
        assert all(places)
        assert places == sorted(places)
        assert laptop.inbox == ["m0", "m1", "m2", "m3"]
        assert await laptop.send() == [], "nothing is sent twice"
        assert laptop.states() == ["held"] * 8, "kept until somebody was told"
        for one in ended:
            laptop.store.remove(one)
        assert not laptop.store.has_items

    story(tmp_path, told)


def test_a_file_whose_content_is_gone_is_not_told_as_stored(tmp_path):
    """As where the state directory was restored without the large files."""

    async def told(_mesh, laptop):
        digests = []
        for content in (b"kept", b"gone"):
            digests.append(f"blake3:{blake3(content).hexdigest()}")
            await laptop.store.blobs.put(chunks(content), digest=digests[-1])
            laptop.keep(Store(f"{content.decode()}.txt", digests[-1]))
        laptop.store.blobs.remove(digests[1])
        assert [one.state for one in await laptop.send()] == ["held"]
        assert laptop.states() == ["held", "asks"]
        assert "is not in the outbox any more" in laptop.store.items()[1].why

    story(tmp_path, told)


async def chunks(content: bytes):
    yield content


class Killed(BaseException):
    """SIGKILL: nothing after it is carried out."""


@contextmanager
def killed_at(step: int, monkeypatch):
    """Count what is durable or leaves the machine; at this step, end before or after it."""
    done = [0]

    def counted(really, *, is_async=False):
        def count() -> None:
            done[0] += 1
            if done[0] == step:
                raise Killed

        async def later(*given, **how):
            count()
            found = await really(*given, **how)
            count()
            return found

        def now(*given, **how):
            count()
            found = really(*given, **how)
            count()
            return found

        return later if is_async else now

    with monkeypatch.context() as patch:
        patch.setattr(outbox_store, "replace_file", counted(files.replace_file))
        patch.setattr(outbox_store.os, "fsync", counted(os.fsync))
        patch.setattr(OutboxStore, "remove", counted(OutboxStore.remove))
        patch.setattr(Session, "commit", counted(Session.commit, is_async=True))
        patch.setattr(Laptop, "deliver", counted(Laptop.deliver, is_async=True))
        yield done


@pytest.mark.req("P12")
def test_killed_at_any_step_nothing_is_lost_and_nothing_happens_twice(tmp_path, monkeypatch):
    """The steps are found by a first run that is not killed."""

    async def run(mesh, laptop, bodies, step) -> int:
        with killed_at(step, monkeypatch) as done:
            try:
                for number, one in enumerate(bodies):
                    laptop.keep(Submit(one))
                    laptop.keep(laptop.message(f"{step}-{number}"))
                promised.append(step)
                for one in await laptop.send():
                    laptop.store.remove(one)
            except Killed:
                pass
        return done[0]

    promised: list[int] = []

    async def told(mesh, laptop):
        steps = await run(mesh, laptop, [body(0)], 0)
        assert steps > 20
        for step in range(1, steps + 1):
            bodies = [body(step)]
            await run(mesh, laptop, bodies, step)
            await laptop.send()
            assert "waiting" not in laptop.states()
            if step in promised:
                assert all(await scheduled(laptop.session, bodies)), step
                assert f"{step}-0" in laptop.inbox, step
            for one in laptop.store.items():
                laptop.store.remove(one)
        assert len(promised) > 10

    story(tmp_path, told)


def test_a_full_disk_is_told_at_once_and_leaves_what_was_there(tmp_path, monkeypatch):
    async def told(_mesh, laptop):
        first = laptop.keep(Submit(body(1)))

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(files.os, "fsync", full)
            with pytest.raises(Unavailable, match="No space left") as told:
                laptop.keep(Submit(body(2)))
            assert "make room" in told.value.hint
        assert laptop.store.items() == [first]
        assert len(list(laptop.store.folder.iterdir())) == 1, "no half-written file is left"
        assert [one.state for one in await laptop.send()] == ["held"]

    story(tmp_path, told)


@pytest.mark.parametrize("broken", ["read_bytes", "unlink", "iterdir", "mkdir"])
def test_a_disk_that_refuses_anything_is_told_as_such(tmp_path, monkeypatch, broken):
    async def told(_mesh, laptop):
        store, item = laptop.store, laptop.keep(Submit(body(1)))
        works = {
            "read_bytes": lambda: store.reread(item),
            "unlink": lambda: store.remove(item),
            "iterdir": store.items,
            "mkdir": store.lock,
        }

        def refused(*_, **__):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(Path, broken, refused)
            with pytest.raises(Unavailable, match="Input/output error"):
                works[broken]()
        assert store.items() == [item]

    story(tmp_path, told)


def test_an_item_whose_file_was_damaged_asks(tmp_path):
    async def told(_mesh, laptop):
        item = laptop.keep(Submit(body(1)))
        (path,) = laptop.store.folder.glob("*.json")
        path.write_text("{")
        found = laptop.store.reread(item)
        assert (found.state, "damaged" in found.why) == ("asks", True)

    story(tmp_path, told)


def test_it_is_bounded_in_number_bytes_and_age(tmp_path, monkeypatch):
    async def told(_mesh, laptop):
        monkeypatch.setattr(outbox_store, "MOST_ITEMS", 2)
        laptop.keep(Submit(body(1)))
        laptop.keep(Submit(body(2)))
        with pytest.raises(Unavailable, match="2 items"):
            laptop.keep(Submit(body(3)))
        monkeypatch.setattr(outbox_store, "MOST_ITEMS", 9)
        monkeypatch.setattr(outbox_store, "MOST_BYTES", 10)
        with pytest.raises(Unavailable, match="outbox is full"):
            laptop.keep(Submit(body(3)))
        await asyncio.sleep(OLDEST_MS / 1000 + 1)
        assert {one.why for one in await laptop.send()} == {"it waited for more than 30 days"}
        assert laptop.states() == ["dropped", "dropped"]

    story(tmp_path, told)


@pytest.mark.parametrize("was_stored", [True, False])
def test_what_was_sent_is_looked_for_however_old_it_is(tmp_path, was_stored):
    async def told(_mesh, laptop):
        sent_ms = laptop.session.wall.now_ms()
        laptop.keep(Submit(body(1)), sent_ms=sent_ms)
        laptop.keep(laptop.message("old"), sent_ms=sent_ms)
        if was_stored:
            await submission.submit(laptop.session, body(1))
        await asyncio.sleep(OLDEST_MS / 1000 + 1)
        await laptop.send()
        job, message = laptop.store.items()
        assert job.state == ("held" if was_stored else "dropped")
        assert (message.state, laptop.inbox) == ("asks", [])
        laptop.store.update(message.tried_again())
        await laptop.send()
        assert laptop.inbox == ["old"], "a person wants it sent"

    story(tmp_path, told)


def test_a_clock_that_jumps_ahead_drops_nothing(tmp_path):
    async def told(_mesh, laptop):
        session, wall = laptop.session, laptop.session.wall
        await submission.submit(session, body(1))  # so the mesh's time is known
        laptop.keep(Submit(body(2)))
        later_ms = 2 * OLDEST_MS
        ahead = SimpleNamespace(now_ms=lambda: wall.now_ms() + later_ms, boot_s=wall.boot_s)
        session.wall = session.author.mesh_time._wall = ahead
        with suppress(Unavailable):
            await laptop.send()
        assert laptop.states() != ["dropped"]
        session.wall = session.author.mesh_time._wall = wall
        await laptop.send()
        assert laptop.states() == ["held"]

    story(tmp_path, told)


def test_what_was_dropped_takes_no_place_and_is_forgotten_after_a_while(tmp_path, monkeypatch):
    async def told(_mesh, laptop):
        monkeypatch.setattr(outbox_store, "MOST_ITEMS", 2)
        for number in (1, 2):
            laptop.keep(Submit(body(number)), state="dropped", why="refused")
        laptop.keep(Submit(body(3)))
        laptop.keep(Submit(body(4)))
        with pytest.raises(Unavailable, match="2 items"):
            laptop.keep(Submit(body(5)))
        await laptop.send()
        assert laptop.states() == ["dropped", "dropped", "held", "held"]
        later_s = time.time() + outbox_store.UNTOLD_S + 1
        monkeypatch.setattr(outbox_store.time, "time", lambda: later_s)
        await laptop.send()
        assert laptop.states() == ["held", "held"]

    story(tmp_path, told)


def test_ends_that_nobody_asks_for_make_room(tmp_path, monkeypatch):
    async def told(_mesh, laptop):
        monkeypatch.setattr(outbox_store, "MOST_UNTOLD", 2)
        for number in range(4):
            laptop.keep(Submit(body(number)))
            await laptop.send()
        assert laptop.states() == ["held"] * 2

    story(tmp_path, told)


@pytest.mark.req("M18")
def test_a_job_waits_here_for_the_one_that_it_depends_on(tmp_path):
    async def told(_mesh, laptop):
        first, second = body(1), body(2, after=(key(body(1)),))
        asks = laptop.keep(Submit(first), state="asks", why="a person decides")
        laptop.keep(Submit(second))
        assert await laptop.send() == []
        assert await scheduled(laptop.session, [first, second]) == [0, 0]
        laptop.store.update(replace(asks, state="waiting"))
        await laptop.send()
        before, after = await scheduled(laptop.session, [first, second])
        assert 0 < before < after

    story(tmp_path, told)


@pytest.mark.req("M18")
def test_what_depends_on_a_dropped_job_is_dropped_and_says_why(tmp_path):
    async def told(_mesh, laptop):
        laptop.keep(Submit(replace(body(1), lease_ms=1, lease_ms_max=2**50)))
        laptop.keep(Submit(body(2, after=(key(body(1)),))))
        laptop.keep(Submit(body(3)))
        dropped, dependent, held = await laptop.send()
        assert (dropped.state, dependent.state, held.state) == ("dropped", "dropped", "held")
        assert "lease" in dropped.why
        assert dependent.why == "a job that it waits for was dropped"

    story(tmp_path, told)


@pytest.mark.req("M18")
@pytest.mark.parametrize("is_told", [True, False])
def test_a_job_that_was_dropped_once_may_be_submitted_again(tmp_path, is_told):
    async def told(_mesh, laptop):
        first, second = body(1), body(2, after=(key(body(1)),))
        laptop.keep(Submit(first), state="dropped", why="it waited for too long")
        laptop.keep(Submit(first))
        if is_told:
            await laptop.send()
        laptop.keep(Submit(second))
        await laptop.send()
        assert laptop.states() == ["dropped", "held", "held"]

    story(tmp_path, told)


@pytest.mark.parametrize("problem", [LogReplaced("another log"), Outdated("newer"), Forked()])
def test_what_the_session_cannot_go_on_with_is_blamed_on_no_item(tmp_path, problem):
    async def told(_mesh, laptop):
        laptop.keep(laptop.message("first"))
        laptop.keep(laptop.message("second"))

        async def deliver(_):
            raise problem

        laptop.deliver = deliver
        with pytest.raises(type(problem)):
            await laptop.send()
        assert laptop.states() == ["waiting", "waiting"]

    story(tmp_path, told)


def test_two_entries_with_one_timestamp_are_both_dropped(tmp_path):
    async def told(_mesh, laptop):
        first = laptop.keep(Submit(body(1)))
        laptop.keep(Submit(body(2)), hlc=first.hlc)
        laptop.keep(Submit(body(3)))
        ends = {one.what.name: one for one in await laptop.send()}
        twice = [ends[key(body(number))[1]] for number in (1, 2)]
        assert [one.state for one in twice] == ["dropped"] * 2
        assert all("same timestamp" in one.why for one in twice)
        assert ends[key(body(3))[1]].state == "held"

    story(tmp_path, told)


def test_a_message_is_sent_by_its_own_key_alone_and_a_job_by_any(tmp_path):
    async def told(_mesh, laptop):
        laptop.keep(laptop.message("mine"), author=OTHER)
        laptop.keep(Submit(body(1)), author=OTHER)
        assert [one.what for one in await laptop.send()] == [Submit(body(1))]
        assert (laptop.inbox, laptop.states()) == ([], ["waiting", "held"])

    story(tmp_path, told)


@pytest.mark.parametrize("is_in_archive", [True, False])
def test_a_job_that_may_have_run_and_been_archived_is_never_sent_again_by_itself(
    tmp_path, monkeypatch, is_in_archive
):
    async def told(_mesh, laptop):
        sent = laptop.keep(Submit(body(1)), sent_ms=laptop.session.wall.now_ms())
        monkeypatch.setattr(lane_archive, "is_too_old", lambda *_: True)
        if is_in_archive:
            laptop.archive.add(key(body(1)))
        await laptop.send()
        (item,) = laptop.store.items()
        assert item.state == ("held" if is_in_archive else "asks")
        assert await scheduled(laptop.session, [body(1)]) == [0]
        if not is_in_archive:
            assert "archived" in item.why
            laptop.store.update(replace(sent, sent_ms=0))  # the person says: send it
            assert [one.state for one in await laptop.send()] == ["held"]

    story(tmp_path, told)


def test_a_message_that_may_have_been_read_long_ago_waits_for_a_person(tmp_path):
    async def told(_mesh, laptop):
        now_ms = laptop.session.wall.now_ms()
        laptop.keep(laptop.message("soon"), sent_ms=now_ms)
        laptop.keep(laptop.message("late"), sent_ms=now_ms - FORGOTTEN_MS - 1)
        await laptop.send()
        assert laptop.inbox == ["soon"]
        assert laptop.states() == ["held", "asks"]

    story(tmp_path, told)


def test_a_message_keeps_its_time(tmp_path):
    async def told(_mesh, laptop):
        ttls = []
        laptop.keep(laptop.message("short", ttl_ms=5_000))
        laptop.keep(laptop.message("long", ttl_ms=60_000))

        async def deliver(one):
            ttls.append((one.key, one.ttl_ms))

        laptop.deliver = deliver
        await asyncio.sleep(10)
        await laptop.send()
        assert ttls == [("long", 50_000)]
        assert laptop.states() == ["dropped", "held"]

    story(tmp_path, told)


def test_a_refusal_ends_one_entry_and_a_lost_login_asks(tmp_path):
    async def told(_mesh, laptop):
        laptop.keep(laptop.message("refused"))
        laptop.keep(laptop.message("denied"))
        laptop.keep(laptop.message("fine"))
        errors = {"refused": Rejected("no such inbox"), "denied": EngineDenied("not yours")}

        async def deliver(one):
            if one.key in errors:
                raise errors[one.key]

        laptop.deliver = deliver
        await laptop.send()
        assert [(one.state, one.why) for one in laptop.store.items()] == [
            ("dropped", "no such inbox"),
            ("asks", "not yours"),
            ("held", ""),
        ]

    story(tmp_path, told)


def test_a_full_inbox_holds_up_nobody_but_its_own_messages(tmp_path):
    async def told(_mesh, laptop):
        full = [InboxFull("the inbox is full")]
        for text in ("first", "second"):
            laptop.keep(laptop.message(text))
        other = laptop.message("other")
        laptop.keep(replace(other, body=replace(other.body, node=OTHER)))
        laptop.keep(Submit(body(1)))
        asked = []

        async def deliver(one):
            asked.append(one.key)
            if one.node == NODE and full:
                raise full[0]

        laptop.deliver = deliver
        for _ in range(2):
            await laptop.send()
            await asyncio.sleep(FORGOTTEN_MS / 1000 + 1)
        assert asked == ["first", "other", "first"], "the second does not overtake"
        assert laptop.states() == ["waiting", "waiting", "held", "held"]
        full.clear()
        await laptop.send()
        assert laptop.states() == ["held"] * 4, "nobody is asked: it was not stored"
        assert asked[3:] == ["first", "second"]

    story(tmp_path, told)


def test_who_sends_too_much_sends_no_more_messages_in_this_pass(tmp_path):
    async def told(_mesh, laptop):
        asked = []
        laptop.keep(laptop.message("first"))
        other = laptop.message("other")
        laptop.keep(replace(other, body=replace(other.body, node=OTHER)))
        laptop.keep(Submit(body(1)))

        async def deliver(one):
            asked.append(one.key)
            raise RateLimited("too many", retry_s=1)

        laptop.deliver = deliver
        await laptop.send()
        assert (asked, laptop.states()) == (["first"], ["waiting", "waiting", "held"])
        assert not any(one.sent_ms for one in laptop.store.items() if one.is_tentative)

    story(tmp_path, told)


def test_a_damaged_file_hides_no_other_entry(tmp_path):
    async def told(_mesh, laptop):
        item = laptop.keep(Submit(body(1)))
        (laptop.store.folder / "0000-damaged.json").write_text("{")
        assert laptop.store.items() == [item]
        assert laptop.store.find(item.id[:4]) == item
        assert laptop.store.find(item.what.name[:6]) == item
        for nobody in ("", "zzz"):
            with pytest.raises(Rejected, match="outbox"):
                laptop.store.find(nobody)
        assert [one.state for one in await laptop.send()] == ["held"]

    story(tmp_path, told)
