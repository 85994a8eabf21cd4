"""A mesh that was made for one machine is opened to others, with what is on it."""

import json
import socket

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats
ELSEWHERE = "127.0.0.2"
"""Another address, at which nobody listened before."""


SHOP = """
from antiphon import Mesh
mesh = Mesh.open()

@mesh.task("shop.price")
def price(item: str) -> int:
    return 4
"""


@pytest.fixture
def shells(tmp_path):
    made = {}
    for name in ("owner", "near", "far"):
        (tmp_path / name).mkdir()
        made[name] = Shell(tmp_path / name)
    return made


def ticket(owner, *words) -> str:
    answer = owner.run("invite", *words, "--kind", "example.*")
    assert answer.code == 0, answer.err
    return answer.out.strip()


def test_a_mesh_is_opened_to_other_machines_later_and_stays_so(shells):
    owner, near, far = shells.values()
    with owner.init("--name", "shop") as founded:
        assert near.run("join", ticket(owner, "--can", "schedule"), "--alias", "near").code == 0
        job = near.run("submit", "--detach", "example.add", "2", "3").out.strip()
    former = json.loads((near.home / "mesh.json").read_text())["engine"]
    engine = former.replace("127.0.0.1", ELSEWHERE)
    with owner.start("up", "--listen", f"{ELSEWHERE}:0", "--reach", ELSEWHERE) as opened:
        opened.line(f"engine   {engine}, TLS")
        opened.line(f"listens  {engine.removeprefix('nats://')}, from now on")
        opened.line(f"names    {ELSEWHERE}, 127.0.0.1, in a new certificate")
        opened.line(f"members  that joined before look for it at {former}")
        to_type = opened.line("antiphon address").split()
        opened.line("up, 1 job on it")
        words = ("join", ticket(owner, "--can", "claim"), "--alias", "far", "--work", "example")
        with far.start(*words) as worker:
            worker.line("joined mesh 'shop'")
            worker.line("runs example.add")
            assert near.run("show", job).code != 0, "it looks at the former address"
            assert near.run(*to_type[1:]).code == 0
            assert near.ended(job)["result"] == 5
            assert worker.stop() == 0
        assert opened.stop() == 0
    with owner.start("up", "--json") as again:
        ready = json.loads(again.line("ready"))
        assert (ready["engine"], ready["mesh"]) == (engine, founded["mesh"])
        assert near.run("show", job, "--json").json["state"] == "succeeded"
        assert again.stop() == 0


def test_what_cannot_be_is_said_and_leaves_the_mesh_as_it_was(shells):
    owner = shells["owner"]
    with owner.init():
        pass
    was = {
        path: path.read_bytes()
        for path in (owner.home / "mesh.json", owner.home / "server" / "listen.json")
    }
    with socket.create_server((ELSEWHERE, 0)) as taken:
        port = taken.getsockname()[1]
        for words, told in {
            ("--reach", "farm.example"): "antiphon up --listen 0.0.0.0:4222 --reach NAME",
            ("--listen", f"{ELSEWHERE}:0", "--reach", "nosuch.invalid"): "does not know the name",
            ("--listen", ELSEWHERE): "is not HOST:PORT",
            ("--listen", f"{ELSEWHERE}:{port}"): f"--listen {ELSEWHERE}:PORT",
        }.items():
            refused = owner.run("up", *words)
            assert refused.code != 0
            assert told in refused.err
    assert {path: path.read_bytes() for path in was} == was
    with owner.start("up", "--json") as again:
        assert json.loads(again.line("ready"))["engine"] in was[owner.home / "mesh.json"].decode()
        assert again.stop() == 0


def test_a_development_mesh_is_opened_with_what_is_on_it(shells):
    owner, _, far = shells.values()
    (owner.home.parent / "shop.py").write_text(SHOP)
    with owner.dev() as began:
        job = owner.run("submit", "--detach", "shop.price", "tea").out.strip()
        assert "antiphon up --listen" in owner.run("invite", "--worker").err
    assert "antiphon up --listen" in owner.run("up").err
    key = owner.home / "keys" / "recovery-unshown.key"
    with owner.start("up", "--listen", f"{ELSEWHERE}:0", "--reach", ELSEWHERE) as opened:
        opened.line(f"names    {ELSEWHERE}, 127.0.0.1, in a new certificate")
        opened.line("rights   were everybody's who could connect")
        opened.line("up, 1 job on it")
        assert owner.run("rules", "--json").json["rules"]["authority"]["value"] == "chain"
        assert key.exists(), "nobody has seen it: there is no terminal"
        joined = far.run(
            "join", ticket(owner, "--can", "schedule"), "--alias", "far", "--json"
        ).json
        assert joined["mesh"] == began["mesh"]
        assert far.run("submit", "--detach", "secret.job", "1").code == 5
        with owner.start("worker", "shop") as worker:
            worker.line("runs shop.price")
            assert owner.ended(job)["result"] == 4
            assert worker.stop() == 0
        assert opened.stop() == 0
    refused = owner.run("dev")
    assert refused.code == 3
    assert "antiphon up" in refused.err
    shown = owner.on_screen("up", seeing="up, 1 job", ends=True)
    assert "Recovery key: write it down now" in shown
    assert not key.exists()
