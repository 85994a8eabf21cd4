"""Model calls on the command line: the example with the stock clients, audited; and a canary."""

import json
import secrets
import shutil
from pathlib import Path

import pytest

from antiphon.testing.model_server import ModelServer
from tests.acceptance.shell import Shell
from tests.acceptance.test_canary import files, holding

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agent_with_audit" / "agent.py"
pytestmark = [pytest.mark.nats, pytest.mark.slow]


def submitted(shell, *words):
    done = shell.run("submit", *words, "--json")
    assert done.code == 0, done.err
    return done.json["job"]


@pytest.mark.req("M26", "M27", "M28")
def test_the_example_is_audited_and_its_key_is_nowhere(tmp_path):
    shutil.copy(EXAMPLE, tmp_path)
    canary = f"canary-{secrets.token_hex(16)}"
    with ModelServer() as server:
        shell = Shell(tmp_path, MODEL_URL=server.url, MODEL_KEY=canary)
        with shell.dev(), shell.start("worker", "agent.py", "--json") as worker:
            worker.line("ready")
            before = submitted(shell, "agent.ask", "not recorded")
            assert shell.run("audit", before).out.endswith("they are not audited\n")
            shell.run("rules", "audit_inference=true")
            asked = submitted(shell, "agent.ask", "how warm is it?")
            shortened = submitted(shell, "agent.shorten", "a long text")
            _shows_everything(shell, asked)
            _lists(shell, asked, shortened)
            shell.run("rules", "redact_inference=prompt,output")
            hidden = submitted(shell, "agent.shorten", "my name is Ada")
            page = shell.run("audit", hidden).out
            assert "redacted prompt, output" in page
            assert "Ada" not in page
            _verifies_offline(shell, asked)
            places = list(files(tmp_path, without=tmp_path / "none"))
        assert len(server.requests) == 6
        assert any(canary in str(one["headers"]) for one in server.requests)
    assert holding(canary, iter(places)) == set()
    assert holding("how warm is it?", iter(places)), "where one would look for it"


def _shows_everything(shell, job):
    page = shell.run("audit", job[:8]).out
    assert "call 1 of 2  gpt-example  200" in page
    assert "calls weather(" in page
    assert "context 0\n    23 degrees and dry" in page
    assert "echo: how warm is it?" in page
    told = shell.run("audit", job, "--json").json
    first, second = told["calls"]
    assert told["is_audited"] is True
    assert (first["number"], second["number"]) == (0, 1)
    snapshot = second["snapshot"]
    assert snapshot["model"]["version"] == "gpt-example-2026-01-01"
    assert snapshot["backend"]["api"] == "openai.chat"
    assert snapshot["source"]["job"] == job
    assert snapshot["started"] <= snapshot["ended"]
    assert snapshot["tokens"]["output"] > 0
    names = [one["name"] for one in shell.run("artifacts", job, "--json").json["artifacts"]]
    assert names == ["result", "snapshot-0.json", "snapshot-1.json"]


def _lists(shell, asked, shortened):
    table = shell.run("audit", "--since", "1h").out
    assert table.count("gpt-example") == 2
    assert table.count("claude-example") == 1
    found = shell.run("audit", "--model", "claude", "--json").json["calls"]
    assert [(one["job"], one["model"]) for one in found] == [(shortened, "claude-example")]
    assert {one["job"] for one in shell.run("audit", "--json").json["calls"]} == {asked, shortened}
    wrong = shell.run("audit", asked, "--model", "gpt")
    assert wrong.code == 2


def _verifies_offline(shell, job):
    made = shell.export(job, "-o", "bundle.json", "--artifacts", "files")
    assert made.code == 0, made.err
    assert shell.run("verify", "bundle.json", "--artifacts", "files").code == 0
    stored = shell.directory / "files" / "snapshot-1.json"
    content = json.loads(stored.read_text())
    stored.write_text(json.dumps(content).replace("how warm", "how cold"))
    assert shell.run("verify", "bundle.json", "--artifacts", "files").code == 5
