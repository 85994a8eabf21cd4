"""A real Prometheus scrapes a node and a worker with the operator's token, and answers queries.

Debian has it (`apt-get install prometheus`); where it is not installed these tests are skipped, and
`tests/interfaces/http/test_metrics.py` reads the same text with Prometheus' own Python parser.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request

import pytest

from tests.acceptance.shell import Shell, until
from tests.interfaces.http.test_monitoring import MONITORING, alerts, queries_of_the_board
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.nats,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="prometheus is not installed: apt-get install prometheus",
    ),
]

TASKS = """
from antiphon import Mesh
mesh = Mesh.open()

@mesh.task("shop.halve", attempts=1)
async def halve(number: int) -> int:
    if number % 2:
        raise ValueError("odd")
    return number // 2
"""
CONFIG = """
global: {scrape_interval: 500ms}
scrape_configs:
  - job_name: antiphon
    authorization: {credentials_file: %s}
    static_configs: [{targets: ["%s", "%s"]}]
"""


@contextlib.contextmanager
def prometheus(directory, *targets):
    """A server with a database of its own; its address."""
    (directory / "prometheus.yml").write_text(
        CONFIG % (directory / ".antiphon" / "http-token", *targets)
    )
    subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=directory, check=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        where = f"127.0.0.1:{probe.getsockname()[1]}"
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=metrics",
                f"--web.listen-address={where}",
            ],
            cwd=directory,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"]},
        )
    try:
        yield where
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def asked(where, query):
    """The answer to a query, by the labels' values; empty while there is none."""
    url = f"http://{where}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        found = json.load(answer)["data"]["result"]
        return {tuple(one["metric"].values()): float(one["value"][1]) for one in found}
    return {}


def answered(where, query):
    """Ask it, or raise if it does not understand the question."""
    url = f"http://{where}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        assert json.load(answer)["status"] == "success"


def test_the_alerts_fire_in_the_cases_that_they_are_for():
    for words in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        subprocess.run(["promtool", *words], cwd=MONITORING, check=True)


def test_prometheus_scrapes_node_and_worker_and_its_answers_are_the_jobs(tmp_path):
    (tmp_path / "tasks.py").write_text(TASKS)
    shell = Shell(tmp_path)
    assert shell.run("init", "--no-up").code == 0
    http = ("--http", "127.0.0.1:0", "--json")
    with contextlib.ExitStack() as stack:
        up = stack.enter_context(shell.start("up", *http))
        node_at = json.loads(up.line("ready"))["http"]
        worker = stack.enter_context(shell.start("worker", "tasks.py", *http))
        worker_at = json.loads(worker.line("ready"))["http"]
        numbers = [
            shell.run("submit", "shop.halve", str(number), "--attempts", "1").code
            for number in (2, 4, 5)
        ]
        assert numbers == [0, 0, 1]
        with prometheus(tmp_path, node_at, worker_at) as where:
            until(lambda: asked(where, "sum(up)") == {(): 2})
            runs = asked(where, 'sum by (outcome) (antiphon_runs_total{kind="shop.halve"})')
            assert runs == {("succeeded",): 2, ("failed",): 1}
            jobs = asked(where, 'sum by (state) (antiphon_jobs{kind="shop.halve"})')
            assert jobs == {("succeeded",): 2, ("failed",): 1}
            count = "sum(antiphon_run_seconds_count)"
            assert asked(where, count) == {(): 3}
            assert shell.run("submit", "shop.halve", "8").code == 0
            until(lambda: asked(where, count) == {(): 4})
            for query in [*queries_of_the_board(), *(rule["expr"] for rule in alerts())]:
                answered(where, query.replace("$__rate_interval", "1m"))
        token = (shell.home / "http-token").read_text().strip()
        for one in (node_at, worker_at):
            request = urllib.request.Request(
                f"http://{one}/metrics", headers={"Authorization": f"Bearer {token}"}
            )
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
            checked = subprocess.run(
                ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
            )
            assert (checked.returncode, checked.stderr) == (0, b""), checked.stderr.decode()
