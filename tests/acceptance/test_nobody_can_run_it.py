"""Jobs that nobody can run now are never waited for without a word: what a person is told."""

import asyncio

import pytest

from antiphon import Mesh, Rejected
from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A mesh with one member, which may claim and is not online."""
    typed, box = (Shell(tmp_path_factory.mktemp(name)) for name in ("farm", "gpu-box"))
    with typed.init("--name", "farm"):
        ticket = typed.run("invite", "--can", "claim", "--kind", "render.*", "--alias", "gpu-box")
        assert box.run("join", ticket.out.strip()).code == 0
        yield typed


# The tests are one story: the last of them revokes the member.


def test_a_quorum_for_which_there_are_too_few_members_is_refused_at_once(host):
    answer = host.run("submit", "render.frame", "1", "--replicas", "3", "--quorum", "2")
    assert answer.code == 5
    said = "2 independent parties have to agree on a job of kind render.frame"
    assert f"{said}, and only 1 can run it: gpu-box" in answer.err
    assert "antiphon invite --can claim" in answer.err

    async def in_a_program() -> None:
        async with Mesh.open(home=host.home) as mesh:
            submitting = mesh.submit("render.frame", 1, options={"replicas": 2, "quorum": 2})
            with pytest.raises(Rejected, match="only 1 can run it: gpu-box"):
                await submitting

    asyncio.run(in_a_program())
    assert host.run("jobs", "--json").json["jobs"] == [], "nothing was submitted"


def test_whoever_does_not_wait_is_warned_that_nobody_runs_the_kind(host):
    answer = host.run("submit", "render.frame", "1", "--detach")
    assert (answer.code, len(answer.out.strip())) == (0, 64)
    assert "warning: no worker that is online runs render.frame" in answer.err
    assert "antiphon worker MODULE" in answer.err
    answer = host.run("submit", "render.frame", "2", "--detach", "--json")
    assert (answer.json["is_new"], answer.err) == (True, ""), "a program is not warned"
    later = host.run("submit", "render.frame", "3", "--detach", "--delay", "1h")
    assert later.err == "", "who comes until then is not known"


def test_a_command_that_no_worker_runs_says_what_it_takes(host):
    answer = host.run("run", "--detach", "--", "echo", "hello")
    assert answer.code == 0
    assert "no worker that is online runs commands of kind command" in answer.err
    assert "apt install bubblewrap" in answer.err
    assert "--unsafe-no-sandbox" in answer.err
    seen = host.on_screen(
        "run", "--", "echo", "hello again", columns=200, seeing="--unsafe-no-sandbox", ends=True
    )
    assert "no worker that is online runs commands" in " ".join(seen.split())


def test_a_route_to_a_machine_that_was_revoked_is_told_by_every_command(host):
    said = "is routed to gpu-box, which was revoked: nobody may claim it"
    to_type = "antiphon route render --clear"
    assert host.run("route", "render", "gpu-box").code == 0
    findings = host.run("doctor", "--json").json["checks"]
    (offline,) = (one for one in findings if one["check"] == "routes")
    assert (offline["level"], "gpu-box" in offline["sentence"]) == ("warning", True)
    revoked = host.run("revoke", "gpu-box")
    assert revoked.code == 0
    assert f"render {said}" in revoked.err
    examined = host.run("doctor")
    assert examined.code == 1
    assert f"render {said}" in " ".join(examined.out.split())
    for answer in (host.run("nodes"), host.run("route")):
        assert f"render {said}" in answer.err
        assert to_type in answer.err
    submitted = host.run("submit", "render.frame", "5", "--detach")
    assert f"warning: render.frame {said}" in submitted.err
    seen = host.on_screen("submit", "render.frame", "6", columns=200, seeing="--clear", ends=True)
    assert f"waiting: render.frame {said}" in " ".join(seen.split())
    why = host.run("why", submitted.out.strip())
    assert "routed to gpu-box: only it may claim the job" in why.out
    assert f"render.frame {said}" in why.out
    assert host.run("route", "render", "--clear").code == 0
    assert "no routes" in host.run("route").out
