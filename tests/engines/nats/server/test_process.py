"""The server that we start ourselves: secrets, life, durability."""

import os
import socket
import stat
from pathlib import Path

import pytest

from antiphon.engines.nats import Accounts, LocalServer, server_files, system_login
from antiphon.engines.nats.server import process as server
from antiphon.engines.nats.server import server_config as server_configs
from antiphon.errors import Held, Misconfigured, PortTaken, Unavailable
from antiphon.testing.engine_suite.harness import new_mesh
from tests.engines.nats.harness import connect
from tests.engines.nats.operated import RENDER, operated
from tests.local_server import running_server, shared_server

pytestmark = pytest.mark.nats


async def test_secrets_are_in_a_private_file_and_on_no_command_line():
    async with LocalServer() as running:
        config = running.directory / "server.conf"
        assert stat.S_IMODE(config.stat().st_mode) == 0o600
        assert stat.S_IMODE((running.directory / "credentials.json").stat().st_mode) == 0o600
        line = Path(f"/proc/{running.pid}/cmdline").read_bytes()
        for secret in (running.password, running.system_credentials.password):
            assert secret.encode() not in line
            assert secret not in f"{running.system_credentials!r} {running.login!r}"
            assert secret not in running.url
        assert "http" not in config.read_text()


def test_a_busy_machine_has_time_to_log_in():
    """By itself the server waits 2 s for a login, which a machine with other work can need."""
    with socket.create_connection(("127.0.0.1", shared_server().port)) as line:
        assert line.recv(4096).startswith(b"INFO")
        line.settimeout(3)
        with pytest.raises(TimeoutError):
            line.recv(4096)  # or it would be told that it was too slow


async def test_a_restart_keeps_port_store_and_credentials():
    mesh = new_mesh()
    async with LocalServer() as running:
        before = (running.port, running.password, running.pid)
        async with await connect(running, mesh) as engine:
            await engine.log.append(f"ap.{mesh}.seal", b"x", message_id="a", expected_last=0)
        running.kill()
        await running.start()
        assert (running.port, running.password) == before[:2]
        assert running.pid != before[2]
        async with await connect(running, mesh, create=False) as engine:
            assert (await engine.log.last()).payload == b"x"


async def test_a_directory_can_be_started_again_by_another_process(tmp_path):
    mesh = new_mesh()
    async with LocalServer(tmp_path) as running:
        await (await connect(running, mesh)).close()
    async with LocalServer(tmp_path) as running:
        await (await connect(running, mesh, create=False)).close()
    assert (tmp_path / "server.log").exists()  # it is not ours to delete


async def test_two_servers_never_share_a_directory(tmp_path):
    async with LocalServer(tmp_path) as running:
        with pytest.raises(Held):
            await LocalServer(tmp_path).start()
        running.kill()
        async with LocalServer(tmp_path):  # the lock died with the process
            pass


async def test_stopping_and_killing_are_safe_twice():
    running = LocalServer()
    await running.start()
    pid = running.pid
    await running.start()
    assert running.pid == pid
    await running.stop()
    await running.stop()
    running.kill()
    assert running.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    running.remove()
    assert not running.directory.exists()


async def test_a_config_that_the_server_refuses_shows_its_last_words(tmp_path):
    (tmp_path / "store").write_text("a file where a directory should be")
    with pytest.raises(Unavailable) as caught:
        await LocalServer(tmp_path).start()
    assert "ended while starting" in caught.value.message


@pytest.mark.parametrize(
    "host, error, said",
    [
        ("127.0.0.1", PortTaken, "another program already listens at 127.0.0.1:{port}"),
        ("127.0.0.1.nowhere.invalid", Misconfigured, "is not an address of this machine"),
    ],
)
async def test_an_address_that_cannot_be_had_is_a_sentence(tmp_path, host, error, said):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        running = LocalServer(tmp_path, port=port)
        running.host = host
        with pytest.raises(error) as caught:
            await running.start()
    assert said.format(port=port) in caught.value.message
    assert caught.value.hint
    assert "[FTL]" not in caught.value.message


def test_a_missing_binary_says_what_to_install(monkeypatch):
    monkeypatch.setattr(server, "_PACKAGE", "no-such-package")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Misconfigured) as caught:
        server.find_binary()
    assert "antiphon[server]" in caught.value.hint


async def test_the_system_account_tells_the_durability():
    mesh = new_mesh()
    always = shared_server()
    async with await connect(always, mesh, system=always.system_login) as engine:
        info = await engine.info()
        assert (info.name, info.durability, info.replicas) == ("nats", "always", 1)
        assert info.warnings == ()
    async with await connect(always, mesh) as engine:
        info = await engine.info()
        assert info.durability == "unknown"
        assert len(info.warnings) == 1
    with running_server(sync="default") as lazy:
        async with await connect(lazy, mesh, system=lazy.system_login) as engine:
            info = await engine.info()
            assert info.durability == "interval"
            assert "sync_interval: always" in info.warnings[0]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "mesh.example", "::"])
def test_a_server_that_others_reach_needs_tls_and_accounts(host, tmp_path):
    accounts = Accounts.open(tmp_path, "m")
    tls = server_files(tmp_path, ["localhost"])
    for held in ({}, {"accounts": accounts}, {"tls": tls}):
        with pytest.raises(Misconfigured) as caught:
            LocalServer(tmp_path / "server", host=host, **held)
        assert "TLS and accounts" in caught.value.message
    LocalServer(tmp_path / "server", host=host, accounts=accounts, tls=tls)
    assert not (tmp_path / "server").exists()


async def test_a_server_that_listens_everywhere_is_reached_from_its_own_machine(tmp_path):
    accounts = Accounts.open(tmp_path, "m")
    tls = server_files(tmp_path, ["127.0.0.1"])
    server = LocalServer(tmp_path / "server", host="0.0.0.0", accounts=accounts, tls=tls, port=7)
    assert server.url == "tls://127.0.0.1:7"
    server = LocalServer(tmp_path / "server", host="::", accounts=accounts, tls=tls, port=7)
    assert server.url == "tls://[::1]:7"


async def test_with_accounts_the_server_is_told_no_secret(tmp_path):
    async with operated(tmp_path) as place:
        config = (place.server.directory / "server.conf").read_text()
        log = place.server.log_file.read_text()
        keys = place.accounts.keys
        for key in (keys.operator, keys.system, keys.mesh, keys.members):
            assert key.seed not in config + log
        assert all(account.public in config for account in (keys.system, keys.mesh, keys.members))
        assert not (place.server.directory / "credentials.json").exists()
        assert "http" not in config
        async with await place.enter_fully(system=system_login(place.accounts)) as engine:
            assert (await engine.info()).durability == "always"


async def test_whoever_is_refused_does_not_fill_the_disk_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(server_configs, "LOG_BYTES", 50_000)
    async with operated(tmp_path) as place, place.gate(RENDER), await place.admit() as member:
        connection = member._connection
        for _ in range(40):
            connection.send(b"PUB ap.not.its.own 1\r\nx\r\n" * 50)
            await connection.round_trip()
        logs = list(place.server.directory.glob(f"{server_configs.LOG_FILE}*"))
        assert sum("Publish Violation" in log.read_text() for log in logs) > 1
        assert len(logs) <= server_configs.LOG_FILES
        assert sum(log.stat().st_size for log in logs) < 4 * 50_000
