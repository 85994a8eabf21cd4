"""`python -m simulator.messages`: simulated inboxes while gates crash."""

from __future__ import annotations

import sys

from simulator.messages.command import main

if __name__ == "__main__":
    sys.exit(main())
