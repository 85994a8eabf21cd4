"""`examples/approval`: an agent on one machine, a person on another, and what each cannot do."""

import json
import shutil
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell
from tests.acceptance.test_two_machines import join

pytestmark = pytest.mark.nats
AGENT = Path(__file__).parents[2] / "examples" / "approval" / "agent.py"
APPROVE = ("--kind", "approve.*")


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    """The host, the agent's machine with its worker, and two people's machines."""
    shells = {
        name: Shell(tmp_path_factory.mktemp(name)) for name in ("host", "box", "phone", "tablet")
    }
    with shells["host"].init("--name", "farm"):
        rights = ("--can", "claim", "--can", "schedule", "--kind", "agent.*", *APPROVE)
        join(shells["host"], shells["box"], *rights, alias="box")
        for name in ("phone", "tablet"):
            join(shells["host"], shells[name], "--can", "answer", *APPROVE, alias=name)
        shutil.copy(AGENT, shells["box"].directory)
        with shells["box"].start("worker", "agent.py", "--json") as worker:
            worker.line("ready")
            yield shells


def released(host, version):
    """A release that was begun."""
    return host.run("submit", "agent.release", "web", str(version), "--detach", "--json").json[
        "job"
    ]


def question_on(machine):
    found = machine.run("questions", "--wait", "1m", "--json").json["questions"]
    assert len(found) == 1, found
    return found[0]


def test_an_agent_deploys_when_a_person_on_another_machine_says_yes(farm):
    host, box, phone = farm["host"], farm["box"], farm["phone"]
    job = released(host, 7)
    question = question_on(phone)
    assert question["text"] == "deploy web-7.tar to production?"
    assert question["asked_by"].startswith("box")
    name, yes = question["job_id"][:8], json.dumps({"go": True, "why": "tested"})

    forged = box.run("answer", name, yes)
    assert forged.code == 5
    assert "may not answer approve.deploy" in forged.err
    wrong = phone.run("answer", name, '{"go": "yes"}')
    assert wrong.code != 0
    assert "go of the answer is not of the type boolean" in wrong.err
    missing = phone.run("answer", name)
    assert "the answer is missing" in missing.err
    submitted = host.run("answer", name, yes)
    assert submitted.code != 0
    assert "nor may the parties that the question excludes" in submitted.err
    assert phone.run("submit", "agent.release", "web", "8").code == 5

    answered = phone.run("answer", name, yes)
    assert answered.code == 0, answered.err
    assert f"✓ answered  approve.deploy {name}" in answered.out
    ended = host.ended(job)
    assert ended["result"] == "web-7.tar is live"
    again = phone.run("answer", name, yes)
    assert "was answered already" in again.err
    assert "no questions are open" in phone.run("questions").out

    assert host.export(job, "-o", "release.json").code == 0
    proved = " ".join(host.run("verify", "release.json").out.split())
    assert "was asked 'deploy web-7.tar to production?'" in proved
    assert 'answered {"go":true,"why":"tested"}, and signed both' in proved
    assert "phone" in proved


def test_a_person_who_was_revoked_cannot_answer_and_another_can(farm):
    host, phone, tablet = farm["host"], farm["phone"], farm["tablet"]
    job = released(host, 8)
    name = question_on(tablet)["job_id"][:8]
    assert host.run("revoke", "phone").code == 0
    refused = phone.run("answer", name, '{"go": true}')
    assert refused.code != 0
    no = tablet.run("answer", name, '{"go": false, "why": "not on a friday"}')
    assert no.code == 0, no.err
    assert host.ended(job)["result"] == "web-8.tar was not deployed: not on a friday"
