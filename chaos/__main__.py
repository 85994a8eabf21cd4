"""`python -m chaos <what>`: each prints one JSON object as its last line (docs/evidence.md)."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = (
    "audit",
    "clock",
    "coordinator",
    "documents",
    "drain",
    "escape",
    "extremes",
    "gitface",
    "hostile",
    "liar",
    "locks",
    "messages",
    "offline",
    "outsider",
    "partition",
    "pulse",
    "questions",
    "restore",
    "stale",
    "steps",
    "tamper",
    "workers",
)
FOLDERS = {"audit": "models"}
"""Where a command is, if not in a folder of its name: `chaos/audit` is what all of them share."""


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(f"usage: python -m chaos {{{'|'.join(COMMANDS)}}} [--quick] …", file=sys.stderr)
        return 2
    name = sys.argv[1]
    command = import_module(f"chaos.{FOLDERS.get(name, name)}.command")
    return int(command.main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
