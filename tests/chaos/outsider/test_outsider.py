"""`chaos outsider`: the whole of it, small; and that it would notice if an attack came through."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from antiphon.core.record.subjects import root
from antiphon.interfaces.http.askers import Anybody
from antiphon.runtime.executors.handler_call import call_text
from chaos.network.http_wire import Answer
from chaos.network.raw_connection import frame
from chaos.outsider.attacks.blobs import digest_of, given_bytes
from chaos.outsider.attempt import DENIED, Attempt, Outcome
from chaos.outsider.command import (
    ATTEMPTS,
    COULD_NOT_CHECK,
    Report,
    attack,
    run_final_check,
    select,
)
from chaos.outsider.http.doors import Behind
from chaos.outsider.http.routes import Credential, Survey, fault_of
from chaos.outsider.target import CANARY, RENDER, SECRET, Breach, target_mesh
from tests.examples import size

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.nats
SMALL = ["--floods", "0.05", "--check-every", "12"]
"""Every attempt, with small floods; a job is called and the log compared after every twelfth."""


@pytest.mark.long
def test_every_attempt_ends_at_a_wall_or_harms_nobody():
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "outsider", *size(SMALL, soak=["--quick"])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["breaches"] == []
    assert told["attempts"] == len(list(select(""))) > 200
    assert told["attempts"] == told["refused"] + told["harmless"] == sum(told["walls"].values())
    assert told["unchecked"] == []
    assert all(told["after"].values())
    assert told["routes"] > 70
    assert told["unstated"] == 0
    assert all(told["tokenless"].values())
    assert done.returncode == 0, done.stderr


def test_attempts_have_names_of_their_own():
    names = [attempt.name for attempts in ATTEMPTS.values() for attempt in attempts]
    assert len(names) == len(set(names))


async def caught(target, act) -> str:
    with pytest.raises(Breach) as found:
        await attack(target, Attempt("test", act))
    return str(found.value)


def test_a_route_that_answers_what_it_must_not_is_noticed():
    known = SimpleNamespace(asker=Anybody("one word"), path="/x", methods=("GET",))
    closed = SimpleNamespace(asker=SimpleNamespace(under="/job/read"), path="/x")
    shows = Answer(200, {}, b"{}")
    leaks = Answer(404, {}, b"x" + CANARY.encode())
    opens = Credential(commands=("/job/read",))
    assert fault_of(Behind("node", 0, closed, "GET"), Credential(), shows)
    assert not fault_of(Behind("node", 0, known, "GET"), Credential(), shows)
    assert not fault_of(Behind("node", 0, closed, "GET"), opens, shows)
    for route in (known, closed):
        assert fault_of(Behind("node", 0, route, "GET"), opens, leaks)
    report = Report()
    report.note("test", Attempt("test", None), DENIED)
    assert report.holds
    report.survey = Survey(routes=1, tokenless={"/x": ""}, unstated=1)
    assert not report.holds


async def test_what_the_outsider_receives_of_others_is_noticed():
    async with target_mesh(1) as target:

        async def nothing(_) -> Outcome:
            return DENIED

        async def receive(_) -> Outcome:
            # As if the server had let a record of the victim's through.
            handle = await target.owner.submit("build.image", "text")
            target.hidden.add(handle.id.encode())
            subject = f"{root(target.mesh)}.jobs.1.build.image.{handle.id}"
            target.connection.received.extend(subject.encode())
            return DENIED

        assert await attack(target, Attempt("test", nothing)) is DENIED
        assert "received" in await caught(target, receive)


async def test_only_bytes_that_came_are_a_gift_of_the_gate():
    async with target_mesh(1) as target:
        large = "x" * 100_000
        owned = await target.owner.submit(RENDER, large)
        hidden = await target.owner.submit(SECRET, large)
        content = call_text((large,), {}).encode()
        wanted = digest_of(content)
        given = await given_bytes(target, wanted, kind=RENDER, job=owned.id)
        assert given == content[: len(given)] != b"", "a job of its own kind"
        question = json.dumps({"do": "has", "digest": wanted}).encode()
        where = f"apg.{target.mesh}.{target.connection.user}.blob"
        burst = frame(where, question, reply=f"{target.connection.inbox}.burst") * 64
        await target.connection.send(burst)  # so many at once that it is told to come back
        assert await given_bytes(target, wanted, kind=SECRET, job=hidden.id) == b""


async def test_a_victim_that_works_no_more_is_noticed():
    async with target_mesh(1) as target:
        await target.working.worker.session.engine.close()
        with pytest.raises(Breach, match=r"did not end|brought down"):
            await target.check_work(1.0)


async def test_final_checks_without_a_server_are_unchecked_and_no_breach(capsys):
    async with target_mesh(1) as target:
        report, attempt = Report(), Attempt("test", None)
        report.note("test", attempt, DENIED)
        target.host.hosting.hosted.server.kill()
        assert "does not answer" in await target.server_fault()
        for name in ("the log lost and changed nothing", "nothing of others' was received"):
            await run_final_check(target, report, name)
        assert report.breaches == []
        assert report.after == {"nothing of others' was received": True}, "it needs no server"
        [why] = report.unchecked
        assert "the server does not answer" in why
        assert "could not check" in capsys.readouterr().out
        assert report.code == COULD_NOT_CHECK
        report.note_breach("test", attempt, "something got through")
        assert report.code == 1
        await target.host.hosting.hosted.server.start()


async def test_a_final_check_that_fails_beside_a_server_is_a_breach():
    async with target_mesh(1) as target:
        assert await target.server_fault() == ""
        await target.check_all()
        gone = (await target.read_log())[-1]
        await target.owner.connection.session.log.purge(gone.subject, upto=gone.seq)
        report = Report()
        await run_final_check(target, report, "the log lost and changed nothing")
        assert len(report.breaches) == 1
        assert report.unchecked == []


async def test_a_record_that_is_gone_is_noticed():
    async with target_mesh(1) as target:
        await target.check_all()
        gone = (await target.read_log())[-1]
        await target.owner.connection.session.log.purge(gone.subject, upto=gone.seq)
        with pytest.raises(Breach, match=r"missing|ends at"):
            await target.check_log()
