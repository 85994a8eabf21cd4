"""The page about webhooks, typed: a request becomes a job, and a job sends one."""

import socket

import pytest

from tests.acceptance.shell import Shell, until
from tests.acceptance.typed_page import Reader, page_named

pytestmark = pytest.mark.nats


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_the_page_about_webhooks_works_as_typed(tmp_path):
    shell = Shell(tmp_path)
    text = page_named("webhooks").read_text().replace("7464", str(free_port()))
    with shell.dev(), Reader(shell.directory) as person:
        # Another replica than that of `antiphon dev`, which goes on beside the node.
        person.shell("").env["ANTIPHON_REPLICA"] = str(tmp_path / "replica.db")
        person.follow(text)

        def shipped() -> list[str]:
            found = shell.run("jobs", "--kind", "release", "--state", "succeeded", "--json").json
            return [one["job"] for one in found["jobs"]]

        until(lambda: len(shipped()) == 2)
        for running in person.running:
            assert running.stop() == 0
