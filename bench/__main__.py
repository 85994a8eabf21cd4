"""`python -m bench <what>`: each prints one JSON object as its last line (docs/evidence.md)."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "apply": "bench.apply",
    "archive": "bench.archive",
    "artifacts": "bench.artifacts",
    "authority": "bench.authority",
    "counts": "bench.counts.command",
    "fairness": "bench.fairness.command",
    "flames": "bench.flames.command",
    "graph": "bench.graph.command",
    "growth": "bench.growth.command",
    "lanes": "bench.lanes",
    "latency": "bench.latency.command",
    "lifecycle": "bench.lifecycle.command",
    "load": "bench.load.command",
    "logins": "bench.logins",
    "many": "bench.many.command",
    "metrics": "bench.metrics.command",
    "pages": "bench.pages.command",
    "peers": "bench.peers.command",
    "presence": "bench.presence",
    "queries": "bench.queries",
    "replay": "bench.replay",
    "scale": "bench.scale.command",
    "tempo": "bench.tempo",
    "writes": "bench.writes.command",
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(f"usage: python -m bench {{{'|'.join(COMMANDS)}}} [--quick] …", file=sys.stderr)
        return 2
    command = import_module(COMMANDS[sys.argv[1]])
    return int(command.main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
