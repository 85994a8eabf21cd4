"""`python -m simulator.archive`: simulated days of a log that is archived and purged."""

from __future__ import annotations

import sys

from simulator.archive.command import main

if __name__ == "__main__":
    sys.exit(main())
