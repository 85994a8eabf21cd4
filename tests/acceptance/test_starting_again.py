"""The host of a mesh starts again while programs on the same machine read its log."""

import json
import subprocess
import sys

import pytest

from tests.acceptance.shell import Shell

pytestmark = [pytest.mark.nats, pytest.mark.soak]

READER = """
import asyncio, sys
from contextlib import suppress
from antiphon import Mesh, Unavailable

async def main():
    while True:
        with suppress(Unavailable):  # the server is not there at the moment
            async with Mesh.open(home=sys.argv[1]) as mesh:
                while True:
                    async with mesh.replica():
                        await asyncio.sleep(0)
        await asyncio.sleep(0.05)

asyncio.run(main())
"""
STARTS = 6


def test_a_program_that_reads_all_the_time_does_not_keep_the_host_from_starting(tmp_path):
    shell = Shell(tmp_path, is_warm=False)  # as a person starts it: it loads while others read
    with shell.init():
        pass
    program = [sys.executable, "-c", READER, str(shell.home)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as reader:
        try:
            for _ in range(STARTS):
                with shell.start("up", "--json") as host:
                    ready = json.loads(host.line("ready"))
                    assert ready.get("event") == "ready", ready
                    assert host.stop() == 0
            assert reader.poll() is None, "it reads on"
        finally:
            reader.kill()
