"""Antiphon with polls: the two lines that register the family, and then any program.

    python -m tests.families.registered antiphon poll ls
    python -m tests.families.registered tests.families.hosted DIRECTORY

Everything that is imported after the first line finds the protocol with polls, as if it stood in
`antiphon.core.protocol`. Its command is found where it lies.
"""

import runpy
import sys
from pathlib import Path

from antiphon.core import protocol
from tests.families.polls import POLLS

protocol.PROTOCOL = protocol.PROTOCOL.adding(POLLS)


def register() -> None:
    """What the recipe writes on `Mesh`; imported late, with the protocol."""
    from antiphon import Mesh
    from antiphon.interfaces.cli import commands
    from antiphon.sdk.connection.namespace import Namespace

    Mesh.polls = Namespace("tests.families.polls.namespace.Polls")
    Mesh.polls.__set_name__(Mesh, "polls")
    commands.__path__.append(str(Path(__file__).parent / "polls" / "commands"))


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    register()
    if sys.argv[0] == "antiphon":
        from antiphon.interfaces.cli import main

        sys.exit(main())
    runpy.run_module(sys.argv[0], run_name="__main__")
