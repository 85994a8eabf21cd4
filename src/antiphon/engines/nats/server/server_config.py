"""The configuration file of our own nats-server, as text.

Two ways to authenticate: one user and password for a server that only this machine reaches, or
accounts whose logins we sign (`accounts`). Nothing else opens a port.
"""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.engines.nats.server.accounts import Accounts
from antiphon.engines.nats.server.certificates import TlsFiles
from antiphon.ports import APPENDS_AT_ONCE

MAX_LOGIN_BYTES = 32 * 1024
"""A member's login names the queues of up to 40 kinds; the server's own bound is 4 kB. It bounds
subjects too, and the server's files break on those of 64 kB."""
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_BATCH_RECORDS = APPENDS_AT_ONCE
"""Records of one atomic batch: as many as we send in one at most."""
MAX_OPEN_BATCHES = 8
"""Of one stream. A replicated stream keeps open batches in memory, and any member may open them;
while none is free, the others write one by one. One of ours is open for about 10 ms."""
MAX_OPEN_BATCHES_TOTAL = 32

Sync = Literal["always", "default"]

LOG_FILE = "server.log"
OPEN_ACCOUNT = "MESHES"
"""The account with the streams of a server that has a user and a password."""
LOGIN_WITHIN_S = 10
LOG_BYTES = 16 * 1024 * 1024
LOG_FILES = 3
"""The one that is written, and those before it."""


class Credentials(Struct, frozen=True):
    """A user name and a password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, password=…)"


class ServerUser(Struct, frozen=True):
    """A further user of the meshes' account, who may use only the given subjects."""

    user: str
    password: str
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ServerUser(user={self.user!r}, …)"


Passwords: TypeAlias = tuple[Credentials, Credentials, tuple[ServerUser, ...]]
"""Of the meshes' account, of the system account, and of further users."""


class Storage(Struct, frozen=True):
    """What JetStream keeps, and how."""

    directory: Path
    sync: Sync
    max_bytes: int = 0
    """0: as much as the disk holds."""


def server_config(
    *,
    directory: Path,
    listen: str,
    ports_dir: Path,
    storage: Storage,
    login: Passwords | Accounts,
    tls: TlsFiles | None,
) -> str:
    """The whole file."""
    jetstream = [
        f"store_dir: {_quoted(storage.directory)}",
        "limits {",
        f"  batch {{ max_msgs: {MAX_BATCH_RECORDS}, max_inflight_per_stream: {MAX_OPEN_BATCHES}, "
        f"max_inflight_total: {MAX_OPEN_BATCHES_TOTAL} }}",
        "}",
    ]
    if storage.sync == "always":
        jetstream.append("sync_interval: always")
    if storage.max_bytes:
        jetstream.append(f"max_file_store: {storage.max_bytes}")
    return "\n".join(
        [
            f"server_name: antiphon-{zlib.crc32(str(directory).encode()):08x}",
            f"listen: {json.dumps(listen)}",
            f"ports_file_dir: {_quoted(ports_dir)}",
            f"max_payload: {MAX_PAYLOAD_BYTES}",
            f"max_control_line: {MAX_LOGIN_BYTES}",
            # Each refused message is logged, and a client that is refused may keep sending.
            f"log_file: {_quoted(directory / LOG_FILE)}",
            f"logfile_size_limit: {LOG_BYTES}",
            f"logfile_max_num: {LOG_FILES}",
            'write_deadline: "10s"',
            # The server's own 2 s are over before a busy machine has signed its login.
            f"authorization {{ timeout: {LOGIN_WITHIN_S} }}",
            'ping_interval: "20s"',
            "ping_max: 2",
            "jetstream {",
            *(f"  {line}" for line in jetstream),
            "}",
            *_tls(tls),
            *(_operator(login, directory) if isinstance(login, Accounts) else _passwords(*login)),
            "",
        ]
    )


def _tls(files: TlsFiles | None) -> list[str]:
    if files is None:
        return []
    return [
        "tls {",
        f"  cert_file: {_quoted(files.certificate)}",
        f"  key_file: {_quoted(files.key)}",
        "  timeout: 5",
        "}",
    ]


def _operator(accounts: Accounts, directory: Path) -> list[str]:
    """Accounts by their signatures, with the revocations known here.

    So a server that was down when a login was revoked learns it when it starts.
    """
    now_s = int(time.time())
    preload = accounts.account_jwts(now_s)
    return [
        f"operator: {json.dumps(accounts.operator_jwt(now_s))}",
        f"system_account: {accounts.keys.system.public}",
        "resolver {",
        "  type: full",
        f"  dir: {_quoted(directory / 'jwt')}",
        "  allow_delete: false",
        '  interval: "2m"',
        "}",
        "resolver_preload {",
        *(f"  {account}: {json.dumps(jwt)}" for account, jwt in preload.items()),
        "}",
    ]


def _passwords(mesh: Credentials, system: Credentials, users: tuple[ServerUser, ...]) -> list[str]:
    return [
        "accounts {",
        f"  {OPEN_ACCOUNT} {{",
        "    jetstream: enabled",
        "    users: [",
        f"      {{user: {mesh.user}, password: {json.dumps(mesh.password)}}}",
        *(f"      {_user_line(one)}" for one in users),
        "    ]",
        "  }",
        "  SYS {",
        f"    users: [{{user: {system.user}, password: {json.dumps(system.password)}}}]",
        "  }",
        "}",
        "system_account: SYS",
    ]


def _user_line(one: ServerUser) -> str:
    permissions = {"publish": list(one.publish), "subscribe": list(one.subscribe)}
    return (
        f"{{user: {json.dumps(one.user)}, password: {json.dumps(one.password)}, "
        f"permissions: {json.dumps(permissions)}}}"
    )


def _quoted(path: Path) -> str:
    return json.dumps(str(path))
