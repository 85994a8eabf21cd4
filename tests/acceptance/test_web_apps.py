"""The web examples under their real servers: every process signs with a key of its own."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from antiphon import Mesh
from tests.acceptance.shell import Shell, until
from tests.examples import size
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nats
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BIN = Path(sys.executable).parent
CHILDREN = size(3, soak=8)
REPORTS = 8 * CHILDREN
MOST_LINES = 60


class Site:
    """A web server that runs, and what it answers."""

    def __init__(self, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log

    def ask(self, path: str, method: str = "GET") -> tuple[int, Any]:
        try:
            with urlopen(Request(self.url + path, method=method), timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def is_up(self) -> bool:
        try:
            self.ask("/")
        except URLError:
            return False
        return True

    def report(self, order: int) -> str:
        """Submit a job in one request and get its result in others, as a person would."""
        status, submitted = self.ask(f"/orders/{order}/report", "POST")
        assert status == 202, (submitted, self.log.read_text())
        answers: list[Any] = []

        def is_there() -> bool:
            answers.append(self.ask(f"/reports/{submitted['job']}"))
            assert answers[-1][0] in {200, 202}, (answers[-1], self.log.read_text())
            return answers[-1][0] == 200

        until(is_there)
        return str(answers[-1][1]["report"])


@contextmanager
def serving(shell: Shell, *words: str) -> Iterator[Site]:
    """A server of the app in this directory; `PORT` among the words is replaced."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = shell.directory / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [BIN / words[0], *(word.replace("PORT", str(port)) for word in words[1:])],
            cwd=shell.directory,
            env=shell.env,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        site = Site(port, log)
        try:
            until(lambda: process.poll() is not None or site.is_up())
            assert process.poll() is None, log.read_text()
            yield site
            os.kill(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def copy_of(example: str, directory: Path) -> None:
    """The example's app, in a directory where a mesh can be started."""
    shutil.copy(EXAMPLES / example / "app.py", directory)


@contextmanager
def a_site(directory: Path, *words: str, owned: bool = False) -> Iterator[Site]:
    """The app in this directory with its server and a worker; `owned`: a mesh with permissions."""
    shell = Shell(directory)
    with shell.init() if owned else shell.dev(), shell.start("worker", "app.py") as worker:
        worker.line("runs report.render")
        with serving(shell, *words) as site:
            yield site


def signed(home: Path) -> list[tuple[str, str, Any]]:
    """Who signed what and with which timestamp: every record of the log."""

    async def read() -> list[tuple[str, str, Any]]:
        async with Mesh.open(home=home) as mesh:
            page = await mesh.connection.session.log.read(0, limit=10_000)
            opened = [mesh.connection.session.open(record) for record in page.records]
            return [(one.op.type_name(), one.op.author, one.op.hlc) for one in opened if one.op]

    return asyncio.run(read())


GUNICORN = ("gunicorn", "--workers", str(CHILDREN), "--bind", "127.0.0.1:PORT")
EVERY_CHILD_SUBMITS = """
def post_worker_init(worker):
    from app import render
    for order in range(5):
        render.submit(order)
"""
PARENT_SUBMITS = """
def when_ready(server):  # before it forks
    from app import render
    render.submit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, more_hooks, keys",
    [((), "", CHILDREN), (("--preload",), PARENT_SUBMITS, CHILDREN + 1)],
    ids=["the app is imported by each child", "preloaded, and used before the fork"],
)
def test_the_children_of_gunicorn_sign_with_keys_of_their_own(tmp_path, words, more_hooks, keys):
    copy_of("flask_app", tmp_path)
    (tmp_path / "gunicorn.conf.py").write_text(EVERY_CHILD_SUBMITS + more_hooks)
    with a_site(tmp_path, *GUNICORN, *words, "app:app", owned=True) as site:
        with ThreadPoolExecutor(16) as people:
            reports = list(people.map(site.report, range(REPORTS)))
        assert reports == [f"Report on order {order}" for order in range(REPORTS)]
        wanted = REPORTS + 5 * CHILDREN + keys - CHILDREN
        until_s = time.monotonic() + PATIENCE_S
        while True:  # a child may still be starting when the others have answered everything
            ops = signed(tmp_path / ".antiphon")
            if sum(op == "job.schedule" for op, _, _ in ops) >= wanted:
                break
            assert time.monotonic() < until_s
            time.sleep(0.5)
    submitters = {author for op, author, _ in ops if op == "job.schedule"}
    stamps = [(author, hlc) for _, author, hlc in ops]
    assert len(submitters) == keys
    assert len(set(stamps)) == len(stamps), "no timestamp was signed twice"
    assert "mesh.evidence" not in {op for op, _, _ in ops}
    assert sum(op == "job.schedule" for op, _, _ in ops) == wanted


def test_the_flask_app_runs_on_flasks_own_server(tmp_path):
    copy_of("flask_app", tmp_path)
    with a_site(tmp_path, "flask", "--app", "app", "run", "--port", "PORT") as site:
        assert site.report(42) == "Report on order 42"


def test_the_fastapi_app_runs_on_uvicorn(tmp_path):
    copy_of("fastapi_app", tmp_path)
    with a_site(tmp_path, "uvicorn", "app:app", "--port", "PORT") as site:
        assert site.report(42) == "Report on order 42"
        assert site.ask(f"/reports/{'0' * 64}")[0] == 404
        assert site.ask("/reports/zz")[0] == 404


def test_the_fastapi_app_says_where_a_report_stands(tmp_path):
    copy_of("fastapi_app", tmp_path)
    shell = Shell(tmp_path)
    with shell.dev(), serving(shell, "uvicorn", "app:app", "--port", "PORT") as site:
        job = site.ask("/orders/42/report", "POST")[1]["job"]
        status, told = site.ask(f"/reports/{job}")
        assert status == 202
        assert (told["id"], told["state"], told["submitter"]) == (job, "pending", "client-1")
        with shell.start("worker", "app.py") as worker:
            worker.line("runs report.render")
            until(lambda: site.ask(f"/reports/{job}")[0] == 200)


def test_the_flask_app_runs_on_greenlets(tmp_path):
    copy_of("flask_app", tmp_path)
    words = ("--worker-class", "gevent", "--bind", "127.0.0.1:PORT", "app:app")
    with a_site(tmp_path, "gunicorn", *words) as site:
        with ThreadPoolExecutor(16) as people:
            reports = list(people.map(site.report, range(32)))
        assert reports == [f"Report on order {order}" for order in range(32)]


@pytest.mark.parametrize("example", ["flask_app", "fastapi_app"])
def test_an_example_is_short(example):
    assert len((EXAMPLES / example / "app.py").read_text().splitlines()) <= MOST_LINES
