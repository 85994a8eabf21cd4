"""A process that asks a node every fifth of a second whether it is alive, on a new connection.

A process of its own, so that a flooder does not slow it. Each line on standard input has it tell
the longest time until an answer since the line before; beside it that of the sink, which shows how
much of it is this machine's.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from chaos.network.http_wire import is_healthy

EVERY_S = 0.2
PATIENCE_S = 30.0
"""A node that does not answer for so long is not waited for any longer."""


class Probes:
    """The probes of one port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.count = 0
        self._worst_s = 0.0
        self._begun_s: float | None = None
        """When the probe began that is under way."""

    async def run(self) -> None:
        """Probe again and again."""
        while True:
            begun_s = self._begun_s = time.monotonic()
            self._worst_s = max(self._worst_s, await is_healthy(self.port, PATIENCE_S))
            self._begun_s = None
            self.count += 1
            await asyncio.sleep(max(EVERY_S - (time.monotonic() - begun_s), 0.0))

    def taken_worst_s(self) -> float:
        """The longest since it was asked for, also of one that is not answered yet."""
        waits_s = 0.0 if self._begun_s is None else time.monotonic() - self._begun_s
        worst_s, self._worst_s, self.count = max(self._worst_s, waits_s), 0.0, 0
        return worst_s


async def main(*ports: str) -> None:
    """Probe these: a node, and a sink if there is one."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    all_probes = [Probes(int(port)) for port in ports]
    running = [asyncio.ensure_future(one.run()) for one in all_probes]
    print(json.dumps({"event": "ready"}), flush=True)
    while await lines.readline():
        count = all_probes[0].count
        worst_s = [one.taken_worst_s() for one in all_probes]
        print(json.dumps({"event": "probed", "worst_s": worst_s, "probes": count}), flush=True)
    for task in running:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
