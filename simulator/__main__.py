"""`python -m simulator`: simulated cluster-hours of faults (docs/evidence.md)."""

from __future__ import annotations

import sys

from simulator.seeds.command import main

if __name__ == "__main__":
    sys.exit(main())
