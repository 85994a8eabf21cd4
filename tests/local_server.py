"""One nats-server for many tests: started when first asked for, ended when the process ends.

For code that cannot enter an async context manager, such as a pytest fixture that outlives an
event loop. Everything else enters `antiphon.engines.nats.LocalServer` itself.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.engines.nats import LocalServer
from antiphon.engines.nats.server.process import Sync

_shared: list[LocalServer] = []


def shared_server() -> LocalServer:
    """The server that every test of this process may use, each with its own mesh."""
    if not _shared:
        server = LocalServer()
        server.start_now()
        atexit.register(_end, server)
        _shared.append(server)
    return _shared[0]


@contextmanager
def running_server(*, sync: Sync = "always") -> Iterator[LocalServer]:
    """A server for the length of a `with` block, without an event loop."""
    server = LocalServer(sync=sync)
    server.start_now()
    try:
        yield server
    finally:
        _end(server)


def _end(server: LocalServer) -> None:
    server.stop_now()
    server.remove()
