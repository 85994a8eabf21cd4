"""`python -m simulator.mutants`: deliberate bugs, hunted one at a time (docs/evidence.md)."""

from __future__ import annotations

import sys

from simulator.mutants.command import main

if __name__ == "__main__":
    sys.exit(main())
