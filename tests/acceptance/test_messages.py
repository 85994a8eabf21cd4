"""Messages, as typed: sent, read, acknowledged; threads and dead letters."""

import subprocess
import sys

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats

CLEO = """
import asyncio
from antiphon import Mesh

async def main():
    async with Mesh.open(key="cleo", agent="cleo") as mesh:
        print("here", flush=True)
        async for message in mesh.messages.inbox():
            print(message.payload, flush=True)
            await message.ack()

asyncio.run(main())
"""


@pytest.mark.req("S9")
def test_a_message_is_sent_read_again_and_acknowledged(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        me = shell.run("msg", "address").out.strip()
        sent = shell.run(
            "msg", "send", me, '{"n": 1}', "--kind", "note", "--thread", "t", "--json"
        ).json
        again = shell.run("msg", "send", me, "text", "--key", "k", "--ttl", "1h", "--json").json
        assert shell.run("msg", "send", me, "text", "--key", "k", "--json").json == again
        assert "1  t" in shell.run("msg", "threads").out
        first = shell.run("msg", "read", "--limit", "1", "--json").json
        assert (first["id"], first["payload"], first["thread"]) == (sent["id"], {"n": 1}, "t")
        assert "attempt 2" in shell.run("msg", "read").out  # what is not acknowledged comes again
        shell.run("msg", "ack", sent["id"], again["id"])
        assert "no messages" in shell.run("msg", "read").err
        assert "no dead letters" in shell.run("msg", "dead").err
        refused = shell.run("msg", "send", "nobody", "x")
        assert refused.code == 5
        assert "no node that is online is called 'nobody'" in refused.err
        assert "antiphon nodes" in refused.err


@pytest.mark.processes
def test_an_agent_that_is_online_is_reached_by_its_alias_where_nobody_has_grants(tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "cleo.py").write_text(CLEO)
    with shell.dev():
        cleo = subprocess.Popen(
            [sys.executable, "cleo.py"], cwd=tmp_path, env=shell.env, stdout=subprocess.PIPE
        )
        with cleo:
            try:
                assert cleo.stdout.readline() == b"here\n"
                sent = shell.run("msg", "send", "cleo/cleo", "hello")
                assert sent.code == 0, sent.err
                assert sent.out.endswith(" to agent cleo of cleo\n")
                assert cleo.stdout.readline() == b"hello\n"
                alone = shell.run("msg", "send", "cleo", "to whom?")
                assert alone.out.endswith(" to agent main of cleo\n")
                by_program = shell.run("msg", "send", "cleo", "1", "--json").json
                assert by_program["to"].endswith("/main")
            finally:
                cleo.kill()
