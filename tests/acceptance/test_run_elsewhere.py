"""Commands on another machine: a member that was let in by ticket runs them, walls and all."""

import base64
from contextlib import ExitStack

import pytest

from tests.acceptance.shell import Shell, wake
from tests.runtime.sandboxed import require_sandbox

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The owner's machine, beside one for builds and one that was granted the network, too."""
    require_sandbox()
    here = Shell(tmp_path_factory.mktemp("here"))
    with ExitStack() as stack:
        stack.enter_context(here.init("--name", "farm"))
        for kind, granted in (("build", ()), ("fetch", ("--network",))):
            ticket = here.run("invite", "--can", "claim", "--kind", kind, *granted).out.strip()
            there = Shell(tmp_path_factory.mktemp(kind))
            words = ("join", ticket, "--alias", kind, "--commands", kind, "--network", "--json")
            stack.enter_context(there.start(*words)).line("ready")
        yield here


def test_files_and_words_travel_through_the_walls(here):
    (here.directory / "data").write_bytes(bytes(range(256)) * 400)
    script = "echo begun; sleep 602.2; head -c 51200 data > half; seq 1 30000"
    words = ("--kind", "build", "--input", "data", "--output", "half", "--", "sh", "-c", script)
    with here.start("run", *words) as running:
        assert running.line() == "begun\n"
        wake("602.2")  # so its first word came while it ran
        assert running.wait() == 0
        running.line("30000")
    job = here.run("jobs", "--json").json["jobs"][0]["job"]
    assert here.run("get", job, "half").code == 0
    assert (here.directory / "half").read_bytes() == bytes(range(256)) * 200


def test_the_network_needs_every_link_of_the_claim(here):
    answer = here.run("run", "--kind", "build", "--network", "--", "true")
    assert (answer.code, "does not allow it" in answer.err) == (1, True), answer
    granted = here.run("run", "--kind", "fetch", "--network", "--json", "--", "echo", "there")
    assert granted.code == 0, granted
    envelope = here.run("proof", granted.json["job"], "--json").json
    assert b'"network:host"' in base64.b64decode(envelope["payload"])
