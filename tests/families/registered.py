"""Antiphon with polls: the one line that registers the family, and then any program.

    python -m tests.families.registered antiphon show pizza
    python -m tests.families.registered tests.families.hosted DIRECTORY

Everything that is imported afterwards finds the protocol with polls, as if the line stood in
`antiphon.core.protocol`.
"""

import runpy
import sys

from antiphon.core import protocol
from tests.families.polls import POLLS

protocol.PROTOCOL = protocol.PROTOCOL.adding(POLLS)

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "antiphon":
        from antiphon.interfaces.cli import main

        sys.exit(main())
    runpy.run_module(sys.argv[0], run_name="__main__")
