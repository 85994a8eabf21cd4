"""Messages, as typed: sent, read, acknowledged; threads and dead letters."""

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats


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
        assert refused.code != 0
        assert "nobody" in refused.err
