"""The outbox of a program's connection, without a server: what is told of items, and when."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from antiphon.errors import InboxFull, LogReplaced, Rejected
from antiphon.runtime.caller import submission
from antiphon.runtime.messages.message_gate import MessageGate
from antiphon.runtime.outbox.outbox_item import Submit
from antiphon.sdk.connection.connection_outbox import ConnectionOutbox
from antiphon.sdk.outbox.namespace import LocalOutbox
from tests.runtime.outbox.test_outbox_sender import Laptop, body
from tests.runtime.timeless import in_no_time

pytestmark = pytest.mark.req("P12")


class Program:
    """A program's connection, as its outbox sees it."""

    def __init__(self, connection) -> None:
        self.opened, self.session = connection, connection.session
        self.is_connected = True

    async def reconnect(self) -> None:
        """It is connected."""


def story(tmp_path, told):
    async def nowhere(*_):
        return False

    async def go(mesh):
        program = Program(await mesh.connection("laptop"))
        await told(mesh, program, ConnectionOutbox(program, tmp_path, nowhere))

    in_no_time(go)


@pytest.mark.parametrize("is_on_log", [True, False])
def test_who_waits_for_an_item_is_told_by_the_log_if_its_file_is_gone(tmp_path, is_on_log):
    async def told(_mesh, program, outbox):
        item = outbox.keep_submit(body(1))
        outbox.store.remove(item)  # a person was told of its end, or dropped it
        program.session.engine.sever()
        waiting = asyncio.ensure_future(outbox.committed(item))
        await asyncio.sleep(60)
        assert not waiting.done(), "nobody can tell meanwhile"
        program.session.engine.heal()
        if is_on_log:
            await submission.submit(program.session, item.what.body)
            await waiting
        else:
            with pytest.raises(Rejected, match="somebody removed it"):
                await waiting

    story(tmp_path, told)


def test_a_message_waits_behind_another_one_to_its_receiver_and_nothing_else_does(
    tmp_path, monkeypatch
):
    async def told(_mesh, program, outbox):
        async def full(*_, **__):
            raise InboxFull("the inbox is full")

        async def write():
            return "written"

        monkeypatch.setattr(MessageGate, "put", full)
        first = Laptop(tmp_path, program.session).message("first")
        outbox.keep_message(first.sender, first.body)
        for to, expected in (
            (first.body.to, "kept"),
            ("somebody else", "written"),
            ("", "written"),
        ):
            assert await outbox.write_or_keep(write, lambda _: "kept", to=to) == expected

    story(tmp_path, told)


def test_a_program_goes_on_sending_when_its_disk_works_again(tmp_path, monkeypatch):
    async def told(_mesh, program, outbox):
        outbox.keep_submit(body(1))

        def refused(*_):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(Path, "iterdir", refused)
            sending = asyncio.ensure_future(outbox.run())
            await asyncio.sleep(60)
        assert not sending.done()
        await asyncio.sleep(60)
        assert [one.state for one in outbox.store.items()] == ["held"]
        sending.cancel()
        await asyncio.wait([sending])

    story(tmp_path, told)


def test_who_waits_for_an_item_is_told_that_nothing_is_sent_any_more(tmp_path, monkeypatch):
    async def told(_mesh, program, outbox):
        item = outbox.keep_submit(body(1))

        async def replaced(*_, **__):
            raise LogReplaced("another log")

        monkeypatch.setattr(program.session, "commit", replaced)
        sending = outbox.begin()
        with pytest.raises(LogReplaced):
            await outbox.committed(item)
        assert sending.done()
        assert outbox.store.reread(item).state == "waiting"

    story(tmp_path, told)


def test_a_program_looks_now_and_then_for_what_others_leave_and_reads_no_file_for_it(
    tmp_path, monkeypatch
):
    async def told(_mesh, program, outbox):
        def read(*_):
            raise AssertionError("there is nothing to read")

        sending = outbox.begin()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", read)
            await asyncio.sleep(600)
        other = Laptop(outbox.store.folder, program.session)
        left = other.keep(Submit(body(1)), state="asks", why="the archive does not know it")
        await asyncio.sleep(600)
        assert other.states() == ["asks"]
        LocalOutbox(other.store).retry(left.id)
        await asyncio.sleep(60)
        assert other.states() == ["held"]
        sending.cancel()
        await asyncio.wait([sending])

    story(tmp_path, told)
