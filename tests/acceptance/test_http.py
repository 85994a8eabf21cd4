"""A node's HTTP interface through the real command line."""

import json
import socket
import stat
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats


def get(
    where: str, path: str, token: str = "", method: str = "GET", body: bytes | None = None
) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(
        f"http://{where}{path}", data=body, headers=headers, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("http"))
    with shell.init("--name", "watched"):
        yield shell


@pytest.fixture
def replica(tmp_path):
    """Another one than that of `antiphon init`, which goes on beside the node."""
    return {"ANTIPHON_REPLICA": str(tmp_path / "replica.db"), "ANTIPHON_LOG_LEVEL": "debug"}


@pytest.mark.req("B20", "B24")
def test_a_node_answers_probes_to_all_and_metrics_to_those_with_a_token(host, replica):
    with host.start("node", "--http", "127.0.0.1:0", "--json", **replica) as node:
        where = json.loads(node.line("ready"))["http"]
        assert where.startswith("127.0.0.1:")
        assert get(where, "/healthz") == (200, "ok\n")
        until(lambda: get(where, "/readyz") == (200, "ok\n"))  # once it hears a leader's beats
        assert get(where, "/metrics")[0] == 401

        file = host.home / "http-token"
        operators = file.read_text().strip()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        status, text = get(where, "/metrics", operators)
        assert status == 200
        assert "antiphon_engine_connected 1.0" in text

        made = host.run("token", "--role", "read")
        assert (made.code, made.err) == (0, "")
        assert get(where, "/metrics", made.out.strip())[0] == 200
        some = host.run("token", "--project", "build", "--json").json
        assert (some["project"], some["role"]) == ("build", "read")
        status, text = get(where, "/metrics", some["token"])
        assert (status, json.loads(text)["reason"]) == (403, "project")

        status, text = get(where, "/v1/jobs", operators, "POST", b'{"kind": "build.app"}')
        assert status == 201, text
        job = json.loads(text)["id"]
        status, text = get(where, "/v1/jobs?state=pending&kind=build", some["token"])
        assert (status, [one["id"] for one in json.loads(text)["items"]]) == (200, [job])
        status, text = get(where, f"/v1/jobs/{job[:9]}/cancel", operators, "POST", b"{}")
        assert (status, json.loads(text)["outcome"]) == (200, "cancelled")
        linked = host.run("link", job[:12], "--for", "2h", "--at", f"http://{where}").out.strip()
        path = linked.removeprefix(f"http://{where}")
        assert json.loads(get(where, path)[1])["id"] == job
        assert get(where, path.replace(f"/v1/jobs/{job}", "/v1/jobs"))[0] == 401

        status, text = get(where, "/v1/tempo/freeze", operators, "POST")
        assert (status, json.loads(text)["adaptation"]["frozen"]) == (200, True)
        assert json.loads(get(where, "/v1/tempo", operators)[1])["mode"] == "leader"

        assert node.stop() == 0
        with pytest.raises(urllib.error.URLError):
            get(where, "/healthz")
        said = "".join(node.seen) + node.err
        for secret in (operators, made.out.strip(), some["token"], linked.partition("=")[2]):
            assert secret not in said


def test_a_machine_without_the_owners_key_does_not_change_the_tempo(host, replica, tmp_path):
    ticket = host.run("invite", "--can", "all", "--alias", "box").out.strip()
    box = Shell(tmp_path)
    assert box.run("join", ticket).code == 0
    with box.start("node", "--http", "127.0.0.1:0", "--json", **replica) as node:
        where = json.loads(node.line("ready"))["http"]
        operators = (box.home / "http-token").read_text().strip()
        status, text = get(where, "/v1/tempo/freeze", operators, "POST")
        assert (status, json.loads(text)["reason"]) == (403, "not_owner")
        made = box.run("token", "--project", "build", "--role", "tempo").out.strip()
        assert get(where, "/v1/tempo", made)[0] == 200
        assert node.stop() == 0


@pytest.mark.req("S17")
def test_the_environment_says_where_and_with_which_token(host, replica):
    secret = "a-secret-of-my-own"
    env = {**replica, "ANTIPHON_HTTP_ADDRESS": "127.0.0.1:0", "ANTIPHON_HTTP_TOKEN": secret}
    with host.start("node", **env) as node:
        where = node.line("/healthz").split("http://")[1].split("/")[0]
        assert "ANTIPHON_HTTP_TOKEN" in node.line("token")
        assert get(where, "/v1/status", secret)[0] == 200
        assert node.stop() == 0
        assert secret not in "".join(node.seen) + node.err


def test_an_address_that_others_reach_must_be_meant(host, replica):
    answer = host.run("node", "--http", "0.0.0.0:7464", **replica)
    assert answer.code == 3
    assert "other machines could reach 0.0.0.0:7464" in answer.err
    assert "--http-exposed" in answer.err
    answer = host.run("node", "--http", "7464", **replica)
    assert answer.code == 2
    assert "127.0.0.1:7464" in answer.err


@pytest.mark.parametrize(
    "command", [["node"], ["worker", "--commands", "x", "--unsafe-no-sandbox"]]
)
def test_a_port_that_is_taken_is_changed_by_the_same_option_of_the_same_command(
    host, replica, command
):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = host.run(*command, "--http", f"127.0.0.1:{port}", **replica)
    assert answer.code == 6
    assert f"another program already listens on 127.0.0.1:{port}" in answer.err
    assert f"type the same with another port: --http 127.0.0.1:{port + 1}" in answer.err
    assert "antiphon node" not in answer.err


def test_without_http_there_is_no_port_and_no_token(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev() as ready:
        assert not (Path(ready["home"]) / "http-token").exists()
        refused = shell.run("token")
        assert refused.code == 5
        assert "operator's token" in refused.err


def test_a_worker_and_the_host_answer_too_and_off_loopback_nobody_does_unasked(tmp_path):
    shell = Shell(tmp_path)
    assert shell.run("init", "--name", "watched", "--listen", "127.0.0.1:0", "--no-up").code == 0
    (tmp_path / "work.py").write_text(
        "from antiphon import Mesh\nmesh = Mesh.open()\n\n"
        '@mesh.task("work.add")\ndef add(a: int, b: int) -> int:\n    return a + b\n'
    )
    http = ("--http", "127.0.0.1:0", "--json")
    with shell.start("up", *http) as host:
        there = json.loads(host.line("ready"))["http"]
        with shell.start("worker", "work", *http) as worker:
            here = json.loads(worker.line("ready"))["http"]
            token = (shell.home / "http-token").read_text().strip()
            assert shell.run("submit", "work.add", "2", "3").out == "5\n"
            assert get(here, "/readyz") == (200, "ok\n")
            assert get(here, "/metrics")[0] == 401
            until(
                lambda: (
                    'runs_total{kind="work.add",outcome="succeeded"} 1'
                    in get(here, "/metrics", token)[1]
                )
            )
            text = get(there, "/metrics", token)[1]
            assert 'antiphon_jobs{kind="work.add",state="succeeded"} 1.0' in text
            assert "antiphon_disk_free_bytes" in text
            refused = shell.run("worker", "work", "--http", "0.0.0.0:0")
            assert refused.code != 0
            assert "--http-exposed" in refused.err
