"""`python -m antiphon` is the command `antiphon`."""

import sys

from antiphon.interfaces.cli.application import run

if __name__ == "__main__":
    sys.exit(run())
