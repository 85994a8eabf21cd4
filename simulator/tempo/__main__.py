"""`python -m simulator.tempo`: simulated half hours of beats (docs/evidence.md)."""

from __future__ import annotations

import sys

from simulator.tempo.command import main

if __name__ == "__main__":
    sys.exit(main())
