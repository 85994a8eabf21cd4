"""ANTIPHON_ENGINE_TOKEN: a server of somebody else's that lets in whoever has its token."""

import json
import subprocess
import time
from contextlib import contextmanager

import pytest

from antiphon import Mesh
from antiphon.core.authority.rules import Rules
from antiphon.engines.nats import Login, NatsEngine
from antiphon.engines.nats.server.process import find_binary
from antiphon.errors import EngineDenied
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from tests.patience import PATIENCE_S

TOKEN = "a-token-of-the-servers-own"


@contextmanager
def guarded_server(folder):
    """A server that knows no users, only a token; its address."""
    given = ["--js", "--store_dir", str(folder), "--addr", "127.0.0.1", "--port", "-1"]
    given += ["--ports_file_dir", str(folder), "--auth", TOKEN]
    server = subprocess.Popen(
        [find_binary(), *given], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not (found := list(folder.glob("*.ports"))) or not found[0].read_text():
            assert time.monotonic() < until_s, "the server does not start"
            time.sleep(0.02)
        (address,) = json.loads(found[0].read_text())["nats"]
        yield address
    finally:
        server.kill()
        server.wait()


async def found_mesh(home: StateDirectory, address: str) -> str:
    """A mesh on that server, and a state directory whose own login is refused there."""
    owner = home.key("owner", SystemEntropy())
    try:
        rules = Rules(authority="open")
        signed = genesis.sign(
            owner.keyring, SystemClock(), name="guarded", recovery=owner.keyring.did, rules=rules
        )
    finally:
        owner.release()
    engine = await NatsEngine.connect(address, signed.mesh, login=Login(token=TOKEN), create=True)
    try:
        await genesis.write(engine.log, signed)
    finally:
        await engine.close()
    described = MeshFile(mesh=signed.mesh, name="guarded", engine=address)
    home.write(described, Access(user="mesh", password="of another server"))
    return signed.mesh


@pytest.mark.nats
@pytest.mark.processes
@pytest.mark.req("S17")
async def test_a_process_logs_in_with_the_token_of_its_environment_and_not_without(
    monkeypatch, tmp_path
):
    store = tmp_path / "server"
    store.mkdir()
    home = StateDirectory(tmp_path / ".antiphon")
    with guarded_server(store) as address:
        mesh_id = await found_mesh(home, address)
        with pytest.raises(EngineDenied):
            async with Mesh.open(home=home.path):
                pass
        monkeypatch.setenv("ANTIPHON_ENGINE_TOKEN", TOKEN)
        async with Mesh.open(home=home.path) as mesh:
            handle = await mesh.submit("example.add", 1, 2)
            assert (await handle.lane()).lane.job.state.value == "pending"
            assert mesh.id == mesh_id
        assert TOKEN not in (home.path / "mesh.json").read_text()
        monkeypatch.setenv("ANTIPHON_ENGINE_TOKEN", "another")
        with pytest.raises(EngineDenied):
            async with Mesh.open(home=home.path):
                pass
