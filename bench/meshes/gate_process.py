"""The host of a mesh with members: its server and its gate, and nothing else.

A process of its own, so that the processor time of the gate can be told from that of the others;
`antiphon up` is the same with a full node beside it. Prints `ready` with the process id of the
server, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from antiphon import assembly
from antiphon.assembly import hosted_mesh
from antiphon.core.authority.rules import Rules
from antiphon.runtime.identity.state_directory import StateDirectory
from bench.meshes.event_loop import run

LOOPBACK = "127.0.0.1"


async def serve(home: StateDirectory) -> None:
    listen = hosted_mesh.Listen(host=LOOPBACK, port=0, names=(LOOPBACK,))
    async with (
        hosted_mesh.secured_server(home, name="bench", listen=listen, rules=Rules()) as hosted,
        assembly.join(home, "node") as connection,
        hosted_mesh.gatekeeping(home, connection.session),
    ):
        print(f"ready {hosted.server.pid}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    # The server has to be stopped, so only the end of standard input ends this process.
    # Not SIG_IGN, which the server would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    run(serve(StateDirectory(parser.parse_args().home)))


if __name__ == "__main__":
    main()
