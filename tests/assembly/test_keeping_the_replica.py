"""One process keeps a machine's replica; commands that read it get out of its way."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from antiphon.assembly import local_replica, node_services, owned_replica
from antiphon.errors import Held
from antiphon.runtime.identity.state_directory import StateDirectory
from tests.patience import NEVER_S
from tests.runtime.meshes import a_mesh, eventually

pytestmark = pytest.mark.processes

COMMAND = """
import sys
from pathlib import Path
from antiphon.runtime.identity.state_directory import StateDirectory
lock = StateDirectory(Path(sys.argv[1])).lock_replica()
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def a_command_that_reads(home: StateDirectory):
    """Another process that brings the replica up to date, until its input ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", COMMAND, str(home.path)], **pipes) as process:
        assert process.stdout.readline() == "locked\n"
        yield process


@pytest.fixture
def home(tmp_path):
    return StateDirectory(tmp_path)


async def keep(home, connection):
    async with owned_replica(home.replica, home, connection) as replica:
        return replica.mesh


async def test_who_keeps_it_waits_for_a_command_and_says_so(home, monkeypatch):
    monkeypatch.setattr(node_services, "TOLD_EVERY_S", 0.0)
    async with a_mesh("memory") as mesh:
        connection = await mesh.connection()
        with a_command_that_reads(home) as command, capture_logs() as logged:
            keeping = asyncio.ensure_future(keep(home, connection))
            await eventually(lambda: any(one["event"] == "replica_in_use" for one in logged))
            assert not keeping.done()
            command.stdin.close()
            assert await keeping == mesh.mesh


async def test_it_does_not_wait_for_ever(home, monkeypatch):
    monkeypatch.setattr(node_services, "READERS_S", 0.05)
    async with a_mesh("memory") as mesh:
        connection = await mesh.connection()
        with (
            a_command_that_reads(home),
            pytest.raises(Held, match=r"writes the replica, for 0\.05 s"),
        ):
            await keep(home, connection)


async def test_a_second_one_that_would_keep_it_is_told_at_once(home, monkeypatch):
    monkeypatch.setattr(node_services, "READERS_S", NEVER_S)
    async with a_mesh("memory") as mesh:
        connection = await mesh.connection()
        async with owned_replica(home.replica, home, connection):
            with pytest.raises(Held, match="another process keeps the replica"):
                await keep(home, connection)


async def test_a_command_locks_it_while_it_catches_up_and_not_while_it_reads(home):
    async with a_mesh("memory") as mesh:
        connection = await mesh.connection()
        reading = local_replica(home, connection)
        async with reading as replica, owned_replica(home.replica, home, connection) as kept:
            assert kept.cursor == replica.cursor
            assert kept.cursor.seq
